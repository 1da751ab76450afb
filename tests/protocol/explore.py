"""Breadth first over all that can happen: by the number of events, then by the bot's steps."""

import contextlib
import functools
import gc
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bot.messages import (
    command_answers,
    plan_comment,
    result_comment,
    seal_comments,
    status_comment,
)
from bot.model import commands
from tests.protocol import invariants
from tests.protocol.events import events, unheard
from tests.protocol.process import die, is_open, is_quiet, look, work
from tests.protocol.world import World

Key = tuple[object, ...]


@dataclass
class Found:
    """What a search came upon."""

    states: int = 0
    at_rest: int = 0  # of them: those in which nothing is due
    launches: int = 0  # of them: those in which an attempt is about to begin
    violation: str = ""
    trace: tuple[str, ...] = ()  # the shortest way to it, by its number of events


WORDS = (command_answers, plan_comment, result_comment, seal_comments, status_comment)


@contextlib.contextmanager
def wordless() -> Iterator[None]:
    """Nothing is said in words: they are no part of the protocol, and take longer than rules."""
    with pytest.MonkeyPatch.context() as patch:
        for module in WORDS:
            for name, function in inspect.getmembers(module, inspect.isfunction):
                if function.__module__ == module.__name__ and not name.startswith("_"):
                    patch.setattr(module, name, lambda *_, **__: "")
        patch.setattr(plan_comment, "own_code", lambda _: None)  # no plan of the world's has any
        patch.setattr(commands, "read", functools.cache(commands.read))
        yield


def explore(start: World, most_events: int) -> Found:
    """All worlds that up to `most_events` events lead to; ends at the first broken one."""
    gc.disable()  # there are no cycles, and looking for them takes as long as the rules do
    try:
        with wordless():
            return _explore(start, most_events)
    finally:
        gc.enable()


def _explore(start: World, most_events: int) -> Found:
    found = Found()
    came: dict[Key, tuple[Key | None, str]] = {start.key(): (None, "")}
    layer = [(start.key(), start)]
    for count in range(most_events + 1):
        further: list[tuple[Key, World]] = []
        while layer:
            key, world = layer.pop()
            for name, after, counts in _steps(world, found, count < most_events):
                names = [name]
                while not counts and (only := _only(after, found)):
                    after = only[1]
                    names.append(only[0])
                new = after.key()
                if new in came:
                    continue
                came[new] = (key, ", ".join(names))
                if why := invariants.broken(after):
                    found.violation, found.trace = why, _trace(came, new)
                    return found
                (further if counts else layer).append((new, after))
            if found.violation:
                found.trace = _trace(came, key)
                return found
        layer = further
    return found


def _only(world: World, found: Found) -> tuple[str, World] | None:
    """The only thing that may follow, where nothing else may: another step of the bot's."""
    if world.deaths or not world.due or (world.untimely and is_open(world)):
        return None
    found.states += 1
    found.launches += world.due[0][0] == "submit"
    return _name(world), work(world)


def _name(world: World) -> str:
    return " ".join(part for part in world.due[0] if isinstance(part, str))


def _steps(world: World, found: Found, more: bool) -> Iterator[tuple[str, World, bool]]:
    """What may follow: its name, the world after it, whether it counts as an event."""
    found.states += 1
    asked, rests = frozenset[str](), False
    if world.due:
        found.launches += world.due[0][0] == "submit"
        yield _name(world), work(world), False
        if world.deaths:
            yield "death", die(world), False
    else:
        seen, asked = look(world)
        if seen and is_quiet(seen[0]) and not world.fine:
            after = replace(world, due=seen)
            while after.due:
                after = work(after)
            yield "tell", after, False
            return
        if seen:
            yield "look", replace(world, due=seen), False
            if is_quiet(seen[0]):
                return
        else:
            rests = True
            found.at_rest += 1
            found.violation = found.violation or invariants.unanswered(world)
    if more:
        for name, after in unheard(world, asked):
            yield name, after, True
    if more and is_open(world) and (rests or world.untimely):
        left = replace(world, untimely=world.untimely - (not rests))
        for name, after in events(left):
            yield name, after, True


def _trace(came: dict[Key, tuple[Key | None, str]], key: Key | None) -> tuple[str, ...]:
    steps = []
    while key is not None:
        key, name = came[key]
        if name:
            steps.append(name)
    return tuple(reversed(steps))
