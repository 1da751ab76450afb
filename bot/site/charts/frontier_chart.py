"""The chart of quality against cost with the frontier: for a leaderboard, and for a track."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import altair as alt

from bot.site.base import drawn
from bot.site.base.chart import Chart, columns, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.charts.curves import NAMES, layered
from bot.site.facts.frontier import Point
from runner.schema import metrics
from runner.schema.metrics import BPB

# A cost at an axis, as tables write it: 4.34e11, 870k.
COST = (
    "datum.value >= 1e10 ? replace(format(datum.value, '.3~e'), 'e+', 'e') : "
    "replace(format(datum.value, '.3~s'), 'G', 'B')"
)
DRAWN = 1000  # thousands of rows would be one cloud; the best are enough


def chart(
    points: Sequence[Point],
    costs: Mapping[str, str],
    *,
    name: str,
    title: str,
    script: str,
    height: int,
) -> Chart:
    """The quality of each row against its cost. `costs` are titles by name; the first is shown
    until the reader chooses another."""
    first, cost_title = next(iter(costs.items()))
    metric = points[0].metric if points else BPB
    what = metrics.what(metric)
    quality = (what.unit or what.words)[:1].upper() + (what.unit or what.words)[1:]
    rows = [
        {
            "arm": one.name,
            "experiment": one.of,
            "mean": rounded(one.summary.middle),
            "low": rounded(one.summary.band[0]),
            "high": rounded(one.summary.band[1]),
            "tier": one.tier,
            "seeds": one.summary.n,
            **{cost: rounded(one.costs[cost]) for cost in costs},
        }
        for one in points
    ]
    edge = [
        {"mean": row["mean"], "name": row["arm"]}
        | {cost: row[cost] if one.fronts[cost] == "on" else None for cost in costs}
        for row, one in zip(rows, points, strict=True)
        if "on" in one.fronts.values()
    ]
    if edge:  # a higher cost than the best row's gains nothing so far
        dearest = {
            cost: max((row[cost] for row in rows if row[cost] is not None), default=None)
            for cost in costs
        }
        best = max if metrics.better(metric) == "higher" else min
        edge.append({"mean": best(row["mean"] for row in edge), "name": "", **dearest})
    on = [one for one in points if one.fronts[first] == "on"]
    on.sort(key=lambda one: one.costs[first] or 0.0)
    words = "; ".join(
        f"{one.name} {one.summary.middle:.3f} at {one.costs[first]:.2e}" for one in on[:12]
    )
    return Chart(
        name=name,
        title=title,
        words=f"{quality} of each row over {cost_title[0].lower()}{cost_title[1:]} of one run, "
        "with the spread over seeds. On the Pareto frontier: "
        f"{words or 'no row, because none has two seeds'}.",
        spec=frontier_spec(
            first,
            cost_title,
            f"{quality}, {metrics.better(metric)} is better",
            height,
            bool(edge),
            len({one.tier for one in points}) > 1,
        ),
        data={"rows": columns(rows), "frontier": columns(edge)},
        script=script,
        table="rows",
        columns={
            "arm": "Row",
            "experiment": "Experiment or author",
            "tier": "Who ran it",
            "seeds": "Seeds",
        }
        | dict(costs)
        | {"mean": quality, "low": "Mean − SD", "high": "Mean + SD"},
        drawing=replace(
            _drawing(points, on, first, cost_title, quality), height=drawn.beside(height)
        ),
        choices={"x": costs},
        logged=("x",),
        note="Line: Pareto frontier. Hollow: one seed or missing runs.",
    )


def _drawing(
    points: Sequence[Point], on: Sequence[Point], cost: str, title: str, quality: str
) -> Drawing:
    shown = [(x, one.summary) for one in points[:DRAWN] if (x := one.costs[cost]) is not None]
    edge = [(x, one.summary.middle) for one in on if (x := one.costs[cost]) is not None]
    edge += [(max(x for x, _ in shown), edge[-1][1])] if edge else []
    return Drawing(
        Axis(title, log=True),
        Axis(quality),
        [
            Mark([(x, *one.band) for x, one in shown], "whiskers", 6, faint=True),
            Mark([(x, one.middle) for x, one in shown], "dots", 0),
            Mark(edge, "steps", 1),
            Mark(edge[:-1], "dots", 1, names=[one.name for one in on]),
        ],
    )


@cache
def frontier_spec(
    cost: str, title: str, quality: str, height: int, edged: bool, tiers: bool
) -> Mapping[str, Any]:
    """Rows with their spread and, if there is one, the frontier as steps with names, in
    Vega-Lite."""
    x = alt.X(f"{cost}:Q").title(title).scale(type="log", nice=False, padding=12)
    x = x.axis(labelExpr=COST, tickCount=5, labelOverlap=True)
    y = alt.Y("mean:Q").title(quality).scale(zero=False, padding=10)
    y = y.axis(tickCount=max(height // 40, 3))
    legend = alt.Legend(orient="top", offset=30) if tiers else None  # of one, it says nothing
    rows = alt.Chart(alt.NamedData("rows"))
    spread = rows.mark_rule(opacity=0.5, color=alt.expr("quiet")).encode(
        x=x, y=alt.Y("low:Q").scale(zero=False), y2="high:Q"
    )
    certain = alt.datum.low != alt.datum.high
    dots = rows.mark_point(size=45, strokeWidth=1.5, filled=False).encode(
        x=x,
        y=y,
        color=alt.Color("tier:N", title=None, legend=legend),
        fillOpacity=alt.when(certain).then(alt.value(0.85)).otherwise(alt.value(0)),
        fill=alt.Fill("tier:N", title=None, legend=legend),
        tooltip=[
            "arm:N",
            "experiment:N",
            alt.Tooltip("mean:Q", format=".4f", title="bits per byte"),
            alt.Tooltip("low:Q", format=".4f", title="mean − SD"),
            alt.Tooltip("high:Q", format=".4f", title="mean + SD"),
            alt.Tooltip(f"{cost}:Q", format=".2e", title=title),
            "seeds:Q",
        ],
    )
    of_edge = alt.Chart(alt.NamedData("frontier")).encode(x=x, y=y)
    edge = of_edge.mark_line(
        interpolate="step-after", strokeWidth=2, color=alt.expr("second"), invalid="filter"
    )
    names = of_edge.mark_text(**NAMES, baseline="top", dy=4).encode(text="name:N")
    layers = [spread, edge, dots, names] if edged else [spread, dots]
    return layered(*layers, height=height)
