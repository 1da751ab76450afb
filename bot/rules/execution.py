"""What follows an approval: launch, status comment, check, result, verdict. Pure."""

from collections.abc import Iterator
from datetime import timedelta

from bot.messages import loss_curves, result_comment, status_comment
from bot.model.actions import Action, Button, Check, Drive, Say, Show, Write
from bot.model.keys import Key
from bot.model.thread import Ran, Thread
from bot.rules import approval, approval_checks, slash_commands, which_plan
from runner.analysis import which_runs_count
from runner.execution import lifecycle
from runner.schema.record import Voided

EDIT_EVERY = timedelta(seconds=30)  # for a status comment while only its figures change
CONCLUSIONS = {
    "done": "success",
    "failed": "failure",
    "cancelled": "cancelled",
    "voided": "cancelled",
}


def rules(thread: Thread) -> Iterator[Action]:
    """What should exist because of this thread's executions."""
    for ran in thread.executions:
        if thread.is_pull:
            yield from _status(thread, ran)
            yield from _drive(thread, ran)
            if ran.result:
                yield from _result(thread, ran)
        elif ran.result and ran.result.state in ("done", "failed"):
            yield from _verdict(thread, ran)


def _verdict(thread: Thread, ran: Ran) -> Iterator[Say]:
    """The verdict, on the preregistration's issue."""
    key = Key("verdict", ran.execution.id)
    if key not in thread.said:
        asked = thread.registration(thread.id.number)
        yield Say(key, result_comment.verdict(thread, ran, asked.earlier if asked else {}))


def ongoing(thread: Thread) -> Iterator[Drive]:
    """The next steps of this thread's executions that need no answer from GitHub."""
    for ran in thread.executions if thread.is_pull else ():
        action = _next(ran)
        if action is not None and not _is_launch(ran, action):
            yield Drive(ran.execution.id, action)


def _next(ran: Ran) -> lifecycle.Action | None:
    """The execution's next step. It claims its first attempt, and with it devices, only in its
    turn."""
    action = lifecycle.decide(ran.life)
    return None if ran.place and action == lifecycle.Claim("t1") else action


def _is_launch(ran: Ran, action: lifecycle.Action) -> bool:
    """Whether `action` would start an execution; a restart needs no new check of the approval."""
    return action == lifecycle.Submit("t1") and not ran.life.attempts[0].started


def _drive(thread: Thread, ran: Ran) -> Iterator[Action]:
    """The execution's next step; the launch only while its approval is still valid."""
    action = _next(ran)
    if action is None:
        return
    if _is_launch(ran, action):
        wanted = which_plan.Wanted("plan", str(ran.origin.plan))
        plan = which_plan.meant(thread, wanted, thread.now)
        words = approval.words_of(thread, ran.execution)
        case = which_plan.Case(thread, wanted, plan, words)
        if failing := which_plan.failing(approval_checks.AT_LAUNCH, case):
            voided = Voided(at=thread.now, why=failing[1])
            yield Write(f"executions/{ran.execution.id}/voided", voided)
            return
    yield Drive(ran.execution.id, action)


def _status(thread: Thread, ran: Ran) -> Iterator[Action]:
    """One comment and one check run, which are edited as the execution proceeds."""
    execution = ran.execution
    state, final = ran.life.state, ran.result is not None
    status, check = Key("status", execution.id), Key("check", execution.id)
    if {status._replace(final=True), check._replace(final=True)} <= thread.said.keys():
        return
    body = status_comment.status(ran, thread.now, _moved_to(thread, ran), thread.site)
    title, summary = status_comment.title(ran), status_comment.status(ran, site=thread.site)
    url, buttons = status_comment.page(ran, thread.site), _buttons(ran)
    yield Say(status, body, state)
    yield Check(
        key=check,
        name=f"regatta / {execution.id}",
        commit=ran.origin.commit,
        conclusion=None,
        title=title,
        summary=summary,
        state=state,
        buttons=buttons,
        url=url,
    )
    shown = thread.shown.get(status)
    changed = shown is None or shown.state != state
    if shown is None or (shown.body != body and (changed or thread.now - shown.at >= EDIT_EVERY)):
        yield Show(of=status, body=body, state=state, final=final)
    shown = thread.shown.get(check)
    if shown is None or shown.state != state:
        summary = _words(thread, ran, pictured=False) if final else summary
        yield Show(check, summary, state, final, CONCLUSIONS.get(state), title, buttons, url)


def _buttons(ran: Ran) -> tuple[Button, ...]:
    """The buttons of an execution's check run."""
    if ran.result is None:
        return () if ran.life.cancelled else (slash_commands.CANCEL,)
    retry = (slash_commands.RETRY,) if ran.result.state in slash_commands.AGAIN else ()
    return (*retry, slash_commands.REPLAN)


def _moved_to(thread: Thread, ran: Ran) -> str | None:
    """The new head, if the branch was pushed to after the execution's approval."""
    known = [(push.at, push.after) for push in thread.pushes]
    known += [(plan.at, plan.commit) for plan in thread.plans]
    moved = [head for at, head in sorted(known) if at >= ran.execution.at]
    return moved[-1] if moved and moved[-1] != ran.origin.commit else None


def _result(thread: Thread, ran: Ran) -> Iterator[Action]:
    """One new comment with the result, and the loss curves as a picture in it."""
    words: str | None = None
    if Key("result", ran.execution.id) not in thread.said:
        words = _words(thread, ran)
    yield from loss_curves.rules(thread, ran, words)


def _words(thread: Thread, ran: Ran, *, pictured: bool = True) -> str:
    """The result, for its comment and for the check."""
    issue = ran.execution.plan.preregistration
    asked = None if issue is None else thread.registration(issue)
    review = which_runs_count.review(asked) if asked else None
    wrote = bool(ran.result and ran.result.state == "done" and not ran.execution.plan.data)
    excerpts = thread.excerpts(ran.execution.id) if wrote else ()
    return result_comment.result(thread, ran, review, excerpts, pictured=pictured)
