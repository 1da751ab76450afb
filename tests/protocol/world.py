"""A model of GitHub, of the records and of the bot's process around the real
`bot.rules.decide.decide`.

No store, no network, no clock: a `World` is a frozen value, and every step makes a new one, so that
`explore` can try all orders of steps. What the rules see is made of the same dataclasses as in
life; what they want done is taken apart into the effects that a death can come between (`act` does
a comment in three: the claim, the comment, the word that it is done).

Everything happens in the same second unless somebody waits, so that every tie is tried.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from bot.model.policy_file import Permitted, Policy
from bot.model.thread import Message, ThreadId
from runner.execution import lifecycle
from runner.lib import base_record
from runner.schema import record
from tests import synthetic

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
A, B, BASE = "a" * 40, "b" * 40, "0" * 40
THREAD = ThreadId(synthetic.REPOSITORY, 2)
OWN, FORK = synthetic.REPOSITORY, 99  # repositories that a head branch may be in
PEOPLE = {"grace": synthetic.GRACE, "ada": synthetic.ADA}
PLANS = tuple(  # what the lab of before and the lab of after an upgrade make of any commit
    synthetic.plan(arms={"only": synthetic.planned_arm()}, seeds=[0], title=title)
    for title in ("before", "after")
)
POLICIES = (
    Policy(sha="1" * 40),
    Policy(sha="2" * 40, commands={"run": Permitted(roles=("admin",))}),
)
CODES = [f"aaaa-aaaa-aaaa-aaaa-aaa{letter}" for letter in "abcdefghijklmnop"]


@cache
def moment(second: int) -> datetime:
    """A second of the model as a time."""
    return START + timedelta(seconds=second)


# ── Facts as values ──────────────────────────────────────────────────────────────────────────

_TIMES = re.compile(
    r'"2026-[^"]+"|datetime\.datetime\((\d+), (\d+), (\d+), (\d+), (\d+)(?:, (\d+))?, tz[^)]*\)'
)


class Fact:
    """An object that is equal to itself alone; two with the same words are the same object."""

    __slots__ = ("of", "template", "times")

    def __init__(self, of: Any, text: str, timed: bool) -> None:
        self.of = of
        self.times = tuple(_second(match) for match in _TIMES.finditer(text)) if timed else ()
        refused = isinstance(of, record.Approval) and not of.approved  # the reason says nothing
        self.template = "no" if refused else _TIMES.sub("TIME", text)


_facts: dict[str, Fact] = {}


def fact(of: Any, timed: bool | None = None) -> Fact:
    """`of` as a value; `timed` is whether its times make a difference."""
    if timed is None:
        timed = isinstance(of, Message | record.PlanRecord)
    text = (
        of.model_dump_json(exclude={"plan": True} if isinstance(of, _WITH_PLAN) else None)
        if isinstance(of, base_record.Record)
        else repr(of)
    )
    text = f"{type(of).__name__} {timed} {text}"
    if isinstance(of, _WITH_PLAN):
        text += of.plan.fingerprint if of.plan else ""
    known = _facts.get(text)
    if known is None:
        known = _facts[text] = Fact(of, text, timed)
    return known


_WITH_PLAN = (record.PlanRecord, record.Execution)


def _second(match: re.Match[str]) -> int:
    if match[0].startswith('"'):
        found = datetime.fromisoformat(match[0].strip('"').replace("Z", "+00:00"))
    else:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
        found = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    return round((found - START).total_seconds())


class Written(NamedTuple):
    """A command of somebody's, and what it could have meant to whoever wrote it."""

    message: Fact  # of a Message
    meant: str  # what it approves, as `invariants.named` says it; "": nothing
    stands: bool = True  # of a review: it was not dismissed


class Made(NamedTuple):
    """A comment or check run of the bot's."""

    key: str
    at: int = 0  # of a plan's comment; of others it says nothing
    moves: int = 0  # how often the head had moved before that


class Job(NamedTuple):
    """The job of an attempt, as Ray knows it."""

    execution: str
    attempt: str
    state: lifecycle.Job


