"""What the policy says about the plans of agents. Pure.

An agent's plan has to be within what the policy gives the agent, whoever approves it. The first
gate the policy can approve by itself; all else needs a maintainer.
"""

from bot.messages import plan_comment
from bot.model.escape import code
from bot.model.policy_file import Allowance, Policy
from bot.model.thread import Thread
from bot.rules.which_plan import Case
from runner.planning import limits
from runner.planning.planned_steps import asked, testing, uploads
from runner.schema.devices import listed
from runner.schema.record import Agent, Approval, Plan

NO_AGENT = "the policy does not name the author of the pull request as an agent"


def _allowance(case: Case) -> Allowance | None:
    """What the policy gives the author of the pull request; None if that is not an agent."""
    pull = case.thread.pull()
    return case.thread.policy().allowance(pull.author) if pull and pull.author else None


def agent_kinds(case: Case) -> str | None:
    """The policy gives the agent the plan's hardware."""
    if (allowed := _allowance(case)) is None:
        return None
    if not (others := sorted(_kinds(case.planned) - set(allowed.kinds))):
        return None
    return (
        f"the plan asks for `{code(others[0])}`, and the policy gives this agent "
        f"{listed(allowed.kinds)}; declare one of these as `kind` of `resources`"
    )


def agent_proposals(case: Case) -> str | None:
    """The agent has not too many open pull requests. The older ones count."""
    allowed, pull = _allowance(case), case.thread.pull()
    if allowed is None or pull is None or pull.author is None:
        return None
    number = case.thread.id.number
    older = [one for one in case.thread.proposals(pull.author.id) if one < number]
    if len(older) < allowed.open_proposals:
        return None
    shown = ", ".join(f"pull request {one}" for one in older[:5])
    return (
        f"the policy gives this agent {allowed.open_proposals} open pull requests at a time, and "
        f"it has {len(older)} older ones ({shown}); close or merge one, then comment `/plan`"
    )


def needs_maintainer(
    allowed: Allowance, policy: Policy, plan: Plan, limit: float | None
) -> str | None:
    """Why the policy does not approve an agent's plan by itself, as a clause; None if it does. So
    it approves only what runs the lab's own code on CPUs, and sends nothing anywhere."""
    if allowed.gate_1 != "policy":
        return "the policy lets only maintainers approve this agent's plans"
    if plan.rung and plan.rung.n > 1:
        return f"it is rung {plan.rung.n} of a ladder, after gate {plan.rung.n - 1}"
    if plan_comment.own_code(plan) is not None:
        return "it has its own code"
    if testing(plan.steps):
        return "it runs Python that models write, and Python in task files"
    if uploads(plan.steps) or asked(plan.steps):
        return "it sends something out of the lab"
    others = [name for name in sorted(_kinds(plan)) if not _is_cpu(plan, name)]
    if others:
        return f"it asks for `{code(others[0])}`, which is not a CPU"
    if is_large(policy, plan, limit):
        return "an experiment of this size needs two approvers"
    return None


def needs_maintainer_here(
    thread: Thread, agent: Agent, plan: Plan, commit: str, words: tuple[Approval, ...] = ()
) -> str | None:
    """The same for what has happened in the pull request, besides these approvals. So the policy
    starts each plan once, and only what the agent itself pushed, or opened the pull request
    with."""
    if not any(push.after == commit and push.by == agent.id for push in thread.pushes):
        return (
            "GitHub has not reported to the lab that the agent itself pushed this commit; if it "
            "did, it pushes again"
        )
    void = {ran.execution.id for ran in thread.executions if ran.life.state == "voided"}
    these = {word.command for word in words}
    for word in thread.approvals.values():
        same = word.approved and word.fingerprint == plan.fingerprint
        if same and word.command not in these and word.execution not in void:
            return "this was started before in this pull request"
    return None


def policy_approves(case: Case) -> str | None:
    """Why the policy of now does not approve the plan by itself; None if it does."""
    plan, agent = case.plan, case.plan.agent
    if _allowance(case) is None or agent is None:
        return NO_AGENT
    return why_maintainer(
        case.thread, agent, case.planned, plan.commit, plan.limit_seconds, case.words
    )


def why_maintainer(
    thread: Thread,
    agent: Agent,
    plan: Plan,
    commit: str,
    limit: float | None,
    words: tuple[Approval, ...] = (),
) -> str | None:
    """Why the policy does not approve this plan of the agent by itself, for what it is or for what
    happened before; None if it does."""
    policy = thread.policy()
    if (allowed := policy.allowance(agent)) is None:
        return NO_AGENT
    return needs_maintainer(allowed, policy, plan, limit) or needs_maintainer_here(
        thread, agent, plan, commit, words
    )


def is_large(policy: Policy, plan: Plan, limit: float | None) -> bool:
    """Whether two people must approve this plan, with this limit of wall time in seconds."""
    if (size := policy.two_approvers_from) is None:
        return False
    return limit is None or limits.device_hours(plan, limit) >= size


def _kinds(plan: Plan) -> set[str]:
    return {plan.resources.kind, *(step.resources.kind for step in plan.steps.values())}


def _is_cpu(plan: Plan, kind: str) -> bool:
    return kind in plan.kinds and plan.kinds[kind].platform == "cpu"
