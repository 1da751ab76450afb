"""Commands, in order: by a comment, a review or a button. Pure.

Each command is answered once, by a record: an `Approval` for commands that start something (`/run`,
`/retry`, `/reproduce`), an `Answered` for `/cancel` and `/plan`. All visible effects follow from
the record, so a repeated delivery, however late, changes nothing. `/status` and `/help` change
nothing; their answer is a comment, posted once. An answer that stands there already is not posted
again: its command gets a reaction at most.
"""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Literal

from bot.messages import command_answers
from bot.model import commands
from bot.model.actions import Action, Button, React, Say, Write
from bot.model.commands import Reading
from bot.model.escape import code
from bot.model.keys import CommandKey, Key
from bot.model.thread import Message, Ran, Thread
from bot.rules import approval, which_plan
from bot.rules.which_plan import What
from runner.schema.record import Answered, Cancelled, command_of

TYPE_AGAIN_AFTER = timedelta(hours=24)  # for a command that arrived too late
POSTED = {"status": "status-of", "help": "help"}  # commands that change nothing; keys of answers
# Buttons of check runs. A press counts as the command in `payloads.BUTTONS`.
CANCEL = Button("Cancel", "cancel", "Stop it; its record is kept")
RETRY = Button("Retry", "retry", "Run the same plan again")
REPLAN = Button("Re-plan", "replan", "Read the branch again")
_NO_EXECUTION = "There is no execution `{}` on this thread."
AGAIN = ("failed", "cancelled", "voided")  # the states that `/retry` is for


def rules(thread: Thread) -> Iterator[Action]:
    """Answers to the commands of this thread, and their effects."""
    heard = (one for one in thread.messages if not which_plan.is_ignored(thread, one.author))
    meant = [(message, commands.read(message.body)) for message in heard]
    repeats = set(_repeats(thread, meant))
    for message, reading in meant:
        new = [x for x in reading.commands if message.key(x.index) not in repeats]
        if new and not _is_doubtful(thread, message):
            yield from _react(message.key(0), "eyes")
    yield from _answers(thread, meant, repeats)
    yield from approval.follow(thread)
    yield from _follow(thread)


def _is_doubtful(thread: Thread, message: Message) -> bool:
    """Whether it is uncertain that the author wrote this text or still wants it: it was found long
    after, and no signed delivery contains the original text."""
    late = thread.now - message.at > TYPE_AGAIN_AFTER
    return message.heard == "sweep" and (message.edited or late)


def _repeats(thread: Thread, read: list[tuple[Message, Reading]]) -> Iterator[CommandKey]:
    """The commands that change nothing and have their answer already: in a comment that is newer or
    says the same, or by the answer to an earlier one of these."""
    first = set[str]()
    for message, reading in read:
        for command in reading.commands:
            key, kind = message.key(command.index), POSTED.get(command.name)
            if kind is None or Key(kind, str(key)) in thread.said:
                continue
            if kind in first or _stands(thread, kind, _text(thread, command.name), message.at):
                yield key
            first.add(kind)


def _stands(thread: Thread, kind: str, text: str, asked_at: datetime) -> bool:
    """Whether the newest comment of this kind answers what was asked then with this answer."""
    times = (
        (said.at, said.body) for key, said in thread.said.items() if key.kind == kind and said.at
    )
    at, body = max(times, default=(None, ""))
    if at is None:
        return False
    return (kind == "status-of" and at >= asked_at) or (
        body == text and asked_at - at < approval.REPEATS_WITHIN
    )


def _text(thread: Thread, command: str) -> str:
    """The answer to a command that changes nothing."""
    if command == "status":
        return command_answers.status_of(thread)
    return command_answers.help_text(thread.is_pull)


def _answers(
    thread: Thread, read: list[tuple[Message, Reading]], repeats: Collection[CommandKey]
) -> Iterator[Action]:
    """An answer to each command, in order.

    Commands after a `/run` wait until it has its answer and its execution, so that two of them
    never approve the same plan and a `/cancel` finds its execution.
    """
    hints = set[str]()
    for message, reading in read:
        about = message.key(0).message
        if reading.commands and _is_doubtful(thread, message):
            if not any(_is_known(thread, message.key(c.index)) for c in reading.commands):
                yield Say(Key("again", about), command_answers.type_again(message))
                yield from _react(message.key(0), "confused")
            continue
        for command in reading.commands:
            key = message.key(command.index)
            match command.name:
                case "run" | "retry" | "reproduce" as what:
                    if key not in thread.approvals:
                        yield _start(thread, message, key, what, command.argument)
                    if not approval.is_answered(thread, key):
                        return
                case "cancel" | "plan" as what:
                    if key not in thread.answered:
                        yield _answer(thread, message, key, what, command.argument)
                        return
                case "status" | "help" as what:
                    if key not in repeats:
                        yield Say(Key(POSTED[what], str(key)), _text(thread, what))
                    yield from _react(key, "rocket", optional=key in repeats)
        unheard = not reading.commands and (reading.near_misses or reading.swallowed)
        if unheard or reading.too_many or reading.too_long:
            hint = command_answers.hint(reading)
            if hint not in hints and not _stands(thread, "hint", hint, message.at):
                yield Say(Key("hint", about), hint)
            hints.add(hint)


def _is_known(thread: Thread, key: CommandKey) -> bool:
    """Whether a command was answered."""
    said = (Key(kind, str(key)) for kind in POSTED.values())
    return key in thread.approvals or key in thread.answered or any(x in thread.said for x in said)


def _react(
    key: CommandKey, content: Literal["eyes", "rocket", "confused"], *, optional: bool = False
) -> Iterator[React]:
    """A reaction to the comment with a command. A review and a button cannot have one; they get
    only the effects."""
    if key.comment is not None:
        yield React(key.comment, content, optional)


