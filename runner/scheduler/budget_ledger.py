"""What approved executions hold, and what they used or reserved of people's budgets. Derived from
records, so a restart of the bot loses nothing. `runner.scheduler.live_queue` derives the queue from
the same records."""

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
    Origin,
    Person,
    Plan,
    PlanRecord,
)
from runner.store.store import Store

OVERHEAD = 60  # seconds that a job needs in addition: to start, compile and evaluate


@dataclass(frozen=True)
class Spending:
    """The use of one kind of device by one execution, for its person's budget."""

    person: int  # id of the person who approved it
    kind: str
    device_hours: float
    ended: datetime | None = None  # None: it is reserved
    agent: int | None = None  # id of the agent that proposed it


def set_aside(
    person: int,
    plan: Plan,
    seconds: float,
    ended: datetime | None = None,
    agent: int | None = None,
) -> list[Spending]:
    """What the plan's execution may use within this time, by kind; if it has `ended`, at most."""
    held = {kind: count * seconds for kind, count in sorted(limits.at_once(plan).items())}
    held = limits.reserved(plan, seconds) if ended is None else held
    return [Spending(person, kind, of / 3600, ended, agent) for kind, of in held.items()]


def over_budget(
    wanted: Sequence[Spending],
    others: Iterable[Spending],
    budgets: Mapping[str, float],
    now: datetime,
    whose: str = "per person and",
) -> str | None:
    """Why `wanted`, all by one person, exceeds one of the budgets (device-hours per person and
    calendar month, UTC, by kind), as a clause; None if it exceeds none."""
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
                f"{_hours(most)} {whose} calendar month (UTC), and {_hours(taken)} of these "
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
    """The parts of an execution's records that queue and budgets need. Times are Unix seconds."""

    request: Request
    claimed: int | None = None  # its first attempt
    ended: int | None = None
    stopped: bool = False  # stopped, or somebody asked to
    spent: Sequence[Spending] = ()  # until it ends, what its approval reserved


def request_of(name: str, plan: Plan, person: str, at: datetime) -> Request:
    """The request of an execution of `plan`: the devices of its largest part, for its whole
    duration.

    The expected duration is that at poor utilisation.
    """
    most = limits.largest(plan)
    longest = max((arm.model_flops or 0 for arm in plan.arms.values()), default=0)
    share = longest / plan.cost.model_flops if plan.cost.model_flops else 0.0
    slow = plan.cost.seconds[1]
    return Request(
        name=name,
        person=person.lower(),  # GitHub's logins ignore case
        priority=priority_of(plan.cost.runs, math.ceil(slow * share)),
        kind=most.kind,
        count=most.count,
        seconds=math.ceil(slow) + OVERHEAD,
        submitted=int(at.timestamp()),
    )


class Ledger:
    """Reads a store's records, and caches those of ended executions. Changes nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Life | None] = {}  # None: started by hand

    def lives(self) -> Iterator[Life]:
        """One for every execution that was approved on GitHub."""
        return filter(None, map(self._life, record.names(self._store, "executions")))

    def about_to_be(self) -> Iterator[Life]:
        """One for each recorded approval whose execution is not recorded, because the bot died in
        between."""
        known = set(record.names(self._store, "executions"))
        for approval, proposed in _approvals(self._store):
            if approval.execution not in known and proposed.plan:
                id, agent = approval.execution, proposed.agent
                by = agent if agent and approval.by_policy else approval.by
                plan, limit = subset.remaining(proposed, approval.narrowing)
                spent = set_aside(by.id, plan, limit or limits.LEAST, agent=_id(agent))
                yield Life(request_of(id, proposed.plan, by.login, approval.at), spent=spent)

    def spendings(self) -> Iterator[Spending]:
        """The use and the reservations of all of them."""
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
        """Why a person may not run `plan` for `limit` seconds, see `over_budget`."""
        wanted = set_aside(person, plan, limit or limits.LEAST)
        return over_budget(wanted, self.spendings(), budgets, now) if budgets else None

    def over_allowance(
        self, agent: int, plan: Plan, limit: float | None, hours: float, now: datetime
    ) -> str | None:
        """Why `plan` exceeds the device-hours that the policy gives an agent per month, whoever
        approves it, as a clause; None if it does not."""
        wanted = set_aside(agent, plan, limit or limits.LEAST)
        others = (replace(one, person=agent) for one in self.spendings() if one.agent == agent)
        return over_budget(wanted, others, {EVERYTHING: hours}, now, "per agent and")

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
            origin = execution.origin
            request = request_of(id, execution.plan, origin.charged.login, execution.at)
            life = Life(request, spent=_spent(execution, origin, claimed, result))
        events = record.names(self._store, folder)
        self._known[id] = life = replace(
            life,
            claimed=int(claimed.at.timestamp()) if claimed else None,
            ended=int(result.at.timestamp()) if result else None,
            stopped=not {"cancelled", "voided"}.isdisjoint(events),
        )
        return life


def _spent(
    execution: Execution, origin: Origin, claimed: Claimed | None, result: Ending | None
) -> list[Spending]:
    plan, by, agent = execution.plan, origin.charged.id, _id(origin.agent)
    if result is None:
        return set_aside(by, plan, execution.limit_seconds or limits.LEAST, agent=agent)
    if claimed is None:
        return []
    if plan.steps and result.state == "done" and result.seconds is not None:
        return [
            Spending(by, used.kind, used.device_seconds / 3600, result.at, agent)
            for used in result.used
        ]
    # For stopped and failed steps, the use is unknown.
    seconds = max(0.0, (result.at - claimed.at).total_seconds())
    return set_aside(by, plan, seconds, result.at, agent)


def _id(agent: Person | None) -> int | None:
    return agent.id if agent else None


def _approvals(store: Store) -> Iterator[tuple[Approval, PlanRecord]]:
    """All approvals, each with its plan."""
    for repository in record.names(store, "approvals"):
        for pull in record.names(store, f"approvals/{repository}"):
            place = f"{repository}/{pull}"
            for name in record.names(store, f"approvals/{place}"):
                approval = record.require(store, f"approvals/{place}/{name}", Approval)
                if approval.approved:
                    path = f"plans/{place}/{approval.plan}"
                    yield approval, record.require(store, path, PlanRecord)
