"""How predictions come out: one rule, pure, for comment, check and board alike.

The estimate is the mean over seeds (with `versus`, the mean of the differences over the seeds that
both arms share), its interval x ± t(0.975, n−1)·SE. A prediction's `expect` names a set of numbers:
*confirmed* if the whole interval lies in it, *refuted* if it lies wholly outside, otherwise
*inconclusive*. One seed has no interval, and a missing run is not left out in silence: both are
inconclusive and say so.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from statistics import mean, stdev
from typing import Literal, cast

from scipy.special import stdtrit

from runner import record

Figures = Mapping[tuple[str, int], float | None]  # (arm, seed) → eval/bpb; None: there is none
Sign = Literal["<", "<=", ">", ">=", "±"]
Interval = tuple[float, float]  # both ends belong to it

FORMS = "< 1.9, <= 1.9, > 1.9, >= 1.9 or 1.9 ± 0.1 (also 1.9 +- 0.1)"
MOST_CHARACTERS = 100
_NUMBER = r"[+\-−]?\s*(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+\-−]?[0-9]+)?"
_COMPARISON = re.compile(rf"\s*(<=|>=|<|>|≤|≥)\s*({_NUMBER})\s*")
_TOLERANCE = re.compile(rf"\s*({_NUMBER})\s*(?:±|\+/?-|\+−)\s*({_NUMBER})\s*")
_SIGNS = {"≤": "<=", "≥": ">="}
_WORDS = {"<": "below", "<=": "at most", ">": "above", ">=": "at least", "±": "within"}
_UNITS = {"eval/bpb": "bpb"}


class BadExpectation(ValueError):
    """`expect` cannot be read as a set of numbers; the message says why and what can be."""


# ── What a prediction expects ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Expectation:
    """The set of numbers that `expect` names: from `lower` to `upper`, ends included or not."""

    sign: Sign
    value: float  # the bound, or the middle
    lower: float
    upper: float
    tolerance: float | None = None

    @property
    def closed(self) -> bool:
        """Whether the set's finite ends belong to it."""
        return self.sign in ("<=", ">=", "±")

    def contains(self, interval: Interval) -> bool:
        """Whether every point of `interval` belongs to the set."""
        low, high = interval
        if self.closed:
            return self.lower <= low and high <= self.upper
        return self.lower < low and high < self.upper

    def excludes(self, interval: Interval) -> bool:
        """Whether no point of `interval` belongs to the set."""
        low, high = interval
        if self.closed:
            return high < self.lower or low > self.upper
        return high <= self.lower or low >= self.upper

    def __str__(self) -> str:
        """The canonical form: equal sets written alike, and read back as the same set."""
        if self.tolerance is None:
            return f"{self.sign} {_shortest(self.value)}"
        return f"{_shortest(self.value)} ± {_shortest(self.tolerance)}"

    @property
    def words(self) -> str:
        """For a sentence: `below −0.05`, `within 1.9 ± 0.1`."""
        bound = str(self) if self.tolerance is not None else _shortest(self.value)
        return f"{_WORDS[self.sign]} {bound.replace('-', '−')}"


def parse_expect(text: str) -> Expectation:
    """The set that `text` names. Raises BadExpectation for what is no such set."""
    if len(text) > MOST_CHARACTERS:
        raise BadExpectation(
            f"{_quoted(text)} is longer than {MOST_CHARACTERS} characters; write {FORMS}."
        )
    if comparison := _COMPARISON.fullmatch(text):
        sign = _SIGNS.get(comparison[1], comparison[1])
        bound = _number(comparison[2], text)
        lower, upper = (-math.inf, bound) if sign in ("<", "<=") else (bound, math.inf)
        return Expectation(cast(Sign, sign), bound, lower, upper)
    if tolerance := _TOLERANCE.fullmatch(text):
        middle, around = (_number(number, text) for number in tolerance.groups())
        if around <= 0:
            raise BadExpectation(f"{_quoted(text)}: the tolerance after ± must be above 0.")
        # In decimals, so that 1.9 ± 0.1 begins at 1.8 and not at 1.7999999999999998.
        exact_middle, exact_around = Decimal(repr(middle)), Decimal(repr(around))
        lower, upper = float(exact_middle - exact_around), float(exact_middle + exact_around)
        if not (math.isfinite(lower) and math.isfinite(upper)):
            raise _too_large(text)
        return Expectation("±", middle, lower, upper, tolerance=around)
    raise BadExpectation(f"{_quoted(text)} is no set of numbers that can be read; write {FORMS}.")


def _number(text: str, whole: str) -> float:
    number = float("".join(text.replace("−", "-").split()))
    if not math.isfinite(number):
        raise _too_large(whole)
    return number + 0.0  # −0 is 0


def _too_large(text: str) -> BadExpectation:
    return BadExpectation(f"{_quoted(text)}: the number is too large to compute with.")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _shortest(number: float) -> str:
    return repr(number).removesuffix(".0")


# ── Judging ──────────────────────────────────────────────────────────────────────────────────


def judge(plan: record.Plan, figures: Figures) -> tuple[record.Verdict, ...]:
    """A verdict on each of the plan's predictions, in their order."""
    return tuple(_verdict(prediction, plan.seeds, figures) for prediction in plan.predictions)


