"""What the bot's process does in a `World`: it looks, decides with the real rules, acts, dies."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from bot.controller.effects import WATCH
from bot.controller.paced_actions import MAX_AT_ONCE
from bot.model.actions import Action, Check, Drive, React, Say, Show, Write
from bot.model.keys import CommandKey
from bot.model.thread import Thread
from bot.rules import execution as rules_execution
from bot.rules.decide import decide
from runner.execution import lifecycle
from runner.schema import record
from tests import synthetic
from tests.protocol.invariants import may_launch
from tests.protocol.sight import Answers, known, thread
from tests.protocol.world import START, THREAD, Effect, Job, Made, World, Written, fact

LAUNCH = {"role", "policy", "replan", "review"}  # what nothing tells of, and a launch rests on


class Look(NamedTuple):
    """What the bot finds to do, and what it asked for that."""

    due: tuple[Effect, ...]
    asked: frozenset[str]


def look(world: World) -> Look:
    """The bot looks at the thread and decides. Nothing is due: it is at rest.

    What only tells people something comes first, and is then followed by another look: it makes no
    difference to any rule, so what happens in between could as well happen later.
    """
    effects = list(_unfinished(world))
    asked: set[str] = set()
    if not effects:
        seen = thread(world, {})
        for drive in rules_execution.ongoing(seen):
            effects += _effects(world, seen, drive)
    if not effects:
        answers = Answers(world)
        seen = thread(world, answers)
        due = decide(seen, known(world.records).paths)
        if due.questions:
            raise AssertionError(f"{due.questions} were asked, and had their answers")
        for action in due.actions[:MAX_AT_ONCE]:
            effects += _effects(world, seen, action)
        if not due.actions and world.inbox:
            effects = [("handled", tuple(dict.fromkeys(world.inbox)))]
        asked = answers.asked
    if any(effect[0] == "submit" for effect in effects):
        asked |= LAUNCH  # whether or not the rules ask, a launch has to rest on it
    quiet = [effect for effect in effects if is_quiet(effect)]
    return Look(tuple(quiet or effects), frozenset(asked))


def is_quiet(effect: Effect) -> bool:
    """Whether it only tells people something."""
    name, *about = effect
    if name in ("claim", "make", "done"):
        return not about[0].startswith("plan.")
    return name in ("react", "noted", "shown")


def _unfinished(world: World) -> Iterator[Effect]:
    """Claims that an earlier life left open: looked up, and after a while said again."""
    there = {made.key for made in world.made}
    for key, _, done in world.said:
        if not done and key not in there:
            yield from () if is_quiet(("make", key)) else (("watch",),)
            yield "make", key
        if not done:
            yield "done", key


def _effects(world: World, seen: Thread, action: Action) -> Iterator[Effect]:
    """One action, taken apart where a death can come between."""
    match action:
        case Say() | Check():
            key = str(action.key)
            kind = "comment" if isinstance(action, Say) else "check"
            yield from (("claim", key, kind), ("make", key), ("done", key))
        case React(comment=comment, content=content):
            yield from (("react", comment, content), ("noted", str(action.key)))
        case Show(key=key, final=final):
            yield ("noted", str(key)) if final else ("shown",)
        case Write(path=path, record=found):
            yield "write", path, fact(found)
        case Drive(execution=execution, action=step):
            yield from _steps(world, seen, execution, step)
        case _:
            raise AssertionError(f"the model does not know how to {action}")


def _steps(world: World, seen: Thread, execution: str, step: lifecycle.Action) -> Iterator[Effect]:
    folder = f"executions/{execution}"
    match step:
        case lifecycle.Claim(name):
            claimed = record.Claimed(at=seen.now, nonce="n", spec_sha256=synthetic.sha("spec"))
            yield "write", f"{folder}/{name}.claimed", fact(claimed)
        case lifecycle.Submit(name):
            yield "submit", execution, name, may_launch(world, execution, name)
        case lifecycle.Stop(name):
            yield "stop", execution, name
        case lifecycle.Confirm(name):
            yield "write", f"{folder}/{name}.started", fact(record.Started(at=seen.now))
        case lifecycle.End(name, how, why):
            yield (
                "write",
                f"{folder}/{name}.ended",
                fact(record.Ended(at=seen.now, how=how, why=why)),
            )
        case lifecycle.Conclude(state, why):
            ended = record.Result(at=seen.now, state=state, why=why)
            yield "write", f"{folder}/result", fact(ended)


def work(world: World) -> World:
    """The first of the effects that are due happens."""
    (name, *about), rest = world.due[0], world.due[1:]
    match name, about:
        case "watch", []:
            return replace(world, due=rest, now=world.now + round(WATCH.total_seconds()))
        case "claim", [key, kind]:
            if any(key == other for other, _, _ in world.said):
                return replace(world, due=rest[2:])
            said = tuple(sorted((*world.said, (key, kind, False))))
            return replace(world, due=rest, said=said)
        case "make", [key]:
            made = Made(key, world.now, len(world.pushes)) if key.startswith("plan.") else Made(key)
            return replace(world, due=rest, made=(*world.made, made))
        case "done", [key]:
            said = tuple([(k, kind, done or k == key) for k, kind, done in world.said])
            return replace(world, due=rest, said=said)
        case "noted", [key]:
            if any(key == other for other, _, _ in world.said):
                return replace(world, due=rest)
            return replace(world, due=rest, said=tuple(sorted((*world.said, (key, "done", True)))))
        case "react", [comment, content]:
            return replace(world, due=rest, reactions=world.reactions | {(comment, content)})
        case "shown", []:
            return replace(world, due=rest)
        case "write", [path, found]:
            if any(path == other for other, _ in world.records):
                return replace(world, due=rest)
            records = tuple(sorted((*world.records, (path, found)), key=lambda pair: pair[0]))
            return replace(world, due=rest, records=records)
        case "submit", [execution, attempt, fault]:
            if any(job[:2] == (execution, attempt) for job in world.jobs):
                return replace(world, due=rest)
            jobs = (*world.jobs, Job(execution, attempt, "running"))
            return replace(world, due=rest, jobs=jobs, fault=world.fault or fault)
        case "stop", [execution, attempt]:
            jobs = tuple(
                job._replace(state="stopped") if job[:2] == (execution, attempt) else job
                for job in world.jobs
            )
            if jobs == world.jobs:  # there is none, and none will begin
                withdrawn = world.withdrawn | {(execution, attempt)}
                return replace(world, due=rest, withdrawn=withdrawn)
            return replace(world, due=rest, jobs=jobs)
        case "handled", [seen]:
            inbox = tuple(item for item in world.inbox if item not in seen)
            return _forget(replace(world, due=rest, inbox=inbox))
    raise AssertionError(f"the model does not know the effect {name}")


def _forget(world: World) -> World:
    """Without what can make no difference any more: the words of commands that are answered; and of
    those that were refused all but the newest comment, since one can stand for all."""
    answers = {
        CommandKey.parse(one.of.command): one.of
        for _, one in world.records
        if isinstance(one.of, record.Approval)
    }
    written, old = [], []
    idle = [one.message.of for one in world.written if one.message.of.id not in world.inbox]
    no = [
        message.id
        for message in idle
        if message.via == "comment" and (given := answers.get(message.key(0)))
        if not given.approved
    ]
    for one in world.written:
        message = one.message.of
        answer = answers.get(message.key(0))
        if message.id in world.inbox or answer is None:
            written.append(one)
        elif answer.approved:
            plain = message if message.via == "review" else replace(message, body="/run")
            written.append(one._replace(message=fact(plain)))
        elif world.fine and message.id == max(no, default=0):
            plain = replace(message, at=START, body="/run")
            written.append(Written(fact(plain, timed=False), ""))
        else:
            old.append(message)
    gone = tuple(
        name for message in old for name in (f"react.{message.id}.", f"refused.{message.key(0)}")
    )
    paths = {f"approvals/{THREAD.repository}/{THREAD.number}/{message.key(0)}" for message in old}
    return (
        replace(
            world,
            written=tuple(written),
            records=tuple(one for one in world.records if one[0] not in paths),
            said=tuple(one for one in world.said if not one[0].startswith(gone)),
            made=tuple(one for one in world.made if not one.key.startswith(gone)),
            reactions=frozenset(
                one for one in world.reactions if one[0] not in {message.id for message in old}
            ),
        )
        if gone or tuple(written) != world.written
        else world
    )


def die(world: World) -> World:
    """The bot's process is gone, and with it what it had decided and what it remembered."""
    return replace(world, due=(), deaths=world.deaths - 1)


def is_open(world: World) -> bool:
    """Whether it makes a difference that something happens now, and not after the bot's next step.
    It does before a look, and before a plan's comment gets its time."""
    if not world.due:
        return True
    name = world.due[0][0]
    return name == "watch" or (name == "make" and not is_quiet(world.due[0]))
