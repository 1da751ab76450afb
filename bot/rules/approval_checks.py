"""What must hold so that a plan is approved and launched: conditions, each with its name. Pure.

`AT_APPROVAL` is asked when a command is answered, `AT_LAUNCH` when its execution is about to begin.
A condition says in a clause why it does not hold; None: it holds. No condition does another's work,
so that a test fails for each one that is taken out.
"""

from datetime import timedelta

from bot.messages import render
from bot.model.escape import code
from bot.rules.approval_case import GOOD_FOR, OWN, Case, Condition, may, posted, unreadable
from runner.planning import limits, subset
from runner.schema.record import Narrowing

# ── Who ──────────────────────────────────────────────────────────────────────────────────────


def _known_person(case: Case) -> str | None:
    unknown = any(act.by.id <= 0 for act in case.acts)
    return "nobody knows who wrote this; that account is gone" if unknown else None


def _not_bot(case: Case) -> str | None:
    for act in case.acts:
        if act.by.login.lower().endswith("[bot]"):
            return f"{act.by.login} is an app, and no person"
    return None


def _role_allowed(case: Case) -> str | None:
    login = case.act.by.login
    return may(case.policy, case.command, login, case.thread.role(login))


def _still_permitted(case: Case) -> str | None:
    for act in case.acts:
        role = case.thread.role(act.by.login)
        if not case.policy.permits(act.command, act.by.login, role):
            return f"{act.by.login} may no longer approve (role `{code(role)}`)"
    return None


def _own_allowed(case: Case) -> str | None:
    if case.policy.own:
        return None
    authors = case.thread.committers()
    own = [act.by.login for act in case.acts if act.by.id in authors]
    return f"nobody may approve their own here, and {own[0]} has a part in this" if own else None


def needs_two(case: Case) -> bool:
    """Whether what is set aside for the plan is so much that two people must approve it."""
    size = case.policy.two_approvers_from
    if size is None or case.plan is None or case.planned is None:
        return False
    # Of a plan from before there were limits nobody knows how much it may take.
    left, limit = subset.remaining(case.plan, case.left)
    return limit is None or limits.device_hours(left, limit) >= size


def _not_author_or_committer(case: Case) -> str | None:
    if not needs_two(case):
        return None
    authors = case.thread.committers()
    own = [act.by.login for act in case.acts if act.by.id in authors]
    return (
        "an experiment of this size needs two approvers, and who opened the pull request or wrote "
        f"its commits is none of them, as {own[0]}"
        if own
        else None
    )


def _enough_approvers(case: Case) -> str | None:
    if not needs_two(case) or len({act.by.id for act in case.acts}) >= 2:
        return None
    return (
        f"an experiment of this size needs two approvers; besides {case.act.by.login} one more "
        f"has to comment {case.same}"
    )


# ── Which plan ───────────────────────────────────────────────────────────────────────────────


def _on_pull_request(case: Case) -> str | None:
    return (
        None
        if case.thread.is_pull
        else "`/run` belongs on the pull request that declares the experiment: it approves the "
        "plan at a commit, and an issue has none"
    )


def _not_restored(case: Case) -> str | None:
    since = case.thread.restored
    if since is None or all(act.at > since for act in case.acts):
        return None
    return "the lab has lost what it knew of this thread; say it again if it is still wanted"


def _code_or_sha(case: Case) -> str | None:
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
    return None


def _narrow_only(case: Case) -> str | None:
    if not case.wanted.rest or case.planned is None:
        return None
    found = subset.read(case.wanted.rest, case.planned)
    if isinstance(found, Narrowing):
        return None
    end = "" if found.endswith("?") else "."
    return (
        f"{found}{end} A command can only leave something out of its plan; push what you want to "
        f"run. Plan {len(case.thread.plans) + 1} says what would run now"
    )


def _plan_there(case: Case) -> str | None:
    if case.plan:
        return None
    if case.wanted.how == "plan":
        return f"plan {case.wanted.what} is not on record any more"
    if case.wanted.how == "code":
        return f"no plan of this pull request has this code; comment {case.line}"
    if case.wanted.how == "commit":
        return (
            f"there was no plan for `{case.wanted.what[:12]}` yet when this was written; read the "
            f"newest plan, then comment {case.line}"
        )
    return f"there was no plan yet when this was written; read the plan, then comment {case.line}"


def _one_plan(case: Case) -> str | None:
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
        f"there are several plans of `{case.wanted.what[:12]}`, and nobody can say which of them "
        f"this means; comment {case.line} to approve the newest one"
    )


def _plan_whole(case: Case) -> str | None:
    if case.plan is None or case.plan.plan:
        return None
    return (
        f"plan {case.plan.n} names problems, and there is nothing that could run until they are "
        "mended"
    )


def _younger_than_24h(case: Case) -> str | None:
    old = [act for act in case.acts if case.thread.now - act.at >= GOOD_FOR]
    return f"the word of {old[0].by.login} is more than 24 hours old" if old else None


def _review_stands(case: Case) -> str | None:
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
    return None


