"""`/run`: a person approves a plan. Pure.

A `/run` is answered once, by a record: it approved a plan, waits for a second person, or was
refused. From the approval follow the execution and everything after it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from bot.messages import render
from bot.model.keys import CommandKey, Key
from bot.model.thread import Action, Message, React, Say, Thread, Write
from bot.rules import approval_case, approval_checks
from bot.rules.approval_case import Act, Case
from runner.planning import subset
from runner.schema.record import Approval, Execution, Narrowing, Origin


def follow(thread: Thread) -> Iterator[Action]:
    """What follows from the answers to `/run`: executions, and the word to who asked."""
    for key, approval in thread.approvals.items():
        if approval.approved:
            yield Write(f"executions/{approval.execution}/execution", _execution(thread, approval))
        elif approval.waits:
            yield Say(Key("waits", str(key)), render.waits(approval))
        else:
            yield Say(Key("refused", str(key)), render.refused(approval))
        if key.comment:
            yes = approval.approved or approval.waits
            yield React(key.comment, "rocket" if yes else "confused")


def is_answered(thread: Thread, key: CommandKey) -> bool:
    """Whether a `/run` has its answer and, if that was yes, its execution."""
    approval = thread.approvals.get(key)
    if approval is None or not approval.approved:
        return approval is not None
    return any(ran.execution.id == approval.execution for ran in thread.executions)


def run(
    thread: Thread,
    message: Message,
    key: CommandKey,
    argument: str,
    *,
    what: Literal["run", "retry", "reproduce"] = "run",
    before: Execution | None = None,
) -> Iterator[Action]:
    """The answer to a `/run`; or, with the execution `before`, to what runs the same plan again."""
    if key in thread.approvals:
        return
    role = thread.role(message.author.login)
    if before and before.origin:
        wanted = approval_case.Wanted("plan", str(before.origin.plan))
    else:
        wanted = approval_case.wanted(argument, message.commit if message.via == "review" else None)
    plan = approval_case.meant(thread, wanted, message.at)
    act = approval_case.act_in(message, thread.now, what)
    case = Case(thread, wanted, plan, (act,), what, before=before.id if before else "")
    case = replace(case, left=left_of(thread, before) if before else approval_case.narrowing(case))
    waiting = _waiting(case)
    case = replace(case, acts=(*map(approval_case.act_of, waiting), *case.acts))
    name, why = approval_case.failing(approval_checks.AT_APPROVAL, case) or (None, None)
    waits, words = name == "enough_approvers", approval_case.sentence(why) if why else ""
    chosen = plan if why is None or waits else None
    approval = Approval(
        repository=thread.id.repository,
        pull=thread.id.number,
        command=str(key),
        by=message.author,
        role=role,
        at=thread.now,
        what=what,
        approved=why is None,
        why="" if waits else words,
        reproduces=before.id if before and why is None and what == "reproduce" else "",
        plan=chosen.n if chosen else None,
        commit=chosen.commit if chosen else None,
        fingerprint=chosen.plan.fingerprint if chosen and chosen.plan else None,
        asked_at=act.at,
        heard=message.heard,
        policy=thread.policy().sha if chosen else "",
        narrowing=case.left if chosen else None,
        waits=words if waits else "",
        besides=tuple(one.id for one in waiting) if why is None else (),
        posts=len(thread.plans) + 1 if name == "narrow_only" else None,
    )
    yield Write(f"approvals/{thread.id}/{key}", approval)


def acts(thread: Thread, execution: Execution) -> tuple[Act, ...]:
    """The words that an execution rests on."""
    origin = execution.origin
    if origin is None:
        raise AssertionError(f"{execution.id} is on a thread and has no origin")
    known = {approval.id: approval for approval in thread.approvals.values()}
    found = [known[id] for id in execution.approvals or (origin.approval,) if id in known]
    return tuple(map(approval_case.act_of, found)) or (Act(origin.approved_by, execution.at),)


def left_of(thread: Thread, execution: Execution) -> Narrowing | None:
    """What the approval of an execution left of its plan."""
    found = [one for one in thread.approvals.values() if one.execution == execution.id]
    return found[0].narrowing if found else None


def _waiting(case: Case) -> list[Approval]:
    """Of each other person whose word for what is left of the plan still stands, the newest
    approval of the same kind that waits."""
    of = case.plan and case.plan.n, case.left, case.command
    found = {
        approval.by.id: approval
        for approval in sorted(case.thread.approvals.values(), key=lambda one: one.at)
        if approval.waits and (approval.plan, approval.narrowing, approval.what) == of
        if approval.by.id != case.act.by.id
        if not approval_case.failing(
            approval_checks.STANDS, replace(case, acts=(approval_case.act_of(approval),))
        )
    }
    return list(found.values())


def _execution(thread: Thread, approval: Approval) -> Execution:
    plan = next(plan for plan in thread.plans if plan.n == approval.plan)
    if plan.plan is None:
        raise AssertionError(f"approval {approval.id} names a plan with problems")
    left = approval.narrowing or Narrowing()
    planned, limit = subset.remaining(plan, left)
    if approval.reproduces:  # or it would find made what it is to make again
        steps = {name: step.afresh(approval.execution) for name, step in planned.steps.items()}
        planned = planned.model_copy(update={"steps": steps})
    return Execution(
        id=approval.execution,
        at=approval.at,
        plan=planned,
        origin=Origin(
            repository=approval.repository,
            repository_name=thread.repository,
            pull=approval.pull,
            plan=plan.n,
            commit=plan.commit,
            approved_by=approval.by,
            approval=approval.id,
        ),
        source=plan.source,
        limit_seconds=limit,
        deviations=subset.deviations(plan.plan, left),
        isolation=plan.isolation,
        approvals=(*approval.besides, approval.id),
        reproduces=approval.reproduces,
        forecasts={arm: one for arm, one in plan.forecasts.items() if arm in planned.arms},
        climbed=plan.climbed,
    )
