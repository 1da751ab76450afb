"""Messages on a thread when the bot itself had a problem. Pure.

Records were lost (`bot.controller.store_recovery`), a delivery crashed the bot each time
(`bot.inbox.quarantine`), or one of its features fails.
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
            "### 🗄️ Restored from a backup\n\nThe lab lost some of its records of this thread. It "
            f"starts nothing that was asked for before {thread.restored:%Y-%m-%d %H:%M} UTC. "
            "**Please repeat what you still want:** `/plan` or a push makes a new plan, which a "
            "maintainer can approve. If the bot refuses the code of an older plan above, the "
            "record of that plan is lost.",
        )
    yield from voids(thread)
    for name in thread.aside:
        yield Say(
            Key("aside", name),
            "### ⚠️ Skipped\n\nThe bot crashed repeatedly on something that happened here, and now "
            f"skips it (delivery `{name}`). The lab's operator can find it in the log. If it was a "
            "command, the bot may not have finished it: `/status` shows what runs. Everything else "
            "on this thread works as before.",
        )


def failed(feature: str) -> Say:
    """The comment about a feature that fails on this thread."""
    return Say(
        Key("aside", feature),
        f"### ⚠️ Skipped\n\nA part of the bot (`{feature}`) fails on something that is here, and "
        "is left out on this thread until that changes. The lab's operator can find it in the log. "
        "Commands and everything else work as before; after a change, `/plan` looks again.",
    )


def voids(thread: Thread) -> Iterator[Write]:
    """Executions from before the loss do not start or restart."""
    for ran in thread.executions if thread.is_pull and thread.restored else ():
        action = lifecycle.decide(ran.life)
        begins = isinstance(action, lifecycle.Claim | lifecycle.Submit)
        older = thread.restored is not None and ran.execution.at <= thread.restored
        if begins and older and not ran.life.voided:
            why = "the lab restored its records from a copy that is older than this execution"
            path = f"executions/{ran.execution.id}/voided"
            yield Write(path, Voided(at=thread.now, why=why))