# ── What starts something ────────────────────────────────────────────────────────────────────


def _start(thread: Thread, message: Message, key: CommandKey, what: What, argument: str) -> Write:
    """The answer to a `/run`; or to a command that repeats an earlier plan, with all conditions of
    a `/run`."""
    if what == "run" or (what == "reproduce" and _is_of_entry(thread)):
        found = approval.run(thread, message, key, argument, what=what)
    elif isinstance(before := _before(thread, what, argument), Ran):
        again = before.execution
        found = approval.run(thread, message, key, "", what=what, before=again)
    else:
        found = approval.answer(thread, message, key, what, before)
    return Write(f"approvals/{thread.id}/{key}", found)


def _is_of_entry(thread: Thread) -> bool:
    """Whether this is the lab's first own run of the experiment that came with results."""
    if not (thread.entries and thread.plans and thread.entries[-1].files):  # or removed again
        return False
    is_done = any(ran.life.state == "done" for ran in thread.executions)
    return not is_done and thread.plans[-1].commit == thread.entries[-1].commit


def _before(thread: Thread, what: str, argument: str) -> Ran | str:
    """The execution to repeat, or why there is none."""
    if not thread.is_pull:
        return f"`/{what}` belongs on the pull request of the execution."
    fits = AGAIN if what == "retry" else ("done",)
    named = [ran for ran in thread.executions if argument in ("", ran.execution.id)]
    fitting = [ran for ran in named if ran.life.state in fits]
    if fitting:
        return fitting[-1]
    if argument and not named:
        return _NO_EXECUTION.format(code(argument))
    if argument:
        state = named[0].life.state
        other = {"done": " Use `/reproduce`.", "failed": " Use `/retry`."}
        return (
            f"`/{what}` needs an execution that is {' or '.join(fits)}. The state of "
            f"`{code(argument)}` is {state}.{other.get(state, '')}"
        )
    return f"There is nothing to {what}: no execution of this pull request is {' or '.join(fits)}."


# ── What does not ────────────────────────────────────────────────────────────────────────────


def _answer(
    thread: Thread, message: Message, key: CommandKey, what: Literal["cancel", "plan"], words: str
) -> Write:
    """The record of such a command, with the `words` after it."""
    why = None
    if what == "cancel" or thread.is_pull:
        why = which_plan.forbidden(thread, what, message.author)
    executions: tuple[str, ...] = ()
    means_all = what == "cancel" and thread.is_pull and not words and why is None
    if what == "cancel":
        executions = _stopped(thread, message, key, words)
        why = why or (None if executions else _nothing_to_stop(thread, words))
    else:
        why = why or _nothing_to_plan(thread, words)
    answered = Answered(
        command=str(key),
        what=what,
        by=message.author,
        at=thread.now,
        yes=why is None,
        why=why or "",
        executions=executions if why is None else (),
        plan=len(thread.plans) + 1 if what == "plan" and why is None else None,
        all_before=message.at if means_all else None,
    )
    return Write(f"answers/{thread.id}/{key}", answered)


def _stopped(thread: Thread, message: Message, key: CommandKey, words: str) -> tuple[str, ...]:
    """The executions that a `/cancel` means."""
    return tuple(
        ran.execution.id
        for ran in thread.executions
        if thread.is_pull and words in ("", ran.execution.id)
        if not ran.result
        and not ran.life.cancelled
        and _was_begun_before(thread, ran, message, key)
    )


def _nothing_to_stop(thread: Thread, words: str) -> str:
    if not words:
        return "Nothing is running here."
    if thread.is_pull and words in {ran.execution.id for ran in thread.executions}:
        return f"`{words}` has ended already, or is being stopped."
    return _NO_EXECUTION.format(code(words))


def _was_begun_before(thread: Thread, ran: Ran, message: Message, key: CommandKey) -> bool:
    """Whether a `/cancel` can mean this execution. A late one does not mean executions that were
    approved after it was written. A button exists only after its execution."""
    if message.via == "button":
        return True
    command = CommandKey.parse(command_of(ran.origin.approval))
    begun_by = thread.approvals.get(command)
    asked_at = begun_by.asked_at if begun_by else None
    return which_plan.is_before_cancel(asked_at, command, message.at, key)


def _nothing_to_plan(thread: Thread, words: str) -> str | None:
    """Why there is nothing to plan; None if there is."""
    if not thread.is_pull:
        return "`/plan` belongs on the pull request that declares the experiment."
    if words:
        return f"Write `/plan` alone, without `{code(words)}`."
    pull = thread.pull()
    if pull is None or not pull.open:
        return "This pull request is closed. Reopen it to get a plan."
    found = thread.finding(pull.base, pull.head)
    if found.experiment is None and not found.problems:
        head = f"commit `{pull.head[:12]}`"
        return (
            f"There is nothing to plan: {head} changes no experiment (a folder in `experiments/`)."
        )
    return None


def _follow(thread: Thread) -> Iterator[Action]:
    """The effects of the answers, and the replies."""
    repeats = approval.repeated(thread.answered)
    for key, answered in thread.answered.items():
        if not answered.yes:
            if key not in repeats:
                yield Say(Key(answered.what, str(key)), command_answers.refused(answered))
            yield from _react(key, "confused", optional=key in repeats)
            continue
        cancelled = Cancelled(at=answered.at, by=answered.by.login, command=str(key))
        for ran in thread.executions:
            if ran.execution.id in answered.executions and not ran.result:
                yield Write(f"executions/{ran.execution.id}/cancelled", cancelled)
        yield from _react(key, "rocket")
