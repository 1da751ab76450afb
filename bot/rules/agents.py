"""The policy's own decision about an agent's newest plan, once per plan. Pure.

Within what the policy gives the agent, it approves the first gate (`agent_checks`); then an
execution follows, as after a `/run`. What exceeds it is refused, with the reason and what to do. A
plan that needs a maintainer gets no decision here. The record of a decision names the policy's
commit.
"""

from collections.abc import Iterator

from bot.model.actions import Action, Write
from bot.model.keys import CommandKey
from bot.model.thread import Thread
from bot.rules import agent_checks, approval_checks, which_plan
from bot.rules.which_plan import Case, Wanted
from runner.schema.record import POLICY, Agent, Approval, PlanRecord, policy_at


def rules(thread: Thread) -> Iterator[Action]:
    """The record of the decision about the newest plan, if it is an agent's."""
    plan = thread.plans[-1] if thread.plans else None
    if not thread.news or plan is None or plan.agent is None or plan.plan is None:
        return
    key = CommandKey("policy", thread.id.number, plan.n)
    if key in thread.approvals or which_plan.posted(thread, plan) is None:
        return
    word = _word(thread, plan, str(key))
    case = Case(thread, Wanted("code", plan.code), plan, (word,))
    if which_plan.failing(approval_checks.AS_OF_NOW, case):
        return  # what changes that is another delivery
    refused = which_plan.failing(approval_checks.WITHIN_ALLOWANCE, case)
    if refused is None and agent_checks.policy_approves(case):
        return
    yes = {"approved": True, "commit": plan.commit, "fingerprint": case.planned.fingerprint}
    no = {"why": which_plan.sentence(refused[1])} if refused else {}
    decided = word.model_copy(update=no or yes).naming_execution()
    yield Write(f"approvals/{thread.id}/{key}", decided)


def agent_of(thread: Thread) -> Agent | None:
    """The agent that opened the pull request, as the policy names it now; None if nobody did."""
    pull = thread.pull()
    allowed = thread.policy().allowance(pull.author) if pull and pull.author else None
    if pull is None or pull.author is None or allowed is None:
        return None
    return Agent(login=pull.author.login, id=pull.author.id, sponsor=allowed.sponsor)


def _word(thread: Thread, plan: PlanRecord, key: str) -> Approval:
    """The policy's approval, undecided."""
    sha = thread.policy().sha
    return Approval(
        repository=thread.id.repository,
        pull=thread.id.number,
        command=key,
        by=policy_at(sha),
        role=POLICY,
        at=thread.now,
        approved=False,
        plan=plan.n,
        heard=POLICY,
        policy=sha,
        agent=plan.agent,
    )
