"""How long an approved plan may take by the clock, and what that reserves of a budget. Pure.

The limit is generous, since it is there to end what never ends and not to cut short what is slow:
some times what is expected at poor utilisation, and an hour at least. What nobody can estimate (the
experiment's own code, steps that do not train) has a limit that the lab's policy sets. Where the
experiment's author has declared a ceiling, nothing goes beyond that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from runner.hardware import KINDS
from runner.record import Plan, Resources

TIMES = 4  # what is expected
LEAST = 3600.0  # seconds
EVERYTHING = "*"  # of budgets: all kinds of hardware together


def largest(plan: Plan) -> Resources:
    """The devices that the plan's largest part asks for, which its execution holds all along."""
    wanted = [plan.resources, *(step.resources for step in plan.steps.values())]
    return max(wanted, key=_speed)


def _speed(of: Resources) -> float:
    # A kind that the table has no longer is still in old records.
    return KINDS[of.kind].peak_flops * of.count if of.kind in KINDS else 0.0


def limit_seconds(plan: Plan, hours_without_estimate: float) -> float:
    """Seconds after which the plan's execution is stopped, all its attempts together."""
    limit = max(LEAST, TIMES * plan.cost.seconds[1])
    trains = sum(step.do == "train" and not step.own for step in plan.steps.values())
    ceiling = ceiling_seconds(plan)
    if plan.cost.uncounted or trains < len(plan.steps):
        # Whoever approves the plan sees the ceiling, and it is set aside from their budget.
        return ceiling or limit + hours_without_estimate * 3600
    return min(limit, ceiling or limit)


def ceiling_seconds(plan: Plan) -> float | None:
    """The time by the clock in which the plan reaches its declared ceiling; None if it has none."""
    return plan.ceiling_hours * 3600 / largest(plan).count if plan.ceiling_hours else None


def device_hours(plan: Plan, seconds: float) -> float:
    """What the plan's execution takes in this time."""
    return largest(plan).count * seconds / 3600


@dataclass(frozen=True)
class Spending:
    """What one execution takes, or has taken, of its person's budget."""

    person: int  # id of who approved it
    kind: str
    device_hours: float
    ended: datetime | None = None  # None: it is set aside


def over_budget(
    wanted: Spending, others: Iterable[Spending], budgets: Mapping[str, float], now: datetime
) -> str:
    """Why `wanted` breaks one of the budgets (device-hours a person and calendar month, UTC, by
    kind), as a clause; or nothing."""
    mine = [
        one
        for one in others
        if one.person == wanted.person and (one.ended is None or _month(one.ended) == _month(now))
    ]
    for kind, most in sorted(budgets.items()):
        if kind not in (EVERYTHING, wanted.kind):
            continue
        taken = sum(one.device_hours for one in mine if kind in (EVERYTHING, one.kind))
        if taken + wanted.device_hours > most:
            of = "" if kind == EVERYTHING else f" of `{kind}`"
            return (
                f"this sets aside {_hours(wanted.device_hours)} device-hours{of}, and of the "
                f"{_hours(most)} that a person has here in a calendar month (UTC), "
                f"{_hours(taken)} are used or set aside"
            )
    return ""


def _hours(hours: float) -> str:
    return f"{hours:,.1f}".removesuffix(".0")


def _month(at: datetime) -> tuple[int, int]:
    there = at.astimezone(UTC)
    return there.year, there.month
