"""Searches for the settings of an arm: which trial is next, and which settings are the best. Pure:
both follow from the trials so far, so that a killed search goes on as if nothing had happened.

A trial trains with one setting and one seed, to the end of the schedule; its loss is at the end.
Settings are points of a grid, and each is tried with all seeds of the search. The noise of a
setting's mean is the spread between seeds, pooled over all settings, over the root of their number;
that of the difference of two settings is √2 times this. A setting is better than another one only
by more than the noise; a tie keeps the earlier one.

*coordinate* starts at the arm's own settings, and for one key after the other tries the two
neighbours of its value. If the better one is better than where it stands, it goes there and tries
the next neighbours. It stops when a round of all keys has not moved. *random* tries points of the
grid in an order drawn by chance, the arm's own settings first. Both stop when the budget is spent.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

How = Literal["coordinate", "random"]
At = tuple[int, ...]  # a point of the grid: the place of each key's value
Losses = Mapping[tuple[At, int], float]  # (point, seed) → the loss; infinite if it diverged


@dataclass(frozen=True)
class Space:
    """What is searched."""

    how: How
    grid: Mapping[str, Sequence[float]]  # the values of each key, in order
    start: At
    seeds: Sequence[int]
    trials: int  # the budget

    def settings(self, at: At) -> dict[str, float]:
        """The values at a point."""
        return {key: of[n] for (key, of), n in zip(self.grid.items(), at, strict=True)}

    @property
    def one_round(self) -> int:
        """The trials of the first round of coordinate descent; of random, those of a point for
        each key, and of the start."""
        sides = 0
        for values, n in zip(self.grid.values(), self.start, strict=True):
            sides += (n > 0) + (n < len(values) - 1) if self.how == "coordinate" else 1
        return (1 + sides) * len(self.seeds)


@dataclass(frozen=True)
class State:
    """Where a search stands."""

    best: At
    next: tuple[At, int] | None  # the next trial; None at the end
    why: str = ""  # it stopped
    noise: float | None = None  # of a setting's mean


class _Wanted(Exception):
    """The loss of this point is needed next."""

    def __init__(self, at: At) -> None:
        super().__init__(at)
        self.at = at


def state(space: Space, losses: Losses) -> State:
    """Where the search stands after these trials."""
    of_noise = noise(space, losses)
    best = space.start

    def mean(at: At) -> float:
        found = [losses.get((at, seed)) for seed in space.seeds]
        if any(loss is None for loss in found):
            raise _Wanted(at)
        return fmean(loss for loss in found if loss is not None)

    def better(at: At, than: At) -> bool:
        by = mean(than) - mean(at)  # nan if both diverged
        return by > math.sqrt(2) * (of_noise or 0.0)

    try:
        mean(best)
        if space.how == "coordinate":
            moved = True
            while moved:
                moved = False
                for key in range(len(space.grid)):
                    while True:
                        near = min(_neighbours(space, best, key), key=mean, default=best)
                        if near == best or not better(near, best):
                            break
                        best, moved = near, True
            why = "no move of a single key is better by more than the noise"
        else:
            for at in _drawn(space):
                best = at if better(at, best) else best
            why = "all settings were tried"
        return State(best, None, why, of_noise)
    except _Wanted as wanted:
        at = wanted.at
    if len(losses) + sum((at, seed) not in losses for seed in space.seeds) > space.trials:
        return State(best, None, "the budget is spent", of_noise)
    seed = next(seed for seed in space.seeds if (at, seed) not in losses)
    return State(best, (at, seed), "", of_noise)


def noise(space: Space, losses: Losses) -> float | None:
    """The standard error of a setting's mean over the seeds; None before it is known."""
    by_point: dict[At, list[float]] = {}
    for (at, _), loss in losses.items():
        by_point.setdefault(at, []).append(loss)
    known = [of for of in by_point.values() if len(of) > 1 and all(map(math.isfinite, of))]
    if not known:
        return None
    freedom = sum(len(of) - 1 for of in known)
    pooled = sum(variance(of) * (len(of) - 1) for of in known) / freedom
    return math.sqrt(pooled / len(space.seeds))


def _neighbours(space: Space, at: At, key: int) -> Iterator[At]:
    for n in (at[key] - 1, at[key] + 1):
        if 0 <= n < len([*space.grid.values()][key]):
            yield (*at[:key], n, *at[key + 1 :])


def _drawn(space: Space) -> Iterator[At]:
    """Every other point of the grid once, in an order drawn by chance."""
    sizes = [len(of) for of in space.grid.values()]
    chosen = random.Random(0).sample(range(math.prod(sizes)), min(math.prod(sizes), space.trials))
    for number in chosen:
        at = []
        for size in sizes:
            number, place = divmod(number, size)
            at.append(place)
        if tuple(at) != space.start:
            yield tuple(at)