def _verdict(
    prediction: record.Prediction, seeds: tuple[int, ...], figures: Figures
) -> record.Verdict:
    expected = parse_expect(prediction.expect)
    arms = [prediction.arm] + ([prediction.versus] if prediction.versus else [])
    missing = [
        record.run_name(arm, seed)
        for arm in arms
        for seed in seeds
        if _finite(figures.get((arm, seed))) is None
    ]
    values = _estimands(arms, seeds, figures)

    def inconclusive(why: str, estimate: float | None = None) -> record.Verdict:
        return record.Verdict(
            prediction=prediction,
            outcome="inconclusive",
            why=f"inconclusive: {why}",
            n=len(values),
            estimate=estimate,
        )

    if missing:
        return inconclusive(
            f"incomplete, {len(values)} of {len(seeds)} seeds; no figure for {_listed(missing)}"
        )
    what, unit = " minus ".join(arms), _UNITS[prediction.metric]
    estimate = _mean(values)
    if len(values) == 1 and estimate is not None:
        return inconclusive(f"one seed; {what}: {figure(estimate, 4)} {unit}", estimate)
    error, interval = standard_error(values), interval_95(values)
    if estimate is None or error is None or interval is None:
        return inconclusive(f"the figures of {what} are too large to compute with")

    outcome: Literal["confirmed", "refuted", "inconclusive"]
    if expected.contains(interval):
        outcome, share = "confirmed", "all"
    elif expected.excludes(interval):
        outcome, share = "refuted", "none"
    else:
        outcome, share = "inconclusive", "only partly"
    decimals = _telling_decimals(interval, expected)
    low, high = (figure(end, decimals) for end in interval)
    return record.Verdict(
        prediction=prediction,
        outcome=outcome,
        why=f"{what}: {figure(estimate, decimals)} {unit}, 95 % interval [{low}, {high}], "
        f"n = {len(values)}: {share} {expected.words}",
        n=len(values),
        estimate=estimate,
        interval=interval,
        standard_error=error,
        beyond_two_se=abs(estimate) > 2 * error if prediction.versus else None,
    )


def _estimands(arms: list[str], seeds: tuple[int, ...], figures: Figures) -> list[float]:
    """For each seed that all `arms` have a figure of: the arm's figure, or the difference."""
    by_seed = [[_finite(figures.get((arm, seed))) for arm in arms] for seed in seeds]
    complete = [[value for value in row if value is not None] for row in by_seed]
    return [
        row[0] - row[1] if len(arms) == 2 else row[0] for row in complete if len(row) == len(arms)
    ]


def standard_error(values: list[float]) -> float | None:
    """Of the mean; None for fewer than two values or ones too large to compute with."""
    deviation = _deviation(values)
    return None if deviation is None else deviation / math.sqrt(len(values))


def interval_95(values: list[float]) -> Interval | None:
    """x ± t(0.975, n−1)·SE; None for fewer than two values or ones too large to compute with."""
    middle, error = _mean(values), standard_error(values)
    if middle is None or error is None:
        return None
    around = float(stdtrit(len(values) - 1, 0.975)) * error
    low, high = middle - around, middle + around
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _mean(values: list[float]) -> float | None:
    # `statistics` computes in fractions: equal values have themselves as mean and 0 as deviation.
    return float(mean(values)) if values and all(map(math.isfinite, values)) else None


def _deviation(values: list[float]) -> float | None:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    try:
        return _finite(float(stdev(values)))
    except OverflowError:
        return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# ── Arms ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ArmSummary:
    """One arm over its seeds."""

    mean: float | None  # over the seeds that have a figure
    spread: float | None  # their standard deviation (n − 1); None below two
    n: int
    of: int  # seeds that were planned

    def __str__(self) -> str:
        """`2.4130 ± 0.0120`; one seed without ±, none as a dash."""
        if self.mean is None:
            return "–"
        if self.spread is None:
            return figure(self.mean, 4)
        decimals = max(3, min(_decimals(self.spread), 4))
        return f"{figure(self.mean, decimals)} ± {figure(self.spread, decimals)}"


def arm_summary(plan: record.Plan, figures: Figures, arm: str) -> ArmSummary:
    """Mean and spread of `arm` over the seeds that have a figure, and how many have none."""
    values = [
        value for seed in plan.seeds if (value := _finite(figures.get((arm, seed)))) is not None
    ]
    return ArmSummary(_mean(values), _deviation(values), len(values), len(plan.seeds))


def figures_of(runs: Iterable[record.Run]) -> dict[tuple[str, int], float | None]:
    """What `judge` and `arm_summary` read: the lab's own figure of each run."""
    return {(run.arm, run.seed): run.evaluated.bpb if run.evaluated else None for run in runs}


# ── Figures in sentences ─────────────────────────────────────────────────────────────────────


def figure(value: float, decimals: int) -> str:
    """`value` for people: fixed decimals and a true minus; scientific where it is huge."""
    text = f"{value:.4e}" if abs(value) >= 1e6 else f"{value:.{decimals}f}"
    if text.startswith("-") and not text.strip("-0."):
        text = text[1:]
    return text.replace("-", "−")


def _decimals(around: float) -> int:
    """Enough to show two digits of `around`."""
    return min(max(2, 1 - math.floor(math.log10(around))), 15) if around > 0 else 4


def _telling_decimals(interval: Interval, expected: Expectation) -> int:
    """Enough that an end near a bound is not rounded onto it: the sentence must bear itself out."""
    bounds = [bound for bound in (expected.lower, expected.upper) if math.isfinite(bound)]
    decimals = _decimals((interval[1] - interval[0]) / 2)
    while decimals < 15 and any(
        end != bound and figure(end, decimals) == figure(bound, decimals)
        for end in interval
        for bound in bounds
    ):
        decimals += 1
    return decimals


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more
