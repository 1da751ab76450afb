"""A verdict as a sentence in parts, for comments and pages: what came out, then what was predicted.

If a metric has a direction, a difference says which arm beats the other. A metric other than
`eval/bpb` is named. Pure.
"""

from runner.analysis.estimates import Interval, figure
from runner.analysis.verdicts import Expectation, parse_expect, telling_decimals
from runner.lib.format import many, percent
from runner.schema import metrics, prediction_forms
from runner.schema.prediction_forms import Part
from runner.schema.record import Prediction, Verdict

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
    low, high = (figure(end, decimals) for end in interval)
    unit = metrics.what(prediction.metric).unit
    said.append(("figure", f"{figure(value, decimals)} {unit}".strip()))
    said += _named(prediction)
    said.append(("", f" (95 % CI {low} to {high}, {many(verdict.n, 'seed')})"))
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
    said = [*beats, *([] if found(verdict) else _named(prediction))]
    if expected.value == 0:
        return said
    by = f"by {_BY[expected.sign]} {figure_of(abs(expected.value))}"
    return [("", by)] if found(verdict) and sides == _sides(verdict) else [*said, ("", f" {by}")]


def sentence(verdict: Verdict) -> str:
    """Both, as plain text."""
    said = found(verdict)
    words = "".join(text for _, text in said) if said else verdict.why
    expected = "".join(text for _, text in predicted(verdict))
    return f"{words}; predicted {expected}, {percent(verdict.prediction.confidence)} sure"


def figure_of(value: float) -> str:
    """A number as somebody wrote it: `0.05`, `2`."""
    return repr(value).removesuffix(".0")


def _named(prediction: Prediction) -> list[Part]:
    """The metric, if it is not the usual one."""
    usual = prediction.metric == metrics.BPB
    return [] if usual else [("", " in "), ("metric", prediction.metric)]


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
