"""What must hold so that a plan is approved and launched: conditions, each with its name. Pure.

`AT_APPROVAL` is asked when a command is answered, `AT_LAUNCH` when its execution is about to begin.
A condition says in a clause why it does not hold; None: it holds. No condition does another's work,
so that a test fails for each one that is taken out. They are asked in their order: of what comes
after `plan_there` and `plan_whole` each has a plan that can run.
"""

from datetime import timedelta

from bot.messages import plan_comment
from bot.model.escape import code
from bot.model.keys import CommandKey
from bot.rules.which_plan import GOOD_FOR, OWN, Case, may, posted, unreadable
from runner.planning import limits, subset
from runner.schema.record import Narrowing

# ── Who ──────────────────────────────────────────────────────────────────────────────────────


def known_person(case: Case) -> str | None:
    """Everybody has an account."""
    if all(word.by.id > 0 for word in case.words):
        return None
    return "the account that wrote this is gone"


def not_bot(case: Case) -> str | None:
    """Everybody is a person."""
    for word in case.words:
        if word.by.login.lower().endswith("[bot]"):
            return f"{word.by.login} is an app, and only people can approve"
    return None


def role_allowed(case: Case) -> str | None:
    """Who commands it may."""
    login = case.word.by.login
    return may(case.thread.policy(), case.word.what, login, case.thread.role(login))


def still_permitted(case: Case) -> str | None:
    """Everybody whose word it rests on may still give it."""
    for word in case.words:
        role = case.thread.role(word.by.login)
        if not case.thread.policy().permits(word.what, word.by.login, role):
            return f"{word.by.login} is no longer allowed to approve (role: `{code(role)}`)"
    return None


def own_allowed(case: Case) -> str | None:
    """Nobody approves their own where the policy forbids that."""
    if case.thread.policy().own or not (own := _with_a_part(case)):
        return None
    return f"nobody may approve their own work here, and {own} contributed to this"


def _with_a_part(case: Case) -> str | None:
    """The first approver who opened the pull request or has a part in its commits."""
    authors = case.thread.committers()
    return next((word.by.login for word in case.words if word.by.id in authors), None)


def needs_two(case: Case) -> bool:
    """Whether what is set aside for the plan is so much that two people must approve it."""
    size = case.thread.policy().two_approvers_from
    if size is None:
        return False
    # Of a plan from before there were limits nobody knows how much it may take.
    left, limit = subset.remaining(case.plan, case.word.narrowing)
    return limit is None or limits.device_hours(left, limit) >= size


def not_author_or_committer(case: Case) -> str | None:
    """Of a large plan nobody is an approver who had a part in it."""
    if not needs_two(case) or not (own := _with_a_part(case)):
        return None
    return (
        "an experiment of this size needs two approvers who did not contribute to it, and "
        f"{own} did"
    )


def enough_approvers(case: Case) -> str | None:
    """A large plan has two."""
    if not needs_two(case) or len({word.by.id for word in case.words}) >= 2:
        return None
    return (
        "an experiment of this size needs two approvers; one person other than "
        f"{case.word.by.login} has to comment {case.same}"
    )


# ── Which plan ───────────────────────────────────────────────────────────────────────────────


def on_pull_request(case: Case) -> str | None:
    """An issue has no plans."""
    if case.thread.is_pull:
        return None
    return (
        "`/run` approves a plan, and an issue has none; comment on the pull request that declares "
        "the experiment"
    )


def not_restored(case: Case) -> str | None:
    """Nothing rests on a word from before the records were lost."""
    since = case.thread.restored
    if since is None or all(word.given_at > since for word in case.words):
        return None
    return "the lab lost its records of this thread; post the command again if you still want it"


def code_or_sha(case: Case) -> str | None:
    """A plan is named so that nobody can make another one of that name."""
    why = {
        "short": "a shortened SHA, which another commit could share",
        "unclear": "neither a plan's code nor the full SHA of a commit",
    }.get(case.wanted.how)
    if why is None:
        return None
    return f"`{code(case.wanted.what)}` is {why}; comment {case.line} to approve the newest plan"


