"""The chart of the rows of a leaderboard or a track by date, with the record as steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

import altair as alt

from bot.site.base import drawn
from bot.site.base.chart import Chart, columns, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.charts.curves import NAMES, layered

DRAWN = 1000  # rows without a script; the best are enough


@dataclass(frozen=True)
class Dated:
    """A row of a board or a track: what it reached, and when."""

    name: str
    of: str  # its experiment or its author
    at: datetime
    value: float


def chart(
    rows: Sequence[Dated],
    records: Sequence[Dated],
    title: str,
    *,
    name: str = "records",
    heading: str = "Record over time",
    of: str = "Experiment",
    script: str,
    height: int,
) -> Chart:
    """All rows (best first) by date, and the records (oldest first) as steps. `title`: of the
    values."""
    title = title[:1].upper() + title[1:]
    steps = [(one.at.timestamp(), one.value, one.name) for one in records]
    last = max((row.at.timestamp() for row in rows), default=0.0)
    line = [*steps, *((last, steps[-1][1], "") for _ in range(bool(steps)))]
    said = "; ".join(
        f"{one.name} {one.value:.4g} on {one.at:%Y-%m-%d}" for one in [*reversed(records)][:12]
    )
    return Chart(
        name=name,
        title=heading,
        words=f"{title}, of each row over the date of its result, and the record. Records, the "
        f"newest first: {said or 'none, because no row has two seeds'}.",
        spec=_spec(title, height, bool(steps)),
        data={
            "rows": columns(
                {
                    "name": row.name,
                    "of": row.of,
                    "day": f"{row.at:%Y-%m-%d %H:%M}",
                    "at": round(row.at.timestamp() * 1000),
                    "value": rounded(row.value),
                }
                for row in rows
            ),
            "records": columns(
                {"at": round(at * 1000), "value": rounded(value), "name": name}
                for at, value, name in line
            ),
        },
        script=script,
        table="rows",
        columns={"day": "Ended", "name": "Row", "of": of, "value": title},
        drawing=replace(drawing(rows, line, title), height=drawn.beside(height)),
        logs=(),
        note="The line is the record. Dots: all rows.",
    )


def drawing(rows: Sequence[Dated], line: Sequence[tuple[float, float, str]], title: str) -> Drawing:
    """The same without a script."""
    shown = [(row.at.timestamp(), row.value) for row in rows[:DRAWN]]
    return Drawing(
        Axis("", time=True),
        Axis(title),
        [
            Mark(shown, "dots", 6, faint=True),
            Mark([(at, value) for at, value, _ in line], "steps", 1),
            Mark(
                [(at, value) for at, value, name in line if name],
                "dots",
                1,
                names=tuple(name for *_, name in line if name),
            ),
        ],
    )


@cache
def _spec(title: str, height: int, has_records: bool) -> Mapping[str, Any]:
    x = alt.X("at:T").title(None).scale(type="utc").axis(tickCount=5, grid=False)
    y = alt.Y("value:Q").title(title).scale(zero=False, padding=10)
    y = y.axis(tickCount=max(height // 40, 3))
    rows = (
        alt.Chart(alt.NamedData("rows"))
        .mark_point(filled=True, size=22, opacity=0.4, color=alt.expr("quiet"))
        .encode(
            x=x,
            y=y,
            tooltip=[
                "name:N",
                "of:N",
                alt.Tooltip("value:Q", format=".4~g"),
                alt.Tooltip("day:N", title="ended"),
            ],
        )
    )
    records = alt.Chart(alt.NamedData("records")).encode(x=x, y=y)
    line = records.mark_line(interpolate="step-after", strokeWidth=2, color=alt.expr("second"))
    names = records.mark_text(**NAMES, baseline="bottom", dy=-3).encode(text="name:N")
    layers = [rows, line, names] if has_records else [rows]
    return layered(*layers, height=height)
