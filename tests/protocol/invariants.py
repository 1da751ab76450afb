"""What must hold whatever happens, said without the rules: by GitHub's true state in the model."""

from datetime import timedelta

from bot.model import commands
from bot.model.thread import Message
from runner.schema import record
from tests.protocol.world import OWN, PLANS, THREAD, World, moment

SETTLE = 30
DAY = timedelta(hours=24)


def meant(world: World, message: Message) -> str:
    """What whoever writes this now can have meant to run, as `named` says it; "" where it is not
    clear.

    A bare `/run` means what its author sees: the newest plan's comment, if that is of the head and
    has lain there for `SETTLE` seconds, in which the head did not move. A commit means what all
    plans of it that can be seen say, if they say the same.
    """
    (command,) = commands.read(message.body).commands
    if command.name == "cancel":
        return ""
    plans = {plan.n: plan for plan in planned(world)}
    shown = [made for made in world.made if made.key.startswith("plan.")]
    seen = [plans[int(made.key.removeprefix("plan."))] for made in shown]
    commit = message.commit or (command.argument if len(command.argument) == 40 else "")
    if commit:
        of = {named(plan) for plan in seen if plan.commit == commit}
        return of.pop() if len(of) == 1 else ""
    if command.argument:
        (plan,) = [plan for plan in plans.values() if plan.code == command.argument]
        return named(plan)
    if not shown or world.head_repository != OWN:
        return ""
    newest, plan = shown[-1], seen[-1]
    still = newest.moves == len(world.pushes) and plan.commit == world.head
    return named(plan) if still and world.now - newest.at >= SETTLE else ""


def named(plan: record.PlanRecord) -> str:
    """What a plan is of: the commit, the branch it is to be merged into, what would run."""
    return f"{plan.commit} {plan.base_ref} {plan.plan and plan.plan.fingerprint[:8]}"


def planned(world: World) -> list[record.PlanRecord]:
    """The plans on record, oldest first."""
    found = [one.of for _, one in world.records if isinstance(one.of, record.PlanRecord)]
    return sorted(found, key=lambda plan: plan.n)


def may_launch(world: World, execution: str, attempt: str) -> str:
    """What forbids that this attempt begins now; "" if nothing does."""
    known = {path: found.of for path, found in world.records}
    origin = known[f"executions/{execution}/execution"].origin
    if f"executions/{execution}/cancelled" in known:
        return "it was cancelled"
    approval = known.get(
        f"approvals/{THREAD.repository}/{THREAD.number}/{origin.approval.rpartition('/')[2]}"
    )
    if approval is None or not approval.approved:
        return "nobody approved it"
    asked = next((x for x in world.written if str(x.message.of.key(0)) == approval.command), None)
    if asked is None:
        return "nobody commanded it"
    message: Message = asked.message.of
    if approval.by != message.author:
        return "somebody else commanded it"
    plan = next(plan for plan in planned(world) if plan.n == origin.plan)
    if asked.meant != named(plan) or plan.commit != origin.commit:
        return f"{asked.meant[:1] or 'nothing'} was approved and {origin.commit[:1]} is launched"
    if attempt != "t1":
        return ""
    if world.role not in ("maintain", "admin")[world.policy :]:
        return "the approver may not approve any more"
    if world.head != origin.commit or plan.commit != origin.commit:
        return "the head is another commit"
    if plan.base_ref != world.base_ref:
        return "it is to be merged into another branch"
    if plan.plan is None or plan.plan.fingerprint != PLANS[world.lab].fingerprint:
        return "the lab is another one"
    if not asked.stands:
        return "the review was dismissed"
    if moment(world.now) - message.at >= DAY:
        return "the approval is a day old"
    return ""


def broken(world: World) -> str:
    """What is wrong with this world; "" if nothing is."""
    if world.fault:
        return world.fault
    live = [job.execution for job in world.jobs if job.state == "running"]
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
    found = [one.of for _, one in world.records]
    answers = {one.command for one in found if isinstance(one, record.Approval | record.Answered)}
    ended = {path.split("/")[1] for path, one in world.records if isinstance(one.of, record.Result)}
    for one in found:
        if isinstance(one, record.Answered) and not ended.issuperset(one.executions):
            return f"{one.executions} were cancelled and go on"
    for job in world.jobs:
        if job.state == "running" and job.execution in ended:
            return f"{job.execution} has ended, and its job runs"
    for one in world.written:
        message: Message = one.message.of
        finals = {(message.id, "rocket"), (message.id, "confused")} & world.reactions
        if len(finals) != (message.via == "comment") or str(message.key(0)) not in answers:
            return f"{message.body} ({message.id}) has no final answer"
    return ""
