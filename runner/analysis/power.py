"""What a design can detect, before it runs. Pure.

A prediction is judged by the interval x ± t(0.975, n−1)·SE over n seeds (`verdicts`). A true
difference is detected if this interval excludes zero; how often that happens follows from the
noncentral t distribution with n−1 degrees of freedom (Cohen 1988, 2.5).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import variance
from types import MappingProxyType

from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln, nctdtr, ndtr, stdtrit

from runner.analysis.estimates import figure, two_digits
from runner.analysis.verdicts import Expectation, parse_expect
from runner.schema.metrics import BPB
from runner.schema.record import Plan, Prediction, Spread

SHOWN = 0.8  # the power that counts as enough
SHARE = "in 4 of 5 cases"  # the same in words
FEWEST_ARMS = 3  # with at least two seeds, before the lab's spread counts as known
ALIKE = 10  # factor in model FLOPs within which runs are expected to have the same spread


@dataclass(frozen=True)
class Seen:
    """An arm that was trained and scored; its spread helps to predict others'."""

    model_flops: int  # of one run
    figures: tuple[float, ...]  # over its seeds


def of_such_runs(plan: Plan, seen: Iterable[Seen]) -> Spread | None:
    """The spread to expect for a plan, from arms that were scored on the same text and whose runs
    took between 1/ALIKE and ALIKE times its FLOPs. Repetitions with equal bits count once. None if
    too few are known."""
    costs = [arm.model_flops for arm in plan.arms.values() if arm.model_flops is not None]
    if not costs:
        return None
    low, high = min(costs) / ALIKE, max(costs) * ALIKE
    return known_spread(dict.fromkeys(x.figures for x in seen if low <= x.model_flops <= high))


def known_spread(arms: Iterable[Sequence[float]]) -> Spread | None:
    """The spread between seeds, pooled over arms; each arm is its figures over its seeds. None if
    fewer than FEWEST_ARMS have two seeds. Arms whose figures do not depend on the seed do not
    count."""
    kept = [list(figures) for figures in arms if len({*figures}) > 1]
    if len(kept) < FEWEST_ARMS:
        return None
    freedom = sum(len(figures) - 1 for figures in kept)
    squares = sum(variance(figures) * (len(figures) - 1) for figures in kept)
    deviation = math.sqrt(squares / freedom)
    return Spread(deviation=deviation, arms=len(kept), freedom=freedom)


def power(effect: float, seeds: int) -> float:
    """How often the 95 % interval over at least two seeds excludes zero, if the mean is `effect`
    standard deviations (of a seed's value) away from zero. At least 0.05, the error rate."""
    freedom, critical = seeds - 1, float(stdtrit(seeds - 1, 0.975))
    off = abs(effect) * math.sqrt(seeds)
    above, below = 1 - nctdtr(freedom, off, critical), nctdtr(freedom, off, -critical)
    # Far from zero the other tail is negligible, and SciPy returns nan for it.
    return float(above + (below if math.isfinite(below) else 0.0))


def smallest_difference(deviation: float, seeds: int) -> float:
    """The smallest true difference that is detected with power SHOWN over at least two seeds with
    this standard deviation."""

    def short(effect: float) -> float:
        return power(effect, seeds) - SHOWN

    most = 1.0
    while short(most) < 0:
        most *= 2
    return float(brentq(short, 0.0, most, xtol=1e-9)) * deviation


def smallest_tolerance(deviation: float, seeds: int) -> float:
    """The smallest a for which `x ± a` is confirmed with probability SHOWN if x is the truth, over
    at least two seeds with this standard deviation."""
    freedom, critical = seeds - 1, float(stdtrit(seeds - 1, 0.975))
    constant = math.log(2) + freedom / 2 * math.log(freedom / 2) - float(gammaln(freedom / 2))

    def density(ratio: float) -> float:
        """Density of the ratio of a sample's standard deviation to the true one."""
        return math.exp(constant + (freedom - 1) * math.log(ratio) - freedom * ratio**2 / 2)

    def short(tolerance: float) -> float:
        """The probability of a confirmation minus SHOWN; `tolerance` is in standard errors."""

        def inside(ratio: float) -> float:
            return density(ratio) * (2 * float(ndtr(tolerance - critical * ratio)) - 1)

        # Ratios above ten are too rare to matter.
        return float(quad(inside, 1e-12, min(tolerance / critical, 10.0))[0]) - SHOWN

    return float(brentq(short, 0.0, 20 * critical, xtol=1e-6)) * deviation / math.sqrt(seeds)


def _apart(spread: Spread, *, between_arms: bool) -> float:
    """The standard deviation between seeds of an arm, or of the difference of two arms over the
    same seeds, which are taken as independent."""
    return spread.deviation * (math.sqrt(2) if between_arms else 1.0)


