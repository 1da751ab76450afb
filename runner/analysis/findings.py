"""What an execution found, as a sentence in parts, for comments, pages and the terminal: the result
for a prediction, then what was predicted; without predictions, how the best arms compare.

If a metric has a direction, a difference says which arm beats the other. A metric other than
`eval/bpb` is named. Pure.
"""

from collections.abc import Iterable
from math import comb
from statistics import mean

from runner.analysis.estimates import LEVEL, Figures, Interval, figure, interval_of, two_digits
from runner.analysis.verdicts import (
    Expectation,
    arm_summary,
    parse_expect,
    scores_of,
    telling_decimals,
)
from runner.lib.format import many, percent
from runner.schema import metrics, prediction_forms
from runner.schema.prediction_forms import Part
from runner.schema.record import Plan, Prediction, Run, Verdict

_BY = {"<": "more than", "<=": "at least", ">": "more than", ">=": "at least"}

Sides = tuple[str, str]  # two arms, the better one first


def found(verdict: Verdict) -> list[Part] | None:
    """What came out for one arm or for two, with its interval; None where only `verdict.why` says
    it (an order, a law, no interval)."""
    prediction, interval = verdict.prediction, verdict.interval
    if not _is_simple(prediction) or interval is None or verdict.estimate is None:
        return None
    decimals = telling_decimals(interval, parse_expect(prediction.expect))
    value = verdict.estimate
    arm: Part = ("arm", prediction.arm or "")
    said: list[Part]
    if (sides := _sides(verdict)) is not None:
        value, interval = abs(value), _sorted(abs(interval[0]), abs(interval[1]))
        said = [("arm", sides[0]), ("", " beats "), ("arm", sides[1]), ("", " by ")]
    elif prediction.versus:
        said = [arm, ("", " minus "), ("arm", prediction.versus), ("", " is ")]
    else:
        said = [arm, ("", " scores ")]
    said += _scored(value, decimals, prediction.metric)
    said.append(("", _within(interval, decimals, verdict.n)))
    if verdict.outcome == "inconclusive":
        said.append(("", "; only a part of the interval is in the predicted range"))
    return said


def predicted(verdict: Verdict) -> list[Part]:
    """What was predicted, as short as it can be said after `found`."""
    prediction = verdict.prediction
    if not _is_simple(prediction):
        return [*prediction_forms.parts(prediction)]
    expected = parse_expect(prediction.expect)
    if prediction.versus is None:
        return [("", expected.words)] if found(verdict) else [*prediction_forms.parts(prediction)]
    sides = _expected_sides(prediction, expected)
    if sides is None:
        return [*prediction_forms.parts(prediction)]
    beats: list[Part] = [("arm", sides[0]), ("", " beats "), ("arm", sides[1])]
    said = [*beats, *([] if found(verdict) else _named(prediction.metric))]
    if expected.value == 0:
        return said
    by = f"by {_BY[expected.sign]} {figure_of(abs(expected.value))}"
    return [("", by)] if found(verdict) and sides == _sides(verdict) else [*said, ("", f" {by}")]


def sentence(verdict: Verdict) -> str:
    """Both, as plain text."""
    said = found(verdict)
    words = plain(said) if said else verdict.why
    sure = percent(verdict.prediction.confidence)
    return f"{words}; predicted {plain(predicted(verdict))}, {sure} sure"


def best(plan: Plan, runs: Iterable[Run]) -> list[Part] | None:
    """How the two best arms compare, or the score of the only one, by the first metric that has a
    direction; None if there is no such score.

    Of k arms, the two are chosen after the run: the interval is that of all k·(k−1)/2 differences
    together (Bonferroni), over the seeds that both arms share.
    """
    for metric, figures in scores_of(runs).items():
        better = metrics.better(metric)
        means = {arm: arm_summary(plan, figures, arm).mean for arm in plan.arms} if better else {}
        known = {arm: value for arm, value in means.items() if value is not None}
        if known:
            ranked = sorted(known, key=lambda arm: known[arm], reverse=better == "higher")
            return _compared(plan, metric, figures, ranked)
    return None


