"""Scaling laws: L = a·C^(−b) + c, with intervals and caveats. Pure.

C is any cost: model FLOPs, hardware FLOPs, tokens or parameters. Errors are relative to the loss,
as is the spread between seeds. For a given b the curve is linear in a and c, so the least squares
within the bounds need a search along b only (variable projection; Golub and Pereyra 1973), which
does not depend on starting values.

The interval of a forecast counts curves with a bend beside the law (`runner.analysis.bends`). With
a given floor it is never narrower than that of the law alone, because the floor may be wrong.
Older seals have that of the law alone, by the profile likelihood (Seber and Wild 1989, 5.4): the
values of all curves of the family whose squares are at most 1 + F(level; 1, n−k)/(n−k) times the
minimum. For it c has no lower bound: a negative floor is impossible, but if the floor is not known,
a bound would pretend that it is. On exact laws it covers 90 % ± 3 %, on others 25 to 95 %.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares, minimize_scalar
from scipy.special import fdtri

from runner.analysis import bends

B = (0.005, 2.0)  # bounds of the exponent b; a and c are at least 0
FEWEST = 4  # different C that a fit with a free floor needs
PINNED_FEWEST = 3  # with a given floor
FLOOR = 0.6  # bits per byte: the given floor if there are only three points
HUBER = 1.345  # standard deviations from which an error counts linearly (Huber 1981)
LEAST = 1e-100  # of a loss and of a C: squares of smaller ones may be 0
WIDEST = 1e30  # times the smallest C; beyond it floats overflow
GRID = 201  # exponents per search; three searches, each finer around the best
Points = Mapping[float, float] | Iterable[tuple[float, float]]  # (C, loss)
Array = NDArray[np.float64]


class Refused(ValueError):
    """There is no answer; the message says why and what would help."""


@dataclass(frozen=True)
class Law:
    """L = a·(C/at)^(−b) + c. `at` is the geometric mean of the C in the fit, because the loss there
    is well determined; with at = 1, `a` could have any size."""

    a: float
    b: float
    c: float
    at: float
    squares: float  # sum of squared relative errors
    n: int
    pinned: bool = False  # c was given, not fitted

    def loss(self, compute: float) -> float:
        """The loss at this C."""
        return float(self.a * (compute / self.at) ** -self.b + self.c)

    @property
    def sentence(self) -> str:
        """The law as text."""
        a = self.a * self.at**self.b
        return f"L = {a:.4g} · C^(−{self.b:.4f}) + {self.c:.4f}" + (
            " (c stated)" if self.pinned else ""
        )

    def must_show(self) -> None:
        """Raises Refused if a parameter is at its bound: then the points show no power law above a
        floor."""
        edge = next((edge for edge in B if math.isclose(self.b, edge, rel_tol=1e-3)), None)
        if self.a <= 0:
            why = "the losses do not fall (a = 0)"
        elif edge is not None:
            why = f"the exponent sits on its bound (b = {edge:g})"
        elif self.c <= 0 and not self.pinned:
            why = "the floor sits on its bound (c = 0)"
        else:
            return
        raise Refused(f"{why}: these points show no power law above a floor; measure more sizes")


@dataclass(frozen=True)
class Exponent:
    """The exponent of a law, with its interval."""

    b: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """The loss of a law at one C, with its interval."""

    loss: float
    low: float
    high: float
    law: Law
    words: str | None = None  # what the interval does not cover


# ── The curve ────────────────────────────────────────────────────────────────────────────────


def fit(points: Points, *, floor: float | None = None) -> Law:
    """The least squares with a ≥ 0, b within `B` and c ≥ 0, or with c = `floor`. Raises Refused if
    there are too few points."""
    compute, losses = _arrays(points, floor)
    at = float(np.exp(np.log(compute).mean()))
    logs = np.log(compute / at)

    def squares(b: float) -> float:
        return float(_linear(np.array([b]), logs, losses, floor)[2][0])

    grid = np.linspace(*B, 4 * GRID)
    found = _linear(grid, logs, losses, floor)[2]
    best = int(found.argmin())
    near = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    b = float(minimize_scalar(squares, bounds=near, method="bounded", options={"xatol": 1e-12}).x)
    b = min((b, *near), key=squares)  # the search stays within its bounds
    a, c, left = (float(x[0]) for x in _linear(np.array([b]), logs, losses, floor))
    return Law(a, b, c, at, left, len(losses), floor is not None)


def fit_huber(points: Points, *, floor: float | None = None) -> Law:
    """The same curve by Huber's loss, from several starts: an error beyond HUBER robust standard
    deviations (of the least squares' errors) counts linearly. Raises Refused."""
    compute, losses = _arrays(points, floor)
    start = fit(points, floor=floor)
    logs = np.log(compute / start.at)
    errors = 1 - np.array([start.loss(x) for x in compute]) / losses
    spread = 1.4826 * float(np.median(np.abs(errors - np.median(errors)))) or 1e-12

    def wrong(parameters: Array) -> Array:
        a, b, *c = parameters
        return np.asarray((a * np.exp(-b * logs) + (c[0] if c else floor)) / losses - 1)

    low, high = [0.0, B[0], 0.0], [np.inf, B[1], np.inf]
    keep, closely = 3 if floor is None else 2, dict.fromkeys(("ftol", "xtol", "gtol"), 1e-12)

    def search(b: float) -> Any:
        a, c, _ = (float(x[0]) for x in _linear(np.array([b]), logs, losses, floor))
        inside = np.clip([a, b, c], np.array(low) + 1e-9, high)[:keep]
        bounds, scale = (low[:keep], high[:keep]), HUBER * spread
        return least_squares(
            wrong, inside, bounds=bounds, loss="huber", f_scale=scale, x_scale="jac", **closely
        )

    starts = (start.b, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    best = min(map(search, starts), key=lambda found: float(found.cost))
    a, b, c = map(float, best.x if floor is None else (*best.x, floor))
    left = float((wrong(best.x) ** 2).sum())
    return Law(a, b, c, start.at, left, len(losses), floor is not None)


def _pairs(points: Points) -> list[tuple[float, float]]:
    return sorted(points.items() if isinstance(points, Mapping) else points)


def _arrays(points: Points, floor: float | None) -> tuple[Array, Array]:
    pairs = _pairs(points)
    compute, losses = np.array([x for x, _ in pairs]), np.array([y for _, y in pairs])
    every = np.concatenate([compute, losses])
    if not np.all(np.isfinite(every)) or np.any(every < LEAST):
        raise Refused("a point has no finite loss above 0 at a C above 0; leave it out")
    if len(compute) and compute.max() / compute.min() > WIDEST:
        raise Refused(
            f"the C differ by more than a factor of {WIDEST:.0e}; no law is known over such a range"
        )
    different, needed = len(set(compute.tolist())), PINNED_FEWEST if floor is not None else FEWEST
    if different < needed:
        raise Refused(
            f"{different} different C are too few for "
            + ("a curve; " if floor is not None else "a curve and its floor; ")
            + f"{needed} are needed"
        )
    return compute, losses


def _linear(
    b: Array, logs: Array, losses: Array, floor: float | None
) -> tuple[Array, Array, Array]:
    """For each b the best a ≥ 0 and c ≥ 0 (or c = floor), and the remaining squares."""
    x, weights = np.exp(-np.multiply.outer(b, logs)), losses**-2
    if floor is not None:
        c = np.full(len(b), floor)
        a = np.maximum(x @ (weights * (losses - floor)) / (x**2 @ weights), 0)
    else:
        a, c, _, _, _ = _line(x, losses, weights)
        flat = weights @ losses / weights.sum()
        without = x @ (weights * losses) / (x**2 @ weights)
        a, c = np.where(c < 0, without, a), np.maximum(c, 0)
        a, c = np.maximum(a, 0), np.where(a < 0, flat, c)
    return a, c, (losses - a[:, None] * x - c[:, None]) ** 2 @ weights


def _line(x: Array, y: Array, weights: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Fits y ≈ slope·x + level for each row of x. Returns slope, level, the weighted mean of x, its
    weighted sum of squares around it, and the remaining weighted squares."""
    mean, level = x @ weights / weights.sum(), weights @ y / weights.sum()
    around = x - mean[:, None]
    spread = around**2 @ weights
    slope = around @ (weights * (y - level)) / spread
    left = (y - level - slope[:, None] * around) ** 2 @ weights
    return slope, level - slope * mean, mean, spread, left


# ── What is not known ────────────────────────────────────────────────────────────────────────


def forecast(
    points: Points,
    at: float,
    *,
    level: float = 0.9,
    floor: float | None = None,
    bent: bool = True,
) -> Forecast:
    """The loss at C = `at`, with an interval that covers it with probability `level`, also if the
    curve is only almost a power law; without `bent`, only if it is exactly one.

    A given `floor` is not fitted. With three different C the floor is FLOOR unless given. Then the
    interval treats it as known, and `words` says so. Raises Refused for fewer C, and if a parameter
    is at its bound: then the points show no power law above a floor.
    """
    pairs = _pairs(points)
    few = len({compute for compute, _ in pairs}) == PINNED_FEWEST
    if floor is None and few:
        floor = FLOOR
    compute, losses = _arrays(pairs, floor)
    if not (math.isfinite(at) and at > 0 and at / compute.min() <= WIDEST):
        raise Refused(f"nothing can be forecast at a C of {at:g}")
    law = fit(pairs, floor=floor)
    if floor is not None and law.a <= 0 and losses.min() <= floor:
        raise Refused(f"a loss of {losses.min():.4f} is not above the stated floor of {floor:g}")
    law.must_show()
    kinds = [bends.interval] * bent + [_profile] * (not bent or floor is not None)
    ends = [interval(compute, losses, at, level, floor) for interval in kinds]
    low = min(law.loss(at), *(low for low, _ in ends))
    high = max(law.loss(at), *(high for _, high in ends))
    words = f"the floor is taken as {law.c:g} and its own error is not in the interval"
    return Forecast(law.loss(at), low, high, law, words if law.pinned else None)


def _profile(
    compute: Array, losses: Array, at: float, level: float, floor: float | None
) -> tuple[float, float]:
    """The profile-likelihood interval of the exact law's loss at C = `at`.

    The family is L = m + s·(1 − e^(−b·t))/b, t = log C, with any m and s. This is the power law in
    a form whose limit for b → 0 is the straight line in log C. With a given floor it is that floor
    plus a·C^(−b).
    """
    middle = np.log(compute).mean()
    logs, there = np.log(compute) - middle, math.log(at) - middle
    n, parameters = len(losses), 3 if floor is None else 2
    if n <= parameters:
        raise Refused(f"{n} points leave nothing to tell the error from; measure one more")
    weights, grid = losses**-2, np.linspace(0.0, B[1], GRID)
    for _ in range(3):
        if floor is None:
            x, ahead = _shape(grid[:, None], logs[None]), _shape(grid, np.array(there))
            slope, level_at_0, mean, spread, left = _line(x, losses, weights)
            value = level_at_0 + slope * ahead
            variance = 1 / weights.sum() + (ahead - mean) ** 2 / spread
        else:
            x, ahead = np.exp(-np.multiply.outer(grid, logs)), np.exp(-grid * there)
            spread = x**2 @ weights
            a = x @ (weights * (losses - floor)) / spread
            left = (losses - floor - a[:, None] * x) ** 2 @ weights
            value, variance = floor + a * ahead, ahead**2 / spread
        most = left.min() * (1 + fdtri(1, n - parameters, level) / (n - parameters))
        inside = np.flatnonzero(left <= most)
        first, last = max(inside[0] - 1, 0), min(inside[-1] + 1, GRID - 1)
        reach = np.sqrt(variance[inside] * (most - left[inside]))
        low = float((value[inside] - reach).min())
        high = float((value[inside] + reach).max())
        grid = np.linspace(grid[first], grid[last], GRID)
    return max(low, 0.0 if floor is None else floor), high


def _shape(b: Array, t: Array) -> Array:
    """(1 − e^(−b·t))/b, with the limit t for b → 0."""
    small = np.abs(b) < 1e-9
    return np.asarray(np.where(small, t, -np.expm1(-b * t) / np.where(small, 1.0, b)))


def exponent(points: Points, *, level: float = 0.95) -> Exponent:
    """b, with an interval that covers it with probability `level`: the wider of two, with each
    point separately, and with the mean of the losses at each C as one point. An error at a C is
    common to all of its seeds, so seeds alone would give too narrow an interval; and means may be
    on a curve by chance although seeds differ. On synthetic data (4 to 6 C with three seeds, errors
    of 0.1 %) it covers 98 %, and 94 to 97 % if each C has an error of its own as large or twice as
    large. Raises Refused if a parameter of the law is at its bound, the points are too few, or no b
    is too large for them."""
    pairs = _pairs(points)
    law = fit(pairs)
    law.must_show()
    of = {x: [loss for at, loss in pairs if at == x] for x, _ in pairs}
    means = [(x, sum(losses) / len(losses)) for x, losses in of.items()]
    ends = [_exponents(these, level) for these in (pairs, means)]
    return Exponent(law.b, min(low for low, _ in ends), max(high for _, high in ends))


def _exponents(pairs: list[tuple[float, float]], level: float) -> tuple[float, float]:
    """The profile-likelihood interval of b: all b from 0 for which some m and s of `_profile`'s
    family leave squares of at most 1 + F(level; 1, n−3)/(n−3) times the minimum."""
    compute, losses = _arrays(pairs, None)
    freedom = len(losses) - 3
    law = fit(pairs)
    logs, weights = np.log(compute / law.at), losses**-2

    def squares(b: Array) -> Array:
        return _line(_shape(b[:, None], logs[None]), losses, weights)[4]

    grid = np.union1d(np.linspace(0.0, B[1], 4 * GRID), law.b)
    left = squares(grid)
    most = float(left.min()) * (1 + fdtri(1, freedom, level) / freedom)
    inside = np.flatnonzero(left <= most)
    if inside[-1] == len(grid) - 1:
        raise Refused(f"no exponent up to {B[1]:g} is ruled out by these points; measure more")

    def end(at: int, beyond: int) -> float:
        """Where the squares reach `most`, between a grid point and the next one."""
        if beyond < 0:
            return 0.0
        ends = sorted((float(grid[at]), float(grid[beyond])))
        return float(brentq(lambda b: float(squares(np.array([b]))[0]) - most, *ends))

    return end(inside[0], inside[0] - 1), end(inside[-1], inside[-1] + 1)
