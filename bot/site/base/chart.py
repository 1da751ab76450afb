"""A chart as data: what it says in Vega-Lite, its figures, the table behind it, and a drawing that
needs no script. Pure.

The figures are a script file that calls `regatta.take`, since a page opened from file:// may load
scripts and may not read files. `static/charts.js` loads it, and `vega.js` once for all charts, when
the chart comes into view; until then, on paper and without scripts, the drawing stands there.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import vl_convert

from bot.site.base.drawn import Drawing

Columns = Mapping[str, Sequence[Any]]  # equally long, by name
ROWS = 20  # of a table that stand on the page; the script shows the rest


@dataclass(frozen=True)
class Smooth:
    """Which lines can be smoothed. `y` stays, and the script adds `smooth` beside it: an
    exponential mean whose memory is counted in x, so that uneven points weigh as they should."""

    data: str
    x: str
    y: str
    line: str  # the column that tells lines apart


@dataclass(frozen=True)
class Chart:
    """One chart of a page."""

    name: str  # its id on the page, and the prefix of its state in links
    title: str
    words: str  # what it shows, for who does not see it
    spec: Mapping[str, Any]  # Vega-Lite whose data are named and not in it
    data: Mapping[str, Columns]
    script: str  # where its figures lie, below the site's folder
    table: str  # which of the data stand behind it
    columns: Mapping[str, str]  # of the table: column, heading
    drawing: Drawing
    # {column: (of which other column, times what)}; so that a file holds no column twice
    derived: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    choices: Mapping[Literal["x", "y"], Mapping[str, str]] = field(default_factory=dict)
    logs: Sequence[Literal["x", "y"]] = ("x", "y")  # axes that can be logarithmic
    logged: Sequence[Literal["x", "y"]] = ()  # and are, at first
    smooth: Smooth | None = None
    note: str | None = None  # a sentence below it

    @property
    def rows(self) -> list[list[Any]]:
        """The table's first rows."""
        kept = self._table()
        return [list(row) for row in zip(*(column[:ROWS] for column in kept), strict=True)]

    @property
    def length(self) -> int:
        """How many rows the table has."""
        return max((len(column) for column in self._table()), default=0)

    def _table(self) -> list[Sequence[Any]]:
        return [self._column(name) for name in self.columns] if self.data[self.table] else []

    def _column(self, name: str) -> Sequence[Any]:
        data = self.data[self.table]
        if name in data:
            return data[name]
        of, times = self.derived[name]
        return [value * times for value in data[of]]

    def source(self, **more: Any) -> str:
        """The script file: all of the above, and what else a page wants to keep with it."""
        body = {
            "spec": self.spec,
            "data": {name: dict(columns) for name, columns in self.data.items()},
            "derived": self.derived,
            "table": self.table,
            "columns": self.columns,
            "choices": self.choices,
            "smooth": vars(self.smooth) if self.smooth else None,
            **more,
        }
        return taken(self.script, body)


def taken(path: str, body: Mapping[str, Any]) -> str:
    """A script file that hands over `body` under its own path. Raises ValueError for a figure that
    is no number."""
    words = json.dumps(body, separators=(",", ":"), allow_nan=False)
    return f"regatta.take({json.dumps(path)},{words});\n"


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no network."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"(() => {{{bundle}}})();\n"  # else its names are everybody's


def rounded(value: float | None, digits: int = 6) -> Any:
    """A figure with so many digits, as a chart shows no more and files are shorter; None of what is
    no number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def columns(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """Rows that have the same names, by column."""
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            found[name].append(value)
    return found
