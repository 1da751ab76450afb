"""What somebody who commanded is told. Pure."""

from bot.messages.templating import say
from bot.model.commands import MAX_COMMANDS, MAX_READ, Reading
from bot.model.escape import code, prose, text
from bot.model.thread import Message, Thread
from runner.schema.record import Answered, Approval


def waits(approval: Approval) -> str:
    """What a `/run` still waits for, which somebody permitted has written."""
    return f"**Noted:** `/run` by {text(approval.by.login)}. {prose(approval.waits)}"


def refused(answer: Approval | Answered) -> str:
    """A command that was refused, to whom, and why."""
    refusal = f"**Not done:** `/{answer.what}` by {text(answer.by.login)}. {prose(answer.why)}"
    return f"{refusal}\n\nNothing was started or stopped."


def hint(reading: Reading) -> str:
    """Somebody seems to have meant a command."""
    lines = [
        f"`/{code(typed)}` is no command here; did you mean `/{code(meant)}`?"
        for typed, meant in reading.near_misses
    ]
    if reading.swallowed:
        lines.append(
            "A command inside a quote, a list or a table does not count; Markdown also draws the "
            "line after a quote into it. Leave an empty line before the command."
        )
    if reading.too_long:
        lines.append(
            f"Commands are looked for in the first {MAX_READ:,} characters of a comment; what "
            "follows them does not count."
        )
    if reading.too_many:
        lines.append(f"Only the first {MAX_COMMANDS} commands of a comment count.")
    elif not reading.commands:
        lines.append("Nothing was done.")
    return "\n".join([*lines, "", "`/help` lists the commands."])


def type_again(message: Message) -> str:
    """A command was found late, and nobody can say that it is still what its author wants."""
    what = "review" if message.via == "review" else "comment"
    why = "it was edited since" if message.edited else "it is more than a day old"
    if message.edited and what == "review":
        why += ", or GitHub does not say that it was not"
    return (
        f"**Please type it again:** I did not hear of this {what} by {text(message.author.login)} "
        f"when it was written ({message.at:%Y-%m-%d %H:%M} UTC), and {why}, so I do nothing on its "
        "word. If it is still wanted, a new comment does it."
    )


def help_text(is_pull: bool) -> str:
    """The commands."""
    return say("help", is_pull=is_pull)


def status_of(thread: Thread) -> str:
    """What runs on a thread."""
    return say("status-of", link=thread.site, executions=thread.executions, plans=thread.plans)
