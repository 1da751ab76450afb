"""`/run`: a person approves a plan. Pure.

A `/run` is answered once, by a record: it approved a plan or was refused. From the approval follow
the execution and everything after it.
"""

from collections.abc import Iterator
from typing import Literal

from bot import policy, words
from bot.escape import code
from bot.facts import Action, Message, React, Say, Thread, Write
from runner.record import Approval, Execution, Origin, PlanRecord


def follow(thread: Thread) -> Iterator[Action]:
    """What follows from the answers to `/run`: executions, and the word to who asked."""
    for approval in thread.approvals.values():
        about = comment_of(approval.command)
        if approval.approved:
            yield Write(f"executions/{approval.execution}/execution", _execution(thread, approval))
            if about:
                yield React(about, "rocket")
        else:
            yield Say(f"refused.{approval.command}", words.refused(approval))
            if about:
                yield React(about, "confused")


def is_answered(thread: Thread, key: str) -> bool:
    """Whether a `/run` has its answer and, if that was yes, its execution."""
    approval = thread.approvals.get(key)
    if approval is None or not approval.approved:
        return approval is not None
    return any(ran.execution.id == approval.execution for ran in thread.executions)


def comment_of(command: str) -> int | None:
    """The comment that holds a command; None for a review's and a button's."""
    comment = command.partition("-")[0]
    return int(comment) if comment.isdigit() else None


def run(
    thread: Thread,
    message: Message,
    key: str,
    argument: str,
    *,
    what: Literal["run", "retry", "reproduce"] = "run",
    before: Execution | None = None,
) -> Iterator[Action]:
    """The answer to a `/run`; or, with the execution `before`, to what runs the same plan again."""
    if key in thread.approvals:
        return
    role = thread.role(message.author.login)
    found = _approvable(thread, message, role, argument, before)
    chosen = found if isinstance(found, PlanRecord) else None
    approval = Approval(
        repository=thread.id.repository,
        pull=thread.id.number,
        command=key,
        by=message.author,
        role=role,
        at=thread.now,
        what=what,
        approved=chosen is not None,
        why="" if isinstance(found, PlanRecord) else found,
        plan=chosen.n if chosen else None,
        commit=chosen.commit if chosen else None,
        fingerprint=chosen.plan.fingerprint if chosen and chosen.plan else None,
        reproduces=before.id if before and chosen and what == "reproduce" else "",
        asked_at=message.at,
        heard=message.heard,
    )
    yield Write(f"approvals/{approval.repository}/{approval.pull}/{key}", approval)


def _approvable(
    thread: Thread, message: Message, role: str, argument: str, before: Execution | None = None
) -> PlanRecord | str:
    """The plan this `/run` approves, or the sentence that refuses it."""
    if not thread.is_pull:
        return (
            "`/run` belongs on the pull request that declares the experiment: it approves the "
            "plan at a commit, and an issue has none."
        )
    allowed = policy.may_command(message.author.login, role, "start runs")
    if not allowed:
        return allowed.why
    if argument:
        return f"`/run` takes nothing after it, and here stands `{code(argument)}`."
    proposed = [
        policy.Proposed(plan, said.at)
        for plan in thread.plans
        if (said := thread.said.get(f"plan.{plan.n}")) and said.at
    ]
    if before and before.origin:  # the plan is named, and not to be found
        proposed = [it for it in proposed if it.record.n == before.origin.plan]
    found = policy.approvable(proposed, message.at, thread.pull())
    if isinstance(found, PlanRecord):
        if found.plan and (why := words.own_code(found.plan)):
            return why
        for approval in thread.approvals.values():
            if approval.approved and approval.plan == found.n:
                known = approval.execution
                states = {ran.execution.id: ran.life.state for ran in thread.executions}
                over = ("failed", "cancelled", "voided", "done")[: 4 if before else 3]
                if states.get(known) not in over:
                    return (
                        "This plan has its execution already: "
                        f"`{known}` is {states.get(known, 'queued')}."
                    )
        return thread.refusal(message.author.login, found.n) or found
    return found


def _execution(thread: Thread, approval: Approval) -> Execution:
    plan = next(plan for plan in thread.plans if plan.n == approval.plan)
    if plan.plan is None:
        raise AssertionError(f"approval {approval.id} names a plan with problems")
    return Execution(
        id=approval.execution,
        at=approval.at,
        plan=plan.plan,
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
        reproduces=approval.reproduces,
    )
