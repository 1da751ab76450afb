"""Messages on a thread when the bot itself had a problem. Pure.

Records were lost (`bot.controller.store_recovery`), or a delivery crashed the bot each time
(`bot.inbox.quarantine`).
"""

from collections.abc import Iterator

from bot.model.actions import Action, Say, Write
from bot.model.keys import Key
from bot.model.thread import Thread
from runner.execution import lifecycle
from runner.schema.record import Voided


def rules(thread: Thread) -> Iterator[Action]:
    """A comment for each problem, because somebody may be waiting for an answer."""
    if thread.restored is not None:
        yield Say(
            Key("restored", f"{thread.restored:%Y%m%dT%H%M%SZ}"),
            "### 🗄️ Restored\n\nThe lab's records were restored from an older copy, and of some of "
            "what it said here they know nothing any more. Nothing that was asked for before "
            f"{thread.restored:%Y-%m-%d %H:%M} UTC is started. **A maintainer is asked to repeat "
            "what is still wanted:** a push or `/plan` brings a new plan, and that one can be "
            "approved. A plan above whose code is refused is one of those that were lost.",
        )
    yield from voids(thread)
    for name in thread.aside:
        yield Say(
            Key("aside", name),
            "### ⚠️ Set aside\n\nSomething that was said or done here stopped the lab's bot each "
            f"time it was looked at, and was set aside (delivery `{name}`). The lab's operator "
            "finds it in the log. If it was a command, it was not carried out to its end: "
            "`/status` says what runs. Everything else on this thread goes on.",
        )


def voids(thread: Thread) -> Iterator[Write]:
    """Executions from before the loss do not start or restart."""
    for ran in thread.executions if thread.is_pull and thread.restored else ():
        action = lifecycle.decide(ran.life)
        begins = isinstance(action, lifecycle.Claim | lifecycle.Submit)
        older = thread.restored is not None and ran.execution.at <= thread.restored
        if begins and older and not ran.life.voided:
            why = "the lab's records were restored from a copy older than this approval's use"
            path = f"executions/{ran.execution.id}/voided"
            yield Write(path, Voided(at=thread.now, why=why))
