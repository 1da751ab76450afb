"""The conditions for approving and launching a plan, each with a name. Pure.

`AT_APPROVAL` is checked when a command is answered, `AT_LAUNCH` when its execution is about to
start. A condition returns a clause that says why it does not hold; None if it holds. Conditions do
not overlap, so a test fails for each one that is removed. They are checked in order: those after
`plan_there` and `plan_whole` may assume a plan that can run.
"""

from datetime import timedelta

from bot.messages import plan_comment
from bot.model.escape import code
from bot.model.keys import CommandKey
from bot.rules.agent_checks import agent_kinds, agent_proposals
from bot.rules.approvers import (
    enough_approvers,
    known_person,
    not_author_or_committer,
    not_bot,
    own_allowed,
    role_allowed,
    still_permitted,
)
from bot.rules.which_plan import GOOD_FOR, OWN, Case, is_before_cancel, posted, unreadable
from runner.planning import subset
from runner.schema.record import Narrowing

# ── Which plan ───────────────────────────────────────────────────────────────────────────────


def on_pull_request(case: Case) -> str | None:
    """The command is on a pull request: an issue has no plans."""
    if case.thread.is_pull:
        return None
    return (
        "`/run` approves a plan, and an issue has none; comment on the pull request that declares "
        "the experiment"
    )


def not_restored(case: Case) -> str | None:
    """No approval is from before the records were lost."""
    since = case.thread.restored
    if since is None or all(word.given_at > since for word in case.words):
        return None
    return "the lab lost its records of this thread; post the command again if you still want it"


def not_called_off(case: Case) -> str | None:
    """No `/cancel` of all that runs was written after the command, and heard before it."""
    asked = case.word.given_at, CommandKey.parse(case.word.command)
    for key, answered in case.thread.answered.items():
        if answered.all_before and is_before_cancel(*asked, answered.all_before, key):
            return (
                f"{answered.by.login} wrote `/cancel` after it; post the command again if you "
                "still want it"
            )
    return None


def any_plan(case: Case) -> str | None:
    """The pull request has had a plan. A repetition names its own."""
    if case.thread.plans or case.wanted.how == "plan":
        return None
    return (
        "there is no plan here; one comes when the branch changes an experiment, which is a folder "
        "in `experiments/`; then comment the line that it shows"
    )


def code_or_sha(case: Case) -> str | None:
    """The command names a plan in a way that nobody can forge."""
    why = {
        "short": "a shortened SHA, which another commit could share",
        "unclear": "neither a plan's code nor the full SHA of a commit",
    }.get(case.wanted.how)
    if why is None:
        return None
    return f"`{code(case.wanted.what)}` is {why}; comment {case.line} to approve the newest plan"


def narrow_only(case: Case) -> str | None:
    """The words after the plan are a valid subset."""
    if not case.wanted.rest:
        return None
    found = subset.read(case.wanted.rest, case.planned)
    if isinstance(found, Narrowing):
        return None
    return (
        f"{found}. A command can only run a part of its plan. To run something else, push it. "
        f"Plan {len(case.thread.plans) + 1} shows what would run now"
    )


def plan_there(case: Case) -> str | None:
    """The plan was posted before it was approved."""
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
    """A commit names a plan only if all plans of it are equal."""
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
    """The plan has no problems."""
    if case.plan.plan:
        return None
    return f"plan {case.plan.n} lists problems; push a correction first"


def younger_than_24h(case: Case) -> str | None:
    """The command is not too old."""
    old = [word for word in case.words if case.thread.now - word.given_at >= GOOD_FOR]
    return f"the command of {old[0].by.login} is more than 24 hours old" if old else None


def review_stands(case: Case) -> str | None:
    """The review with the command approves this commit, and was not dismissed."""
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
    """A plan from a fork is named explicitly."""
    pull = case.thread.pull()
    if case.wanted.how != "bare" or not pull or pull.head_repository == case.thread.id.repository:
        return None
    return (
        "for a branch of another repository, `/run` needs the code of the plan; comment "
        f"{case.line} for the newest plan"
    )


