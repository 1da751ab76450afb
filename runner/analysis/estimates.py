"""Estimates what a prediction is about from a plan's figures, with its 95 % interval. Pure.

*An arm*: its mean over n seeds, x ± t(0.975, n−1)·SE; with `versus`, the mean difference over the
seeds that both arms share. If no seed changes any figure of these arms (own code need not use it),
they count as one run, and there is no interval.

*An order* of k arms, best first: the smallest of the k−1 steps from an arm to the next, each the
mean difference over n seeds: the worse minus the better arm where lower is better, otherwise the
better minus the worse. The steps' intervals hold together with 95 %: each has the level 1 −
0.05/(k−1) (Bonferroni). Then the smallest step is between the minimum of their lower ends and the
minimum of their upper ends; so it is surely above 0 if all are. For two arms this is the difference
itself.

*An exponent*: b of L = a·C^(−b) + c, fitted to all runs, with the interval of its profile
likelihood (`scaling.exponent`): once with each run as a point and once with each size's mean over
its seeds, and the wider one counts. n counts runs. One seed is enough, because deviations from the
curve show the error. C is known from the plan, except for hardware FLOPs: these are an arm's tokens
over the tokens per second that its jobs reported (the mean over seeds, so that an arm stays one
size), times the peak FLOP/s of its devices.

*A larger run*: its figures over the forecast of the smaller arms, by their means over seeds, less
1. The forecast counts as an exact number, because the prediction was about it: the interval is that
of a mean over the larger arm's n seeds and does not include the forecast's own error. The
forecast's interval is shown beside it.

Results of a numerical search are rounded to DIGITS, so that another machine gets the same.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, mean, stdev
from types import MappingProxyType
from typing import Literal

from scipy.special import stdtrit

from runner.analysis import scaling
from runner.lib.format import first_of
from runner.schema import metrics, prediction_forms, record

Figures = Mapping[tuple[str, int], float | None]  # (arm, seed) → the score by one metric, or None
Scores = Mapping[str, Figures]  # by metric
Interval = tuple[float, float]  # both ends are included
DIGITS = 5  # significant digits of results of a search
LEVEL = 0.95
MAX_NAMED = 6  # arms, or runs without a figure, in a sentence


@dataclass(frozen=True)
class Estimate:
    """A number and its interval."""

    what: str  # what was estimated, as text
    value: float
    interval: Interval
    n: int  # seeds; for an exponent, runs
    unit: str = ""
    error: float | None = None  # standard error of a mean
    kind: str = "95 % interval"


class NoEstimate(ValueError):
    """There is no estimate, or none with an interval; the message says why."""

    def __init__(self, why: str, n: int, value: float | None = None) -> None:
        super().__init__(why)
        self.n = n
        self.value = value


def estimate(
    prediction: record.Prediction,
    plan: record.Plan,
    figures: Figures,
    speeds: Figures = MappingProxyType({}),
) -> Estimate:
    """The estimate for a prediction. `speeds` are runs' tokens per second. Raises NoEstimate."""
    seeds, arms = plan.seeds, prediction.arms
    if above := [arm for arm in arms if arm not in plan.arms]:
        rung = f"rung {plan.rung.n} of {plan.rung.of}" if plan.rung else "the plan"
        raise NoEstimate(f"not yet decided; {rung} does not reach {first_of(above, MAX_NAMED)}", 0)
    by_arm = {arm: [figures.get((arm, seed)) for seed in seeds] for arm in arms}
    missing = [
        record.run_name(arm, seed)
        for arm in arms
        for seed, value in zip(seeds, by_arm[arm], strict=True)
        if value is None
    ]
    if missing:
        n = sum(None not in of_seed for of_seed in zip(*by_arm.values(), strict=True))
        raise NoEstimate(
            f"incomplete, {n} of {len(seeds)} seeds; no figure for {first_of(missing, MAX_NAMED)}",
            n,
        )
    values = {arm: [value for value in of if value is not None] for arm, of in by_arm.items()}
    unit = unit_of(prediction.metric)
    if prediction.order:
        is_higher_better = metrics.better(prediction.metric) == "higher"
        return _least_step(prediction.order, values, unit, -1 if is_higher_better else 1)
    if prediction.exponent or prediction.smaller:
        spent = {arm: _spent(prediction, plan, arm, speeds) for arm in arms}
        law = _exponent if prediction.exponent else _forecast_error
        return law(prediction, spent, values)
    of_seeds = zip(*(values[arm] for arm in arms), strict=True)
    return _of_mean(
        " minus ".join(arms),
        [row[0] - row[1] if len(row) == 2 else row[0] for row in of_seeds],
        seeds_change=_change(arms, values),
        unit=unit,
    )


def unit_of(metric: str) -> str:
    """The short unit after a number: ` bpb`; empty if there is none."""
    short = metrics.what(metric).short
    return f" {short}" if short else ""


def _change(arms: Iterable[str], values: Mapping[str, list[float]]) -> bool:
    """Whether the seed changes any figure of these arms."""
    return any(len({*values[arm]}) > 1 for arm in arms)


def _of_mean(what: str, values: list[float], *, seeds_change: bool, unit: str = "") -> Estimate:
    value = mean(values)
    if len(values) == 1 or not seeds_change:
        words = "one seed" if len(values) == 1 else f"{len(values)} seeds that change no figure"
        raise NoEstimate(f"{words}; {what}: {figure(value, 4)}{unit}", 1, value)
    return Estimate(what, value, interval_of(values), len(values), unit, standard_error(values))


