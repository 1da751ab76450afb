"""What people, GitHub and time do to a `World`: each event is one step that a search may try."""

from collections.abc import Iterator
from dataclasses import replace

from bot.model.thread import Message
from tests.protocol import invariants
from tests.protocol.world import PEOPLE, A, B, Job, World, Written, fact, moment

SETTLE = 40  # seconds that somebody waits who waits
FIRST = 50  # id of the first comment of a person


def events(world: World) -> Iterator[tuple[str, World]]:
    """What may happen next, counts and is delivered: its name, and the world after it."""
    yield f"push {'B' if world.head == A else 'A'}", push(world)
    yield "retarget", retarget(world)
    for name, after, body in _commands(world):
        yield name, command(after, body)
    if world.cancels:
        yield "/cancel", replace(command(world, "/cancel"), cancels=world.cancels - 1)
    if world.wide:
        yield "review /run, later", command(wait(world), "/run", commit=world.head)
    for job in world.jobs:
        if job.state == "running" and world.wide:
            yield f"{job.attempt} dies", _dead(world, job)
    for item in ("pull", *(one.message.of.id for one in world.written)):
        if item not in world.inbox:
            yield f"{item} again", replace(world, inbox=(*world.inbox, item))


def unheard(world: World, asked: frozenset[str]) -> Iterator[tuple[str, World]]:
    """What may happen, counts, and is not delivered: it is tried where the bot's next look `asked`
    for it, since anywhere else it comes to the same as a little later."""
    if "role" in asked and world.role == "maintain":
        yield "revoke", replace(world, role="write")
    if "policy" in asked and world.policy == 0:
        yield "policy", replace(world, policy=1)
    if not world.wide:
        return
    if "role" in asked and world.role == "write":
        yield "restore", replace(world, role="maintain")
    if "policy" in asked and world.policy == 1:
        yield "policy back", replace(world, policy=0)
    if "replan" in asked:
        yield "upgrade", replace(world, lab=1 - world.lab)
    if "role" in asked:
        yield "a day", replace(world, now=world.now + 86_400)
    for one in world.written:
        if one.message.of.via == "review" and one.stands and "review" in asked:
            yield "dismiss", _dismissed(world, one)


def wait(world: World, seconds: int = SETTLE) -> World:
    """Somebody waits; by default for longer than a plan has to lie there."""
    return replace(world, now=world.now + seconds)


def push(world: World) -> World:
    """The head moves to the other commit."""
    after = B if world.head == A else A
    pushes = (*world.pushes, (world.now, world.head, after))
    return _news(replace(world, head=after, pushes=pushes))


def retarget(world: World) -> World:
    """The pull request is to be merged into another branch."""
    return _news(replace(world, base_ref="other" if world.base_ref == "main" else "main"))


def command(world: World, body: str, who: str = "grace", commit: str | None = None) -> World:
    """Somebody comments; or approves a commit in a review."""
    id = max([one.message.of.id for one in world.written], default=FIRST) + 1
    message = Message(id, PEOPLE[who], moment(world.now), body)
    if commit:
        message = replace(message, via="review", commit=commit)
    written = Written(fact(message), invariants.meant(world, message))
    return replace(world, written=(*world.written, written), inbox=(*world.inbox, id))


def _commands(world: World) -> Iterator[tuple[str, World, str]]:
    """The name of a command, when it is written, and its words."""
    yield "/run", world, "/run"
    yield "/run, a second later", wait(world, 1), "/run"
    yield "/run, later", wait(world), "/run"
    later = wait(world)
    for commit in (A, B) if world.wide else (world.head,):
        yield f"/run {commit[0]}…, later", later, f"/run {commit}"
    seen = {made.key for made in world.made}
    known = {}
    for plan in invariants.planned(world):
        if f"plan.{plan.n}" in seen and plan.plan:
            known[plan.commit, plan.base_ref, plan.plan.fingerprint] = plan
    for plan in list(known.values())[-2 if world.wide else -1 :]:
        yield f"/run code of {plan.n}", world, f"/run {plan.code}"


def _dismissed(world: World, review: Written) -> World:
    written = tuple(one._replace(stands=False) if one == review else one for one in world.written)
    return replace(world, written=written)


def _news(world: World) -> World:
    """A delivery about the pull request."""
    return world if "pull" in world.inbox else replace(world, inbox=("pull", *world.inbox))


def _dead(world: World, job: Job) -> World:
    jobs = tuple(one._replace(state="failed") if one == job else one for one in world.jobs)
    return replace(world, jobs=jobs)
