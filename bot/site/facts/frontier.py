"""Who gets the most for what it costs, and which records were broken. Pure.

Ties stay ties in both: a row is beaten only by one whose whole band (mean ± spread over seeds) is
better. Rows of one seed, or with runs missing, have no band that one could rely on; they neither
beat nor are counted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, Protocol, TypeVar

from bot.site.facts.board import Row
from runner.analysis.verdicts import ArmSummary

# `on`: no row that costs as little has a better mean. `tied`: some has, but none is better beyond
# both spreads.
Front = Literal["on", "tied", ""]


class Banded(Protocol):
    """A row of any board: bits per byte over its seeds."""

    @property
    def mean(self) -> float:
        """Over the seeds."""

    @property
    def band(self) -> tuple[float, float]:
        """Mean ± spread."""

    @property
    def summary(self) -> ArmSummary:
        """How many seeds there are, and how far apart."""


Some = TypeVar("Some", bound=Banded)


@dataclass(frozen=True)
class Broken:
    """A row that was better beyond both spreads than all before it."""

    row: Row
    before: Row | None  # the record until then


def is_certain(row: Banded) -> bool:
    """Whether the row has a band: two seeds or more, and none is missing."""
    return row.summary.spread is not None and row.summary.n == row.summary.of


def fronts(rows: Sequence[Some], cost: Callable[[Some], float | None]) -> list[Front]:
    """Where each row stands on the Pareto frontier of cost and quality, in the order of `rows`."""
    found: list[Front] = [""] * len(rows)
    priced = [(price, at) for at, row in enumerate(rows) if (price := cost(row)) is not None]
    kept = sorted((price, at) for price, at in priced if is_certain(rows[at]))
    mean, high = float("inf"), float("inf")  # the best of all that cost as little
    for _, these in groupby(kept, key=lambda pair: pair[0]):
        equal = [at for _, at in these]
        before = mean
        mean = min(mean, *(rows[at].mean for at in equal))
        high = min(high, *(rows[at].band[1] for at in equal))
        for at in equal:
            if rows[at].mean == mean and mean < before:
                found[at] = "on"
            elif rows[at].band[0] <= high:
                found[at] = "tied"
    return found


def broken(rows: Iterable[Row]) -> list[Broken]:
    """The records of a group, newest first. The first row that has a band is the first record."""
    standing: Row | None = None
    found = []
    for row in sorted(rows, key=lambda row: (row.ended, row.mean, row.arm)):
        if not is_certain(row) or (standing and row.band[1] >= standing.band[0]):
            continue
        found.append(Broken(row, standing))
        standing = row
    return found[::-1]
