"""What people command, in its order: by a comment, a review or a button. Pure.

Each command is answered once and for all, by a record: an `Approval` of what starts something
(`/run`, `/retry`, `/reproduce`), an `Answered` of `/cancel` and `/plan`. What becomes visible
follows from the record, so that a command that comes again, however late, changes nothing.
`/status` and `/help` change nothing either way; their answer is a comment, said once.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

from bot.messages import render
from bot.model import commands
from bot.model.commands import Command, Reading
from bot.model.escape import code
from bot.model.keys import CommandKey, Key
from bot.model.thread import Action, Button, Message, Ran, React, Say, Thread, Write
from bot.rules import approval as rules_approval
from bot.rules import approval_case
from runner.schema.record import Answered, Approval, Cancelled, command_of

TYPE_AGAIN_AFTER = timedelta(hours=24)  # a command that was not heard when it was written
# Buttons of check runs. A pressed one is heard as the command that `payloads.BUTTONS` says.
CANCEL = Button("Cancel", "cancel", "Stop it; its record is kept")
RETRY = Button("Retry", "retry", "Run the same plan once more")
REPLAN = Button("Re-plan", "replan", "Look at the branch once more")
AGAIN = ("failed", "cancelled", "voided")  # what `/retry` is for


def rules(thread: Thread) -> Iterator[Action]:
    """Answers to the commands of this thread, and what they cause."""
    meant = [(message, commands.read(message.body)) for message in thread.messages]
    for message, reading in meant:
        if reading.commands and not _is_doubtful(thread, message):
            yield from _react(message.key(0), "eyes")
    yield from _answers(thread, meant)
    yield from rules_approval.follow(thread)
    yield from _follow(thread)


def _is_doubtful(thread: Thread, message: Message) -> bool:
    """Whether nobody can say any more that this is what its author wrote, or still wants: it was
    found long after, and no signed word of GitHub's tells its first text."""
    late = thread.now - message.at > TYPE_AGAIN_AFTER
    return message.heard == "sweep" and (message.edited or late)


def _answers(thread: Thread, read: list[tuple[Message, Reading]]) -> Iterator[Action]:
    """An answer to each command, in their order.

    What follows a `/run` waits until that has its answer and its execution, so that two of them
    never approve the same plan and a `/cancel` finds what it was meant for.
    """
    for message, reading in read:
        about = message.key(0).message
        if reading.commands and _is_doubtful(thread, message):
            if not any(_is_known(thread, message.key(c.index)) for c in reading.commands):
                yield Say(Key("again", about), render.type_again(message))
                yield from _react(message.key(0), "confused")
            continue
        for command in reading.commands:
            key = message.key(command.index)
            match command.name:
                case "run" | "retry" | "reproduce":
                    yield from _start(thread, message, key, command)
                    if not rules_approval.is_answered(thread, key):
                        return
                case "cancel" | "plan" if key not in thread.answered:
                    answered = _cancel if command.name == "cancel" else _plan
                    record = answered(thread, message, key, command.argument)
                    yield Write(f"answers/{thread.id}/{key}", record)
                    return
                case "status":
                    if (said := Key("status-of", str(key))) not in thread.said:
                        yield Say(said, render.status_of(thread))
                    yield from _react(key, "rocket")
                case "help":
                    yield Say(Key("help", str(key)), render.help_text(thread.is_pull))
                    yield from _react(key, "rocket")
        unheard = not reading.commands and (reading.near_misses or reading.swallowed)
        if unheard or reading.too_many or reading.too_long:
            yield Say(Key("hint", about), render.hint(reading))


def _is_known(thread: Thread, key: CommandKey) -> bool:
    """Whether a command was answered."""
    said = (Key("status-of", str(key)), Key("help", str(key)))
    return key in thread.approvals or key in thread.answered or any(x in thread.said for x in said)


def _react(key: CommandKey, content: Literal["eyes", "rocket", "confused"]) -> Iterator[React]:
    """A reaction to the comment that holds a command; a review and a button cannot take one, and
    are answered by what follows."""
    if key.comment is not None:
        yield React(key.comment, content)


# ── What starts something ────────────────────────────────────────────────────────────────────


def _start(thread: Thread, message: Message, key: CommandKey, command: Command) -> Iterator[Action]:
    """A `/run`; or one of a plan that ran before, under all conditions of a `/run`."""
    if key in thread.approvals:
        return
    if command.name == "run" or _of_entry(thread, command):
        begun: Literal["run", "reproduce"] = "run" if command.name == "run" else "reproduce"
        yield from rules_approval.run(thread, message, key, command.argument, what=begun)
        return
    what: Literal["retry", "reproduce"] = "retry" if command.name == "retry" else "reproduce"
    before = _before(thread, what, command.argument)
    if isinstance(before, Ran):
        yield from rules_approval.run(thread, message, key, "", what=what, before=before.execution)
        return
    role = thread.role(message.author.login)
    refused = Approval(
        repository=thread.id.repository,
        pull=thread.id.number,
        command=str(key),
        by=message.author,
        role=role,
        at=thread.now,
        what=what,
        approved=False,
        why=before,
        asked_at=message.at,
        heard=message.heard,
    )
    yield Write(f"approvals/{thread.id}/{key}", refused)


