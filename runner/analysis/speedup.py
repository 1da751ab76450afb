"""The effective speed-up of a variant: how many times the variant's compute the baseline would need
for the variant's loss. Pure.

The baseline's law is L = c + A·C^(−b), through its runs at several sizes. At one of these sizes the
baseline has the loss L_b for C_b, and the variant L_v for C_v. The baseline's curve through L_b
reaches L_v at C_need = C_b·((L_b − c)/(L_v − c))^(1/b). The speed-up in FLOPs is C_need/C_v: a
variant with more FLOPs per token has to earn them. In seconds it is (C_need/C_b)·T_b/T_v, where T
is how long a run takes: the baseline is taken to have the same speed in FLOP/s for longer.
Of several sizes it is the geometric mean.

The 95 % interval includes three errors. *Seeds*: the logarithm is computed for each seed that both
arms have (paired), and its variance is pooled over sizes. *The floor*: for each c of a grid from 0
to the smallest loss, the best b and the remaining squares are known, and all c count whose squares
are at most 1 + F(0.95; 1, n−3)/(n−3) times the minimum (a profile likelihood over n runs of the
baseline). *The exponent*: its standard error at each c. The errors of seeds and exponent are added
in quadrature, and shrink to 0 at the ends of the floor's region, as in `scaling.forecast`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from runner.analysis.estimates import DIGITS, LEVEL
from runner.analysis.scaling import B, Refused

Array = NDArray[np.float64]
Axis = Literal["flops", "seconds"]

GRID = 201  # floors in a search
SEARCHES = 4  # each finer around the floors that count
HIGHEST = 0.99  # of the smallest loss: the highest floor
MAX_POWER = 30.0  # of e, in a speed-up: 10^13 is not plausible


class Pair(NamedTuple):
    """Baseline and variant at one size, each in this order."""

    flops: tuple[float, float]  # of one run
    losses: tuple[tuple[float, float], ...]  # by seed
    seconds: tuple[tuple[float, float], ...] = ()  # of each run; empty: not measured


@dataclass(frozen=True)
class Speedup:
    """A ratio, with its 95 % interval if there is one."""

    estimate: float
    low: float | None = None
    high: float | None = None

    @property
    def outcome(self) -> Literal["gain", "loss", "tie"]:
        """What it comes to; a tie if 1 is in the interval, or if there is none."""
        if self.low is None or self.high is None or self.low <= 1 <= self.high:
            return "tie"
        return "gain" if self.low > 1 else "loss"

    @property
    def inverse(self) -> "Speedup":
        """The same seen from the other side."""
        ends = (self.high, self.low)
        low, high = (None if end is None else _rounded(1 / end) for end in ends)
        return Speedup(_rounded(1 / self.estimate), low, high)


@dataclass(frozen=True)
class Laws:
    """The baseline's law for every floor that its runs do not rule out."""

    floors: Array
    exponents: Array
    errors: Array  # standard errors of the exponents
    beyond: Array  # 0 for the best floor, 1 at the ends of the region
    freedom: int  # of the squares; 0: nothing tells the error, and no interval is known

    @property
    def best(self) -> int:
        """The place of the best floor."""
        return int(self.beyond.argmin())

    @property
    def words(self) -> str:
        """The best law and the floors that count, as a clause."""
        floor, b = self.floors[self.best], self.exponents[self.best]
        low, high = self.floors.min(), self.floors.max()
        said = f"a floor of {floor:.3g} and an exponent of {b:.3g} fit the baseline best"
        if not self.freedom:
            return said
        return f"{said}; floors from {low:.3g} to {high:.3g} count for the interval"


