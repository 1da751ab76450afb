"""What executions that were approved on GitHub hold, and what they took of people's budgets or set
aside: read from records, so that nothing is lost when the bot is restarted. Whose turn it is,
`runner.scheduler.live_queue` says from the same."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from runner.planning import limits, subset
from runner.scheduler.admission import priority_of
from runner.scheduler.queue_state import Request
from runner.schema import record
from runner.schema.record import (
    EVERYTHING,
    Approval,
    Claimed,
    Ending,
    Execution,
    Plan,
    PlanRecord,
)
from runner.store.store import Store

OVERHEAD = 60  # seconds that a job is expected to take besides: to start, compile and evaluate


@dataclass(frozen=True)
class Spending:
    """What one execution takes, or has taken, of one kind of its person's budget."""

    person: int  # id of who approved it
    kind: str
    device_hours: float
    ended: datetime | None = None  # None: it is set aside


def set_aside(
    person: int, plan: Plan, seconds: float, ended: datetime | None = None
) -> list[Spending]:
    """What the plan's execution takes in this time at most, by kind."""
    return [
        Spending(person, kind, count * seconds / 3600, ended)
        for kind, count in sorted(limits.at_once(plan).items())
    ]


def over_budget(
    wanted: Sequence[Spending],
    others: Iterable[Spending],
    budgets: Mapping[str, float],
    now: datetime,
) -> str | None:
    """Why `wanted`, which is of one person, breaks one of the budgets (device-hours a person and
    calendar month, UTC, by kind), as a clause; None where it breaks none."""
    persons = {one.person for one in wanted}
    mine = [
        one
        for one in others
        if one.person in persons and (one.ended is None or same_month(one.ended, now))
    ]
    for kind, most in sorted(budgets.items()):
        here = [one.device_hours for one in wanted if kind in (EVERYTHING, one.kind)]
        taken = sum(one.device_hours for one in mine if kind in (EVERYTHING, one.kind))
        if here and taken + sum(here) > most:
            of = "" if kind == EVERYTHING else f" of `{kind}`"
            return (
                f"this needs {_hours(sum(here))} device-hours{of}, but the budget is "
                f"{_hours(most)} per person and calendar month (UTC), and {_hours(taken)} of these "
                "are used or reserved"
            )
    return None


def _hours(hours: float) -> str:
    return f"{hours:,.1f}".removesuffix(".0")


def same_month(one: datetime, other: datetime) -> bool:
    """Whether both are in one calendar month, UTC."""
    return f"{one.astimezone(UTC):%Y-%m}" == f"{other.astimezone(UTC):%Y-%m}"


@dataclass(frozen=True)
class Life:
    """What of an execution's records queue and budgets are made from. Times are Unix seconds."""

    request: Request
    claimed: int | None = None  # its first attempt
    ended: int | None = None
    stopped: bool = False  # or it was asked to
    spent: Sequence[Spending] = ()  # while it has not ended, what its approval set aside


def request_of(name: str, plan: Plan, person: str, at: datetime) -> Request:
    """What an execution of `plan` takes: the devices that its largest part asks for, all along.

    It is expected to take what it takes at poor utilisation.
    """
    most = limits.largest(plan)
    longest = max((arm.model_flops or 0 for arm in plan.arms.values()), default=0)
    share = longest / plan.cost.model_flops if plan.cost.model_flops else 0.0
    slow = plan.cost.seconds[1]
    return Request(
        name=name,
        person=person.lower(),  # GitHub's logins are the same in either case
        priority=priority_of(plan.cost.runs, math.ceil(slow * share)),
        kind=most.kind,
        count=most.count,
        seconds=math.ceil(slow) + OVERHEAD,
        submitted=int(at.timestamp()),
    )


class Ledger:
    """Reads a store's records; those of what has ended once. Changes nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Life | None] = {}  # None: it was started by hand

    def lives(self) -> Iterator[Life]:
        """Of every execution that was approved on GitHub."""
        return filter(None, map(self._life, record.names(self._store, "executions")))

    def about_to_be(self) -> Iterator[Life]:
        """Of approvals on record whose executions are not, because the bot died between the two."""
        known = set(record.names(self._store, "executions"))
        for approval, proposed in _approvals(self._store):
            if approval.execution not in known and proposed.plan:
                by, id = approval.by, approval.execution
                plan, limit = subset.remaining(proposed, approval.narrowing)
                spent = set_aside(by.id, plan, limit or limits.LEAST)
                yield Life(request_of(id, proposed.plan, by.login, approval.at), spent=spent)

    def spendings(self) -> Iterator[Spending]:
        """What all of them took or set aside."""
        for life in (*self.lives(), *self.about_to_be()):
            yield from life.spent

    def over_budget(
        self,
        person: int,
        plan: Plan,
        limit: float | None,
        budgets: Mapping[str, float],
        now: datetime,
    ) -> str | None:
        """Why a person may not have `plan` run for `limit` seconds, as `over_budget` says it."""
        wanted = set_aside(person, plan, limit or limits.LEAST)
        return over_budget(wanted, self.spendings(), budgets, now) if budgets else None

    def _life(self, id: str) -> Life | None:
        folder, life = f"executions/{id}", self._known.get(id)
        if id in self._known and (life is None or life.ended is not None):
            return life
        claimed = record.read(self._store, f"{folder}/t1.claimed", Claimed)
        result = record.read(self._store, f"{folder}/result", Ending)
        if life is None or result:
            execution = record.read(self._store, f"{folder}/execution", Execution)
            if execution is None:
                return None
            if execution.origin is None:
                self._known[id] = None
                return None
            who = execution.origin.approved_by
            request = request_of(id, execution.plan, who.login, execution.at)
            life = Life(request, spent=_spent(execution, who.id, claimed, result))
        events = record.names(self._store, folder)
        self._known[id] = life = replace(
            life,
            claimed=int(claimed.at.timestamp()) if claimed else None,
            ended=int(result.at.timestamp()) if result else None,
            stopped=not {"cancelled", "voided"}.isdisjoint(events),
        )
        return life


def _spent(
    execution: Execution, by: int, claimed: Claimed | None, result: Ending | None
) -> list[Spending]:
    plan = execution.plan
    if result is None:
        return set_aside(by, plan, execution.limit_seconds or limits.LEAST)
    if claimed is None:
        return []
    if plan.steps and result.state == "done" and result.seconds is not None:
        return [
            Spending(by, used.kind, used.device_seconds / 3600, result.at) for used in result.used
        ]
    # Of steps that were stopped, and of those that failed, nobody knows what they took.
    seconds = max(0.0, (result.at - claimed.at).total_seconds())
    return set_aside(by, plan, seconds, result.at)


def _approvals(store: Store) -> Iterator[tuple[Approval, PlanRecord]]:
    """What was approved, each with its plan."""
    for repository in record.names(store, "approvals"):
        for pull in record.names(store, f"approvals/{repository}"):
            place = f"{repository}/{pull}"
            for name in record.names(store, f"approvals/{place}"):
                approval = record.require(store, f"approvals/{place}/{name}", Approval)
                if approval.approved:
                    path = f"plans/{place}/{approval.plan}"
                    yield approval, record.require(store, path, PlanRecord)
