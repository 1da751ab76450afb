"""Verdicts on predictions: one pure rule for comments, checks and leaderboards.

The subject of a prediction is estimated with an interval (`runner.analysis.estimates`): an arm's
mean over seeds, a difference, an order, an exponent, the error of a forecast. `expect` names a set
of numbers. The prediction is *confirmed* if the whole interval is inside the set, *refuted* if it
is wholly outside, otherwise *inconclusive*. Without an interval (one seed, or points that show no
law), or with a missing run, it is inconclusive, and the verdict says so.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from statistics import mean
from types import MappingProxyType
from typing import Literal, cast

from runner.analysis import estimates
from runner.analysis.estimates import Figures, Interval, NoEstimate, Scores, figure, two_digits
from runner.schema import record
from runner.schema.metrics import BPB

Sign = Literal["<", "<=", ">", ">=", "±"]

FORMS = '`"< 1.9"`, `"> 1.5"` or `"1.9 ± 0.1"`'
MAX_CHARACTERS = 100
TOO_LARGE = " has a number that is too large to compute with; write a smaller one"
_NUMBER = r"[+\-−]?\s*(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+\-−]?[0-9]+)?"
_COMPARISON = re.compile(rf"\s*(<=|>=|<|>|≤|≥)\s*({_NUMBER})\s*")
_TOLERANCE = re.compile(rf"\s*({_NUMBER})\s*(?:±|\+/?-|\+−)\s*({_NUMBER})\s*")
_SIGNS = {"≤": "<=", "≥": ">="}
_WORDS = {"<": "below", "<=": "at most", ">": "above", ">=": "at least", "±": "within"}


class BadExpectation(ValueError):
    """`expect` does not name a set of numbers; the message says why and what would."""


# ── What a prediction expects ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Expectation:
    """The set of numbers of `expect`: from `lower` to `upper`, with or without its ends."""

    sign: Sign
    value: float  # the bound, or the centre
    lower: float
    upper: float
    tolerance: float | None = None

    @property
    def closed(self) -> bool:
        """Whether the set includes its finite ends."""
        return self.sign in ("<=", ">=", "±")

    def contains(self, interval: Interval) -> bool:
        """Whether the set contains all of `interval`."""
        low, high = interval
        if self.closed:
            return self.lower <= low and high <= self.upper
        return self.lower < low and high < self.upper

    def excludes(self, interval: Interval) -> bool:
        """Whether the set contains no point of `interval`."""
        low, high = interval
        if self.closed:
            return high < self.lower or low > self.upper
        return high <= self.lower or low >= self.upper

    def __str__(self) -> str:
        """The canonical form: equal for equal sets, and parsed back as the same set."""
        if self.tolerance is None:
            return f"{self.sign} {_shortest(self.value)}"
        return f"{_shortest(self.value)} ± {_shortest(self.tolerance)}"

    @property
    def words(self) -> str:
        """As part of a sentence: `below −0.05`, `within 1.9 ± 0.1`."""
        bound = str(self) if self.tolerance is not None else _shortest(self.value)
        return f"{_WORDS[self.sign]} {bound.replace('-', '−')}"


def parse_expect(text: str) -> Expectation:
    """The set that `text` names. Raises BadExpectation."""
    if len(text) > MAX_CHARACTERS:
        raise _bad(text, f" is longer than {MAX_CHARACTERS} characters; write {FORMS}")
    if comparison := _COMPARISON.fullmatch(text):
        sign = _SIGNS.get(comparison[1], comparison[1])
        bound = _number(comparison[2], text)
        lower, upper = (-math.inf, bound) if sign in ("<", "<=") else (bound, math.inf)
        return Expectation(cast(Sign, sign), bound, lower, upper)
    if tolerance := _TOLERANCE.fullmatch(text):
        middle, around = (_number(number, text) for number in tolerance.groups())
        if around <= 0:
            raise _bad(text, " has a tolerance that is not above 0; write one such as 1.9 ± 0.1")
        # In decimals, so that 1.9 ± 0.1 starts at 1.8 and not at 1.7999999999999998.
        exact_middle, exact_around = Decimal(repr(middle)), Decimal(repr(around))
        lower, upper = float(exact_middle - exact_around), float(exact_middle + exact_around)
        if not (math.isfinite(lower) and math.isfinite(upper)):
            raise _bad(text, TOO_LARGE)
        return Expectation("±", middle, lower, upper, tolerance=around)
    raise _bad(text, f" is not a range; write {FORMS}")


def _number(text: str, whole: str) -> float:
    number = float("".join(text.replace("−", "-").split()))
    if not math.isfinite(number):
        raise _bad(whole, TOO_LARGE)
    return number + 0.0  # −0 is 0


def _bad(text: str, why: str) -> BadExpectation:
    return BadExpectation(f"{text if len(text) <= 60 else text[:59] + '…'!r}{why}.")


def _shortest(number: float) -> str:
    return repr(number).removesuffix(".0")


# ── Judging ──────────────────────────────────────────────────────────────────────────────────


def judge(
    plan: record.Plan,
    scores: Scores,
    climbed: Iterable[record.Climbed] = (),
    speeds: Figures = MappingProxyType({}),
) -> tuple[record.Verdict, ...]:
    """A verdict on each of the plan's predictions, in order, by the scores of its metric.
    `climbed`: on a ladder, the results of the rungs below. `speeds`: the tokens per second of each
    run, for hardware FLOPs."""
    if plan.rung and plan.rung.below:
        plan = plan.model_copy(update={"arms": {**plan.rung.below, **plan.arms}})
        below = [*climbed]
        found = {metric: dict(of) for metric, of in scores.items()}
        for one in below:
            for metric, value in one.by_metric.items():
                found.setdefault(metric, {}).setdefault((one.arm, one.seed), value)
        scores = found
        speeds = {(one.arm, one.seed): one.tokens_per_second for one in below} | dict(speeds)
    return tuple(
        _verdict(prediction, plan, scores.get(prediction.metric, {}), speeds)
        for prediction in plan.predictions
    )


def _verdict(
    prediction: record.Prediction, plan: record.Plan, figures: Figures, speeds: Figures
) -> record.Verdict:
    expected = parse_expect(prediction.expect)
    try:
        found = estimates.estimate(prediction, plan, figures, speeds)
    except NoEstimate as error:
        return record.Verdict(
            prediction=prediction,
            outcome="inconclusive",
            why=f"inconclusive: {error}",
            n=error.n,
            estimate=error.value,
        )
    outcome: Literal["confirmed", "refuted", "inconclusive"]
    if expected.contains(found.interval):
        outcome, share = "confirmed", "all"
    elif expected.excludes(found.interval):
        outcome, share = "refuted", "none"
    else:
        outcome, share = "inconclusive", "only partly"
    decimals = telling_decimals(found.interval, expected)
    low, high = (figure(end, decimals) for end in found.interval)
    return record.Verdict(
        prediction=prediction,
        outcome=outcome,
        why=f"{found.what}: {figure(found.value, decimals)}{found.unit}, {found.kind} "
        f"[{low}, {high}], n = {found.n}: {share} {expected.words}",
        n=found.n,
        estimate=found.value,
        interval=found.interval,
        standard_error=found.error,
        beyond_two_se=abs(found.value) > 2 * found.error
        if prediction.versus and found.error is not None
        else None,
    )


# ── Arms ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ArmSummary:
    """One arm over its seeds."""

    mean: float | None  # over the seeds with a figure
    spread: float | None  # `estimates.spread_over_seeds`
    n: int
    of: int  # planned seeds

    @property
    def certain(self) -> bool:
        """Whether its band is reliable: at least two seeds, and none is missing."""
        return self.spread is not None and self.n == self.of

    @property
    def middle(self) -> float:
        """The mean of an arm that has a figure."""
        assert self.mean is not None, "no seed has a figure"
        return self.mean

    @property
    def band(self) -> tuple[float, float]:
        """Mean ± spread of an arm that has a figure."""
        around = self.spread or 0.0
        return self.middle - around, self.middle + around

    def __str__(self) -> str:
        """`2.4130 ± 0.0120`; without ± for one seed, a dash for none."""
        if self.mean is None:
            return "–"
        if self.spread is None:
            return figure(self.mean, 4)
        decimals = max(3, min(two_digits(self.spread), 4))
        return f"{figure(self.mean, decimals)} ± {figure(self.spread, decimals)}"


def arm_summary(plan: record.Plan, figures: Figures, arm: str) -> ArmSummary:
    """Mean and spread of `arm` over the seeds with a figure, and how many have none."""
    values = [value for seed in plan.seeds if (value := figures.get((arm, seed))) is not None]
    return summary(values, len(plan.seeds))


def summary(values: list[float], planned: int) -> ArmSummary:
    """The summary of an arm's figures, of `planned` seeds."""
    middle = mean(values) if values else None
    return ArmSummary(middle, estimates.spread_over_seeds(values), len(values), planned)