def narrow_only(case: Case) -> str | None:
    """What stands after the plan leaves something out of it."""
    if not case.wanted.rest:
        return None
    found = subset.read(case.wanted.rest, case.planned)
    if isinstance(found, Narrowing):
        return None
    end = "" if found.endswith("?") else "."
    return (
        f"{found}{end} A command can only run a part of its plan. To run something else, push it. "
        f"Plan {len(case.thread.plans) + 1} shows what would run now"
    )


def plan_there(case: Case) -> str | None:
    """It was posted before it was approved."""
    if case.found:
        return None
    if case.wanted.how == "plan":
        return f"the lab has no record of plan {case.wanted.what} any more"
    if case.wanted.how == "code":
        return f"no plan of this pull request has this code; comment {case.line} instead"
    of = f" for `{case.wanted.what[:12]}`" if case.wanted.how == "commit" else ""
    return (
        f"this was written before there was a plan{of}; read the newest plan, then comment "
        f"{case.line}"
    )


def one_plan(case: Case) -> str | None:
    """A commit names a plan only where all that was ever planned of it is the same."""
    if case.wanted.how != "commit":
        return None
    planned = {
        (plan.plan.fingerprint, plan.base_ref, plan.isolation)
        for plan in case.thread.plans
        if plan.plan and plan.commit == case.wanted.what
    }
    if len(planned) < 2:
        return None
    return (
        f"commit `{case.wanted.what[:12]}` has several plans; comment {case.line} to approve the "
        "newest one"
    )


def plan_whole(case: Case) -> str | None:
    """It has no problems."""
    if case.plan.plan:
        return None
    return f"plan {case.plan.n} lists problems; push a correction first"


def younger_than_24h(case: Case) -> str | None:
    """The words are not old."""
    old = [word for word in case.words if case.thread.now - word.given_at >= GOOD_FOR]
    return f"the command of {old[0].by.login} is more than 24 hours old" if old else None


def review_stands(case: Case) -> str | None:
    """A review that a word stood in approves this commit, and was not dismissed."""
    for word in case.words:
        if (id := CommandKey.parse(word.command).review) is None:
            continue
        review = case.thread.review(id)
        if review is None or review.state == "DISMISSED":
            return f"the review of {word.by.login} was dismissed"
        if review.state != "APPROVED":
            return f"the review of {word.by.login} does not approve the pull request"
        if review.commit != case.plan.commit:
            return (
                f"the review of {word.by.login} is of another commit; plan {case.plan.n} is for "
                f"`{case.plan.commit[:12]}`"
            )
    return None


def same_repository(case: Case) -> str | None:
    """From another repository a plan is named."""
    pull = case.thread.pull()
    if case.wanted.how != "bare" or not pull or pull.head_repository == case.thread.id.repository:
        return None
    return (
        "for a branch of another repository, `/run` needs the code of the plan; comment "
        f"{case.line} for the newest plan"
    )


def settled(case: Case) -> str | None:
    """There was time to read it."""
    if case.wanted.how != "bare":
        return None
    at, least = posted(case.thread, case.plan), case.thread.policy().settle_seconds
    if at and case.word.given_at - at >= timedelta(seconds=least):
        return None
    return (
        f"plan {case.plan.n} was posted less than {least} seconds earlier, too short to read it; "
        f"comment {case.line}, or `/run` again"
    )


def no_push_between(case: Case) -> str | None:
    """A `/run` alone means what was there when it was written."""
    if case.wanted.how != "bare":
        return None
    plan = case.plan
    # The push that the plan is of may bear a time a little after that of the plan.
    pushed = any(
        push.at >= (plan.at.replace(microsecond=0) if push.after != plan.commit else plan.at + OWN)
        for push in (*case.thread.pushes, *case.thread.forced())  # a delivery may be lost
    )
    if not pushed and case.thread.plans[-1].n == plan.n:
        return None
    return f"the branch changed after plan {plan.n}; read the newest plan, then comment {case.line}"


# ── What holds of the pull request now ───────────────────────────────────────────────────────


def pull_open(case: Case) -> str | None:
    """The pull request is open."""
    return None if (pull := case.thread.pull()) and pull.open else "the pull request is closed"


