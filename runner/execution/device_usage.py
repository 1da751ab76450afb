"""The devices that an execution has used: device-seconds by kind, and dollars if the kind has a
price."""

from collections import defaultdict
from collections.abc import Mapping

from runner.execution.lifecycle import Facts
from runner.schema.devices import KINDS
from runner.schema.record import PlannedStep, StepEnd, Used


def of_steps(steps: Mapping[str, PlannedStep], ends: Mapping[str, StepEnd]) -> tuple[Used, ...]:
    """The use of the steps that an execution has made itself, from the start of a step's process to
    its end. Does not include makers that were lost or failed."""
    seconds: dict[str, float] = defaultdict(float)
    for name, end in ends.items():
        if end.state == "made" and end.seconds is not None:
            seconds[steps[name].resources.kind] += end.seconds * steps[name].resources.count
    return tuple(
        Used(kind=kind, device_seconds=round(taken, 3), price=_price(kind, taken))
        for kind, taken in sorted(seconds.items())
    )


def _price(kind: str, seconds: float) -> float | None:
    price = KINDS[kind].price if kind in KINDS else None
    return None if price is None else round(seconds / 3600 * price, 6)


def of(facts: Facts) -> tuple[Used, ...]:
    """The use of the whole execution."""
    ends = [attempt.ended for attempt in facts.attempts if attempt.ended]
    made = {name: end for one in ends for name, end in one.steps.items()}
    return of_steps(facts.execution.plan.steps, made)
