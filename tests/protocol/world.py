"""A model of GitHub, of the records and of the bot's process around the real `bot.decide.decide`.

No store, no network, no clock: a `World` is a frozen value, and every step makes a new one, so that
`explore` can try all orders of steps. What the rules see is made of the same dataclasses as in
life; what they want done is taken apart into the effects that a death can come between (`act` does
a comment in three: the claim, the comment, the word that it is done).

Everything happens in the same second unless somebody waits, so that every tie is tried.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, NamedTuple

from bot import follow
from bot.act import WATCH
from bot.decide import decide
from bot.facts import (
    Action,
    Check,
    Drive,
    Finding,
    Message,
    Pull,
    Push,
    Question,
    Ran,
    React,
    Review,
    Said,
    Say,
    Show,
    Shown,
    Thread,
    ThreadId,
    Write,
)
from bot.labfile import Permitted, Policy
from bot.reconcile import MOST_AT_ONCE
from runner import lifecycle, record
from runner.leases import LeaseState
from tests import synthetic

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
A, B, BASE = "a" * 40, "b" * 40, "0" * 40
THREAD = ThreadId(synthetic.REPOSITORY, 2)
OWN, FORK = synthetic.REPOSITORY, 99  # repositories that a head branch may be in
PEOPLE = {"grace": synthetic.GRACE, "ada": synthetic.ADA}
PLANS = tuple(  # what the lab of before and the lab of after an upgrade make of any commit
    synthetic.plan(arms={"only": synthetic.planned_arm()}, seeds=[0], title=title)
    for title in ("before", "after")
)
POLICIES = (
    Policy(sha="1" * 40),
    Policy(sha="2" * 40, commands={"run": Permitted(roles=("admin",))}),
)
CODES = [f"aaaa-aaaa-aaaa-aaaa-aaa{letter}" for letter in "abcdefghijklmnop"]


@cache
def moment(second: int) -> datetime:
    """A second of the model as a time."""
    return START + timedelta(seconds=second)


# ── Facts as values ──────────────────────────────────────────────────────────────────────────

_TIMES = re.compile(
    r'"2026-[^"]+"|datetime\.datetime\((\d+), (\d+), (\d+), (\d+), (\d+)(?:, (\d+))?, tz[^)]*\)'
)


class Fact:
    """An object that is equal to itself alone; two with the same words are the same object."""

    __slots__ = ("of", "template", "times")

    def __init__(self, of: Any, text: str, timed: bool) -> None:
        self.of = of
        self.times = tuple(_second(match) for match in _TIMES.finditer(text)) if timed else ()
        refused = isinstance(of, record.Approval) and not of.approved  # the reason says nothing
        self.template = "no" if refused else _TIMES.sub("TIME", text)


_facts: dict[str, Fact] = {}


def fact(of: Any, timed: bool | None = None) -> Fact:
    """`of` as a value; `timed` is whether its times make a difference."""
    if timed is None:
        timed = isinstance(of, Message | record.PlanRecord)
    text = (
        of.model_dump_json(exclude={"plan": True} if isinstance(of, _WITH_PLAN) else None)
        if isinstance(of, record.Record)
        else repr(of)
    )
    text = f"{type(of).__name__} {timed} {text}"
    if isinstance(of, _WITH_PLAN):
        text += of.plan.fingerprint
    known = _facts.get(text)
    if known is None:
        known = _facts[text] = Fact(of, text, timed)
    return known


_WITH_PLAN = (record.PlanRecord, record.Execution)


def _second(match: re.Match[str]) -> int:
    if match[0].startswith('"'):
        found = datetime.fromisoformat(match[0].strip('"').replace("Z", "+00:00"))
    else:
        found = datetime(*(int(part or 0) for part in match.groups()), tzinfo=UTC)
    return round((found - START).total_seconds())


class Written(NamedTuple):
    """A command of somebody's, and what it could have meant to whoever wrote it."""

    message: Fact  # of a Message
    meant: str  # the commit that it approves; "": none
    stands: bool = True  # of a review: it was not dismissed


class Made(NamedTuple):
    """A comment or check run of the bot's."""

    key: str
    at: int = 0  # of a plan's comment; of others it says nothing
    moves: int = 0  # how often the head had moved before that


class Job(NamedTuple):
    """The job of an attempt, as Ray knows it."""

    execution: str
    attempt: str
    state: str


Effect = tuple[Any, ...]  # its name, and what it is about


