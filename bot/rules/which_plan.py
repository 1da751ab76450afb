"""Which plan a command means, who gave it, and who may give it. Pure.

`bot.rules.approval_checks` has the conditions for a `Case`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from bot.model.escape import code
from bot.model.keys import CommandKey, Key
from bot.model.policy_file import AGENT, APP, Command, Policy
from bot.model.thread import Thread
from runner.lib.format import full_stop
from runner.planning import subset
from runner.schema.record import Approval, Narrowing, Person, Plan, PlanRecord

OWN = timedelta(seconds=5)  # maximum time between GitHub's time of a push and the lab's of its plan
GOOD_FOR = timedelta(hours=24)  # for an approval, and for the command that gives it


# ── What a command says ──────────────────────────────────────────────────────────────────────


What = Literal["run", "retry", "reproduce"]  # commands that start something
How = Literal["bare", "code", "commit", "plan", "short", "unclear"]
_NAMES: dict[How, str] = {
    "commit": "[0-9a-f]{40}",
    "code": "[a-z2-7]{4}(-[a-z2-7]{4}){4}",  # 100 bits
    "short": "[0-9a-f]{4,39}",
}


@dataclass(frozen=True)
class Wanted:
    """How a command names the plan that it approves."""

    how: How
    what: str = ""
    rest: str = ""  # the words after it, which may select a subset


def wanted(argument: str, reviewed: str | None = None) -> Wanted:
    """Parse the words after `/run`; `reviewed` is the commit of the review with the command."""
    first, _, rest = argument.strip().partition(" ")
    for how, form in _NAMES.items():
        if re.fullmatch(form, first.lower()):
            return Wanted(how, first.lower(), rest.strip())
    if first and "=" not in first:
        return Wanted("unclear", argument.strip())
    if reviewed:
        return Wanted("commit", reviewed, argument.strip())
    return Wanted("bare", rest=argument.strip())


def meant(thread: Thread, wanted: Wanted, asked_at: datetime) -> PlanRecord | None:
    """The plan that a command means: the one it names, otherwise the newest that existed."""
    if wanted.how == "code":
        found = [plan for plan in thread.plans if plan.code and plan.code == wanted.what]
    elif wanted.how == "plan":
        found = [plan for plan in thread.plans if str(plan.n) == wanted.what]
    else:
        found = [
            plan
            for plan in thread.plans
            if (at := posted(thread, plan)) and at < asked_at  # an equal time is not before
            if wanted.how != "commit" or plan.commit == wanted.what
        ]
    return found[-1] if found else None


def posted(thread: Thread, plan: PlanRecord) -> datetime | None:
    """When the plan's comment was created, by GitHub's clock. None if that is before the plan: then
    it is another comment, edited to look like the plan's."""
    said = thread.said.get(Key("plan", str(plan.n)))
    if said is None or said.at is None or said.at < plan.at.replace(microsecond=0):
        return None
    return said.at


# ── Cases ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """A command to answer, or an execution to launch, with everything that it depends on."""

    thread: Thread
    wanted: Wanted
    found: PlanRecord | None  # the plan that it means
    words: tuple[Approval, ...]  # each by one person, given or to be given; the newest last
    before: str | None = None  # the execution to repeat

    @property
    def word(self) -> Approval:
        """The newest approval."""
        return self.words[-1]

    @property
    def plan(self) -> PlanRecord:
        """The plan that it means, which must exist."""
        assert self.found
        return self.found

    @property
    def planned(self) -> Plan:
        """What would run, by the plan."""
        assert self.plan.plan
        return self.plan.plan

    @property
    def line(self) -> str:
        """The line to type for the newest plan."""
        newest = next((plan for plan in reversed(self.thread.plans) if plan.plan), None)
        return f"`/run {newest.code or newest.commit}`" if newest else "`/run` with a plan's code"

    @property
    def same(self) -> str:
        """The line with which a second person approves the same."""
        if self.before:
            return f"`/{self.word.what} {self.before}`"
        left = subset.line(self.word.narrowing or Narrowing())
        return f"`{' '.join(filter(None, ('/run', self.plan.code or self.plan.commit, left)))}`"


def failing(
    conditions: Iterable[Callable[[Case], str | None]], case: Case
) -> tuple[str, str] | None:
    """Name and clause of the first condition that does not hold; None if all do."""
    for condition in conditions:
        if (why := condition(case)) is not None:
            return condition.__name__, why
    return None


# ── Who ──────────────────────────────────────────────────────────────────────────────────────


def may(policy: Policy, command: Command, login: str, role: str) -> str | None:
    """Why a user with this role may not give the command, as a clause; None if they may."""
    if policy.permits(command, login, role):
        return None
    if policy.agent(login) or role == AGENT:
        return f"`{code(login)}` is an agent, and agents never approve anything"
    permitted = policy.permitted(command)
    roles = [f"`{code(name)}`" for name in permitted.roles]
    people = [code(name) for name in permitted.people]
    who = [f"people with the role {' or '.join(roles)}"] * bool(roles) + people
    has = "has no role" if role in ("none", "read", "") else f"has the role `{code(role)}`"
    return (
        f"only {' and '.join(who) or 'nobody'} may use `/{command}` here, and {login} {has} in "
        "this repository"
    )


def is_ignored(thread: Thread, who: Person) -> bool:
    """Whether a user is a bot that the policy does not name as an agent."""
    return who.login.lower().endswith(APP) and thread.policy().agent(who.login, who.id) is None


def role_of(thread: Thread, who: Person) -> str:
    """A user's role now. Of an agent it does not matter, and an App has none."""
    return AGENT if thread.policy().agent(who.login, who.id) else thread.role(who.login)


def forbidden(thread: Thread, command: Command, by: Person) -> str | None:
    """Why a user may not give a command here now, as a sentence; None if they may. An agent may,
    for its own pull request."""
    policy = thread.policy()
    if (broken := None if command == "cancel" else unreadable(policy)) is not None:
        return sentence(broken)
    if policy.agent(by.login, by.id) and thread.is_pull:
        pull = thread.pull()
        if pull and pull.author and pull.author.id == by.id:
            return None
        return sentence(f"`{by.login}` is an agent and may do this for its own pull request only")
    why = may(policy, command, by.login, role_of(thread, by))
    return why and sentence(why)


def is_before_cancel(
    asked_at: datetime | None, command: CommandKey, cancelled_at: datetime, cancel: CommandKey
) -> bool:
    """Whether a `/cancel` was written after a command that starts something. At equal times it was,
    unless the numbers of their comments say otherwise: stopping is the safe side."""
    if asked_at is not None and asked_at != cancelled_at:
        return asked_at < cancelled_at
    if command.comment is None or cancel.comment is None:
        return True
    return (command.comment, command.nth) <= (cancel.comment, cancel.nth)


def sentence(clause: str) -> str:
    """A clause as a sentence. A login at its beginning is code, so that it gets no capital."""
    return full_stop(f"{clause[:1].upper()}{clause[1:]}")


def unreadable(policy: Policy) -> str | None:
    """Why nobody may do anything, as a clause; None if the policy is readable."""
    if not policy.problems:
        return None
    more = f" (and {len(policy.problems) - 1} more)" if len(policy.problems) > 1 else ""
    return f"nobody can command runs until this is fixed: {policy.problems[0]}{more}"
