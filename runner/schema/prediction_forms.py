"""The forms of a prediction, its sentence, and what makes it invalid. Pure.

    arm: fast                       its mean; with `versus: slow`, the mean difference
    order: [wide, deep, plain]      best first: the smallest step from one to the next
    exponent: [s1, s2, s3, s4]      b of a law L = a·C^(−b) + c over arms; `axis` names C
    arm: s5                         against the forecast from smaller arms by such a law for its C
    smaller: [s1, s2, s3, s4]       on `axis`: measured over forecast, less 1

One rule judges all of them (`runner.analysis.verdicts`). `runner.analysis.estimates` says what is
estimated and how its interval is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, get_args

from runner.schema import metrics

if TYPE_CHECKING:
    from runner.schema.record import PlannedArm, Prediction

Axis = Literal["model_flops", "hardware_flops", "tokens", "parameters"]
AXES: dict[Axis, str] = {axis: axis.replace("_flops", " FLOPs") for axis in get_args(Axis)}
MOST_ARMS = 20  # of one prediction
FEWEST = {"order": 2, "exponent": 4, "smaller": 3}  # arms; for a law, so many sizes
ANY_STEP = "> 0"  # the default for an order

# The kind of text, and the text.
Part = tuple[Literal["", "metric", "arm", "expect", "figure"], str]


def spent(arm: PlannedArm, axis: Axis) -> int:
    """The C of one run of an arm by its plan: model FLOPs, tokens that it trains on, or parameters.
    Model FLOPs also replace hardware FLOPs, which are known only after the run; they distinguish
    sizes as well."""
    return int(getattr(arm, "model_flops" if axis == "hardware_flops" else axis) or 0)


def wrong(prediction: Prediction) -> Iterator[tuple[str, str]]:
    """The keys at which it fits no form, and why; empty if it is valid."""
    lists = {key: getattr(prediction, key) for key in FEWEST}
    of_several = [key for key in ("order", "exponent") if lists[key]]
    if prediction.arm is None and not of_several:
        yield "arm", "is missing; name an `arm`, or the arms of an `order` or an `exponent`"
    for key in of_several[:1]:
        for other in ("arm", "versus", "smaller", "exponent"):
            if other != key and getattr(prediction, other):
                yield other, f"does not go with `{key}`; write another prediction for it"
    if prediction.versus is not None and prediction.smaller:
        yield "versus", "does not go with `smaller`; write another prediction for it"
    for key, names in lists.items():
        if names and len(names) < FEWEST[key]:
            yield key, f"names {len(names)} of the {FEWEST[key]} arms that it needs; add more"
        if names and (twice := next((name for name in names if names.count(name) > 1), None)):
            yield key, f"names {twice[:60]!r} twice; name it once"
    if prediction.arm is not None and prediction.arm in prediction.smaller:
        yield "smaller", "names the `arm` itself, which is to be forecast from others; take it out"
    metric = prediction.metric
    if prediction.order and metrics.better(metric) is None:
        yield "order", f"needs a metric with a direction, and of {metric} neither side is better"
    for key in ("exponent", "smaller"):
        if lists[key] and not metrics.is_loss(metric):
            yield key, f"needs a loss that falls with size, in bpb or loss; {metric} is none"
    law = prediction.exponent or prediction.smaller
    if law and prediction.axis is None:
        known = ", ".join(f"`{axis}`" for axis in AXES)
        yield "axis", f"is missing; say what C is in L = a·C^(−b) + c: one of {known}"
    if prediction.axis is not None and not law:
        words = "belongs to an `exponent`, or to an `arm` with `smaller` ones; take it out"
        yield "axis", words


def parts(prediction: Prediction) -> Iterator[Part]:
    """The prediction as a sentence, part by part."""
    metric: Part = ("metric", prediction.metric)
    if prediction.order:
        yield from (("", "by "), metric, ("", " the order is "), *_listed(prediction.order))
        yield "", ", best first"
        if prediction.expect != ANY_STEP:
            yield from (("", ", and each step is "), ("expect", prediction.expect))
        return
    if prediction.exponent:
        yield from (("", "the exponent with which "), metric, ("", " of "))
        yield from _listed(prediction.exponent)
        yield "", f" falls with {AXES[prediction.axis or 'model_flops']}"
    elif prediction.smaller:
        yield from (("", "the relative error of "), metric, ("", " of "))
        yield from (("arm", prediction.arm or ""), ("", " against what "))
        yield from _listed(prediction.smaller)
        yield "", f" forecast by their {AXES[prediction.axis or 'model_flops']}"
    else:
        yield from (metric, ("", " of "), ("arm", prediction.arm or ""))
        if prediction.versus:
            yield from (("", " minus "), ("arm", prediction.versus))
    yield from (("", " is "), ("expect", prediction.expect))


def _listed(names: tuple[str, ...]) -> Iterator[Part]:
    for place, name in enumerate(names):
        if place:
            yield "", ", "
        yield "arm", name
