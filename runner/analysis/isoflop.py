"""IsoFLOP analysis: the best size and number of tokens for a budget of compute. Pure.

The runs of a budget take (nearly) the same FLOPs, with models of different sizes. For each budget a
parabola of the loss in log10 of tokens is fitted by Huber's loss, and its vertex is the optimum D*.
N* is the size that takes C/D* FLOPs per token. Over the budgets, D*(C) and N*(C) are power laws,
fitted as lines in logarithms (approach 2 of Hoffmann et al. 2022, arXiv 2203.15556).

Intervals of 95 % are from a parametric bootstrap. The error of a point is the larger of two: the
spread between seeds over the root of their number, pooled, and what the parabolas leave. Each
sample draws this error's own size by its degrees of freedom, then new losses around the parabolas,
and repeats both fits. If more than one sample in twenty has a parabola without a minimum, there is
no interval.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runner.analysis.estimates import DIGITS, LEVEL, Interval
from runner.analysis.scaling import HUBER, Refused
from runner.schema.record import Plan, Run

Array = NDArray[np.float64]

FEWEST = 3  # sizes of a parabola
FEWEST_BUDGETS = 2  # of a power law
SAMPLES = 1000
ROUNDS = 30  # of reweighting
MOST_WITHOUT = 0.05  # of the samples, without a minimum


class Cell(NamedTuple):
    """The runs of one size at one budget."""

    budget: float  # FLOPs
    size: str
    parameters: int
    tokens: int
    losses: tuple[float, ...]  # by seed

    @property
    def loss(self) -> float:
        """Their mean."""
        return fmean(self.losses)


@dataclass(frozen=True)
class Figure:
    """A number with its interval, if there is one."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Optimum:
    """What is best for a budget."""

    budget: float
    tokens: Figure
    parameters: Figure
    loss: float | None = None  # at the vertex; None for a budget that was not run
    parabola: tuple[float, float, float] = (0.0, 0.0, 0.0)  # L = p0 + p1·x + p2·x², x = log10 D

    @property
    def tokens_per_parameter(self) -> float:
        """Their ratio."""
        return self.tokens.value / self.parameters.value


@dataclass(frozen=True)
class Recipe:
    """For how long a size is to be trained, so that it is the best for its compute."""

    size: str
    parameters: int
    flops: Figure
    tokens: Figure


@dataclass(frozen=True)
class Law:
    """y = factor·C^exponent."""

    factor: float
    exponent: Figure

    def at(self, flops: float) -> float:
        """y at this C."""
        return float(self.factor * flops**self.exponent.value)


@dataclass(frozen=True)
class Found:
    """The result. Laws are None for fewer than two budgets with a minimum."""

    optima: tuple[Optimum, ...]  # of the budgets that were run
    ahead: tuple[Optimum, ...]  # of further ones, by the laws
    recipes: tuple[Recipe, ...]
    tokens: Law | None
    parameters: Law | None
    left_out: tuple[str, ...]  # why a budget has no optimum, or no interval


def analyse(cells: Iterable[Cell], ahead: Sequence[float] = ()) -> Found:
    """Everything that the runs show, and the optimum at further budgets. Raises Refused if no
    budget has a minimum."""
    by_budget: dict[float, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.budget, cell.tokens)):
        if cell.losses:
            by_budget.setdefault(cell.budget, []).append(cell)
    why, kept, fits = list[str](), dict[float, list[Cell]](), dict[float, Array]()
    for budget, row in by_budget.items():
        try:
            fits[budget] = _with_minimum(row)
            kept[budget] = row
        except Refused as error:
            why.append(f"{_short(budget)} FLOPs: {error}")
    if not kept:
        raise Refused("; ".join(why) or "no run has a score")
    size_of = _Size([cell for row in kept.values() for cell in row])
    samples = _bootstrap(kept, fits)
    if samples is None:
        why.append("no interval: one seed and three sizes leave nothing to tell the error from")
    vertices = np.array([_vertex(fit)[0] for fit in fits.values()])
    logs = np.log10(list(kept))
    drawn = None if samples is None else _vertex(samples)[0]  # (sample, budget)
    if drawn is not None:
        wide = [budget for n, budget in enumerate(kept) if not _enough(drawn[:, n])]
        why += [f"{_short(one)} FLOPs: the minimum is too flat for an interval" for one in wide]
    optima = [
        Optimum(
            budget=budget,
            tokens=_figure(vertices[n], None if drawn is None else drawn[:, n]),
            parameters=_figure(
                float(size_of(logs[n], vertices[n])),
                None if drawn is None else size_of(logs[n], drawn[:, n]),
            ),
            loss=_rounded(float(_vertex(fit)[1])),
            parabola=(float(fit[0]), float(fit[1]), float(fit[2])),
        )
        for n, (budget, fit) in enumerate(fits.items())
    ]
    if len(kept) < FEWEST_BUDGETS:
        return Found(tuple(optima), (), (), None, None, tuple(why))
    of_tokens = _line(logs, vertices), None if drawn is None else _line(logs, drawn)
    of_sizes = (
        _line(logs, size_of(logs, vertices)),
        None if drawn is None else _line(logs, size_of(logs, drawn)),
    )
    further = [
        Optimum(budget, _at(math.log10(budget), *of_tokens), _at(math.log10(budget), *of_sizes))
        for budget in ahead
    ]
    each = {cell.size: cell for row in kept.values() for cell in row}.values()
    recipes = [_recipe(cell, *of_tokens) for cell in sorted(each, key=lambda x: x.parameters)]
    return Found(
        optima=tuple(optima),
        ahead=tuple(further),
        recipes=tuple(recipes),
        tokens=_law(*of_tokens),
        parameters=_law(*of_sizes),
        left_out=tuple(why),
    )


