"""Which plan a command means, whose word it is, and who may give it. Pure.

What must hold of a `Case` is in `bot.rules.approval_checks`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from bot.model.escape import code
from bot.model.keys import CommandKey, Key
from bot.model.policy_file import PATH, Command, Policy
from bot.model.thread import Message, Pull, Thread
from runner.planning import subset
from runner.schema.record import Approval, Narrowing, Person, Plan, PlanRecord

CODE = r"[a-z2-7]{4}(-[a-z2-7]{4}){4}"  # 100 bits
OWN = timedelta(seconds=5)  # between GitHub's time of a push and the lab's of its plan, at most
GOOD_FOR = timedelta(hours=24)  # an approval, and the command that gives it


# ── What a command says ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Wanted:
    """What a command says of the plan that it approves."""

    how: Literal["bare", "code", "commit", "plan", "short", "unclear"]
    what: str = ""
    rest: str = ""  # words after it, which may narrow the plan


def wanted(argument: str, reviewed: str | None = None) -> Wanted:
    """What stands after `/run`; `reviewed` is the commit of the review that holds the command."""
    first, _, rest = argument.strip().partition(" ")
    word = first.lower()
    if re.fullmatch(r"[0-9a-f]{40}", word):
        return Wanted("commit", word, rest.strip())
    if re.fullmatch(CODE, word):
        return Wanted("code", word, rest.strip())
    if re.fullmatch(r"[0-9a-f]{4,39}", word):
        return Wanted("short", word, rest.strip())
    if first and "=" not in first:
        return Wanted("unclear", argument.strip())
    if reviewed:
        return Wanted("commit", reviewed, argument.strip())
    return Wanted("bare", rest=argument.strip())


def meant(thread: Thread, wanted: Wanted, asked_at: datetime) -> PlanRecord | None:
    """The plan that a command is about: the one it names, else the newest one that was there."""
    if wanted.how == "code":
        found = [plan for plan in thread.plans if plan.code and plan.code == wanted.what]
    elif wanted.how == "plan":
        found = [plan for plan in thread.plans if str(plan.n) == wanted.what]
    else:
        found = [
            plan
            for plan in thread.plans
            if (at := posted(thread, plan)) and at < asked_at  # a tie is not before
            if wanted.how != "commit" or plan.commit == wanted.what
        ]
    return found[-1] if found else None


def posted(thread: Thread, plan: PlanRecord) -> datetime | None:
    """When the plan's comment was created, by GitHub's clock. None where it is older than the plan:
    then it is some other comment, which somebody has edited to look like it."""
    said = thread.said.get(Key("plan", str(plan.n)))
    if said is None or said.at is None or said.at < plan.at.replace(microsecond=0):
        return None
    return said.at


# ── Cases ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Act:
    """Somebody's word that a plan may run."""

    by: Person
    at: datetime  # when they gave it, by GitHub's clock
    review: int | None = None  # that it stood in
    command: Command = "run"


@dataclass(frozen=True)
class Case:
    """A command to answer, or an execution to launch, with all that it rests on."""

    thread: Thread
    wanted: Wanted
    plan: PlanRecord | None
    acts: tuple[Act, ...]  # the newest last
    command: Command = "run"
    left: Narrowing | None = None  # what it leaves of the plan; None: all
    before: str = ""  # the execution that is to run once more

    @property
    def act(self) -> Act:
        """The newest word."""
        return self.acts[-1]

    @property
    def pull(self) -> Pull | None:
        """The pull request now."""
        return self.thread.pull()

    @property
    def policy(self) -> Policy:
        """The lab's policy now."""
        return self.thread.policy()

    @property
    def planned(self) -> Plan | None:
        """What would run."""
        return self.plan.plan if self.plan else None

    @property
    def line(self) -> str:
        """The line to type for the newest plan."""
        newest = next((plan for plan in reversed(self.thread.plans) if plan.plan), None)
        return f"`/run {newest.code or newest.commit}`" if newest else "`/run` with a plan's code"

    @property
    def same(self) -> str:
        """The line by which somebody else says the same."""
        if self.before:
            return f"`/{self.command} {self.before}`"
        if self.plan is None:
            return self.line
        left = subset.line(self.left) if self.left else ""
        return f"`/run {self.plan.code or self.plan.commit}{' ' * bool(left)}{left}`"


@dataclass(frozen=True)
class Condition:
    """Something that must hold; `why` says in a clause why it does not; None: it does."""

    name: str
    why: Callable[[Case], str | None]


def failing(conditions: Iterable[Condition], case: Case) -> tuple[str, str] | None:
    """Name and clause of the first condition that does not hold; None if all do."""
    for condition in conditions:
        if (why := condition.why(case)) is not None:
            return condition.name, why
    return None


def act_of(approval: Approval) -> Act:
    """The word that an approval records."""
    at, review = approval.asked_at or approval.at, CommandKey.parse(approval.command).review
    return Act(approval.by, at, review, approval.what)


def act_in(message: Message, now: datetime, command: Command = "run") -> Act:
    """The word that a message holds. Nobody tells when a button was pressed: it is when that is
    dealt with."""
    at = now if message.via == "button" else message.at
    return Act(message.author, at, message.id if message.via == "review" else None, command)


# ── Who ──────────────────────────────────────────────────────────────────────────────────────


def may(policy: Policy, command: Command, login: str, role: str) -> str | None:
    """Why somebody with this role may not give the command, as a clause; None: they may."""
    if policy.permits(command, login, role):
        return None
    permitted = policy.permitted(command)
    roles = [f"`{code(name)}`" for name in permitted.roles]
    people = [code(name) for name in permitted.people]
    who = [f"people with the role {' or '.join(roles)}"] * bool(roles) + people
    has = "has no role" if role in ("none", "read", "") else f"has the role `{code(role)}`"
    return (
        f"only {' and '.join(who) or 'nobody'} may say `/{command}` here, and {login} {has} in "
        "this repository"
    )


def forbidden(thread: Thread, command: Command, login: str) -> str | None:
    """Why somebody may not give a command here now, as a sentence; None: they may."""
    policy = thread.policy()
    broken = None if command == "cancel" else unreadable(policy)
    why = broken or may(policy, command, login, thread.role(login))
    return why and sentence(why)


def sentence(clause: str) -> str:
    """A clause as it can stand alone."""
    return f"{clause[:1].upper()}{clause[1:]}."


def unreadable(policy: Policy) -> str | None:
    """Why nobody may do anything, as a clause; None: the policy can be read."""
    if not policy.problems:
        return None
    more = f" (and {len(policy.problems) - 1} more)" if len(policy.problems) > 1 else ""
    return f"nobody may command runs until {PATH} is mended: {policy.problems[0]}{more}"


def narrowing(case: Case) -> Narrowing | None:
    """What the command leaves out of its plan; None where it says nothing, or nothing of use."""
    if not case.wanted.rest or case.planned is None:
        return None
    found = subset.read(case.wanted.rest, case.planned)
    return found if isinstance(found, Narrowing) else None