@dataclass(frozen=True)
class World:
    """Everything there is."""

    # GitHub
    now: int = 0
    head: str = A
    base_ref: str = "main"
    head_repository: int = OWN
    role: str = "maintain"  # Grace's
    policy: int = 0
    lab: int = 0  # which version of the lab's code runs
    pushes: tuple[tuple[int, str, str], ...] = ()  # when, from and to which commit
    written: tuple[Written, ...] = ()
    made: tuple[Made, ...] = ()
    reactions: frozenset[tuple[int, str]] = frozenset()
    jobs: tuple[Job, ...] = ()
    # what was delivered: "pull", or the id of a command's comment
    inbox: tuple[str | int, ...] = ("pull",)
    # the records
    records: tuple[tuple[str, Fact], ...] = ()  # by path, sorted
    said: tuple[tuple[str, str, bool], ...] = ()  # key, kind, done; sorted
    # the bot's process
    due: tuple[Effect, ...] = ()  # effects that it has decided on
    # what went wrong, if something did
    fault: str = ""
    # what a search still allows
    fine: bool = True  # a death between effects that only tell people something, and that a
    # command which was refused comes again
    deaths: int = 99
    untimely: int = 99  # events while the bot is at work

    def key(self) -> tuple[Any, ...]:
        """The same for worlds that differ only in what nothing will ask for again: in times that
        have the same order, with the same ones half a minute or a day apart; in when commands were
        written that are answered; and in what was before the newest plan, where no command is open.
        """
        times = [self.now]
        shape: list[Any] = []
        busy = self.due or any(item != "pull" for item in self.inbox)
        plans = [one for _, one in self.records if isinstance(one.of, record.PlanRecord)]
        since = plans[-1].times[0] if plans and not busy else 0
        for one in self.written:
            shape.append((one.message.template, one.meant, one.stands))
            if one.message.of.id in self.inbox or not self.jobs:
                times += one.message.times
        kept = plans if busy else _kept([one.of for one in plans])
        for path, found in self.records:
            if not busy and isinstance(found.of, record.PlanRecord) and found.of.n not in kept:
                continue
            shape.append((path, found.template))
            if busy or found is plans[-1]:
                times += found.times
        last = None
        for made in self.made:
            shape.append(made.key)
            if made.key.startswith("plan."):
                last = made
                if busy:
                    times.append(made.at)
        if last:
            shape.append(last.moves == len(self.pushes))
            times.append(last.at)
        for at, _, after in self.pushes:
            if at >= since:
                shape.append(after)
                times.append(at)
        for effect in self.due:
            for part in effect:
                if isinstance(part, Fact):
                    shape.append(part.template)
                    times += part.times
                else:
                    shape.append(part)
        return (
            self.head,
            self.base_ref,
            self.head_repository,
            self.role,
            self.policy,
            self.lab,
            self.reactions,
            self.jobs,
            self.inbox,
            self.said,
            self.deaths,
            self.untimely,
            tuple(shape),
            _ranks(times),
        )


def _kept(plans: list[record.PlanRecord]) -> set[int]:
    """The plans that a command could still mean, or an approval rest on; see `events`."""
    newest = {plan.commit: plan.n for plan in plans}
    several = {(plan.commit, plan.base_ref, plan.plan and plan.plan.fingerprint): plan.n for plan in plans}
    return {*newest.values(), *list(several.values())[-2:], plans[-1].n} if plans else set()


def _ranks(times: list[int]) -> tuple[int, ...]:
    place: dict[int, int] = {}
    rank = before = 0
    for time in sorted(set(times)):
        gap = time - before
        rank += 1 if gap < 30 else 100 if gap < 86_400 else 10_000
        place[time] = rank
        before = time
    return tuple([place[time] for time in times])


# ── What the rules see ───────────────────────────────────────────────────────────────────────


