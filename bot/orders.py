"""What people command, in its order: `/run`, `/cancel`, `/status`, `/help`. Pure."""

from collections.abc import Iterator

from bot import approve, commands, policy, words
from bot.escape import code
from bot.facts import Action, Message, React, Say, Thread, Write
from runner.record import Cancelled


def rules(thread: Thread) -> Iterator[Action]:
    """Answers to the commands of this thread, and the executions its approvals cause."""
    yield from _answers(thread)
    yield from approve.follow(thread)


def _answers(thread: Thread) -> Iterator[Action]:
    """An answer to each command, in their order.

    What follows a `/run` waits until that has its answer and its execution, so that two of them
    never approve the same plan and a `/cancel` finds what it was meant for.
    """
    for message in thread.messages:
        reading = commands.read(message.body)
        if reading.commands:
            yield React(message.id, "eyes")
        for command in reading.commands:
            key = message.key(command.index)
            match command.name:
                case "run":
                    yield from approve.run(thread, message, key, command.argument)
                    if not approve.is_answered(thread, key):
                        return
                case "cancel":
                    yield from _cancel(thread, message, key, command.argument)
                case "status":
                    yield Say(f"status-of.{key}", words.status_of(thread))
                case "help":
                    yield Say(f"help.{key}", words.help_text(thread.is_pull))
        unheard = not reading.commands and (reading.near_misses or reading.swallowed)
        if unheard or reading.too_many:
            yield Say(f"hint.{message.id}", words.hint(reading))


def _cancel(thread: Thread, message: Message, key: str, argument: str) -> Iterator[Action]:
    mine = {ran.execution.id: ran.life for ran in thread.executions} if thread.is_pull else {}
    who = message.author.login
    stopped = [x for x, life in mine.items() if life.cancelled and life.cancelled.command == key]
    # What was begun after the command was written (it may come late) is not meant by it.
    live = [
        x
        for x, life in mine.items()
        if not life.result
        and not life.cancelled
        and life.execution.origin
        and approve.place(life.execution.origin.approval) < approve.place(key)
    ]
    chosen = [x for x in live if argument in ("", x)]
    refused = policy.forbidden(thread, "cancel", who)
    if not refused and chosen:
        for execution in chosen:
            cancelled = Cancelled(at=thread.now, by=who, command=key)
            yield Write(f"executions/{execution}/cancelled", cancelled)
        return
    if stopped:
        yield React(message.id, "rocket")
        return
    if refused:
        why = refused
    elif not argument:
        why = "Nothing is running here."
    elif argument in mine:
        why = f"`{argument}` has ended, or is being stopped, already."
    else:
        why = f"There is no execution `{code(argument)}` on this thread."
    yield Say(f"cancel.{key}", words.cannot(who, "/cancel", why))
    yield React(message.id, "confused")
