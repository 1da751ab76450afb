"""What a design can tell, before it runs. Pure.

A prediction is judged by the interval x ± t(0.975, n−1)·SE over n seeds (`verdicts`). So a true
difference shows where this interval leaves zero out; how often it does is a matter of the
noncentral t distribution with n−1 degrees of freedom (Cohen 1988, 2.5).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import variance

from scipy.optimize import brentq
from scipy.special import nctdtr, stdtrit

SHOWN = 0.8  # how often a difference has to show that is called one that would
FEWEST_ARMS = 3  # of two seeds or more, before a lab's spread is called known


@dataclass(frozen=True)
class Spread:
    """The standard deviation between seeds, as a lab has seen it."""

    deviation: float
    arms: int  # that it was seen on
    freedom: int  # degrees of freedom, that is, how many seeds more than arms


def known_spread(arms: Iterable[Sequence[float]]) -> Spread | None:
    """The spread between seeds, pooled over arms: each one's figures over its seeds. None where
    fewer than FEWEST_ARMS have two."""
    kept = [list(figures) for figures in arms if len(figures) > 1]
    if len(kept) < FEWEST_ARMS:
        return None
    freedom = sum(len(figures) - 1 for figures in kept)
    squares = sum(variance(figures) * (len(figures) - 1) for figures in kept)
    return Spread(math.sqrt(squares / freedom), len(kept), freedom)


def power(difference: float, deviation: float, seeds: int) -> float:
    """How often the 95 % interval over so many seeds leaves zero out, where each seed's value is
    `difference` off zero on average and `deviation` apart. 0 for one seed, which has no interval;
    at least 0.05, which is how often it errs."""
    if seeds < 2:
        return 0.0
    freedom, critical = seeds - 1, float(stdtrit(seeds - 1, 0.975))
    if deviation <= 0:
        return 1.0 if difference else 0.05
    off = abs(difference) / deviation * math.sqrt(seeds)
    above, below = 1 - nctdtr(freedom, off, critical), nctdtr(freedom, off, -critical)
    # Far off zero the other side is nothing, and SciPy computes no number for it.
    return float(above + (below if math.isfinite(below) else 0.0))


def smallest_difference(spread: Spread, seeds: int, *, between_arms: bool) -> float | None:
    """The smallest true difference that shows in SHOWN of all cases. `between_arms`: of the
    difference of two arms over the same seeds, whose deviation is √2 that of one arm where equal
    seeds have nothing in common. None for one seed."""
    deviation = spread.deviation * (math.sqrt(2) if between_arms else 1.0)
    if seeds < 2:
        return None
    if deviation <= 0:
        return 0.0

    def short(difference: float) -> float:
        return power(difference * deviation, deviation, seeds) - SHOWN

    most = 1.0
    while short(most) < 0:
        most *= 2
    return float(brentq(short, 0.0, most, xtol=1e-9)) * deviation
