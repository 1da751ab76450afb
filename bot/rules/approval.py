"""`/run`: a person approves a plan. Pure.

A `/run` is answered once, by a record: it approved a plan, waits for a second person, or was
refused. The execution and everything after it follow from the approval.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bot.messages import command_answers
from bot.model.actions import Action, React, Say, Write
from bot.model.keys import CommandKey, Key
from bot.model.thread import Message, Thread
from bot.rules import approval_checks, approvers, which_plan
from bot.rules.which_plan import Case, Wanted, What
from runner.planning import subset
from runner.schema.record import Answered, Approval, Execution, Narrowing, Origin, PlanRecord

REPEATS_WITHIN = timedelta(minutes=10)  # an equal answer is not posted again


def follow(thread: Thread) -> Iterator[Action]:
    """What follows from the answers to `/run`: executions, and replies."""
    repeats = repeated(thread.approvals)
    for key, approval in thread.approvals.items():
        if approval.approved:
            yield Write(f"executions/{approval.execution}/execution", _execution(thread, approval))
        elif approval.waits:
            yield Say(Key("waits", str(key)), command_answers.waits(approval))
        elif key not in repeats:
            said = command_answers.asked if approval.asks else command_answers.refused
            yield Say(Key("refused", str(key)), said(approval))
        if key.comment:
            yes = approval.approved or approval.waits or approval.asks
            yield React(key.comment, "rocket" if yes else "confused", optional=key in repeats)


def repeated(answers: Mapping[CommandKey, Approval | Answered]) -> set[CommandKey]:
    """The refused commands that the same person gave shortly before, and was told the same."""
    last: dict[Hashable, datetime] = {}
    found = set[CommandKey]()
    for key, answer in sorted(answers.items(), key=lambda item: item[1].at):
        if answer.why:
            asks = answer.asks if isinstance(answer, Approval) else ""
            same = answer.by.id, answer.what, answer.why, asks
            if same in last and answer.at - last[same] < REPEATS_WITHIN:
                found.add(key)
            else:
                last[same] = answer.at
    return found


def is_answered(thread: Thread, key: CommandKey) -> bool:
    """Whether a `/run` has its answer and, if it was approved, its execution."""
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
    what: What = "run",
    before: Execution | None = None,
) -> Approval:
    """The answer to a `/run`; with the execution `before`, to a command that repeats its plan."""
    if before and before.origin:
        wanted = Wanted("plan", str(before.origin.plan))
    else:
        wanted = which_plan.wanted(argument, message.commit if message.via == "review" else None)
    plan = which_plan.meant(thread, wanted, message.at)
    left = words_of(thread, before)[-1].narrowing if before else _narrowing(wanted, plan)
    word = answer(thread, message, key, what).model_copy(update={"narrowing": left})
    case = Case(thread, wanted, plan, (word,), before=before.id if before else None)
    waiting = _waiting(case)
    case = replace(case, words=(*waiting, word))
    name, why = which_plan.failing(approval_checks.AT_APPROVAL, case) or (None, None)
    waits, words = name == "enough_approvers", which_plan.sentence(why) if why else ""
    found: dict[str, Any] = {"approved": why is None, "waits" if waits else "why": words}
    if why is None:
        found["besides"] = tuple(one.id for one in waiting)
        found["reproduces"] = before.id if before and what == "reproduce" else ""
    if why is None or waits:
        found |= {"plan": case.plan.n, "commit": case.plan.commit, "policy": thread.policy().sha}
        found["fingerprint"] = case.planned.fingerprint
    else:
        found["narrowing"] = None
    if name == "narrow_only":
        found["posts"] = len(thread.plans) + 1
    if name == "role_allowed" and what == "reproduce" and not _failing_but_for_role(case):
        found["asks"] = f"/reproduce {before.id if before else case.plan.code}"
    return word.model_copy(update=found).naming_execution()


def _failing_but_for_role(case: Case) -> bool:
    """Whether somebody who is permitted, and names the plan by its code, could not approve it
    either."""
    aside = (approvers.role_allowed, *approval_checks.OF_BARE)
    others = (one for one in approval_checks.AT_APPROVAL if one not in aside)
    return which_plan.failing(others, case) is not None


def answer(
    thread: Thread, message: Message, key: CommandKey, what: What, why: str = ""
) -> Approval:
    """The record of a refused command (`why`) or an approval. The time of a button press is
    unknown; it counts as now."""
    return Approval(
        repository=thread.id.repository,
        pull=thread.id.number,
        command=str(key),
        by=message.author,
        role=which_plan.role_of(thread, message.author),
        at=thread.now,
        what=what,
        approved=False,
        why=why,
        asked_at=thread.now if message.via == "button" else message.at,
        heard=message.heard,
    )


def words_of(thread: Thread, execution: Execution) -> tuple[Approval, ...]:
    """The approvals that an execution is based on, the newest last."""
    known = {approval.id: approval for approval in thread.approvals.values()}
    own = next(one for one in known.values() if one.execution == execution.id)
    return (*(known[id] for id in own.besides if id in known), own)


def _narrowing(wanted: Wanted, plan: PlanRecord | None) -> Narrowing | None:
    """What a command leaves out of its plan; None if nothing, or if its words are invalid."""
    if not wanted.rest or plan is None or plan.plan is None:
        return None
    found = subset.read(wanted.rest, plan.plan)
    return found if isinstance(found, Narrowing) else None


def _waiting(case: Case) -> list[Approval]:
    """For each other person whose approval of the remaining plan is still valid, the newest waiting
    approval of the same kind."""
    of = case.found and case.found.n, case.word.narrowing, case.word.what
    found = {
        approval.by.id: approval
        for approval in sorted(case.thread.approvals.values(), key=lambda one: one.at)
        if approval.waits and (approval.plan, approval.narrowing, approval.what) == of
        if approval.by.id != case.word.by.id
        if not which_plan.failing(approval_checks.STANDS, replace(case, words=(approval,)))
    }
    return list(found.values())


def _execution(thread: Thread, approval: Approval) -> Execution:
    plan = next(plan for plan in thread.plans if plan.n == approval.plan)
    assert plan.plan, f"approval {approval.id} names a plan with problems"
    left = approval.narrowing or Narrowing()
    planned, limit = subset.remaining(plan, left)
    if approval.reproduces:  # otherwise it would reuse the outputs that it should make again
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
            author=plan.author,
            agent=plan.agent,
        ),
        source=plan.source,
        limit_seconds=limit,
        pending_limit_seconds=plan.pending_limit_seconds,
        deviations=subset.deviations(plan.plan, left),
        isolation=plan.isolation,
        approvals=(*approval.besides, approval.id),
        reproduces=approval.reproduces,
        forecasts={arm: one for arm, one in plan.forecasts.items() if arm in planned.arms},
        climbed=plan.climbed,
    )
