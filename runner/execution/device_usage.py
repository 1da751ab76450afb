"""What an execution has taken of the lab's devices: device-seconds by kind, and dollars where the
kind has a price."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from runner.execution.lifecycle import Facts
from runner.schema import record
from runner.schema.devices import KINDS
from runner.schema.record import PlannedStep, Resources, StepEnd, Used
from runner.store.store import Store


def of_steps(steps: Mapping[str, PlannedStep], ends: Mapping[str, StepEnd]) -> tuple[Used, ...]:
    """Of the steps that an execution has made itself, from the beginning of a step's process to its
    end. What a maker that was lost or failed had taken is not in it."""
    return _used(
        (steps[name].resources, end.seconds)
        for name, end in ends.items()
        if end.state == "made" and end.seconds is not None
    )


def _used(parts: Iterable[tuple[Resources, float]]) -> tuple[Used, ...]:
    seconds: dict[str, float] = defaultdict(float)
    for resources, taken in parts:
        seconds[resources.kind] += taken * resources.count
    return tuple(
        Used(kind=kind, device_seconds=round(taken, 3), price=_price(kind, taken))
        for kind, taken in sorted(seconds.items())
    )


def _price(kind: str, seconds: float) -> float | None:
    price = KINDS[kind].price if kind in KINDS else None
    return None if price is None else round(seconds / 3600 * price, 6)


def of(facts: Facts) -> tuple[Used, ...]:
    """What the execution took."""
    ends = [attempt.ended for attempt in facts.attempts if attempt.ended]
    made = {name: end for one in ends for name, end in one.steps.items()}
    return of_steps(facts.execution.plan.steps, made)


def spans(store: Store, facts: Facts) -> list[float]:
    """Seconds that each attempt took, from its worker's beginning to its recorded end."""
    found = []
    for attempt in facts.attempts:
        path = f"executions/{facts.execution.id}/{attempt.name}.started"
        start = record.read(store, path, record.Started)
        if attempt.ended and start:
            found.append((attempt.ended.at - start.at).total_seconds())
    return found