def _same_repository(case: Case) -> str | None:
    pull = case.pull
    if case.wanted.how != "bare" or not pull or pull.head_repository == case.thread.id.repository:
        return None
    return (
        "the branch is not in this repository, so that a `/run` has to name its plan; comment "
        f"{case.line} for the newest one"
    )


def _settled(case: Case) -> str | None:
    if case.wanted.how != "bare" or case.plan is None:
        return None
    at, least = posted(case.thread, case.plan), case.policy.settle_seconds
    if at and case.act.at - at >= timedelta(seconds=least):
        return None
    return (
        f"plan {case.plan.n} was posted less than {least} seconds before, which is too short to "
        f"have read it; comment {case.line}, or `/run` again"
    )


def _no_push_between(case: Case) -> str | None:
    if case.wanted.how != "bare" or case.plan is None:
        return None
    plan = case.plan
    # The push that the plan is of may bear a time a little after that of the plan.
    pushed = any(
        push.at >= (plan.at.replace(microsecond=0) if push.after != plan.commit else plan.at + OWN)
        for push in (*case.thread.pushes, *case.thread.forced())  # a delivery may be lost
    )
    if not pushed and case.thread.plans[-1].n == plan.n:
        return None
    return (
        f"the branch changed after plan {plan.n}, even if it is back where it was; read the "
        f"newest plan, then comment {case.line}"
    )


# ── What holds of the pull request now ───────────────────────────────────────────────────────


def _open(case: Case) -> str | None:
    return None if case.pull and case.pull.open else "the pull request is closed"


def _not_draft(case: Case) -> str | None:
    draft = case.pull and case.pull.draft
    return "the pull request is a draft; mark it as ready for review first" if draft else None


def _same_head(case: Case) -> str | None:
    plan, pull = case.plan, case.pull
    if plan is None or pull is None or plan.commit == pull.head:
        return None
    return (
        f"the branch has moved on: plan {plan.n} is for `{plan.commit[:12]}`, and the branch is at "
        f"`{pull.head[:12]}`; read the plan for that commit first"
    )


def _same_base_ref(case: Case) -> str | None:
    plan, pull = case.plan, case.pull
    if plan is None or pull is None or plan.base_ref == pull.base_ref:
        return None
    return (
        f"the pull request was to be merged into `{code(plan.base_ref)}` when plan {plan.n} was "
        f"made, and now into `{code(pull.base_ref)}`; read the newest plan first"
    )


def _same_fingerprint(case: Case) -> str | None:
    plan, planned = case.plan, case.planned
    if plan is None or planned is None or case.thread.replan(plan.n) == planned.fingerprint:
        return None
    return (
        f"the lab's own code has changed since plan {plan.n}, so that something else would run; "
        "read the newest plan first"
    )


def _kind_allowed(case: Case) -> str | None:
    allowed, planned = case.policy.kinds, case.planned
    if allowed is None or planned is None:
        return None
    used = {planned.resources.kind, *(step.resources.kind for step in planned.steps.values())}
    refused = sorted(used - set(allowed))
    return f"the lab's policy does not allow `{refused[0]}`" if refused else None


def _isolation(case: Case) -> str | None:
    plan, here = case.plan, case.thread.isolation
    why = render.own_code(case.planned) if case.planned else None
    if plan is None or why is None or (here and here == plan.isolation):
        return None
    if not here:
        return why.rstrip(".")
    return (
        f"plan {plan.n} was made where its own code runs {_KEPT[plan.isolation]}, and now it would "
        f"run {_KEPT[here]}; read the newest plan first"
    )


_KEPT = {"": "not at all", "bubblewrap": "under bubblewrap", "trusted": "without isolation"}


def _not_running(case: Case) -> str | None:
    plan, states = case.plan, {ran.execution.id: ran.life.state for ran in case.thread.executions}
    for approval in case.thread.approvals.values():
        if plan and approval.approved and approval.plan == plan.n:
            state = states.get(approval.execution, "queued")
            if state not in ("failed", "cancelled", "voided") and not (
                state == "done" and case.wanted.how == "plan"  # it is to run once more
            ):
                return f"this plan has its execution already: `{approval.execution}` is {state}"
    return None


def _budget(case: Case) -> str | None:
    why = case.thread.refusal(case.act.by, case.plan.n, case.left) if case.plan else None
    return why and why.rstrip(".")


def _policy_readable(case: Case) -> str | None:
    return unreadable(case.policy)


_AT_BOTH = (
    Condition("plan_there", _plan_there),
    Condition("plan_whole", _plan_whole),
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

# Asked of each word that waits: does it still stand by itself?
STANDS = (
    Condition("not_restored", _not_restored),
    Condition("not_bot", _not_bot),
    Condition("younger_than_24h", _younger_than_24h),
    Condition("review_stands", _review_stands),
    Condition("own_allowed", _own_allowed),
    Condition("not_author_or_committer", _not_author_or_committer),
    Condition("still_permitted", _still_permitted),
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
    Condition("one_plan", _one_plan),
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
