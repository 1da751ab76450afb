"""What the rules see of a `World`: the thread, and the answers to whatever they ask."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from bot.model.keys import CommandKey, Key
from bot.model.questions import Question
from bot.model.thread import Contributions, Finding, Pull, Push, Ran, Review, Said, Shown, Thread
from runner.execution import lifecycle
from runner.schema import record
from runner.store.leases import LeaseState
from tests import synthetic
from tests.protocol.world import (
    BASE,
    CODES,
    PLANS,
    POLICIES,
    THREAD,
    A,
    Fact,
    Job,
    World,
    moment,
)


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
        self.asked.add(question[0])
        match question:
            case ("pull",):
                return Pull(
                    head=world.head,
                    base=BASE,
                    open=True,
                    draft=False,
                    base_ref=world.base_ref,
                    head_repository=world.head_repository,
                )
            case ("role", "grace"):
                return world.role
            case ("role", *_):
                return "write"
            case ("refusal", *_):
                return None
            case ("finding", *_):
                return Finding("experiments/warm", plan=PLANS[world.lab])
            case ("policy",):
                return POLICIES[world.policy]
            case ("contributions",):
                return Contributions(synthetic.ADA.id, ())
            case ("forced",):  # B may come after A, and A never after B
                return tuple(Push(moment(at), after) for at, _, after in world.pushes if after == A)
            case ("code", n):
                return CODES[n]
            case ("replan", *_):
                return PLANS[world.lab].fingerprint
            case ("registration", *_):
                return None  # it decides about words only
            case ("review", id):
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
                    if one.message.of.id == id
                )
        raise AssertionError(f"the model has no answer to {question}")


class Known(NamedTuple):
    """The records, as the rules want them."""

    plans: tuple[record.PlanRecord, ...]
    approvals: Mapping[CommandKey, record.Approval]
    answered: Mapping[CommandKey, record.Answered]
    paths: frozenset[str]


@lru_cache(maxsize=1 << 16)
def known(records: tuple[tuple[str, Fact], ...]) -> Known:
    found = [one.of for _, one in records]
    plans = [one for one in found if isinstance(one, record.PlanRecord)]
    approvals = [one for one in found if isinstance(one, record.Approval)]
    return Known(
        tuple(sorted(plans, key=lambda plan: plan.n)),
        {CommandKey.parse(one.command): one for one in approvals},
        {CommandKey.parse(one.command): one for one in found if isinstance(one, record.Answered)},
        frozenset(path for path, _ in records),
    )


@lru_cache(maxsize=1 << 16)
def _executions(
    records: tuple[tuple[str, Fact], ...],
    jobs: tuple[Job, ...],
    withdrawn: frozenset[tuple[str, str]],
) -> tuple[Ran, ...]:
    by_path = {path: one.of for path, one in records}
    states = {job[:2]: job.state for job in jobs}
    lives = []
    for approval in sorted(known(records).approvals.values(), key=lambda approval: approval.at):
        folder = f"executions/{approval.execution}"
        if not approval.approved or f"{folder}/execution" not in by_path:
            continue
        attempts = []
        for number in range(1, record.MOST_ATTEMPTS + 1):  # no job of this world gets further
            name = f"t{number}"
            if (claimed := by_path.get(f"{folder}/{name}.claimed")) is None:
                continue
            state: lifecycle.Job = states.get((approval.execution, name), "unknown")
            attempts.append(
                lifecycle.Attempt(
                    name=name,
                    folder=f"{approval.execution}.{name}",
                    claimed=claimed,
                    started=f"{folder}/{name}.started" in by_path,
                    ended=by_path.get(f"{folder}/{name}.ended"),
                    job=state,
                    lease=LeaseState(
                        started=state != "unknown",
                        withdrawn=(approval.execution, name) in withdrawn,
                    ),
                )
            )
        life = lifecycle.Facts(
            execution=by_path[f"{folder}/execution"],
            attempts=tuple(attempts),
            cancelled=by_path.get(f"{folder}/cancelled"),
            voided=by_path.get(f"{folder}/voided"),
            result=by_path.get(f"{folder}/result"),
        )
        lives.append(Ran(life, None))
    return tuple(lives)


def thread(world: World, answers: Mapping[Question, Any]) -> Thread:
    """The thread as `bot.controller.observer` would put it together."""
    records = known(world.records)
    executions = _executions(world.records, world.jobs, world.withdrawn)
    comments = {made.key: (1000 + n, made.at) for n, made in enumerate(world.made)}
    said = {}
    for key, kind, done in world.said:
        id, at = comments.get(key, (0, 0))
        said[Key.parse(key)] = Said(kind, id, moment(at)) if done else Said(kind, None, None)
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
            Key(kind, ran.execution.id): Shown("", ran.life.state, moment(0))
            for ran in executions
            for kind in ("status", "check")
        },
        plans=records.plans,
        approvals=records.approvals,
        answered=records.answered,
        executions=executions,
        answers=answers,
    )
