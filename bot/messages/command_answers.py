"""Answers to commands. Pure."""

from bot.messages import for_programs
from bot.messages.templating import say
from bot.model.commands import MAX_COMMANDS, MAX_READ, Reading
from bot.model.comment_data import block
from bot.model.escape import code, prose, text
from bot.model.thread import Message, Thread
from runner.schema.record import Answered, Approval


def waits(approval: Approval) -> str:
    """What a permitted `/run` still waits for."""
    return f"**Waiting:** `/run` by {text(approval.by.login)}. {prose(approval.waits)}"


def asked(approval: Approval) -> str:
    """That somebody asks for a reproduction, and how a maintainer approves it."""
    who = text(approval.by.login)
    return (
        f"**Asked:** {who} asks the lab to run this again and to compare the scores. {who} may not "
        f"approve it. A maintainer can, with the comment:\n\n```\n{approval.asks}\n```\n\nThe lab "
        "did not start anything."
    )


def refused(answer: Approval | Answered) -> str:
    """That a command was refused, or an agent's plan by the policy, and why."""
    data = block(for_programs.refusal(answer))
    if isinstance(answer, Approval) and answer.by_policy:
        policy = f"the policy (commit `{answer.policy[:12]}`)"
        return (
            f"**Not started:** {policy} does not allow plan {answer.plan}. {prose(answer.why)}\n\n"
            f"Nobody can approve this plan before that has changed.\n\n{data}"
        )
    refusal = f"**Not done:** `/{answer.what}` by {text(answer.by.login)}. {prose(answer.why)}"
    return f"{refusal}\n\nThe lab did not start or stop anything.\n\n{data}"


def hint(reading: Reading) -> str:
    """A hint for a comment that looks like a command and is none."""
    lines = [
        f"`/{code(typed)}` is not a command. Did you mean `/{code(meant)}`?"
        for typed, meant in reading.near_misses
    ]
    if reading.swallowed:
        lines.append(
            "I ignored a command inside a quote, a list, a table, a footnote, an HTML element or "
            "the signature of an e-mail. "
            "Markdown also counts the line after a quote as part of the quote. Leave an empty line "
            "before the command."
        )
    if reading.too_long:
        lines.append(
            f"I read only the first {MAX_READ:,} characters of a comment. Write commands there."
        )
    if reading.too_many:
        lines.append(f"I follow only the first {MAX_COMMANDS} commands of a comment.")
    elif not reading.commands:
        lines.append("I did nothing.")
    return "\n".join([*lines, "", "`/help` lists the commands."])


def type_again(message: Message) -> str:
    """A command was found late, and its author may not want it any more."""
    what = "review" if message.via == "review" else "comment"
    why = "it was edited since" if message.edited else "it is more than a day old"
    if message.edited and what == "review":
        why = "it may have been edited since"
    return (
        f"**Ignored:** I learned late of this {what} by {text(message.author.login)} (written "
        f"{message.at:%Y-%m-%d %H:%M} UTC), and {why}. Post it again if you still want it."
    )


def help_text(is_pull: bool) -> str:
    """The commands."""
    return say("help", is_pull=is_pull)


def status_of(thread: Thread) -> str:
    """What runs on a thread."""
    return say(
        "status-of",
        link=thread.site,
        site=thread.site,
        executions=thread.executions,
        plans=thread.plans,
        is_pull=thread.is_pull,
        is_late=thread.is_late,
        unposted=sorted(thread.unposted.items()),
    )
