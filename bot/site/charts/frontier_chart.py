"""The chart of cost against quality, with the frontier: of a board, and of a track."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import altair as alt

from bot.site.base.chart import Chart, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.charts.curves import plain
from bot.site.facts.frontier import Front

QUALITY = "Bits per byte, lower is better"
DRAWN = 1000  # a picture of thousands of rows is mostly one cloud; the best tell as much


@dataclass(frozen=True)
class Point:
    """A row on the chart."""

    arm: str
    experiment: str
    mean: float  # bits per byte
    band: tuple[float, float]  # mean ± spread
    tier: str
    seeds: int
    costs: Mapping[str, float | None]
    fronts: Mapping[str, Front]  # by cost


def chart(
    points: Sequence[Point], costs: Mapping[str, str], *, name: str, script: str, note: str
) -> Chart:
    """What each row costs against how good it is. `costs` are titles by name; the first is shown
    until somebody chooses another."""
    first, title = next(iter(costs.items()))
    columns: dict[str, list[Any]] = {
        "arm": [one.arm for one in points],
        "experiment": [one.experiment for one in points],
        "mean": [rounded(one.mean) for one in points],
        "low": [rounded(one.band[0]) for one in points],
        "high": [rounded(one.band[1]) for one in points],
        "tier": [one.tier for one in points],
        "seeds": [one.seeds for one in points],
    }
    on = [one for one in points if "on" in one.fronts.values()]
    edge: dict[str, list[Any]] = {"mean": [rounded(one.mean) for one in on]}
    for cost in costs:
        columns[cost] = [_rounded(one.costs[cost]) for one in points]
        edge[cost] = [_rounded(one.costs[cost]) if one.fronts[cost] == "on" else None for one in on]
        if on:  # what costs more than the best row buys nothing so far
            edge[cost].append(max((x for x in columns[cost] if x is not None), default=None))
    if on:
        edge["mean"].append(min(edge["mean"]))
    front = [(one.costs[first] or 0.0, one) for one in on if one.fronts[first] == "on"]
    front.sort(key=lambda pair: pair[0])
    words = "; ".join(f"{one.arm} {one.mean:.3f} at {cost:.2e}" for cost, one in front[:12])
    return Chart(
        name=name,
        title="What quality costs",
        words=f"Bits per byte of each row over {title[0].lower()}{title[1:]} of one run, with the "
        "spread over seeds. On the Pareto frontier: "
        f"{words or 'no row, since none has two seeds'}.",
        spec=frontier_spec(first, title),
        data={"rows": columns, "frontier": edge},
        script=script,
        table="rows",
        columns={"arm": "Row", "experiment": "Of", "tier": "Tier", "seeds": "Seeds"}
        | dict(costs)
        | {"mean": "Bits per byte", "low": "Mean − spread", "high": "Mean + spread"},
        drawing=_drawing(points, first, title, [(cost, one.mean) for cost, one in front]),
        choices={"x": costs},
        logs=("x", "y"),
        logged=("x",),
        note="The line is the frontier: no row that costs as little has a better mean. "
        f"Costs are those of one run{note}. Hollow: one seed, or runs missing.",
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def _drawing(
    points: Sequence[Point], cost: str, title: str, front: Sequence[tuple[float, float]]
) -> Drawing:
    shown = [(x, one) for one in points[:DRAWN] if (x := one.costs[cost]) is not None]
    edge = [*front, (max(x for x, _ in shown), front[-1][1])] if front else []
    return Drawing(
        Axis(title, log=True),
        Axis("Bits per byte"),
        [
            Mark([(x, *one.band) for x, one in shown], "whiskers", 6, faint=True),
            Mark([(x, one.mean) for x, one in shown], "dots", 0),
            Mark(edge, "steps", 1),
        ],
    )


@cache
def frontier_spec(cost: str, title: str) -> Mapping[str, Any]:
    """Rows with their spread, and the frontier as steps, in Vega-Lite."""
    x = alt.X(f"{cost}:Q").title(title).scale(type="log", nice=False, padding=12)
    x = x.axis(format=".0e", tickCount=6, labelOverlap=True)
    y = alt.Y("mean:Q").title(QUALITY).scale(zero=False, padding=10)
    rows = alt.Chart(alt.NamedData("rows"))
    spread = rows.mark_rule(opacity=0.5, color=alt.expr("quiet")).encode(
        x=x, y=alt.Y("low:Q").scale(zero=False), y2="high:Q"
    )
    certain = alt.datum.low != alt.datum.high
    dots = rows.mark_point(size=45, strokeWidth=1.5, filled=False).encode(
        x=x,
        y=y,
        color=alt.Color("tier:N").title(None).legend(orient="top", offset=30),
        fillOpacity=alt.when(certain).then(alt.value(0.85)).otherwise(alt.value(0)),
        fill=alt.Fill("tier:N").title(None).legend(orient="top", offset=30),
        tooltip=[
            "arm:N",
            "experiment:N",
            alt.Tooltip("mean:Q", format=".4f", title="bits per byte"),
            alt.Tooltip("low:Q", format=".4f", title="mean − spread"),
            alt.Tooltip("high:Q", format=".4f", title="mean + spread"),
            alt.Tooltip(f"{cost}:Q", format=".2e", title=title),
            "seeds:Q",
        ],
    )
    edge = (
        alt.Chart(alt.NamedData("frontier"))
        .mark_line(
            interpolate="step-after", strokeWidth=2, color=alt.expr("second"), invalid="filter"
        )
        .encode(x=x, y=y)
    )
    return plain(alt.layer(spread, edge, dots, height=340, width="container"))