class Answers(Mapping[Question, Any]):
    """What GitHub and the lab would answer at this moment to whatever is asked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.asked: set[str] = set()

    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Question]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, question: Question) -> Any:
        world = self._world
        self.asked.add(question.what)
        match question.what, question.about:
            case "pull", ():
                return Pull(
                    title="Warm",
                    author=synthetic.ADA,
                    head=world.head,
                    base=BASE,
                    open=True,
                    draft=False,
                    base_ref=world.base_ref,
                    head_ref="warm",
                    head_repository=world.head_repository,
                )
            case "role", ("grace",):
                return world.role
            case "role", _:
                return "write"
            case "refusal", _:
                return ""
            case "finding", _:
                return Finding("experiments/warm", plan=PLANS[world.lab])
            case "policy", ():
                return POLICIES[world.policy]
            case "committers", ():
                return frozenset({synthetic.ADA.id})
            case "code", (n,):
                return CODES[int(n)]
            case "replan", _:
                return PLANS[world.lab].fingerprint
            case "review", (id,):
                return next(
                    Review(
                        one.message.of.id,
                        one.message.of.author,
                        "APPROVED" if one.stands else "DISMISSED",
                        one.message.of.commit,
                        one.message.of.at,
                        one.message.of.body,
                    )
                    for one in world.written
                    if one.message.of.id == int(id)
                )
        raise AssertionError(f"the model has no answer to {question}")


class _Known(NamedTuple):
    """The records, as the rules want them."""

    plans: tuple[record.PlanRecord, ...]
    approvals: Mapping[str, record.Approval]
    paths: frozenset[str]


@lru_cache(maxsize=1 << 16)
def _known(records: tuple[tuple[str, Fact], ...]) -> _Known:
    found = [one.of for _, one in records]
    plans = [one for one in found if isinstance(one, record.PlanRecord)]
    approvals = [one for one in found if isinstance(one, record.Approval)]
    return _Known(
        tuple(sorted(plans, key=lambda plan: plan.n)),
        {one.command: one for one in approvals},
        frozenset(path for path, _ in records),
    )


@lru_cache(maxsize=1 << 16)
def _executions(records: tuple[tuple[str, Fact], ...], jobs: tuple[Job, ...]) -> tuple[Ran, ...]:
    known = {path: one.of for path, one in records}
    states = {job[:2]: job.state for job in jobs}
    lives = []
    for approval in sorted(_known(records).approvals.values(), key=lambda approval: approval.at):
        folder = f"executions/{approval.execution}"
        if not approval.approved or f"{folder}/execution" not in known:
            continue
        attempts = []
        for number in range(1, lifecycle.MOST_ATTEMPTS + 1):
            name = f"t{number}"
            if (claimed := known.get(f"{folder}/{name}.claimed")) is None:
                continue
            state = states.get((approval.execution, name), "unknown")
            attempts.append(
                lifecycle.Attempt(
                    name=name,
                    folder=f"{approval.execution}.{name}",
                    claimed=claimed,
                    started=f"{folder}/{name}.started" in known,
                    ended=known.get(f"{folder}/{name}.ended"),
                    job=state,
                    lease=LeaseState(started=state != "unknown"),
                )
            )
        life = lifecycle.Facts(
            execution=known[f"{folder}/execution"],
            attempts=tuple(attempts),
            cancelled=known.get(f"{folder}/cancelled"),
            voided=known.get(f"{folder}/voided"),
            result=known.get(f"{folder}/result"),
        )
        lives.append(Ran(life, None))
    return tuple(lives)


def thread(world: World, answers: Mapping[Question, Any]) -> Thread:
    """The thread as `bot.observe` would put it together."""
    known = _known(world.records)
    executions = _executions(world.records, world.jobs)
    comments = {made.key: (1000 + n, made.at) for n, made in enumerate(world.made)}
    said = {}
    for key, kind, done in world.said:
        id, at = comments.get(key, (0, 0))
        said[key] = Said(kind, id, moment(at)) if done else Said(kind, None, None)
    written = {one.message.of.id: one.message.of for one in world.written}
    messages = [written[id] for id in world.inbox if id != "pull"]
    return Thread(
        id=THREAD,
        repository=synthetic.REPOSITORY_NAME,
        url="https://github.example",
        now=moment(world.now),
        is_pull=True,
        news=bool(world.inbox),
        messages=tuple(sorted(messages, key=lambda message: message.id)),
        pushes=tuple(Push(moment(at), after, before) for at, before, after in world.pushes),
        said=said,
        shown={  # what only follows an execution is always up to date
            f"{kind}.{ran.execution.id}": Shown("", ran.life.state, moment(0))
            for ran in executions
            for kind in ("status", "check")
        },
        plans=known.plans,
        approvals=known.approvals,
        executions=executions,
        answers=answers,
    )


# ── What the bot does ────────────────────────────────────────────────────────────────────────


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
        for drive in follow.ongoing(seen):
            effects += _effects(world, seen, drive)
    if not effects:
        answers = Answers(world)
        seen = thread(world, answers)
        due = decide(seen, _known(world.records).paths)
        if due.questions:
            raise AssertionError(f"{due.questions} were asked, and had their answers")
        for action in due.actions[:MOST_AT_ONCE]:
            effects += _effects(world, seen, action)
        if not due.actions and world.inbox:
            effects = [("handled", tuple(dict.fromkeys(world.inbox)))]
        asked = answers.asked
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
        case Say(key=key) | Check(key=key):
            kind = "comment" if isinstance(action, Say) else "check"
            yield from (("claim", key, kind), ("make", key), ("done", key))
        case React(comment=comment, content=content):
            yield from (("react", comment, content), ("noted", action.key))
        case Show(key=key, final=final):
            yield ("noted", key) if final else ("shown",)
        case Write(path=path, record=found):
            yield "write", path, fact(found)
        case Drive(execution=execution, action=step):
            yield from _steps(world, seen, execution, step)
        case _:
            raise AssertionError(f"the model does not know how to {action}")


def _steps(
    world: World, seen: Thread, execution: str, step: lifecycle.Action
) -> Iterator[Effect]:
    folder = f"executions/{execution}"
    match step:
        case lifecycle.Claim(name):
            claimed = record.Claimed(at=seen.now, nonce="n", spec_sha256=synthetic.sha("spec"))
            yield "write", f"{folder}/{name}.claimed", fact(claimed)
        case lifecycle.Submit(name):
            from tests.protocol.invariants import may_launch

            yield "submit", execution, name, may_launch(world, execution, name)
        case lifecycle.Confirm(name):
            yield "write", f"{folder}/{name}.started", fact(record.Started(at=seen.now))
        case lifecycle.End(name, how, why):
            yield "write", f"{folder}/{name}.ended", fact(record.Ended(at=seen.now, how=how, why=why))
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
            if any(key == known for known, _, _ in world.said):
                return replace(world, due=rest[2:])
            said = tuple(sorted((*world.said, (key, kind, False))))
            return replace(world, due=rest, said=said)
        case "make", [key]:
            made = (
                Made(key, world.now, len(world.pushes)) if key.startswith("plan.") else Made(key)
            )
            return replace(world, due=rest, made=(*world.made, made))
        case "done", [key]:
            said = tuple([(k, kind, done or k == key) for k, kind, done in world.said])
            return replace(world, due=rest, said=said)
        case "noted", [key]:
            if any(key == known for known, _, _ in world.said):
                return replace(world, due=rest)
            return replace(world, due=rest, said=tuple(sorted((*world.said, (key, "done", True)))))
        case "react", [comment, content]:
            return replace(world, due=rest, reactions=world.reactions | {(comment, content)})
        case "shown", []:
            return replace(world, due=rest)
        case "write", [path, found]:
            if any(path == known for known, _ in world.records):
                return replace(world, due=rest)
            records = tuple(sorted((*world.records, (path, found)), key=lambda pair: pair[0]))
            return replace(world, due=rest, records=records)
        case "submit", [execution, attempt, fault]:
            if any(job[:2] == (execution, attempt) for job in world.jobs):
                return replace(world, due=rest)
            jobs = (*world.jobs, Job(execution, attempt, "running"))
            return replace(world, due=rest, jobs=jobs, fault=world.fault or fault)
        case "handled", [seen]:
            inbox = tuple(item for item in world.inbox if item not in seen)
            return _forget(replace(world, due=rest, inbox=inbox))
    raise AssertionError(f"the model does not know the effect {name}")


def _forget(world: World) -> World:
    """Without what can make no difference any more: the words of commands that are answered; and of
    those that were refused all but the newest comment, since one can stand for all."""
    answers = {one.of.command: one.of for _, one in world.records
               if isinstance(one.of, record.Approval)}
    written, old = [], []
    idle = [one.message.of for one in world.written if one.message.of.id not in world.inbox]
    no = [message.id for message in idle
          if message.via == "comment" and not answers[message.key(0)].approved]
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
        name for message in old
        for name in (f"react.{message.id}.", f"refused.{message.key(0)}")
    )
    paths = {f"approvals/{THREAD.repository}/{THREAD.number}/{message.key(0)}" for message in old}
    return replace(
        world,
        written=tuple(written),
        records=tuple(one for one in world.records if one[0] not in paths),
        said=tuple(one for one in world.said if not one[0].startswith(gone)),
        made=tuple(one for one in world.made if not one.key.startswith(gone)),
        reactions=frozenset(
            one for one in world.reactions if one[0] not in {message.id for message in old}
        ),
    ) if gone or tuple(written) != world.written else world


def die(world: World) -> World:
    """The bot's process is gone, and with it what it had decided and what it remembered."""
    return replace(world, due=(), deaths=world.deaths - 1)


def is_open(world: World) -> bool:
    """Whether it makes a difference that something happens now, and not after the bot's next step.
    It does before a look, and before a plan's comment gets its time."""
    if not world.due:
        return True
    name, *about = world.due[0]
    return name == "watch" or (name == "make" and not is_quiet(world.due[0]))