def not_draft(case: Case) -> str | None:
    """It is no draft."""
    draft = (pull := case.thread.pull()) and pull.draft
    return "the pull request is a draft; mark it as ready for review first" if draft else None


def same_head(case: Case) -> str | None:
    """The branch is where the plan found it."""
    plan, pull = case.plan, case.thread.pull()
    if pull is None or plan.commit == pull.head:
        return None
    return (
        f"the branch has moved from `{plan.commit[:12]}` (plan {plan.n}) to `{pull.head[:12]}`; "
        "read the plan for that commit first"
    )


def same_base_ref(case: Case) -> str | None:
    """It is to be merged where the plan says."""
    plan, pull = case.plan, case.thread.pull()
    if pull is None or plan.base_ref == pull.base_ref:
        return None
    return (
        f"the base branch changed from `{code(plan.base_ref)}` (plan {plan.n}) to "
        f"`{code(pull.base_ref)}`; read the newest plan first"
    )


def same_fingerprint(case: Case) -> str | None:
    """The lab would still make this plan."""
    n = case.plan.n
    if case.thread.replan(n) == case.planned.fingerprint:
        return None
    return (
        f"the lab's code has changed since plan {n}, so another computation would run; read the "
        "newest plan first"
    )


def kind_allowed(case: Case) -> str | None:
    """The policy allows its hardware."""
    planned, allowed = case.planned, case.thread.policy().kinds
    if allowed is None:
        return None
    used = {planned.resources.kind, *(step.resources.kind for step in planned.steps.values())}
    refused = sorted(used - set(allowed))
    return f"the lab's policy does not allow `{refused[0]}`" if refused else None


def isolation(case: Case) -> str | None:
    """Own code is kept apart as the plan says."""
    plan, here = case.plan, case.thread.isolation
    why = plan_comment.own_code(case.planned)
    if why is None or (here and here == plan.isolation):
        return None
    if not here:
        return why.rstrip(".")
    return (
        f"plan {plan.n} says that its own code {_KEPT[plan.isolation]}, but here it now "
        f"{_KEPT[here]}; read the newest plan first"
    )


_KEPT = {
    "": "does not run",
    "bubblewrap": "runs in isolation",
    "trusted": "runs without isolation",
}


def not_running(case: Case) -> str | None:
    """It has no execution yet, or none that counts."""
    states = {ran.execution.id: ran.life.state for ran in case.thread.executions}
    over = {"failed", "cancelled", "voided"}
    if case.wanted.how == "plan":  # it is to run once more
        over.add("done")
    for approval in case.thread.approvals.values():
        state = states.get(approval.execution, "queued")
        if approval.approved and approval.plan == case.plan.n and state not in over:
            return f"this plan already has an execution: `{approval.execution}` is {state}"
    return None


def budget(case: Case) -> str | None:
    """It fits into the budgets and onto the devices."""
    why = case.thread.refusal(case.word.by, case.plan.n, case.word.narrowing)
    return why and why.rstrip(".")


def policy_readable(case: Case) -> str | None:
    """The policy can be read."""
    return unreadable(case.thread.policy())


_PLANNED = (plan_there, plan_whole)
_AT_BOTH = (
    pull_open,
    not_draft,
    younger_than_24h,
    review_stands,
    same_head,
    same_base_ref,
    same_fingerprint,
    own_allowed,
    kind_allowed,
    isolation,
    not_author_or_committer,
)

# Asked of each word that waits: does it still stand by itself?
STANDS = (
    not_restored,
    not_bot,
    younger_than_24h,
    review_stands,
    own_allowed,
    not_author_or_committer,
    still_permitted,
)

# `enough_approvers` comes last: where it alone does not hold, the word is kept and waits.
AT_APPROVAL = (
    on_pull_request,
    not_restored,
    known_person,
    not_bot,
    policy_readable,
    role_allowed,
    code_or_sha,
    one_plan,
    *_PLANNED,
    narrow_only,
    *_AT_BOTH,
    same_repository,
    settled,
    no_push_between,
    not_running,
    budget,
    enough_approvers,
)

AT_LAUNCH = (
    not_restored,
    policy_readable,
    *_PLANNED,
    *_AT_BOTH,
    still_permitted,
    enough_approvers,
)