# ── In words ─────────────────────────────────────────────────────────────────────────────────


def told(
    plan: Plan,
    predictions: Sequence[Prediction],
    spread: Spread | None,
    spreads: Mapping[str, Spread] = MappingProxyType({}),
) -> list[str]:
    """What a plan's design can detect, as sentences: in general, then for each prediction. `spread`
    is of `eval/bpb`, and `spreads` by other metrics that predictions name."""
    by_metric = {**spreads, BPB: spread}
    named = dict.fromkeys(one.metric for one in predictions) or {BPB: None}
    same: dict[str, list[str]] = {}  # the metrics of which a sentence is true
    for metric in sorted(named, key=lambda metric: metric != BPB):
        if plan.arms and (predictions or len(plan.seeds) > 1):
            same.setdefault(known(by_metric.get(metric), len(plan.seeds)), []).append(metric)
    found = [
        words
        if (len(same) == 1 and len(metrics) > 1) or metrics == [BPB]
        else f"By {', '.join(f'`{metric}`' for metric in metrics)}: {words}"
        for words, metrics in same.items()
    ]
    for n, prediction in enumerate(predictions, 1):
        if one := of_prediction(prediction, by_metric.get(prediction.metric), len(plan.seeds)):
            found.append(f"{'⚠️ ' if one.too_little else ''}Prediction {n}: {one.words}.")
    return found


def known(spread: Spread | None, seeds: int) -> str:
    """What a design with so many seeds can detect in general, as sentences."""
    if seeds < 2:
        return (
            "This plan has one seed. A mean of one seed has no confidence interval, so no "
            "prediction about a mean can be confirmed or refuted."
        )
    if spread is None:
        return (
            f"Statistical power unknown: the lab has run fewer than {FEWEST_ARMS} comparable arms "
            f"(same text, two seeds or more, between 1/{ALIKE} and {ALIKE} times the FLOPs). So "
            "the lab cannot say how small a difference this plan can detect."
        )
    smallest = smallest_difference(_apart(spread, between_arms=True), seeds)
    return (
        f"Power: with {seeds} seeds, two arms have to differ by {_digits(smallest)} for a 95 % "
        f"interval that excludes zero {SHARE}. This follows from the spread between seeds in "
        f"comparable runs: {_digits(spread.deviation)} (standard deviation, {spread.arms} arms)."
    )


@dataclass(frozen=True)
class Told:
    """What a design can detect about one prediction."""

    words: str  # as a sentence
    too_little: bool  # the prediction depends on less than can be detected


def of_prediction(prediction: Prediction, spread: Spread | None, seeds: int) -> Told | None:
    """What is known in advance about a prediction of one arm or two; None if nothing is."""
    others = prediction.model_fields_set - {"metric", "arm", "versus", "expect", "confidence"}
    if spread is None or seeds < 2 or any(getattr(prediction, key) for key in others):
        return None
    expected, between_arms = parse_expect(prediction.expect), prediction.versus is not None
    apart = _apart(spread, between_arms=between_arms)
    truth = "the true difference" if between_arms else "the true mean"
    if expected.tolerance is not None:
        needed = smallest_tolerance(apart, seeds)
        return _within(expected, expected.tolerance, needed, truth)
    smallest = smallest_difference(apart, seeds)
    return _beyond(expected, smallest, truth, near_zero=between_arms)


def _within(expected: Expectation, given: float, needed: float, truth: str) -> Told:
    middle = figure(expected.value, 4).rstrip("0").rstrip(".")
    if given < needed:
        words = (
            f"too narrow for this design. If {truth} is {middle}, it needs at least "
            f"± {_digits(needed)} to be confirmed {SHARE}"
        )
        return Told(words, True)
    return Told(f"if {truth} is {middle}, ± {_digits(needed)} is enough {SHARE}", False)


def _beyond(expected: Expectation, smallest: float, truth: str, *, near_zero: bool) -> Told:
    """`smallest` is how far from its bound the truth must be to be detected."""
    below = expected.sign in ("<", "<=")
    decimals = two_digits(smallest)
    yes, no = (
        figure(expected.value + side * smallest, decimals)
        for side in ((-1, 1) if below else (1, -1))
    )
    side, other = ("below", "above") if below else ("above", "below")
    words = f"confirmed {SHARE} if {truth} is {side} {yes}, refuted if it is {other} {no}"
    # For one arm alone, zero has no meaning.
    if near_zero and 0 < abs(expected.value) < smallest:
        asked = _digits(abs(expected.value))
        return Told(f"too small an effect ({asked}) for this design. It would be {words}", True)
    return Told(words, False)


def _digits(value: float) -> str:
    return figure(value, two_digits(value))
