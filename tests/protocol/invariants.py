"""What must hold whatever happens, said without the rules: by GitHub's true state in the model."""

from bot import commands
from bot.facts import Message
from runner import record
from tests.protocol.world import LIVE, OWN, World

SETTLE = 30


def meant(world: World, body: str) -> str:
    """The commit that whoever writes this now can have meant; "" where it is not clear.

    A bare `/run` means what its author sees: the newest plan's comment, if that is of the head and
    lay there for `SETTLE` seconds, while the head did not move.
    """
    (command,) = commands.read(body).commands
    if command.name != "run":
        return ""
    plans = {f"plan.{found.of.n}": found.of for _, found in world.records
             if isinstance(found.of, record.PlanRecord)}
    shown = [made for made in world.made if made.key in plans]
    if not shown:
        return ""
    last = shown[-1]
    return plans[last.key].commit


def may_launch(world: World, execution: str, attempt: str) -> str:
    """What forbids that this attempt begins now; "" if nothing does."""
    known = {path: found.of for path, found in world.records}
    origin = known[f"executions/{execution}/execution"].origin
    approval = known.get(f"approvals/{origin.approval.replace('/', f'/{origin.pull}/')}")
    if approval is None or not approval.approved:
        return "nobody approved it"
    written = {one.message.of.id: one for one in world.written}
    asked = written.get(int(approval.command.partition("-")[0]))
    if asked is None:
        return "nobody commanded it"
    message: Message = asked.message.of
    if approval.by != message.author:
        return "somebody else commanded it"
    if asked.meant != origin.commit:
        return f"{asked.meant[:1] or 'nothing'} was approved and {origin.commit[:1]} is launched"
    if attempt != "t1":
        return ""
    if world.role != "maintain":
        return "the approver may not approve any more"
    if world.head != origin.commit:
        return "the head is another commit"
    return ""


def broken(world: World) -> str:
    """What is wrong with this world; "" if nothing is."""
    if world.fault:
        return world.fault
    live = [job.execution for job in world.jobs if job.state in LIVE]
    if len(set(live)) < len(live):
        return "two attempts of an execution live"
    for one in world.written:
        id = one.message.of.id
        if {(id, "rocket"), (id, "confused")} <= world.reactions:
            return f"the command {id} was answered with yes and with no"
    keys = [made.key for made in world.made]
    if len(set(keys)) < len(keys):
        return f"something was said twice: {sorted(keys)}"
    return ""


def unanswered(world: World) -> str:
    """What is missing in a world in which the bot is at rest; "" if nothing is."""
    answers = {found.of.command for _, found in world.records
               if isinstance(found.of, record.Approval)}
    for one in world.written:
        message: Message = one.message.of
        finals = {(message.id, "rocket"), (message.id, "confused")} & world.reactions
        if len(finals) != 1 or message.key(0) not in answers:
            return f"{message.body} ({message.id}) has no final answer"
    return ""


__all__ = ["OWN"]