def settled(case: Case) -> str | None:
    """There was time to read the plan."""
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
    """A bare `/run` means the plan at the time it was written."""
    if case.wanted.how != "bare":
        return None
    plan = case.plan
    # The plan's own push may have a time a little after the plan's.
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
    """The pull request is no draft."""
    draft = (pull := case.thread.pull()) and pull.draft
    return "the pull request is a draft; mark it as ready for review first" if draft else None


def same_head(case: Case) -> str | None:
    """The branch's head is the planned commit."""
    plan, pull = case.plan, case.thread.pull()
    if pull is None or plan.commit == pull.head:
        return None
    return (
        f"the branch has moved from `{plan.commit[:12]}` (plan {plan.n}) to `{pull.head[:12]}`; "
        "read the plan for that commit first"
    )


def same_base_ref(case: Case) -> str | None:
    """The base branch is the planned one."""
    plan, pull = case.plan, case.thread.pull()
    if pull is None or plan.base_ref == pull.base_ref:
        return None
    return (
        f"the base branch changed from `{code(plan.base_ref)}` (plan {plan.n}) to "
        f"`{code(pull.base_ref)}`; read the newest plan first"
    )


def same_fingerprint(case: Case) -> str | None:
    """The current lab would make the same plan."""
    n = case.plan.n
    if case.thread.replan(n) == case.planned.fingerprint:
        return None
    return (
        f"the lab's code has changed since plan {n}, so another computation would run; read the "
        "newest plan first"
    )


def kind_allowed(case: Case) -> str | None:
    """The policy allows the plan's hardware."""
    planned, allowed = case.planned, case.thread.policy().kinds
    if allowed is None:
        return None
    used = {planned.resources.kind, *(step.resources.kind for step in planned.steps.values())}
    refused = sorted(used - set(allowed))
    return f"the lab's policy does not allow `{refused[0]}`" if refused else None


def isolation(case: Case) -> str | None:
    """Own code is isolated as the plan says."""
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
    """The plan has no execution yet that counts."""
    states = {ran.execution.id: ran.life.state for ran in case.thread.executions}
    over = {"failed", "cancelled", "voided"}
    if case.wanted.how == "plan":  # a repetition may
        over.add("done")
    for approval in case.thread.approvals.values():
        state = states.get(approval.execution, "queued")
        if approval.approved and approval.plan == case.plan.n and state not in over:
            return f"this plan already has an execution: `{approval.execution}` is {state}"
    return None


def budget(case: Case) -> str | None:
    """The plan fits the budgets and the devices."""
    by = case.plan.agent if case.word.by_policy and case.plan.agent else case.word.by
    why = case.thread.refusal(by, case.plan.n, case.word.narrowing)
    return why and why.rstrip(".")


def policy_readable(case: Case) -> str | None:
    """The policy is readable."""
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
    agent_kinds,
    isolation,
    not_author_or_committer,
)

# For each waiting approval: is it still valid by itself?
STANDS = (
    not_restored,
    not_bot,
    younger_than_24h,
    review_stands,
    own_allowed,
    not_author_or_committer,
    still_permitted,
)

# For an agent's plan: may it run at all, as of now, and within what the policy gives the agent?
AS_OF_NOW = (
    not_restored,
    policy_readable,
    pull_open,
    not_draft,
    same_head,
    same_base_ref,
    same_fingerprint,
    kind_allowed,
    not_running,
)
WITHIN_ALLOWANCE = (agent_kinds, agent_proposals, budget)

# Of a command that does not name its plan.
OF_BARE = (same_repository, settled, no_push_between)

# `enough_approvers` comes last: if only that fails, the approval is kept and waits.
AT_APPROVAL = (
    on_pull_request,
    not_restored,
    not_called_off,
    known_person,
    not_bot,
    policy_readable,
    role_allowed,
    any_plan,
    code_or_sha,
    one_plan,
    *_PLANNED,
    narrow_only,
    *_AT_BOTH,
    *OF_BARE,
    not_running,
    agent_proposals,
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