def _of_entry(thread: Thread, command: Command) -> bool:
    """Whether it asks for the lab's first own run of the experiment that came with results."""
    if command.name != "reproduce" or not (thread.entries and thread.plans):
        return False
    if not thread.entries[-1].files:  # they were taken back
        return False
    ids = {ran.execution.id for ran in thread.executions if ran.life.state == "done"}
    return not ids and thread.plans[-1].commit == thread.entries[-1].commit


def _before(thread: Thread, what: str, argument: str) -> Ran | str:
    """The execution that is to run once more, or why there is none."""
    if not thread.is_pull:
        return f"`/{what}` belongs on the pull request whose execution is to run once more."
    fits = AGAIN if what == "retry" else ("done",)
    named = [ran for ran in thread.executions if argument in ("", ran.execution.id)]
    fitting = [ran for ran in named if ran.life.state in fits]
    if fitting:
        return fitting[-1]
    if argument and not named:
        return f"There is no execution `{code(argument)}` on this thread."
    if argument:
        state = named[0].life.state
        other = {"done": " `/reproduce` runs it once more.", "failed": " `/retry` does."}
        return (
            f"`/{what}` is for an execution that is {' or '.join(fits)}; `{code(argument)}` is "
            f"{state}.{other.get(state, '')}"
        )
    return f"No execution of this pull request is {' or '.join(fits)}; there is nothing to {what}."


# ── What does not ────────────────────────────────────────────────────────────────────────────


def _cancel(thread: Thread, message: Message, key: CommandKey, argument: str) -> Answered:
    mine = [ran for ran in thread.executions if thread.is_pull]
    live = [
        ran.execution.id
        for ran in mine
        if not ran.result and not ran.life.cancelled and _was_begun_before(thread, ran, message)
    ]
    chosen = tuple(id for id in live if argument in ("", id))
    why = approval_case.forbidden(thread, "cancel", message.author.login)
    if why is not None or chosen:
        pass
    elif not argument:
        why = "Nothing is running here."
    elif argument in {ran.execution.id for ran in mine}:
        why = f"`{argument}` has ended, or is being stopped, already."
    else:
        why = f"There is no execution `{code(argument)}` on this thread."
    return Answered(
        command=str(key),
        what="cancel",
        by=message.author,
        at=thread.now,
        yes=why is None,
        why=why or "",
        executions=chosen if why is None else (),
    )


def _was_begun_before(thread: Thread, ran: Ran, message: Message) -> bool:
    """Whether a `/cancel` can mean an execution. It may come late, and then what was approved after
    it was written is not meant; in a tie it is, as to stop is the safe side. A button is there only
    once its execution is."""
    if message.via == "button":
        return True
    origin = ran.execution.origin
    if origin is None:
        return False
    command = CommandKey.parse(command_of(origin.approval))
    approval = thread.approvals.get(command)
    asked_at = approval.asked_at if approval else None
    if asked_at is not None and asked_at != message.at:
        return asked_at < message.at
    return command.comment is None or message.via != "comment" or command.comment <= message.id


def _plan(thread: Thread, message: Message, key: CommandKey, argument: str) -> Answered:
    pull = thread.pull() if thread.is_pull else None
    why = approval_case.forbidden(thread, "plan", message.author.login) if thread.is_pull else None
    if why is not None:
        pass
    elif not thread.is_pull:
        why = "`/plan` belongs on the pull request that declares the experiment."
    elif argument:
        why = f"`/plan` takes nothing after it, and here stands `{code(argument)}`."
    elif pull is None or not pull.open:
        why = "This pull request is closed; reopen it, and there will be a plan."
    else:
        found = thread.finding(pull.base, pull.head)
        if found.experiment is None and not found.problems:
            why = f"There is nothing to plan: `{pull.head[:12]}` changes no experiment."
    return Answered(
        command=str(key),
        what="plan",
        by=message.author,
        at=thread.now,
        yes=why is None,
        why=why or "",
        plan=len(thread.plans) + 1 if why is None else None,
    )


def _follow(thread: Thread) -> Iterator[Action]:
    """What follows from the answers, and the word to who asked."""
    for key, answered in thread.answered.items():
        if not answered.yes:
            refused = render.cannot(answered.by.login, f"/{answered.what}", answered.why)
            yield Say(Key(answered.what, str(key)), refused)
            yield from _react(key, "confused")
            continue
        cancelled = Cancelled(at=answered.at, by=answered.by.login, command=str(key))
        for ran in thread.executions:
            if ran.execution.id in answered.executions and not ran.result:
                yield Write(f"executions/{ran.execution.id}/cancelled", cancelled)
        yield from _react(key, "rocket")
