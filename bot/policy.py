"""Who may approve what, and which plan a `/run` means: conditions, each with its name. Pure.

`AT_APPROVAL` is asked when a command is answered, `AT_LAUNCH` when its execution is about to begin.
A condition says in a clause why it does not hold, or nothing. None of them does another's work, so
that a test fails for each one that is taken out.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from bot import words
from bot.escape import code
from bot.facts import Message, Pull, Thread
from bot.labfile import PATH, Command, Policy
from runner import allowance, narrow
from runner.record import Approval, Narrowing, Person, Plan, PlanRecord

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
    said = thread.said.get(f"plan.{plan.n}")
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


@dataclass(frozen=True)
class Condition:
    """Something that must hold; `why` says in a clause why it does not, or nothing."""

    name: str
    why: Callable[[Case], str]


def failing(conditions: Iterable[Condition], case: Case) -> tuple[str, str] | None:
    """Name and clause of the first condition that does not hold; None if all do."""
    for condition in conditions:
        if why := condition.why(case):
            return condition.name, why
    return None


def act_of(approval: Approval) -> Act:
    """The word that an approval records."""
    about = re.fullmatch(r"r(\d+)-\d+", approval.command)
    at, review = approval.asked_at or approval.at, int(about[1]) if about else None
    return Act(approval.by, at, review, approval.what)


def act_in(message: Message) -> Act:
    """The word that a message holds."""
    return Act(message.author, message.at, message.id if message.via == "review" else None)


# ── Who ──────────────────────────────────────────────────────────────────────────────────────


def may(policy: Policy, command: Command, login: str, role: str) -> str:
    """Why somebody with this role may not give the command, as a clause; or nothing."""
    if policy.permits(command, login, role):
        return ""
    permitted = policy.permitted(command)
    roles = [f"`{code(name)}`" for name in permitted.roles]
    people = [code(name) for name in permitted.people]
    who = [f"people with the role {' or '.join(roles)}"] * bool(roles) + people
    has = "has no role" if role in ("none", "read", "") else f"has the role `{code(role)}`"
    return (
        f"only {' and '.join(who) or 'nobody'} may say `/{command}` here, and {login} {has} in "
        "this repository"
    )


def forbidden(thread: Thread, command: Command, login: str) -> str:
    """Why somebody may not give a command here now, as a sentence; or nothing."""
    policy = thread.policy()
    return sentence(unreadable(policy) or may(policy, command, login, thread.role(login)))


def sentence(clause: str) -> str:
    """A clause as it can stand alone."""
    return f"{clause[:1].upper()}{clause[1:]}." if clause else ""


def unreadable(policy: Policy) -> str:
    """Why nobody may do anything, as a clause; or nothing."""
    if not policy.problems:
        return ""
    more = f" (and {len(policy.problems) - 1} more)" if len(policy.problems) > 1 else ""
    return f"nobody may command runs until {PATH} is mended: {policy.problems[0]}{more}"


def _known_person(case: Case) -> str:
    unknown = any(act.by.id <= 0 for act in case.acts)
    return "nobody knows who wrote this; that account is gone" if unknown else ""


def _not_bot(case: Case) -> str:
    for act in case.acts:
        if act.by.login.lower().endswith("[bot]"):
            return f"{act.by.login} is an app, and no person"
    return ""


def _role_allowed(case: Case) -> str:
    login = case.act.by.login
    return may(case.policy, case.command, login, case.thread.role(login))


def _still_permitted(case: Case) -> str:
    for act in case.acts:
        role = case.thread.role(act.by.login)
        if not case.policy.permits(act.command, act.by.login, role):
            return f"{act.by.login} may no longer approve (role `{code(role)}`)"
    return ""


def _own_allowed(case: Case) -> str:
    if case.policy.own:
        return ""
    authors = case.thread.committers()
    own = [act.by.login for act in case.acts if act.by.id in authors]
    return f"nobody may approve their own here, and {own[0]} has a part in this" if own else ""


def needs_two(case: Case) -> bool:
    """Whether what is set aside for the plan is so much that two people must approve it."""
    size = case.policy.two_approvers_from
    if size is None or case.plan is None or case.planned is None:
        return False
    # Of a plan from before there were limits nobody knows how much it may take.
    limit = case.plan.limit_seconds
    return limit is None or allowance.device_hours(case.planned, limit) >= size


def _not_author_or_committer(case: Case) -> str:
    if not needs_two(case):
        return ""
    authors = case.thread.committers()
    own = [act.by.login for act in case.acts if act.by.id in authors]
    return (
        "an experiment of this size needs two approvers, and who opened the pull request or wrote "
        f"its commits is none of them, as {own[0]}"
        if own
        else ""
    )


def _enough_approvers(case: Case) -> str:
    if not needs_two(case) or len({act.by.id for act in case.acts}) >= 2:
        return ""
    return (
        f"an experiment of this size needs two approvers; besides {case.act.by.login} one more "
        f"has to comment {case.line}"
    )


# ── Which plan ───────────────────────────────────────────────────────────────────────────────


def _on_pull_request(case: Case) -> str:
    return (
        ""
        if case.thread.is_pull
        else "`/run` belongs on the pull request that declares the experiment: it approves the "
        "plan at a commit, and an issue has none"
    )


def _not_restored(case: Case) -> str:
    since = case.thread.restored
    if since is None or all(act.at > since for act in case.acts):
        return ""
    return "the lab has lost what it knew of this thread; say it again if it is still wanted"


def _code_or_sha(case: Case) -> str:
    if case.wanted.how == "short":
        return (
            f"`{case.wanted.what}` is a shortened SHA, and of those somebody else can make one; "
            f"comment {case.line} to approve the newest plan"
        )
    if case.wanted.how == "unclear":
        return (
            f"`{code(case.wanted.what)}` is neither a plan's code nor a commit's full SHA; "
            f"comment {case.line} to approve the newest plan"
        )
    return ""


def narrowing(case: Case) -> Narrowing | None:
    """What the command leaves out of its plan; None where it says nothing, or nothing of use."""
    if not case.wanted.rest or case.planned is None:
        return None
    found = narrow.read(case.wanted.rest, case.planned)
    return found if isinstance(found, Narrowing) else None


def _narrow_only(case: Case) -> str:
    if not case.wanted.rest or case.planned is None:
        return ""
    found = narrow.read(case.wanted.rest, case.planned)
    if isinstance(found, Narrowing):
        return ""
    return (
        f"{found}, and a command can only leave something out of its plan; push what you want to "
        "run, and there will be a plan of it"
    )


def _plan_there(case: Case) -> str:
    if case.plan:
        return ""
    if case.wanted.how == "code":
        return f"no plan of this pull request has this code; comment {case.line}"
    if case.wanted.how == "commit":
        return (
            f"there was no plan for `{case.wanted.what[:12]}` yet when this was written; read the "
            f"newest plan, then comment {case.line}"
        )
    return f"there was no plan yet when this was written; read the plan, then comment {case.line}"


def _plan_whole(case: Case) -> str:
    if case.plan is None or case.plan.plan:
        return ""
    return (
        f"plan {case.plan.n} names problems, and there is nothing that could run until they are "
        "mended"
    )


def _younger_than_24h(case: Case) -> str:
    old = [act for act in case.acts if case.thread.now - act.at >= GOOD_FOR]
    return f"the word of {old[0].by.login} is more than 24 hours old" if old else ""


def _review_stands(case: Case) -> str:
    for act in case.acts:
        if act.review is None:
            continue
        review = case.thread.review(act.review)
        if review is None or review.state == "DISMISSED":
            return f"the review of {act.by.login} was dismissed"
        if review.state != "APPROVED":
            return f"the review of {act.by.login} does not approve the pull request"
        if case.plan and review.commit != case.plan.commit:
            return (
                f"the review of {act.by.login} is of another commit than plan {case.plan.n}, "
                f"which is for `{case.plan.commit[:12]}`"
            )
    return ""


def _same_repository(case: Case) -> str:
    pull = case.pull
    if case.wanted.how != "bare" or not pull or pull.head_repository == case.thread.id.repository:
        return ""
    return (
        "the branch is not in this repository, so that a `/run` has to name its plan; comment "
        f"{case.line} for the newest one"
    )


def _settled(case: Case) -> str:
    if case.wanted.how != "bare" or case.plan is None:
        return ""
    at, least = posted(case.thread, case.plan), case.policy.settle_seconds
    if at and case.act.at - at >= timedelta(seconds=least):
        return ""
    return (
        f"plan {case.plan.n} was posted less than {least} seconds before, which is too short to "
        f"have read it; comment {case.line}, or `/run` again"
    )


def _no_push_between(case: Case) -> str:
    if case.wanted.how != "bare" or case.plan is None:
        return ""
    plan = case.plan
    # The push that the plan is of may bear a time a little after that of the plan.
    pushed = any(
        push.at >= (plan.at.replace(microsecond=0) if push.after != plan.commit else plan.at + OWN)
        for push in case.thread.pushes
    )
    if not pushed and case.thread.plans[-1].n == plan.n:
        return ""
    return (
        f"the branch changed after plan {plan.n}, even if it is back where it was; read the "
        f"newest plan, then comment {case.line}"
    )


# ── What holds of the pull request now ───────────────────────────────────────────────────────


def _open(case: Case) -> str:
    return "" if case.pull and case.pull.open else "the pull request is closed"


def _not_draft(case: Case) -> str:
    draft = case.pull and case.pull.draft
    return "the pull request is a draft; mark it as ready for review first" if draft else ""


def _same_head(case: Case) -> str:
    plan, pull = case.plan, case.pull
    if plan is None or pull is None or plan.commit == pull.head:
        return ""
    return (
        f"the branch has moved on: plan {plan.n} is for `{plan.commit[:12]}`, and the branch is at "
        f"`{pull.head[:12]}`; read the plan for that commit first"
    )


def _same_base_ref(case: Case) -> str:
    plan, pull = case.plan, case.pull
    if plan is None or pull is None or plan.base_ref == pull.base_ref:
        return ""
    return (
        f"the pull request was to be merged into `{code(plan.base_ref)}` when plan {plan.n} was "
        f"made, and now into `{code(pull.base_ref)}`; read the newest plan first"
    )


def _same_fingerprint(case: Case) -> str:
    plan, planned = case.plan, case.planned
    if plan is None or planned is None or case.thread.replan(plan.n) == planned.fingerprint:
        return ""
    return (
        f"the lab's own code has changed since plan {plan.n}, so that something else would run; "
        "read the newest plan first"
    )


def _kind_allowed(case: Case) -> str:
    allowed, planned = case.policy.kinds, case.planned
    if allowed is None or planned is None:
        return ""
    used = {planned.resources.kind, *(step.resources.kind for step in planned.steps.values())}
    refused = sorted(used - set(allowed))
    return f"the lab's policy does not allow `{refused[0]}`" if refused else ""


def _isolation(case: Case) -> str:
    plan, here = case.plan, case.thread.isolation
    why = words.own_code(case.planned).rstrip(".") if case.planned else ""
    if plan is None or not why or (here and here == plan.isolation):
        return ""
    if not here:
        return why
    return (
        f"plan {plan.n} was made where its own code runs {_KEPT[plan.isolation]}, and now it would "
        f"run {_KEPT[here]}; read the newest plan first"
    )


_KEPT = {"": "not at all", "bubblewrap": "under bubblewrap", "trusted": "without isolation"}


def _not_running(case: Case) -> str:
    plan, states = case.plan, {ran.execution.id: ran.life.state for ran in case.thread.executions}
    for approval in case.thread.approvals.values():
        if plan and approval.approved and approval.plan == plan.n:
            state = states.get(approval.execution, "queued")
            if state not in ("failed", "cancelled", "voided") and not (
                state == "done" and case.wanted.how == "plan"  # it is to run once more
            ):
                return f"this plan has its execution already: `{approval.execution}` is {state}"
    return ""


def _budget(case: Case) -> str:
    if case.plan is None:
        return ""
    return case.thread.refusal(case.act.by, case.plan.n).rstrip(".")


def _policy_readable(case: Case) -> str:
    return unreadable(case.policy)


_AT_BOTH = (
    Condition("open", _open),
    Condition("not_draft", _not_draft),
    Condition("younger_than_24h", _younger_than_24h),
    Condition("review_stands", _review_stands),
    Condition("same_head", _same_head),
    Condition("same_base_ref", _same_base_ref),
    Condition("same_fingerprint", _same_fingerprint),
    Condition("own_allowed", _own_allowed),
    Condition("kind_allowed", _kind_allowed),
    Condition("isolation", _isolation),
    Condition("not_author_or_committer", _not_author_or_committer),
)

# `enough_approvers` comes last: where it alone does not hold, the word is kept and waits.
AT_APPROVAL = (
    Condition("on_pull_request", _on_pull_request),
    Condition("not_restored", _not_restored),
    Condition("known_person", _known_person),
    Condition("not_bot", _not_bot),
    Condition("policy_readable", _policy_readable),
    Condition("role_allowed", _role_allowed),
    Condition("code_or_sha", _code_or_sha),
    Condition("plan_there", _plan_there),
    Condition("plan_whole", _plan_whole),
    Condition("narrow_only", _narrow_only),
    *_AT_BOTH,
    Condition("same_repository", _same_repository),
    Condition("settled", _settled),
    Condition("no_push_between", _no_push_between),
    Condition("not_running", _not_running),
    Condition("budget", _budget),
    Condition("enough_approvers", _enough_approvers),
)

AT_LAUNCH = (
    Condition("not_restored", _not_restored),
    Condition("policy_readable", _policy_readable),
    *_AT_BOTH,
    Condition("still_permitted", _still_permitted),
    Condition("enough_approvers", _enough_approvers),
)
