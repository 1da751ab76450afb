"""A chart as data: its Vega-Lite description, its figures, the table behind it, and a drawing that
needs no script. Pure.

The figures are a script that calls `regatta.take`, because a page opened from file:// may load
scripts but not read files. `static/charts.js` loads it, and `vega.js` once for all charts, when the
chart comes into view; until then, on paper and without scripts, the page shows the drawing.
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

Columns = Mapping[str, Sequence[Any]]  # of equal length, by name
ROWS = 20  # rows of a table on the page; the script shows the rest


@dataclass(frozen=True)
class Smooth:
    """The lines that can be smoothed. `y` stays, and the script adds `smooth` beside it: an
    exponential mean with its time constant in units of x, so that uneven points have the right
    weights."""

    data: str
    x: str
    y: str
    line: str  # the column that identifies lines


@dataclass(frozen=True)
class Chart:
    """One chart of a page."""

    name: str  # its id on the page, and the prefix of its state in links
    title: str
    words: str  # what it shows, as a text alternative
    spec: Mapping[str, Any]  # Vega-Lite with named data, which is separate
    data: Mapping[str, Columns]
    script: str  # the path of its figures, below the site's folder
    table: str  # which of the data are in the table
    columns: Mapping[str, str]  # of the table: column, heading
    drawing: Drawing
    # {column: (the column it is derived from, a factor)}, to keep the file small
    derived: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    choices: Mapping[Literal["x", "y"], Mapping[str, str]] = field(default_factory=dict)
    logs: Sequence[Literal["x", "y"]] = ("x", "y")  # axes that can be logarithmic
    logged: Sequence[Literal["x", "y"]] = ()  # and are so at first
    smooth: Smooth | None = None
    note: str | None = None  # a sentence below it
    part: str = ""  # of the script, if that is another chart's
    # Where an axis ends whatever the figures are, by column: a live chart ends at what was planned.
    ends: Mapping[str, float] = field(default_factory=dict)

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

    def source(self, parts: "Mapping[str, Chart] | None" = None, **more: Any) -> str:
        """The script file: all of the above, smaller charts by name, and further data of the
        page."""
        found = {"parts": {name: one.body for name, one in parts.items()}} if parts else {}
        return taken(self.script, {**self.body, **found, **more})

    @property
    def body(self) -> dict[str, Any]:
        """What the script needs to draw it."""
        return {
            "spec": self.spec,
            "data": {name: dict(columns) for name, columns in self.data.items()},
            "derived": self.derived,
            "table": self.table,
            "columns": self.columns,
            "choices": self.choices,
            "smooth": vars(self.smooth) if self.smooth else None,
            **({"ends": self.ends} if self.ends else {}),
        }


def taken(path: str, body: Mapping[str, Any]) -> str:
    """A script file that passes `body` on under its own path. Raises ValueError for nan and
    infinity."""
    words = json.dumps(body, separators=(",", ":"), allow_nan=False)
    return f"regatta.take({json.dumps(path)},{words});\n"


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no network."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"(() => {{{bundle}}})();\n"  # keeps its names out of the global scope


def rounded(value: float | None, digits: int = 6) -> Any:
    """A figure with so many digits, which is all a chart shows and keeps files short; None for nan
    and infinity."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def columns(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """Rows with equal names, as columns."""
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            found[name].append(value)
    return found