def _compared(plan: Plan, metric: str, figures: Figures, ranked: list[str]) -> list[Part]:
    """What `best` says of the arms with a score, the best first."""
    one, other, count = ranked[0], (ranked[1:] or ranked)[0], len(ranked)
    of_seeds = [(figures.get((one, seed)), figures.get((other, seed))) for seed in plan.seeds]
    pairs = [(a, b) for a, b in of_seeds if a is not None and b is not None]
    first, second = (arm_summary(plan, figures, arm) for arm in (one, other))
    if len({*pairs}) < 2 or len(pairs) < len(plan.seeds):
        one_seed = "1 seed" if count == 1 else "1 seed each"
        why = one_seed if len(plan.seeds) == 1 else "the seed changes no score"
        why = why if len(pairs) == len(plan.seeds) else "not every seed has a score"
        said: list[Part] = [("arm", one), ("", " scores "), *_scored(first.middle, 4, metric)]
        if count > 1:
            place = " has" if count == 2 else f", the next of {count} arms, has"
            said += [("", "; "), ("arm", other), ("", f"{place} {figure(second.middle, 4)}")]
        return [*said, ("", f" ({why}, so there is no interval)")]
    values = [a if count == 1 else a - b for a, b in pairs]
    comparisons = comb(max(count, 2), 2)
    interval = interval_of(values, 1 - (1 - LEVEL) / comparisons)
    decimals = two_digits(interval[1] / 2 - interval[0] / 2)
    clear = count == 1 or not interval[0] <= 0 <= interval[1]
    if count == 1:
        said = [("arm", one), ("", " scores ")]
    elif clear:
        interval = _sorted(abs(interval[0]), abs(interval[1]))
        place, by = (
            (" beats ", " by ") if count == 2 else (f" beats the next of {count} arms, ", ", by ")
        )
        said = [("arm", one), ("", place), ("arm", other), ("", by)]
    else:
        between = "" if count == 2 else f"the two best of {count} arms, "
        said = [("", f"No clear difference between {between}"), ("arm", one), ("", " and ")]
        said += [("arm", other), ("", ": "), ("arm", one), ("", " minus "), ("arm", other)]
        said.append(("", " is "))
    value = abs(mean(values)) if clear else mean(values)
    said += _scored(value, decimals, metric)
    return [*said, ("", _within(interval, decimals, len(pairs), comparisons))]


def plain(parts: Iterable[Part]) -> str:
    """A sentence without marks."""
    return "".join(words for _, words in parts)


def figure_of(value: float) -> str:
    """A number as somebody wrote it: `0.05`, `2`."""
    return repr(value).removesuffix(".0")


def _scored(value: float, decimals: int, metric: str) -> list[Part]:
    """A score with its unit, and its metric if it is not the usual one."""
    unit = metrics.what(metric).unit
    return [("figure", f"{figure(value, decimals)} {unit}".strip()), *_named(metric)]


def _within(interval: Interval, decimals: int, seeds: int, comparisons: int = 1) -> str:
    low, high = (figure(end, decimals) for end in interval)
    together = f" for all {comparisons} comparisons" if comparisons > 1 else ""
    return f" (95 % CI {low} to {high}{together}, {many(seeds, 'seed')})"


def _named(metric: str) -> list[Part]:
    """The metric, if it is not the usual one."""
    return [] if metric == metrics.BPB else [("", " in "), ("metric", metric)]


def _is_simple(prediction: Prediction) -> bool:
    return not (prediction.order or prediction.exponent or prediction.smaller)


def _sides(verdict: Verdict) -> Sides | None:
    """Which of two arms is better beyond its interval; None of one arm, and where neither is."""
    one, other = verdict.prediction.arm, verdict.prediction.versus
    if one is None or other is None or verdict.interval is None:
        return None
    if verdict.interval[1] < 0:
        return _ranked(verdict.prediction, one, other)
    return _ranked(verdict.prediction, other, one) if verdict.interval[0] > 0 else None


def _ranked(prediction: Prediction, lower: str, higher: str) -> Sides | None:
    """The two arms, the better one first; None where neither side is better."""
    better = metrics.better(prediction.metric)
    if better is None:
        return None
    return (lower, higher) if better == "lower" else (higher, lower)


def _expected_sides(prediction: Prediction, expected: Expectation) -> Sides | None:
    """Which of two arms was predicted to be better; None where both could be."""
    one, other = prediction.arm or "", prediction.versus or ""
    strict = expected.sign in ("<", ">")  # at a bound of 0, "at least" leaves it open
    if expected.sign in ("<", "<="):
        known = expected.value < 0 or (strict and expected.value == 0)
        return _ranked(prediction, one, other) if known else None
    if expected.sign in (">", ">="):
        known = expected.value > 0 or (strict and expected.value == 0)
        return _ranked(prediction, other, one) if known else None
    return None


def _sorted(one: float, other: float) -> Interval:
    return (one, other) if one <= other else (other, one)
