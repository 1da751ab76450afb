"""The devices that an execution has used: device-seconds by kind, and dollars if the kind has a
price."""

from collections import defaultdict
from collections.abc import Mapping

from runner.execution.lifecycle import Facts
from runner.schema.record import Plan, StepEnd, Used


def of_steps(plan: Plan, ends: Mapping[str, StepEnd]) -> tuple[Used, ...]:
    """The use of the plan's steps that an execution has made itself, from the start of a step's
    process to its end. Does not include makers that were lost
    (`runner.history.lost_work`) or failed."""
    seconds: dict[tuple[str, bool], float] = defaultdict(float)
    steps = plan.steps
    for name, end in ends.items():
        if end.state == "made" and end.seconds is not None:
            on = steps[name].resources
            seconds[on.kind, on.spot] += end.seconds * on.count
    found: dict[str, tuple[float, float | None]] = {}
    for (kind, spot), taken in sorted(seconds.items()):
        before, paid = found.get(kind, (0.0, 0.0))
        price = plan.kinds[kind].price_of(spot) if kind in plan.kinds else None
        cost = None if price is None or paid is None else paid + taken / 3600 * price
        found[kind] = before + taken, cost
    return tuple(
        Used(
            kind=kind,
            device_seconds=round(taken, 3),
            price=None if paid is None else round(paid, 6),
        )
        for kind, (taken, paid) in found.items()
    )


def of(facts: Facts) -> tuple[Used, ...]:
    """The use of the whole execution."""
    ends = [attempt.ended for attempt in facts.attempts if attempt.ended]
    made = {name: end for one in ends for name, end in one.steps.items()}
    return of_steps(facts.execution.plan, made)
