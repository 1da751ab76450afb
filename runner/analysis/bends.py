"""The interval of a forecast over curves that are almost a power law. Pure.

A power law above a floor is a form that somebody chose. A second exponent, a bend or an exponent
that falls with size hardly shows on a short ladder, and moves a forecast at a hundred times its
compute by several per cent. So the interval is that of a mixture (Bayesian model averaging; Hoeting
et al. 1999): a part of the weight has the exact law, the rest one smooth bend (Caballero et al.
2023) somewhere in the upper two thirds of the ladder,

    log f(t) = −b·t + δ·b·w·(softplus((t − d)/w) − softplus(−d/w)),    t = log(C/smallest C),

and L = c + a·f. For a given f the losses are linear in a and c, which are integrated out, with a
flat prior on the losses at the two ends of the ladder and c ≥ 0. Errors are relative and of unknown
size. What a ladder's own losses do not rule out widens the interval, the more the larger the reach.

`tests/bench/forecast_coverage.py` states a family of curves, most of them not of this form, and
measures the interval on it; docs/benchmarks.md has the table.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import stdtr

Array = NDArray[np.float64]

# The name of this family and its constants, for records. Another choice gets another name.
FAMILY = "one bend, 2026-11"

# Chosen on the inner half of `tests/bench/forecast_coverage.py`.
EXPONENTS = (0.04, 0.6)  # b, even in its logarithm
MAX_CHANGE = 0.5  # δ is even from −0.5 to 0.5
FIRST_BEND = 1 / 3  # of the ladder's range of t
WIDTHS = (0.3, 1.5)  # w in e-folds of C, even in its logarithm
BENT = 0.8  # the weight of curves with a bend
# With a fitted floor, any one kind of curve is held more often than the mixture says: so much more
# may be outside.
OUTSIDE = 1.5
FINEST = 1e-3  # the least relative error of a size: no curve of these is truer

STRAIGHT_CURVES, BENT_CURVES = 96, 512
# Multiples of these fill a cube evenly (Roberts 2018) without random numbers, so that everybody
# gets the same interval.
_STEPS = 1.1673039782614187 ** -np.arange(1.0, 5.0)
NEGLIGIBLE = 1e-6  # relative weight of a curve
WIDEST = 1e4  # standard errors, between which an end of the interval is looked for


def _family(t: Array, there: float) -> tuple[Array, Array]:
    """(curve, t) values of log f on a ladder that begins at 0, the last ones at `there`; and the
    prior weights of the curves."""
    even = (0.5 + np.outer(_STEPS, np.arange(1, BENT_CURVES + 1))) % 1.0
    straight = np.full((4, STRAIGHT_CURVES), 0.5)  # δ = 0
    straight[0] = (np.arange(STRAIGHT_CURVES) + 0.5) / STRAIGHT_CURVES
    exponent, change, place, width = np.hstack([straight, even])[:, :, None]
    b = EXPONENTS[0] * (EXPONENTS[1] / EXPONENTS[0]) ** exponent
    w = WIDTHS[0] * (WIDTHS[1] / WIDTHS[0]) ** width
    d = t.max() * (FIRST_BEND + (1 - FIRST_BEND) * place)
    all_t = np.append(t, there)
    bend = np.logaddexp(0.0, (all_t - d) / w) - np.logaddexp(0.0, -d / w)
    weights = np.repeat(
        [(1 - BENT) / STRAIGHT_CURVES, BENT / BENT_CURVES], [STRAIGHT_CURVES, BENT_CURVES]
    )
    return -b * all_t + MAX_CHANGE * (2 * change - 1) * b * w * bend, weights


def interval(
    compute: Array, losses: Array, at: float, level: float, floor: float | None = None
) -> tuple[float, float]:
    """The loss at C = `at`, between the two values beyond which the mixture has equal shares,
    together 1 − level, times OUTSIDE if the floor is fitted. A given `floor` is not fitted. Needs
    three points, or two with a floor."""
    t, there = np.log(compute / compute.min()), math.log(at / compute.min())
    logs, prior = _family(t, there)
    x, ahead = np.exp(logs[:, :-1]), np.exp(logs[:, -1])
    weights = losses**-2
    total = weights.sum()
    if floor is None:
        mean, middle = x @ weights / total, float(weights @ losses / total)
    else:
        mean, middle = np.zeros(len(x)), floor
    around = x - mean[:, None]
    spread = around**2 @ weights
    slope = around @ (weights * (losses - middle)) / spread
    left = (losses - middle - slope[:, None] * around) ** 2 @ weights
    value = middle + slope * (ahead - mean)
    of_middle = 1 / total if floor is None else 0.0
    freedom = len(losses) - (2 if floor is None else 1)
    squares = left + freedom * FINEST**2
    error = np.sqrt(squares / freedom * (of_middle + (ahead - mean) ** 2 / spread))
    likely = np.log(prior) - np.log(spread) / 2 - freedom / 2 * np.log(squares)
    if floor is None:
        ends = np.abs(x[:, t.argmax()] - x[:, t.argmin()])
        of_floor = np.sqrt(squares / freedom * (of_middle + mean**2 / spread))
        positive = stdtr(freedom, (middle - slope * mean) / of_floor)
        likely += np.log(ends) + np.log(np.maximum(positive, 1e-300))
    likely = np.where(slope > 0, likely, -np.inf)
    share = np.exp(likely - likely.max())
    counts = share > NEGLIGIBLE
    share, value, error = share[counts] / share[counts].sum(), value[counts], error[counts]
    search = float((value - WIDEST * error).min()), float((value + WIDEST * error).max())

    def end(below: float) -> float:
        return float(
            brentq(lambda loss: share @ stdtr(freedom, (loss - value) / error) - below, *search)
        )

    outside = min((OUTSIDE if floor is None else 1.0) * (1 - level), 1.0) / 2
    return max(end(outside), floor or 0.0), end(1 - outside)
