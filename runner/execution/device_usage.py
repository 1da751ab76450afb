"""The devices that an execution has used: device-seconds by kind, and dollars if the kind has a
price."""

from collections import defaultdict
from collections.abc import Mapping

from runner.execution.lifecycle import Facts
from runner.schema.record import Plan, StepEnd, Used


def of_steps(plan: Plan, ends: Mapping[str, StepEnd]) -> tuple[Used, ...]:
    """The use of the plan's steps that an execution has made itself, from the start of a step's
    process to its end. Does not include makers that were lost or failed."""
    seconds: dict[str, float] = defaultdict(float)
    steps = plan.steps
    for name, end in ends.items():
        if end.state == "made" and end.seconds is not None:
            seconds[steps[name].resources.kind] += end.seconds * steps[name].resources.count
    return tuple(
        Used(kind=kind, device_seconds=round(taken, 3), price=_price(plan, kind, taken))
        for kind, taken in sorted(seconds.items())
    )


def _price(plan: Plan, kind: str, seconds: float) -> float | None:
    price = plan.kinds[kind].price if kind in plan.kinds else None
    return None if price is None else round(seconds / 3600 * price, 6)


def of(facts: Facts) -> tuple[Used, ...]:
    """The use of the whole execution."""
    ends = [attempt.ended for attempt in facts.attempts if attempt.ended]
    made = {name: end for one in ends for name, end in one.steps.items()}
    return of_steps(facts.execution.plan, made)
