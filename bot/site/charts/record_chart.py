"""The chart of a leaderboard's rows by date, with the record as steps."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt

from bot.site.base.chart import Chart, columns, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.charts.curves import plain
from bot.site.facts.frontier import Broken
from bot.site.facts.leaderboard import Row
from runner.schema import metrics

DRAWN = 1000  # rows without a script; the best are enough


def chart(
    rows: Sequence[Row], broken: Sequence[Broken], metric: str, *, script: str, height: int
) -> Chart:
    """All rows of a leaderboard (best first) by the date of their result, and its records (newest
    first)."""
    steps = [(one.row.ended.timestamp(), one.row.mean, one.row.arm) for one in reversed(broken)]
    last = max((row.ended.timestamp() for row in rows), default=0.0)
    line = [*steps, *((last, steps[-1][1], "") for _ in range(bool(steps)))]
    what = metrics.what(metric)
    title = f"{what.unit or what.words}, {metrics.better(metric)} is better"
    title = title[:1].upper() + title[1:]
    said = "; ".join(
        f"{one.row.arm} {one.row.mean:.3f} on {one.row.ended:%Y-%m-%d}" for one in broken[:12]
    )
    return Chart(
        name="records",
        title="Record over time",
        words=f"{title}, of each row over the date of its result, and the record. Records, the "
        f"newest first: {said or 'none, because no row has two seeds'}.",
        spec=_spec(title, height, bool(steps)),
        data={
            "rows": columns(
                {
                    "arm": row.arm,
                    "experiment": row.entry.plan.title,
                    "day": f"{row.ended:%Y-%m-%d %H:%M}",
                    "at": round(row.ended.timestamp() * 1000),
                    "mean": rounded(row.mean),
                }
                for row in rows
            ),
            "records": columns(
                {"at": round(at * 1000), "mean": rounded(mean), "name": name}
                for at, mean, name in line
            ),
        },
        script=script,
        table="rows",
        columns={"day": "Ended", "arm": "Row", "experiment": "Experiment", "mean": title},
        drawing=drawing(rows, line, title),
        logs=(),
        note="The line is the record. Dots: all rows.",
    )


def drawing(rows: Sequence[Row], line: Sequence[tuple[float, float, str]], title: str) -> Drawing:
    """The same without a script."""
    shown = [(row.ended.timestamp(), row.mean) for row in rows[:DRAWN]]
    return Drawing(
        Axis("", time=True),
        Axis(title),
        [
            Mark(shown, "dots", 6, faint=True),
            Mark([(at, mean) for at, mean, _ in line], "steps", 1),
            Mark(
                [(at, mean) for at, mean, name in line if name],
                "dots",
                1,
                names=tuple(name for *_, name in line if name),
            ),
        ],
    )


@cache
def _spec(title: str, height: int, has_records: bool) -> Mapping[str, Any]:
    x = alt.X("at:T").title(None).scale(type="utc").axis(tickCount=5, grid=False)
    y = alt.Y("mean:Q").title(title).scale(zero=False, padding=10)
    rows = (
        alt.Chart(alt.NamedData("rows"))
        .mark_point(filled=True, size=22, opacity=0.4, color=alt.expr("quiet"))
        .encode(
            x=x,
            y=y,
            tooltip=[
                "arm:N",
                "experiment:N",
                alt.Tooltip("mean:Q", format=".4f"),
                alt.Tooltip("day:N", title="ended"),
            ],
        )
    )
    records = alt.Chart(alt.NamedData("records")).encode(x=x, y=y)
    line = records.mark_line(interpolate="step-after", strokeWidth=2, color=alt.expr("second"))
    names = records.mark_text(
        align="left", baseline="bottom", dx=4, dy=-3, fontSize=11, limit=110, color=alt.expr("ink")
    ).encode(text="name:N")
    layers = [rows, line, names] if has_records else [rows]
    return plain(alt.layer(*layers, height=height, width="container"))
