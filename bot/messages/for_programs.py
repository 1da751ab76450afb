"""What comments say, as data for programs (`bot.model.comment_data`). Pure."""

from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

from bot.model.comment_data import (
    ApprovalData,
    ArmData,
    CostData,
    GateData,
    PlanData,
    ProblemData,
    ProblemsData,
    RefusalData,
    ResultData,
    ScoreData,
    SealData,
    VerdictData,
)
from bot.model.thread import Ran
from runner.analysis import promotion, verdicts
from runner.lib.problems import Problem
from runner.planning import limits
from runner.schema.record import Answered, Approval, PlanRecord, Preregistration

V = TypeVar("V")


def plan(record: PlanRecord, most: int, cannot: bool) -> PlanData:
    """A plan, with so many arms; `cannot`: it cannot start here."""
    assert record.plan
    of = record.plan
    cost = of.cost
    return PlanData(
        plan=record.n,
        commit=record.commit,
        fingerprint=of.fingerprint,
        experiment=of.experiment,
        title=of.title,
        preregistration=of.preregistration,
        predictions=list(of.predictions),
        arms={
            name: ArmData(parameters=arm.parameters, tokens=arm.tokens, model_flops=arm.model_flops)
            for name, arm in _first(of.arms, most).items()
        },
        seeds=list(of.seeds),
        steps=len(of.steps),
        devices=dict(sorted(limits.at_once(of).items())),
        cost=CostData(
            runs=cost.runs,
            tokens=cost.tokens,
            model_flops=cost.model_flops,
            seconds=cost.seconds,
            price=cost.price,
        ),
        limit_seconds=record.limit_seconds,
        rung=(of.rung.n, of.rung.of) if of.rung else None,
        own_code=bool(of.own_code()) or of.compiled,
        approval=_approval(record, cannot),
        complete=len(of.arms) <= most,
    )


def _approval(record: PlanRecord, cannot: bool) -> ApprovalData:
    agent, line = record.agent, f"/run {record.code or record.commit}"
    if cannot:
        return ApprovalData(by="nobody")
    if agent is None:
        return ApprovalData(by="maintainer", line=line)
    return ApprovalData(
        by="maintainer" if record.needs_maintainer else "policy",
        line=line,
        why=record.needs_maintainer,
        agent=agent.login,
        sponsor=agent.sponsor,
    )


def problems(record: PlanRecord, most: int) -> ProblemsData:
    """Why there is no plan, with so many problems."""
    return ProblemsData(
        plan=record.n,
        commit=record.commit,
        problems=[ProblemData(**vars(Problem.read(one))) for one in record.problems[:most]],
        complete=len(record.problems) <= most,
    )


def result(ran: Ran, counts: bool | None, most: int) -> ResultData:
    """How an execution ended, with the scores of so many arms. `counts` as `ResultData` has it."""
    assert ran.result
    of = ran.execution.plan
    scores = verdicts.figures_of(ran.runs)
    return ResultData(
        execution=ran.execution.id,
        state=ran.result.state,
        why=ran.result.why,
        pull=ran.origin.pull,
        plan=ran.origin.plan,
        commit=ran.origin.commit,
        fingerprint=of.fingerprint,
        approved_by=ran.origin.approved_by.login,
        reproduces=ran.execution.reproduces or None,
        counts=counts,
        verdicts=[
            VerdictData(
                prediction=one.prediction,
                outcome=one.outcome,
                why=one.why,
                estimate=one.estimate,
                interval=one.interval,
                seeds=one.n,
            )
            for one in ran.result.verdicts
        ],
        scores={arm: _score(ran, scores, arm) for arm in _first(of.arms, most)},
        gate=_gate(ran),
        complete=len(of.arms) <= most,
    )


def _score(ran: Ran, scores: Mapping[tuple[str, int], float | None], arm: str) -> ScoreData:
    summary = verdicts.arm_summary(ran.execution.plan, scores, arm)
    seeds = {str(run.seed): scores.get((arm, run.seed)) for run in ran.runs if run.arm == arm}
    return ScoreData(mean=summary.mean, spread=summary.spread, seeds=seeds)


def _gate(ran: Ran) -> GateData | None:
    done = ran.result and ran.result.state == "done"
    gate = promotion.gate(ran.execution.plan, ran.runs) if done else None
    if gate is None:
        return None
    by = gate.speedup
    return GateData(
        rung=gate.rung.n,
        of=gate.rung.of,
        outcome=gate.outcome,
        speedup=(by.estimate, by.low, by.high) if by else None,
    )


def seal(of: Preregistration) -> SealData:
    """Sealed predictions."""
    return SealData(
        issue=of.issue,
        seal=of.seal,
        author=of.author.login,
        at=of.at.isoformat(),
        predictions=list(of.predictions),
    )


def refusal(answer: Approval | Answered) -> RefusalData:
    """A refused command, or what the policy refused."""
    by_policy = isinstance(answer, Approval) and answer.by_policy
    what = "policy" if by_policy else answer.what
    return RefusalData(what=what, by=answer.by.login, plan=answer.plan, why=answer.why)


def _first(of: Mapping[str, V], most: int) -> dict[str, V]:
    return dict(islice(of.items(), most))
