"""What people command: `/run`, `/cancel`, `/status`, `/help`. Pure.

A `/run` is answered once, by a record: it approved a plan or was refused. From the approval follow
the execution and everything after it.
"""

from collections.abc import Iterator

from bot import commands, policy, words
from bot.facts import Action, Comment, React, Say, Thread, Write
from runner.record import (
    Approval,
    Cancelled,
    Execution,
    Origin,
    PlanRecord,
)


def rules(thread: Thread) -> Iterator[Action]:
    """Answers to the commands of this thread, and the executions its approvals cause."""
    yield from _answers(thread)
    for approval in thread.approvals.values():
        comment_id, _ = _place(approval.command)
        if approval.approved:
            yield Write(f"executions/{approval.execution}/execution", _execution(thread, approval))
            yield React(comment_id, "rocket")
        else:
            yield Say(f"refused.{approval.command}", words.refused(approval))
            yield React(comment_id, "confused")


def _answers(thread: Thread) -> Iterator[Action]:
    """An answer to each command, in their order.

    What follows a `/run` waits until that has its answer and its execution, so that two of them
    never approve the same plan and a `/cancel` finds what it was meant for.
    """
    for comment in thread.comments:
        reading = commands.read(comment.body)
        if reading.commands:
            yield React(comment.id, "eyes")
        for command in reading.commands:
            key = f"{comment.id}-{command.index}"
            match command.name:
                case "run":
                    yield from _run(thread, comment, key, command.argument)
                    if not _is_answered(thread, key):
                        return
                case "cancel":
                    yield from _cancel(thread, comment, key, command.argument)
                case "status":
                    yield Say(f"status-of.{key}", words.status_of(thread))
                case "help":
                    yield Say(f"help.{key}", words.help_text(thread.is_pull))
        unheard = not reading.commands and (reading.near_misses or reading.swallowed)
        if unheard or reading.too_many:
            yield Say(f"hint.{comment.id}", words.hint(reading))


def _is_answered(thread: Thread, key: str) -> bool:
    approval = thread.approvals.get(key)
    if approval is None or not approval.approved:
        return approval is not None
    return any(ran.execution.id == approval.execution for ran in thread.executions)


def _place(command: str) -> tuple[int, int]:
    """Where a command stands, in the order of all commands: its comment, and which one there."""
    comment, _, index = command.rpartition("/")[2].partition("-")
    return int(comment), int(index)


# ── /run ─────────────────────────────────────────────────────────────────────────────────────


def _run(thread: Thread, comment: Comment, key: str, argument: str) -> Iterator[Action]:
    if key in thread.approvals:
        return
    role = thread.role(comment.author.login)
    found = _approvable(thread, comment, role, argument)
    chosen = found if isinstance(found, PlanRecord) else None
    approval = Approval(
        repository=thread.id.repository,
        pull=thread.id.number,
        command=key,
        by=comment.author,
        role=role,
        at=thread.now,
        approved=chosen is not None,
        why="" if isinstance(found, PlanRecord) else found,
        plan=chosen.n if chosen else None,
        commit=chosen.commit if chosen else None,
        fingerprint=chosen.plan.fingerprint if chosen and chosen.plan else None,
    )
    yield Write(f"approvals/{approval.repository}/{approval.pull}/{key}", approval)


def _approvable(thread: Thread, comment: Comment, role: str, argument: str) -> PlanRecord | str:
    """The plan this `/run` approves, or the sentence that refuses it."""
    if not thread.is_pull:
        return (
            "`/run` belongs on the pull request that declares the experiment: it approves the "
            "plan at a commit, and an issue has none."
        )
    allowed = policy.may_command(comment.author.login, role, "start runs")
    if not allowed:
        return allowed.why
    if argument:
        return f"`/run` takes nothing after it, and here stands `{words.code(argument)}`."
    proposed = [
        policy.Proposed(plan, said.at)
        for plan in thread.plans
        if (said := thread.said.get(f"plan.{plan.n}")) and said.at
    ]
    found = policy.approvable(proposed, comment.at, thread.pull())
    if isinstance(found, PlanRecord):
        if found.plan and (why := words.own_code(found.plan)):
            return why
        for approval in thread.approvals.values():
            if approval.approved and approval.plan == found.n:
                known = approval.execution
                states = {ran.execution.id: ran.life.state for ran in thread.executions}
                if states.get(known) not in ("failed", "cancelled", "voided"):
                    return (
                        "This plan has its execution already: "
                        f"`{known}` is {states.get(known, 'queued')}."
                    )
        return thread.refusal(comment.author.login, found.n) or found
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
    )


# ── /cancel ──────────────────────────────────────────────────────────────────────────────────


def _cancel(thread: Thread, comment: Comment, key: str, argument: str) -> Iterator[Action]:
    mine = {ran.execution.id: ran.life for ran in thread.executions} if thread.is_pull else {}
    who = comment.author.login
    stopped = [x for x, life in mine.items() if life.cancelled and life.cancelled.command == key]
    # What was begun after the command was written (it may come late) is not meant by it.
    live = [
        x
        for x, life in mine.items()
        if not life.result
        and not life.cancelled
        and life.execution.origin
        and _place(life.execution.origin.approval) < _place(key)
    ]
    chosen = [x for x in live if argument in ("", x)]
    allowed = policy.may_command(who, thread.role(who), "cancel runs")
    if allowed and chosen:
        for execution in chosen:
            cancelled = Cancelled(at=thread.now, by=who, command=key)
            yield Write(f"executions/{execution}/cancelled", cancelled)
        return
    if stopped:
        yield React(comment.id, "rocket")
        return
    if not allowed:
        why = allowed.why
    elif not argument:
        why = "Nothing is running here."
    elif argument in mine:
        why = f"`{argument}` has ended, or is being stopped, already."
    else:
        why = f"There is no execution `{words.code(argument)}` on this thread."
    yield Say(f"cancel.{key}", words.cannot(who, "/cancel", why))
    yield React(comment.id, "confused")