def _least_step(
    order: tuple[str, ...], values: Mapping[str, list[float]], unit: str, sign: Literal[1, -1]
) -> Estimate:
    steps, at = [], 1 - (1 - LEVEL) / (len(order) - 1)
    for better, worse in pairwise(order):
        by = [sign * (b - a) for a, b in zip(values[better], values[worse], strict=True)]
        change = _change((better, worse), values)
        what = " minus ".join((worse, better)[::sign])
        step = _of_mean(what, by, seeds_change=change, unit=unit)
        steps.append((step, interval_of(by, at)))
    least = min((step for step, _ in steps), key=lambda step: step.value)
    interval = (min(low for _, (low, _) in steps), min(high for _, (_, high) in steps))
    what = f"the least step, {least.what}"
    kind = "95 % interval" if len(steps) == 1 else "95 % interval of all steps together"
    return Estimate(what, least.value, interval, least.n, unit, kind=kind)


def _exponent(
    prediction: record.Prediction,
    spent: Mapping[str, float],
    values: Mapping[str, list[float]],
) -> Estimate:
    points = [(spent[arm], one) for arm in prediction.exponent for one in values[arm]]
    try:
        found = scaling.exponent(points, level=LEVEL)
    except scaling.Refused as error:
        raise NoEstimate(str(error), len(points)) from error
    interval = (_rounded(found.low), _rounded(found.high))
    axis = prediction_forms.AXES[prediction.axis or "model_flops"]
    what = f"b of L = a·C^(−b) + c over {len(prediction.exponent)} sizes in {axis}"
    return Estimate(what, _rounded(found.b), interval, len(points))


def _forecast_error(
    prediction: record.Prediction,
    spent: Mapping[str, float],
    values: Mapping[str, list[float]],
) -> Estimate:
    points = [(spent[arm], fmean(values[arm])) for arm in prediction.smaller]
    arm = prediction.arm or ""
    if not_smaller := [name for name in prediction.smaller if spent[name] >= spent[arm]]:
        took = prediction_forms.AXES[prediction.axis or "model_flops"]
        raise NoEstimate(f"{not_smaller[0]} took as many {took} as {arm}", len(values[arm]))
    try:
        forecast = scaling.forecast(points, spent[arm], level=LEVEL)
    except scaling.Refused as error:
        raise NoEstimate(str(error), len(values[arm])) from error
    loss, unit = _rounded(forecast.loss), unit_of(prediction.metric)
    low, high = (figure(_rounded(end), 4) for end in (forecast.low, forecast.high))
    words = f"; {forecast.words}" if forecast.words else ""
    return _of_mean(
        f"{arm} over its forecast of {figure(loss, 4)}{unit} ([{low}, {high}]{words}), less 1",
        [value / loss - 1 for value in values[arm]],
        seeds_change=_change([arm], values),
    )


def _spent(prediction: record.Prediction, plan: record.Plan, arm: str, speeds: Figures) -> float:
    """The C of one run of the arm. Raises NoEstimate if it was not measured."""
    planned, resources = plan.arms[arm], plan.resources
    if prediction.axis != "hardware_flops":
        return prediction_forms.spent(planned, prediction.axis or "model_flops")
    reported = [speed for seed in plan.seeds if (speed := speeds.get((arm, seed)))]
    if len(reported) < len(plan.seeds):
        raise NoEstimate(f"no speed is known of {arm}, and so no hardware FLOPs", 0)
    kind = plan.kinds.get(resources.kind)
    # An unknown device does not matter for a law: the factor is the same for all sizes.
    a_second = resources.count * (kind.peak_flops if kind else 1.0)
    return planned.tokens / fmean(reported) * a_second


# ── Means and their intervals ────────────────────────────────────────────────────────────────
# Figures are within `runner.lib.bounds`, so their squares do not overflow. `statistics` computes in
# fractions: equal values have exactly themselves as mean and deviation 0.


def standard_error(values: list[float]) -> float:
    """The standard error of the mean of at least two values."""
    return float(stdev(values)) / math.sqrt(len(values))


def interval_of(values: list[float], level: float = LEVEL) -> Interval:
    """The interval of the mean by the t distribution, x ± t((1 + level)/2, n−1)·SE, for at least
    two values."""
    around = float(stdtrit(len(values) - 1, (1 + level) / 2)) * standard_error(values)
    return mean(values) - around, mean(values) + around


def deviation(values: list[float]) -> float | None:
    """The standard deviation (n − 1); None for fewer than two values."""
    return float(stdev(values)) if len(values) > 1 else None


def spread_over_seeds(values: list[float]) -> float | None:
    """The standard deviation of an arm's figures over its seeds (n − 1); None for fewer than two,
    and if the seed does not change the figure, which then counts as one run."""
    return None if len({*values}) == 1 else deviation(values)


def figure(value: float, decimals: int) -> str:
    """`value` as text: fixed decimals and a true minus sign; scientific if it is huge."""
    text = f"{value:.4e}" if abs(value) >= 1e6 else f"{value:.{decimals}f}"
    if text.startswith("-") and not text.strip("-0."):
        text = text[1:]
    return text.replace("-", "−")


def two_digits(value: float) -> int:
    """How many decimals show two significant digits of `value`."""
    return min(max(2, 1 - math.floor(math.log10(value))), 15) if value > 0 else 4


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS - 1}e}")