def scores_of(runs: Iterable[record.Run]) -> dict[str, dict[tuple[str, int], float | None]]:
    """The input of `judge`: the lab's scores of each run by metric, if they count. `eval/bpb` is
    there even if no run has it."""
    runs = list(runs)
    found = dict.fromkeys([BPB, *(metric for run in runs for metric in run.measured)])
    return {metric: figures_of(runs, metric) for metric in found}


def figures_of(
    runs: Iterable[record.Run], metric: str = BPB
) -> dict[tuple[str, int], float | None]:
    """The input of `arm_summary`: the lab's score of each run by one metric, if it counts. None of
    a model that failed the look-ahead probe does."""
    return {(run.arm, run.seed): _counts(run, metric) for run in runs}


def _counts(run: record.Run, metric: str) -> float | None:
    void = run.evaluated and run.evaluated.examined and run.evaluated.examined.void
    score = run.measured.get(metric)
    return score.value if score and not void else None


def speeds_of(runs: Iterable[record.Run]) -> dict[tuple[str, int], float | None]:
    """The tokens per second of each run, as its job reported them."""
    return {(run.arm, run.seed): run.tokens_per_second for run in runs}


# ── Figures in sentences ─────────────────────────────────────────────────────────────────────


def telling_decimals(interval: Interval, expected: Expectation) -> int:
    """Enough decimals that rounding does not move an end of the interval across a bound: the
    sentence must agree with the verdict."""
    bounds = [bound for bound in (expected.lower, expected.upper) if math.isfinite(bound)]
    decimals = two_digits(interval[1] / 2 - interval[0] / 2)
    while decimals < 15 and any(
        end != bound and figure(end, decimals) == figure(bound, decimals)
        for end in interval
        for bound in bounds
    ):
        decimals += 1
    return decimals
