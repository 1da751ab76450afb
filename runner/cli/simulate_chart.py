"""The chart of a simulation: the utilisation of each pool, and how many runs waited."""

from collections.abc import Iterable, Mapping
from typing import Any

import altair as alt
import numpy as np

from runner.lib.format import duration
from runner.publish.charts import COLOURS, HAIRLINE, INK, card
from runner.scheduler.queue_order import RANKS, Cluster
from runner.scheduler.queue_state import HOUR
from runner.scheduler.simulate import Fate, span

WIDTH, HEIGHT, LOWER = 640, 200, 120
AXIS = "#afb8c1"
SHADES = ["#56b4e9", "#0072b2", "#b8c4ce"]  # of RANKS
POINTS = 240  # intervals of time, each drawn with its mean

Interval = tuple[int, int, int]  # from, to, how many


def chart(fates: Mapping[str, Fate], cluster: Cluster, title: str) -> dict[str, Any]:
    """A Vega-Lite description with its data: utilisation by pool, and below it the waiting runs."""
    every = list(fates.values())
    began, ended = span(every)
    edges = np.linspace(began, max(ended, began + 1), POINTS + 1)
    unit, seconds = ("days", 24 * HOUR) if ended - began > 72 * HOUR else ("hours", HOUR)
    if ended - began < 2 * HOUR:
        unit, seconds = "minutes", 60
    used = {pool.name: _in_use(every, pool.name) for pool in cluster.pools}
    sizes = {pool.name: pool.devices for pool in cluster.pools}
    waits = {name: _waiting(every, name, ended) for name in RANKS}
    times = [float((at - began) / seconds) for at in edges]
    rows = [
        {"pool": name, "from": times[at], "to": times[at + 1], "share": round(float(level), 5)}
        for name, intervals in used.items()
        for at, level in enumerate(mean_level(intervals, edges) / sizes[name])
    ]
    lower = [
        {"priority": name, "rank": RANKS[name], "from": times[at], "waiting": round(float(n), 3)}
        for name, intervals in waits.items()
        for at, n in enumerate(mean_level(intervals, edges))
    ]
    x = alt.X("from:Q").scale(nice=False, domain=[0, times[-1]])
    both = alt.vconcat(_upper(x, list(used)), _lower(x, unit), spacing=18)
    subtitle = f"simulated; each point is the mean over {duration(float(edges[1] - edges[0]))}"
    whole = card(both.resolve_scale(color="independent"), title, subtitle)
    spec = whole.configure_legend(labelColor=INK, labelFontSize=11.5, title=None).to_dict()
    return spec | {"datasets": {"utilisation": rows, "waiting": lower}}


def mean_level(intervals: Iterable[Interval], edges: np.ndarray) -> np.ndarray:
    """The mean number of intervals between each two `edges`. Returns one less than edges."""
    found = np.array(list(intervals), dtype=np.float64).reshape(-1, 3)
    times = np.concatenate([found[:, 0], found[:, 1]])
    steps = np.concatenate([found[:, 2], -found[:, 2]])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(steps[order])
    if not len(times):
        return np.zeros(len(edges) - 1)
    # The integral of the level up to each change; between two changes it is linear.
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    return np.diff(np.interp(edges, times, area)) / np.diff(edges)


def _in_use(fates: Iterable[Fate], pool: str) -> list[Interval]:
    return [
        (spell.start, spell.end, fate.devices)
        for fate in fates
        for spell in fate.spells
        if spell.pool == pool
    ]


def _waiting(fates: Iterable[Fate], priority: str, ended: int) -> list[Interval]:
    """When runs waited, also after preemption; those that never started again, until the end."""
    found = []
    for fate in fates:
        if fate.request.priority == priority and fate.state != "refused":
            found += [(begin, end, 1) for begin, end in fate.waits()]
            if fate.state == "held":
                last = fate.request.submitted if fate.ended is None else fate.ended
                found.append((last, max(last, ended), 1))
    return found


def _upper(x: alt.X, pools: list[str]) -> alt.Chart:
    y = alt.Y("share:Q").title("devices in use").scale(domain=[0, 1])
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(pools))]
    color = alt.Color("pool:N").legend(symbolType="stroke").scale(domain=pools, range=colours)
    return (
        alt.Chart(alt.NamedData("utilisation"), width=WIDTH, height=HEIGHT)
        .mark_line(interpolate="step-after", strokeWidth=1.75)
        .encode(
            x=x.axis(labels=False, ticks=False, grid=False, domainColor=AXIS, title=None),
            y=y.axis(format="%", tickCount=5, gridColor=HAIRLINE, domain=False, ticks=False),
            color=color,
        )
    )


def _lower(x: alt.X, unit: str) -> alt.Chart:
    y = alt.Y("waiting:Q").title("runs waiting").stack("zero")
    return (
        alt.Chart(alt.NamedData("waiting"), width=WIDTH, height=LOWER)
        .mark_area(interpolate="step-after")
        .encode(
            x=x.axis(title=unit, grid=False, tickColor=HAIRLINE, domainColor=AXIS),
            y=y.axis(tickCount=4, gridColor=HAIRLINE, domain=False, ticks=False),
            color=alt.Color("priority:N")
            .legend(symbolType="square")
            .scale(domain=list(RANKS), range=SHADES),
            order="rank:Q",
        )
    )
