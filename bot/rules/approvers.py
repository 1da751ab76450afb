"""The conditions for an approval that are about who gives it. Pure; see
`bot.rules.approval_checks`."""

from bot.model.contributions import contributors
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
            return f"`{word.by.login}` is an app, and only people can approve"
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
            return f"`{word.by.login}` is no longer allowed to approve (role: `{code(role)}`)"
    return None


def own_allowed(case: Case) -> str | None:
    """Nobody approves their own work if the policy forbids it."""
    if case.thread.policy().own or not (part := _part_of_an_approver(case)):
        return None
    return f"nobody may approve their own work here, and {part}"


def _part_of_an_approver(case: Case) -> str | None:
    """Which approver opened the pull request or contributed to its commits, or answers for the
    agent that did, or that nobody can tell."""
    authors = contributors(case.thread.contributions(), case.thread.pushes)
    agent = case.found and case.found.agent
    sponsor = agent.sponsor.lower() if agent else None
    for word in case.words:
        if word.by.id in authors.people or word.by.login.lower() == sponsor:
            return f"{word.by.login} contributed to this"
    if sha := authors.unknown_commit:
        return (
            f"nobody can tell whose work commit `{code(sha[:7])}` is: its e-mail address belongs "
            "to no account, and no delivery says who pushed it; commit it with an address of an "
            "account and push it again"
        )
    return None


def needs_two(case: Case) -> bool:
    """Whether the plan is so large that two people must approve it."""
    # For a plan from before there were limits, the maximum is unknown.
    left, limit = subset.remaining(case.plan, case.word.narrowing)
    return is_large(case.thread.policy(), left, limit)


def not_author_or_committer(case: Case) -> str | None:
    """Nobody who contributed to a large plan is one of its approvers."""
    if not needs_two(case) or not (part := _part_of_an_approver(case)):
        return None
    return f"an experiment of this size needs two approvers without a part in it, and {part}"


def enough_approvers(case: Case) -> str | None:
    """A large plan has two approvers."""
    if not needs_two(case) or len({word.by.id for word in case.words}) >= 2:
        return None
    return (
        "an experiment of this size needs two approvers; one person other than "
        f"{case.word.by.login} has to comment {case.same}"
    )
