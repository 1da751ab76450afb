"""The Pareto frontier of quality and cost, and the records that were broken. Pure.

Ties stay ties in both: a row is beaten only by one whose whole band (mean ± spread over seeds) is
better. Rows with one seed, or with missing runs, have no reliable band; they neither beat others
nor are beaten.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from bot.site.facts.leaderboard import Row, turned
from runner.analysis.verdicts import ArmSummary
from runner.schema.metrics import BPB

# `on`: no row with at most this cost has a better mean. `tied`: some has, but none is better beyond
# both spreads.
Front = Literal["on", "tied", ""]


@dataclass(frozen=True)
class Point:
    """A row of any leaderboard with its quality and costs."""

    name: str
    of: str  # its experiment, or its author
    summary: ArmSummary  # over its seeds
    tier: str
    costs: Mapping[str, float | None]  # by name; equal names for all rows of a leaderboard
    fronts: Mapping[str, Front] = field(default_factory=dict)  # by cost, after `placed`
    metric: str = BPB


@dataclass(frozen=True)
class Broken:
    """A row that was better beyond both spreads than all earlier rows."""

    row: Row
    before: Row | None  # the previous record


def placed(points: Sequence[Point]) -> list[Point]:
    """The same points with their place on the Pareto frontier of quality and each cost."""
    names = list(points[0].costs) if points else []
    scores = [turned(point.summary, point.metric) for point in points]
    by_cost = {name: _fronts([one.costs[name] for one in points], scores) for name in names}
    return [
        replace(point, fronts={name: found[at] for name, found in by_cost.items()})
        for at, point in enumerate(points)
    ]


def _fronts(prices: Sequence[float | None], scores: Sequence[ArmSummary]) -> list[Front]:
    found: list[Front] = [""] * len(scores)
    kept = sorted(
        (price, at) for at, price in enumerate(prices) if price is not None and scores[at].certain
    )
    mean, high = float("inf"), float("inf")  # the best so far at this or a lower cost
    for _, these in groupby(kept, key=lambda pair: pair[0]):
        equal = [(at, scores[at]) for _, at in these]
        before = mean
        mean = min(mean, *(one.middle for _, one in equal))
        high = min(high, *(one.band[1] for _, one in equal))
        for at, one in equal:
            if one.middle == mean < before:
                found[at] = "on"
            elif one.band[0] <= high:
                found[at] = "tied"
    return found


def broken(rows: Iterable[Row]) -> list[Broken]:
    """The records of a group, newest first. The first row with a band is the first record."""
    standing: Row | None = None
    found = []
    for row in sorted(rows, key=lambda row: (row.ended, row.turned.middle, row.arm)):
        one = row.turned
        if one.certain and (standing is None or one.band[1] < standing.turned.band[0]):
            found.append(Broken(row, standing))
            standing = row
    return found[::-1]
