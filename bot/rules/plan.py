"""A pull request that declares an experiment gets its plan: a record, a comment, a check. Pure.

The bot reads the declaration at the head's commit and runs nothing. Each head gets a plan of its
own, also one that was there before (A → B → A makes three plans). The same head gets a new plan if
its problems or its base branch have changed, if an upgraded lab would make another plan of it, or
if a `/plan` or a `/run` for something else asks for one. Comments of older plans are folded. On a
ladder each rung has a plan of its own; the next rung's plan comes after the gate has passed.
"""

from collections.abc import Iterator

from bot.messages import plan_comment
from bot.model.actions import Action, Check, Say, Show, Write
from bot.model.keys import Key
from bot.model.thread import Finding, Pull, Ran, Thread
from bot.rules import agent_checks, agents, slash_commands
from runner.analysis import promotion
from runner.planning import limits
from runner.schema.metrics import BPB
from runner.schema.record import Climbed, Isolated, Plan, PlanRecord

CHECK_NAME = "regatta / plan"


def rules(thread: Thread) -> Iterator[Action]:
    """What should exist on a pull request before anybody approves anything."""
    yield from [*(_plan(thread) if thread.news else ())] or _next_rung(thread)
    for plan in thread.plans:
        said = Key("plan", str(plan.n))
        if plan is not thread.plans[-1] and said not in thread.said:
            continue  # it was replaced before it was shown, and nobody can have its code
        if said not in thread.said:
            yield Say(said, plan_comment.plan(plan, thread.url))
        if plan is not thread.plans[-1] and said._replace(final=True) not in thread.said:
            by = thread.plans[-1].n
            yield Show(said, plan_comment.folded(plan, by, thread.url), state="folded", final=True)
        if (check := said._replace(check=True)) not in thread.said:
            yield Check(
                key=check,
                name=CHECK_NAME,
                commit=plan.commit,
                conclusion=_conclusion(plan),
                title=plan_comment.title(plan),
                summary=plan_comment.plan(plan, thread.url),
                buttons=(slash_commands.REPLAN,),
            )


def _conclusion(plan: PlanRecord) -> str:
    if plan_comment.is_unseen(plan):
        return "neutral"
    return "success" if plan.plan else "failure"


def _plan(thread: Thread) -> Iterator[Action]:
    pull = thread.pull()
    if pull is None or not pull.open:
        return
    newest = thread.plans[-1] if thread.plans else None
    reached = newest.plan.rung if newest and newest.plan and newest.commit == pull.head else None
    asked = [answer.plan for answer in thread.answered.values()]
    asked += [approval.posts for approval in thread.approvals.values()]
    wanted = max(filter(None, asked), default=0)
    if newest and newest.n < wanted:
        newest = None  # somebody asked for another one
    same = (
        newest
        and (newest.commit, newest.base_ref) == (pull.head, pull.base_ref)
        and newest.isolation == _isolation(thread, newest.plan)
    )
    if newest and same and newest.plan and thread.replan(newest.n) == newest.plan.fingerprint:
        return
    found = thread.finding(pull.base, pull.head, reached.n if reached else 1)
    if found.experiment is None and not found.problems:
        return
    one, other = newest and newest.plan, found.plan
    alike = (one and one.fingerprint) == (other and other.fingerprint)
    if newest and same and alike and newest.problems == found.problems:
        return
    yield _proposed(thread, pull, found, thread.plans[-1].climbed if reached else ())


def _next_rung(thread: Thread) -> Iterator[Action]:
    """The plan of the next rung, if the newest plan was a rung, has run, and passed its gate. If a
    plan has several executions, the first completed one decides."""
    newest = thread.plans[-1] if thread.plans else None
    rung = newest.plan.rung if newest and newest.plan else None
    if newest is None or rung is None or rung.n == rung.of:
        return
    origins = [(ran, ran.execution.origin) for ran in thread.executions]
    of_it = [ran for ran, origin in origins if origin and origin.plan == newest.n]
    done = next((ran for ran in of_it if ran.result and ran.result.state == "done"), None)
    if done is None or Key("result", done.execution.id) not in thread.said:
        return
    gate = promotion.gate(done.execution.plan, done.runs)
    if gate is None or gate.outcome != "passed":
        return
    pull = thread.pull()
    if pull and pull.open and (pull.head, pull.base_ref) == (newest.commit, newest.base_ref):
        found = thread.finding(pull.base, pull.head, rung.n + 1)
        yield _proposed(thread, pull, found, (*newest.climbed, *_climbed(done)))


def _climbed(done: Ran) -> Iterator[Climbed]:
    """A rung's results, if predictions are about its ladder."""
    rung = done.execution.plan.rung
    for run in done.runs if rung and rung.ladder else ():
        if run.evaluated:
            yield Climbed(
                execution=run.execution,
                arm=run.arm,
                seed=run.seed,
                bpb=run.evaluated.bpb,
                tokens_per_second=run.tokens_per_second,
                scores={metric: one.value for metric, one in run.scores.items() if metric != BPB},
            )


def _proposed(
    thread: Thread, pull: Pull, found: Finding, climbed: tuple[Climbed, ...] = ()
) -> Write:
    """The record of the next plan."""
    n, rules = _next(thread), thread.policy()
    agent, limit, needs = agents.agent_of(thread), None, None
    if found.plan:
        limit = limits.limit_seconds(found.plan, rules.hours_without_estimate)
        if agent:
            needs = agent_checks.why_maintainer(thread, agent, found.plan, pull.head, limit)
    record = PlanRecord(
        repository=thread.id.repository,
        pull=thread.id.number,
        n=n,
        commit=pull.head,
        at=thread.now,
        plan=found.plan,
        problems=found.problems,
        standings=dict(found.standings),
        drifted=found.drifted,
        source=found.source,
        base_ref=pull.base_ref,
        head_repository=pull.head_repository,
        policy="" if rules.problems else rules.sha,
        code=thread.code(n) if found.plan else "",
        limit_seconds=limit,
        pending_limit_seconds=rules.hours_pending * 3600,
        isolation=_isolation(thread, found.plan),
        forecasts=found.foretold.forecasts,
        no_forecast=found.foretold.without,
        spread=found.spread,
        spreads=dict(found.spreads),
        per_step=found.per_step,
        other_design=found.other_design,
        begun=found.begun,
        climbed=climbed,
        author=pull.author,
        agent=agent,
        needs_maintainer=needs or "",
    )
    return Write(f"plans/{thread.id}/{n}", record)


def _next(thread: Thread) -> int:
    """The next plan's number. A number that was shown is never used again, even if its record is
    lost."""
    shown = [int(key.of) for key in thread.said if key.kind == "plan" and key.of.isdigit()]
    return max([plan.n for plan in thread.plans] + shown, default=0) + 1


def _isolation(thread: Thread, plan: Plan | None) -> Isolated:
    """How the plan's own code would be isolated here; empty if it has none."""
    return thread.isolation if plan and plan_comment.own_code(plan) else ""