Effect = tuple[Any, ...]  # its name, and what it is about


@dataclass(frozen=True)
class World:
    """Everything there is."""

    # GitHub
    now: int = 0
    head: str = A
    base_ref: str = "main"
    head_repository: int = OWN
    role: str = "maintain"  # Grace's
    policy: int = 0
    lab: int = 0  # which version of the lab's code runs
    pushes: tuple[tuple[int, str, str], ...] = ()  # when, from and to which commit
    written: tuple[Written, ...] = ()
    made: tuple[Made, ...] = ()
    reactions: frozenset[tuple[int, str]] = frozenset()
    jobs: tuple[Job, ...] = ()
    withdrawn: frozenset[tuple[str, str]] = frozenset()  # attempts that were stopped before a job
    # what was delivered: "pull", or the id of a command's comment
    inbox: tuple[str | int, ...] = ("pull",)
    # the records
    records: tuple[tuple[str, Fact], ...] = ()  # by path, sorted
    said: tuple[tuple[str, str, bool], ...] = ()  # key, kind, done; sorted
    # the bot's process
    due: tuple[Effect, ...] = ()  # effects that it has decided on
    # what went wrong, if something did
    fault: str = ""
    # what a search still allows
    fine: bool = True  # deaths between what only tells something, repetitions of what was refused
    wide: bool = True  # also what `events` calls rare
    deaths: int = 99
    untimely: int = 99  # events while the bot is at work
    cancels: int = 0  # times that somebody says `/cancel`

    def key(self) -> tuple[Any, ...]:
        """The same for worlds that differ only in what nothing will ask for again: in times that
        have the same order, with the same ones half a minute or a day apart; in when commands were
        written that are answered; and in what was before the newest plan, where no command is open.
        """
        times = [self.now]
        shape: list[Any] = []
        busy = self.due or any(item != "pull" for item in self.inbox)
        plans = [one for _, one in self.records if isinstance(one.of, record.PlanRecord)]
        since = plans[-1].times[0] if plans and not busy else 0
        for one in self.written:
            shape.append((one.message.template, one.meant, one.stands))
            if one.message.of.id in self.inbox or not self.jobs:
                times += one.message.times
        kept = plans if busy else _kept([one.of for one in plans])
        for path, found in self.records:
            if not busy and isinstance(found.of, record.PlanRecord) and found.of.n not in kept:
                continue
            shape.append((path, found.template))
            if busy or found is plans[-1]:
                times += found.times
        last = None
        for made in self.made:
            shape.append(made.key)
            if made.key.startswith("plan."):
                last = made
                if busy:
                    times.append(made.at)
        if last:
            shape.append(last.moves == len(self.pushes))
            times.append(last.at)
        for at, _, after in self.pushes:
            if at >= since:
                shape.append(after)
                times.append(at)
        for effect in self.due:
            for part in effect:
                if isinstance(part, Fact):
                    shape.append(part.template)
                    times += part.times
                else:
                    shape.append(part)
        return (
            self.head,
            self.base_ref,
            self.head_repository,
            self.role,
            self.policy,
            self.lab,
            self.reactions,
            self.jobs,
            self.withdrawn,
            self.cancels,
            self.inbox,
            self.said,
            self.deaths,
            self.untimely,
            tuple(shape),
            _ranks(times),
        )


def _kept(plans: list[record.PlanRecord]) -> set[int]:
    """The plans that a command could still mean, or an approval rest on; see `events`."""
    newest = {plan.commit: plan.n for plan in plans}
    several = {
        (plan.commit, plan.base_ref, plan.plan and plan.plan.fingerprint): plan.n for plan in plans
    }
    return {*newest.values(), *several.values(), plans[-1].n} if plans else set()


def _ranks(times: list[int]) -> tuple[int, ...]:
    place: dict[int, int] = {}
    rank = before = 0
    for time in sorted(set(times)):
        gap = time - before
        rank += 1 if gap < 30 else 100 if gap < 86_400 else 10_000
        place[time] = rank
        before = time
    return tuple([place[time] for time in times])