def of_runs(plan: Plan, runs: Iterable[Run]) -> list[Cell]:
    """The scored runs of a plan's IsoFLOP analysis, by budget and size."""
    losses: dict[str, list[float]] = {}
    for run in runs:
        if run.evaluated:
            losses.setdefault(run.arm, []).append(run.evaluated.bpb)
    return [
        Cell(of.budget, of.size, arm.parameters or 0, arm.tokens, tuple(losses[of.arm]))
        for of in (plan.isoflop.arms if plan.isoflop else ())
        if of.arm in losses and (arm := plan.arms.get(of.arm))
    ]


# ── Parabolas ────────────────────────────────────────────────────────────────────────────────


def parabola(x: Array, y: Array) -> Array:
    """(…, 3) coefficients p0, p1, p2 of L = p0 + p1·x + p2·x² for losses y (…, points), by Huber's
    loss: an error beyond HUBER robust standard deviations counts linearly. It reweights, from the
    least squares. With three points it goes through them."""
    middle = float(x.mean())
    powers = np.stack([np.ones_like(x), x - middle, (x - middle) ** 2], axis=-1)
    weights = np.ones_like(y)
    for _ in range(ROUNDS if len(x) > FEWEST else 1):
        weighted = powers * weights[..., None]
        squares = np.swapaxes(weighted, -1, -2) @ powers
        found = np.linalg.solve(squares, (weighted * y[..., None]).sum(axis=-2)[..., None])[..., 0]
        errors = np.abs(y - (powers @ found[..., None])[..., 0])
        scale = 1.4826 * np.median(errors, axis=-1, keepdims=True)
        fresh = np.minimum(1.0, HUBER * scale / np.maximum(errors, 1e-300))
        fresh = np.where(errors <= 1e-12, 1.0, fresh)
        if np.allclose(fresh, weights, rtol=0, atol=1e-9):
            break
        weights = fresh
    p0, p1, p2 = np.moveaxis(found, -1, 0)
    return np.stack([p0 - p1 * middle + p2 * middle**2, p1 - 2 * p2 * middle, p2], axis=-1)


def _vertex(fit: Array) -> tuple[Array, Array]:
    """(x, L) at the minimum; nan for a parabola without one."""
    p0, p1, p2 = np.moveaxis(fit, -1, 0)
    bent = np.where(p2 > 0, p2, np.nan)
    return -p1 / (2 * bent), p0 - p1**2 / (4 * bent)


def _with_minimum(row: Sequence[Cell]) -> Array:
    """The parabola of one budget. Raises Refused unless its minimum is between its sizes."""
    if len({cell.tokens for cell in row}) < FEWEST:
        raise Refused(f"{len(row)} sizes are too few for a parabola; {FEWEST} are needed")
    x = _x(row)
    fit = parabola(x, np.array([cell.loss for cell in row]))
    at = float(_vertex(fit)[0])
    if math.isnan(at):
        raise Refused("the losses have no minimum between these sizes; add smaller or larger ones")
    if at < x.min() or at > x.max():
        which = "larger" if at < x.min() else "smaller"
        raise Refused(f"the minimum is beyond the sizes; add {which} ones")
    return fit


def _x(row: Iterable[Cell]) -> Array:
    return np.log10([cell.tokens for cell in row])


