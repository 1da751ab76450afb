"""What people, GitHub and time do to a `World`: each event is one step that a search may try."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from bot.facts import Message
from tests.protocol import invariants
from tests.protocol.world import A, B, PEOPLE, THREAD, World, Written, fact, moment

SETTLE = 40  # seconds that somebody waits who waits
FIRST = 50  # id of the first comment of a person

Event = tuple[str, Callable[[World], World]]


def events(world: World, asked: frozenset[str] | None) -> Iterator[tuple[str, World]]:
    """What may happen next and counts: its name, and the world after it.

    What nothing is delivered of is tried where the next look `asked` for it; anywhere else it comes
    to the same as a little later. None: there is no look next.
    """
    to = "B" if world.head == A else "A"
    for later in (False, True):
        after = wait(world) if later else world
        words = ", later" if later else ""
        if not later:
            yield f"push {to}{words}", push(after)
        for body in _commands(world):
            yield f"{body}{words}", command(after, body)
    if asked and "role" in asked:
        yield "role", replace(world, role="none" if world.role == "maintain" else "maintain")
    if asked and "policy" in asked:
        yield "policy", replace(world, policy=1 - world.policy)
    yield "retarget", retarget(world)
    for job in world.jobs:
        if job.state == "running":
            yield f"{job.attempt} dies", _job(world, job.execution, "running", "failed")
    for item in ("pull", *(one.message.of.id for one in world.written)):
        if item not in world.again and item not in world.inbox:
            after = replace(world, again=world.again | {item}, inbox=(*world.inbox, item))
            yield f"{item} again", after


def silent(world: World) -> Iterator[tuple[str, World]]:
    """What happens by itself and does not count: a job that gets its devices."""
    for job in world.jobs:
        if job.state == "pending":
            yield f"{job.attempt} begins", _job(world, job.execution, "pending", "running")


def wait(world: World) -> World:
    """Somebody waits for longer than a plan has to lie there."""
    return replace(world, now=world.now + SETTLE)


def push(world: World) -> World:
    """The head moves to the other commit."""
    after = B if world.head == A else A
    pushes = (*world.pushes, (world.now, world.head, after))
    return _news(replace(world, head=after, pushes=pushes))


def retarget(world: World) -> World:
    """The pull request is to be merged into another branch."""
    return _news(replace(world, base_ref="other" if world.base_ref == "main" else "main"))


def command(world: World, body: str, who: str = "grace") -> World:
    """Somebody comments."""
    id = max([one.message.of.id for one in world.written], default=FIRST) + 1
    message = Message(id, PEOPLE[who], moment(world.now), body)
    written = Written(fact(message), invariants.meant(world, body))
    return replace(world, written=(*world.written, written), inbox=(*world.inbox, id))


def _commands(world: World) -> Iterator[str]:
    yield "/run"


def _news(world: World) -> World:
    """A delivery about the pull request."""
    return world if "pull" in world.inbox else replace(world, inbox=("pull", *world.inbox))


def _job(world: World, execution: str, old: str, new: str) -> World:
    jobs = tuple(
        job._replace(state=new) if (job.execution, job.state) == (execution, old) else job
        for job in world.jobs
    )
    return replace(world, jobs=jobs)


__all__ = ["THREAD", "events", "silent"]
