"""Tables that may have thousands of rows. Pure.

A page contains the first rows. Script files contain all of them, as the same HTML with their keys
for sorting and filtering; `static/rows.js` loads these on demand.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jinja2

from bot.site.base.chart import taken
from bot.site.base.files import File, made_from

SHOWN = 50  # rows on a page
CHUNK = 1_000  # rows in a script file


@dataclass(frozen=True)
class Rows:
    """The rows of one table. `keys` gives a row's keys for sorting (a figure, a text, None without
    a value) and filtering (one text or several); `text` is what the search finds, in lower case."""

    name: str  # of its files: `<name>.0.js`, …
    id: str  # of the table on its page
    lines: Sequence[Any]
    keys: Callable[[Any], Mapping[str, Any]]
    template: str  # with a macro `row(line)`
    names: Mapping[str, Any]  # for the template
    newest_first: bool = False  # on the page; scripts have them in the order of `lines`
    told: Sequence[str] = ()  # of each line, a text or a digest of what its row says

    @property
    def first(self) -> Sequence[Any]:
        """The rows on the page."""
        return self.lines[: -SHOWN - 1 : -1] if self.newest_first else self.lines[:SHOWN]

    @property
    def total(self) -> int:
        """The number of rows."""
        return len(self.lines)

    @property
    def chunks(self) -> list[str]:
        """The paths of the scripts."""
        return [f"{self.name}.{n}.js" for n in range(-(-len(self.lines) // CHUNK))]

    @cached_property
    def keyed(self) -> list[Mapping[str, Any]]:
        """The keys of each row."""
        return [self.keys(line) for line in self.lines]

    def choices(self, key: str) -> list[str]:
        """The values to filter by."""
        every = (keys[key] for keys in self.keyed)
        each = (one if isinstance(one, list) else [one] for one in every)
        return sorted({str(value) for values in each for value in values})

    def files(self, pages: jinja2.Environment, made: str | None = None) -> Iterator[File]:
        """The scripts; `made` as for a `File`, and with it `told`, if there is any."""
        for n, path in enumerate(self.chunks):
            told = self.told[n * CHUNK : (n + 1) * CHUNK]
            of = made_from(made or "", *told) if told else made
            yield File(path, partial(self._chunk, n, path, pages), of)

    def _chunk(self, n: int, path: str, pages: jinja2.Environment) -> str:
        # The table may be on pages in different folders, so the script fills in the root.
        module: Any = pages.get_template(self.template).make_module(
            {"root": "{root}", **self.names}
        )
        part = slice(n * CHUNK, (n + 1) * CHUNK)
        both = zip(self.lines[part], self.keyed[part], strict=True)
        rows = [[str(module.row(line)), *keys.values()] for line, keys in both]
        keys = list(self.keyed[0]) if rows else []
        return taken(path, {"keys": keys, "rows": rows})