# ── Intervals ────────────────────────────────────────────────────────────────────────────────


def _bootstrap(kept: Mapping[float, list[Cell]], fits: Mapping[float, Array]) -> Array | None:
    """(sample, budget, 3) parabolas of losses drawn anew; None if nothing tells the error."""
    cells = [cell for row in kept.values() for cell in row]
    left = [
        np.array([cell.loss for cell in row]) - np.polynomial.polynomial.polyval(_x(row), fit)
        for row, fit in zip(kept.values(), fits.values(), strict=True)
    ]
    known = []  # (variance of a point, its degrees of freedom)
    if between := sum(len(cell.losses) - 1 for cell in cells):
        many = [cell.losses for cell in cells if len(cell.losses) > 1]
        pooled = sum(variance(losses) * (len(losses) - 1) for losses in many) / between
        known.append((pooled * fmean(1 / len(cell.losses) for cell in cells), between))
    if beyond := len(cells) - FEWEST * len(kept):
        known.append((float(sum((one**2).sum() for one in left)) / beyond, beyond))
    if not known:
        return None
    error, freedom = max(known)
    random = np.random.default_rng(0)  # so that everybody gets the same
    size = np.sqrt(error * freedom / random.chisquare(freedom, SAMPLES))
    found = []
    for row, fit in zip(kept.values(), fits.values(), strict=True):
        exact = np.polynomial.polynomial.polyval(_x(row), fit)
        noise = size[:, None] * random.standard_normal((SAMPLES, len(row)))
        found.append(parabola(_x(row), exact + noise))
    return np.stack(found, axis=1)


def _enough(drawn: Array) -> bool:
    return bool(np.isnan(drawn).mean() <= MOST_WITHOUT)


def _figure(value: float, drawn: Array | None) -> Figure:
    """10^value with its interval from samples of the same logarithm."""
    interval = None
    if drawn is not None and _enough(drawn):
        low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        interval = _power(low), _power(high)
    return Figure(_power(value), interval)


def _power(value: float) -> float:
    return _rounded(10.0 ** min(max(float(value), -300.0), 300.0))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS - 1}e}")


# ── Laws over budgets ────────────────────────────────────────────────────────────────────────


class _Size:
    """log10 N of the size that takes C/D FLOPs per token, as the declared sizes show: a curve of
    the second degree in the logarithm of FLOPs per token, or a line through two."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        known = {cell.size: cell for cell in cells}.values()
        per_token = np.log10([cell.budget / cell.tokens for cell in known])
        sizes = np.log10([cell.parameters for cell in known])
        degree = min(2, len({*per_token.tolist()}) - 1)
        self._fit = np.polynomial.Polynomial.fit(per_token, sizes, degree)

    def __call__(self, log_flops: Array | float, log_tokens: Array | float) -> Array:
        return np.asarray(self._fit(np.asarray(log_flops) - np.asarray(log_tokens)))


def _line(x: Array, y: Array) -> Array:
    """(…, 2) level and slope of y (…, points) over x."""
    around = x - x.mean()
    slope = y @ around / (around @ around)
    return np.stack([y.mean(axis=-1) - slope * x.mean(), slope], axis=-1)


def _law(line: Array, drawn: Array | None) -> Law:
    slope, interval = float(line[1]), None
    if drawn is not None and _enough(drawn[:, 1]):
        low, high = np.nanquantile(drawn[:, 1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        interval = _rounded(float(low)), _rounded(float(high))
    return Law(_power(float(line[0])), Figure(_rounded(slope), interval))


def _at(log_flops: float, line: Array, drawn: Array | None) -> Figure:
    of = None if drawn is None else drawn[:, 0] + drawn[:, 1] * log_flops
    return _figure(float(line[0] + line[1] * log_flops), of)


def _recipe(cell: Cell, line: Array, drawn: Array | None) -> Recipe:
    """The budget at which D*(C) is what this size takes: C = f·D, with f FLOPs per token."""
    per_token = math.log10(cell.budget / cell.tokens)

    def flops(of: Array) -> Array:
        return np.asarray((of[..., 0] + per_token) / (1 - of[..., 1]))

    of = None if drawn is None else flops(drawn)
    best = float(flops(line))
    return Recipe(
        size=cell.size,
        parameters=cell.parameters,
        flops=_figure(best, of),
        tokens=_figure(best - per_token, None if of is None else of - per_token),
    )


def _short(flops: float) -> str:
    return f"{flops:.3g}".replace("e+", "e")
