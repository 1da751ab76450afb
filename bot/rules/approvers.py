"""The conditions for an approval that are about who gives it. Pure; see
`bot.rules.approval_checks`."""

from bot.model.escape import code
from bot.model.policy_file import APP
from bot.rules.agent_checks import is_large, policy_approves
from bot.rules.which_plan import Case, may, role_of
from runner.planning import subset


def known_person(case: Case) -> str | None:
    """Every approver has an account."""
    if all(word.by.id > 0 for word in case.words):
        return None
    return "the account that wrote this is gone"


def not_bot(case: Case) -> str | None:
    """Every approver is a person."""
    for word in case.words:
        if word.by.login.lower().endswith(APP):
            return f"{word.by.login} is an app, and only people can approve"
    return None


def role_allowed(case: Case) -> str | None:
    """The author of the command has permission."""
    by = case.word.by
    return may(case.thread.policy(), case.word.what, by.login, role_of(case.thread, by))


def still_permitted(case: Case) -> str | None:
    """Every approver still has permission."""
    for word in case.words:
        if word.by_policy:
            if why := policy_approves(case):
                return f"the policy no longer approves this by itself: {why}"
            continue
        role = role_of(case.thread, word.by)
        if not case.thread.policy().permits(word.what, word.by.login, role):
            return f"{word.by.login} is no longer allowed to approve (role: `{code(role)}`)"
    return None


def own_allowed(case: Case) -> str | None:
    """Nobody approves their own work if the policy forbids it."""
    if case.thread.policy().own or not (own := _with_a_part(case)):
        return None
    return f"nobody may approve their own work here, and {own} contributed to this"


def _with_a_part(case: Case) -> str | None:
    """The first approver who opened the pull request or contributed to its commits, or who answers
    for the agent that did."""
    authors, agent = case.thread.committers(), case.found and case.found.agent
    sponsor = agent.sponsor.lower() if agent else None
    part = (one.by for one in case.words if one.by.id in authors or one.by.login.lower() == sponsor)
    return next((by.login for by in part), None)


def needs_two(case: Case) -> bool:
    """Whether the plan is so large that two people must approve it."""
    # For a plan from before there were limits, the maximum is unknown.
    left, limit = subset.remaining(case.plan, case.word.narrowing)
    return is_large(case.thread.policy(), left, limit)


def not_author_or_committer(case: Case) -> str | None:
    """Nobody who contributed to a large plan is one of its approvers."""
    if not needs_two(case) or not (own := _with_a_part(case)):
        return None
    return (
        "an experiment of this size needs two approvers who did not contribute to it, and "
        f"{own} did"
    )


def enough_approvers(case: Case) -> str | None:
    """A large plan has two approvers."""
    if not needs_two(case) or len({word.by.id for word in case.words}) >= 2:
        return None
    return (
        "an experiment of this size needs two approvers; one person other than "
        f"{case.word.by.login} has to comment {case.same}"
    )