def laws(points: Iterable[tuple[float, float]], below: float) -> Laws:
    """The laws through the baseline's runs (FLOPs, loss), with floors below the smallest of its
    losses and of `below`, the smallest loss of the variant. Raises Refused for fewer than two sizes
    and if the loss does not fall with size."""
    pairs = list(points)
    if len({flops for flops, _ in pairs}) < 2:
        raise Refused("one size has no slope; add a larger one")
    flops, losses = np.array(pairs).T
    highest = HIGHEST * min(float(np.min(losses)), below)
    logs = np.log(flops) - np.log(flops).mean()
    freedom = max(len(losses) - 3, 0)
    most = stdtrit(freedom, (1 + LEVEL) / 2) ** 2 if freedom else math.inf
    grid = np.linspace(0.0, highest, GRID)
    for _ in range(SEARCHES):
        above = losses - grid[:, None]
        weights = (above / losses) ** 2
        all_of_them = weights.sum(axis=1)
        around = logs - (weights @ logs / all_of_them)[:, None]
        spread = (weights * around**2).sum(axis=1)
        high = np.log(above)
        slope = (weights * around * high).sum(axis=1) / spread
        level = (weights * high).sum(axis=1) / all_of_them
        left = (weights * (high - level[:, None] - slope[:, None] * around) ** 2).sum(axis=1)
        fits = (-slope >= B[0]) & (-slope <= B[1])
        if not fits.any():
            raise Refused("the baseline's loss does not fall with size as a power law")
        least = float(left[fits].min())
        scale = least / freedom if freedom else 0.0
        error = np.maximum(left - least, 0.0)
        beyond = error / (most * scale) if scale else np.where(error > 0, np.inf, 0.0)
        kept = fits & (beyond <= 1) if freedom else fits & (left == least)
        found = Laws(
            floors=grid[kept],
            exponents=-slope[kept],
            errors=np.sqrt(scale / spread[kept]),
            beyond=beyond[kept],
            freedom=freedom,
        )
        inside = np.flatnonzero(kept)
        ends = grid[max(inside[0] - 1, 0)], grid[min(inside[-1] + 1, GRID - 1)]
        grid = np.linspace(*ends, GRID)
    return found


def speedup(laws: Laws, pairs: Sequence[Pair], axis: Axis) -> Speedup:
    """The variant's speed-up over these sizes, with equal weights. Raises Refused without a seed
    that both arms have, for a time that was not measured, and for losses too far apart."""
    if not pairs or any(not pair.losses for pair in pairs):
        raise Refused("no seed has a score of both arms")
    if axis == "seconds" and any(len(one.seconds) != len(one.losses) for one in pairs):
        raise Refused("the time of a run is not known")
    middle = np.zeros(len(laws.floors))  # of the loss's part, by floor
    shift = 0.0  # of what the compute adds
    squares, freedom, variance = np.zeros_like(middle), 0, 0.0
    for pair in pairs:
        above = np.array(pair.losses)[:, :, None] - laws.floors
        by_seed = np.log(above[:, 0] / above[:, 1]) / laws.exponents  # (seed, floor)
        if axis == "flops":
            spent = np.full(len(by_seed), math.log(pair.flops[0] / pair.flops[1]))
        else:
            spent = np.log([one / other for one, other in pair.seconds])
        middle += by_seed.mean(axis=0) / len(pairs)
        shift += float(spent.mean()) / len(pairs)
        whole = by_seed + spent[:, None]
        squares += ((whole - whole.mean(axis=0)) ** 2).sum(axis=0)
        freedom += len(whole) - 1
        variance += 1 / len(whole) / len(pairs) ** 2
    at = middle[laws.best] + shift
    if abs(at) > MAX_POWER:
        raise Refused("the losses are too far apart for a speed-up")
    if not freedom or not laws.freedom:
        return Speedup(_rounded(math.exp(at)))
    of_seeds = stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(squares / freedom * variance)
    of_law = stdtrit(laws.freedom, (1 + LEVEL) / 2) * middle * laws.errors / laws.exponents
    reach = np.hypot(of_seeds, of_law) * np.sqrt(np.maximum(1 - laws.beyond, 0.0))
    ends = float((middle - reach).min()) + shift, float((middle + reach).max()) + shift
    low, high = (math.exp(min(max(end, -MAX_POWER), MAX_POWER)) for end in ends)
    return Speedup(_rounded(math.exp(at)), _rounded(low), _rounded(high))


def _rounded(value: float) -> float:
    """With the digits that another machine gets, too."""
    return float(f"{value:.{DIGITS - 1}e}")
