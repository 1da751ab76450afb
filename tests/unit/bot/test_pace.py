"""One budget of writes: it is kept, the important goes first, and nothing starves."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.controller import reconciler
from bot.controller.causes import UNKNOWN, caused_by, rank_of
from bot.controller.freshness import Freshness
from bot.controller.thread_queue import ThreadQueue
from bot.controller.write_budget import (
    ANSWER,
    FIGURES,
    GROWS_AFTER,
    LIMITS,
    PERSON,
    PICTURE_WRITES,
    POOL,
    STATE,
    THREAD,
    Cause,
    Pace,
    Rank,
    importance,
)
from bot.controller.write_log import WriteLog, lately
from bot.model.actions import Action, Check, Drive, Picture, React, Say, Show, Write
from bot.model.keys import CommandKey, Key
from bot.model.policy_file import Policy
from bot.model.questions import Question
from bot.model.thread import Message, Ran, Said, Shown, Thread, ThreadId
from bot.rules import decide as rules
from runner.execution import lifecycle
from runner.execution.progress import Progress, RunProgress
from runner.schema import record
from runner.schema.record import Person
from runner.store.leases import LeaseState
from runner.store.store import Store, StoreError
from tests import synthetic
from tests.examples import examples
from tests.unit.bot.test_decide import HEAD, KNOWN, PLANNED, SAID, issue, pull, ran


def most_in(span: float, at: Iterable[float]) -> int:
    """The most of these moments that lie in one span of this length."""
    times = sorted(at)
    first, most = 0, 0
    for last, moment in enumerate(times):
        while times[first] <= moment - span:
            first += 1
        most = max(most, last - first + 1)
    return most


@dataclass
class Player:
    """Writes as soon as it is let, on a clock of its own."""

    pace: Pace = field(default_factory=Pace)
    now: float = 0.0
    written: list[tuple[float, str]] = field(default_factory=list)

    def ask(self, what: str, level: int) -> float:
        wait = self.pace.wait(what, level, self.now)
        if not wait:
            self.pace.wrote(self.now)
            self.written.append((self.now, what))
        return wait

    def until_written(self, what: str, level: int) -> None:
        while wait := self.ask(what, level):
            self.now += wait


def test_a_refused_write_is_told_when_to_ask_again() -> None:
    player = Player()
    for n in range(80):
        assert player.ask(f"a{n}", ANSWER) == 0
    wait = player.ask("late", ANSWER)
    assert wait == 60
    player.now += wait - 1
    assert player.ask("late", ANSWER) == 1
    player.now += 1
    assert player.ask("late", ANSWER) == 0


def test_figures_leave_room_for_answers() -> None:
    player = Player()
    while not player.ask(f"figure {len(player.written)}", FIGURES):
        pass
    assert len(player.written) == 40
    while not player.ask(f"state {len(player.written)}", STATE):
        pass
    assert len(player.written) == 64
    for n in range(16):
        assert player.ask(f"answer {n}", ANSWER) == 0


def test_waiting_writes_go_by_importance_then_age() -> None:
    player = Player(Pace(((10.0, 5),)))
    for n in range(5):
        player.until_written(f"{n}", ANSWER)
        player.now += 1.9
    for what, level in (("older", STATE), ("newer", STATE), ("answer", ANSWER)):
        assert player.ask(what, level)
        player.now += 0.1
    asked = [("newer", STATE), ("older", STATE), ("answer", ANSWER)]
    while asked:
        player.now += 0.1
        asked = [(what, level) for what, level in asked if player.ask(what, level)]
    assert [what for _, what in player.written[5:]] == ["answer", "older", "newer"]


def test_an_abandoned_write_blocks_nobody() -> None:
    player = Player(Pace(((10.0, 1),)))
    player.until_written("first", ANSWER)
    assert player.ask("gone", ANSWER)
    player.now += 75
    assert player.ask("next", ANSWER) == 0


def test_a_waiting_write_grows_in_importance() -> None:
    player = Player(Pace(((60.0, 10),)))
    asked_at = player.now
    assert [player.ask(f"figure {n}", FIGURES) for n in range(5)] == [0] * 5
    waits = 0
    while player.ask("starving", FIGURES):
        # Every second an answer, six times of what may be written.
        player.now += 1
        waits += 1
        player.pace.wait(f"answer {waits}", ANSWER, player.now)
        for other in range(max(1, waits - 3), waits + 1):
            player.ask(f"answer {other}", ANSWER)
    assert player.now - asked_at <= 2 * GROWS_AFTER + 60


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.sampled_from([FIGURES, STATE, ANSWER])),
        min_size=1,
        max_size=200,
    )
)
def test_no_span_ever_holds_more_than_its_limit_and_everything_is_written(
    wanted: list[tuple[float, int]],
) -> None:
    limits = ((10.0, 4), (100.0, 20))
    player = Player(Pace(limits))
    waiting: dict[str, tuple[float, int]] = {}
    for n, (gap, level) in enumerate(wanted):
        waiting[f"{n}"] = (player.now, level)
        until = player.now + gap
        while waiting:
            due = min(waiting, key=lambda name: waiting[name][0])
            if waiting[due][0] > until and n + 1 < len(wanted):
                break
            player.now = max(player.now, waiting[due][0])
            _, level = waiting.pop(due)
            if wait := player.ask(due, level):
                assert wait > 0
                waiting[due] = (player.now + wait, level)
        player.now = max(player.now, until)
    assert len(player.written) == len(wanted)
    for span, most in limits:
        assert most_in(span, [at for at, _ in player.written]) <= most


def test_a_new_state_is_more_important_than_figures_and_less_than_an_answer() -> None:
    thread = pull(shown={Key.parse("status.x"): Shown("", "running", synthetic.START)})
    show = Show(Key.parse("status.x"), "body", "running", final=False)
    assert importance(thread, show) == FIGURES
    assert importance(thread, replace(show, state="done", final=True)) == STATE
    assert importance(pull(), replace(show, final=True)) == STATE
    assert importance(pull(), show) == FIGURES
    assert importance(thread, Show(Key.parse("plan.1"), "body", "folded", final=True)) == FIGURES
    assert importance(thread, Say(Key.parse("result.x"), "body")) == ANSWER
    assert importance(thread, React(1, "eyes")) == ANSWER
    assert importance(thread, Write("x", PLANNED)) is None
    assert importance(thread, Drive("x", lifecycle.Submit("t1"))) is None


# ── A day ────────────────────────────────────────────────────────────────────────────────────

MINUTES = 20  # that an execution trains


@dataclass
class Day:
    """GitHub, store and Ray of a lab in which nothing goes wrong, all in memory."""

    seconds: float = 0.0
    id: int = 7
    requests: int = 0
    on_write: Any = None
    threads: dict[ThreadId, Thread] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)  # by execution
    asked: dict[tuple[ThreadId, str], float] = field(default_factory=dict)  # first due
    written: list[tuple[float, ThreadId, str, int]] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    shown: dict[ThreadId, dict[Key, Shown]] = field(default_factory=lambda: defaultdict(dict))

    def now(self) -> Any:
        return synthetic.START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def outages(self) -> tuple[bool, int]:
        return False, 0

    def unposted(self, *_: ThreadId) -> dict[Key, str]:
        return {}

    # What `Reconciler` wants of its observer.

    def thread(
        self, id: ThreadId, shown: Mapping[Key, Shown], answers: Mapping[Question, Any], *_: Any
    ) -> tuple[Thread, list[str]]:
        thread = self.threads[id]
        executions = tuple(self._ran(one) for one in thread.executions)
        return (
            replace(
                thread, now=self.now(), shown=dict(shown), answers=answers, executions=executions
            ),
            [],
        )

    def _ran(self, one: Ran) -> Ran:
        begun = self.begun.get(one.execution.id)
        if begun is None:
            return one
        fraction = min(1.0, (self.seconds - begun) / (60 * MINUTES))
        life = one.life
        lease = LeaseState(started=True)
        attempt = replace(life.attempts[0], started=True, job="running", lease=lease)
        over = record.Result(at=self.now(), state="cancelled", why="words")
        life = replace(life, attempts=(attempt,), result=over if fraction == 1 else None)
        runs = (RunProgress("fast", 0, int(1e6 * fraction), 1_000_000, 3.0 - fraction, 1e4),)
        return replace(one, life=life, progress=Progress(runs, int(1e9 * fraction), 10**9, 1e4))

    # … of who answers questions …

    def answer(self, _: ThreadId, question: Question) -> Any:
        return "maintain" if question[0] == "role" else KNOWN.get(question)

    # … and of its actor.

    def finish(self, _: ThreadId) -> bool:
        return True

    def again(self, _: ThreadId) -> None:
        return None

    def act(self, thread: Thread, action: Action) -> None:
        if isinstance(action, Write):
            self.recorded.add(action.path)
        id, known = thread.id, self.threads[thread.id]
        match action:
            case Say() | Check() | React() | Picture():
                done = {**known.said, action.key: Said("done", 1, self.now(), "done")}
                self.threads[id] = replace(known, said=done)
                body = action.body if isinstance(action, Say) else ""
                self._note(thread, action, action.key, body)
            case Show():
                if action.final:
                    self.threads[id] = replace(known, said={**known.said, action.key: SAID})
                self._note(thread, action, action.of, action.body)
            case Write(record=record.Approval() as made):
                self.threads[id] = replace(known, approvals={CommandKey.parse(made.command): made})
            case Write(record=record.Execution() as made):
                one = ran(of=next(iter(known.approvals.values())))
                life = replace(one.life, execution=made)
                self.threads[id] = replace(known, executions=(replace(one, life=life),))
            case Drive(execution=execution, action=lifecycle.Submit()):
                self.begun[execution] = self.seconds

    def _note(self, thread: Thread, action: Any, key: Key, body: str) -> None:
        state = getattr(action, "state", "")
        self.shown[thread.id][key] = Shown(body, state, self.now())
        level = importance(thread, action)
        assert level is not None
        for _ in range(PICTURE_WRITES if isinstance(action, Picture) else 1):
            self.on_write(self.seconds)
            self.written.append((self.seconds, thread.id, f"{type(action).__name__} {key}", level))


class Leads:
    """Nobody else is there."""

    def held(self) -> bool:
        return True


def a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Iterable[float]) -> Day:
    """Play executions whose `/run` is written at these seconds until all has been said."""
    slow = timedelta(seconds=15)  # a look every two seconds would show the same
    monkeypatch.setattr(rules, "POLL_EVERY", slow)
    monkeypatch.setattr(reconciler, "POLL_EVERY", slow)
    day = Day()
    day.threads[ThreadId(7, 1)] = issue()
    bot = reconciler.Reconciler(
        Store(tmp_path),
        day,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        monotonic=day.monotonic,
    )
    bot._observer = bot._asked = bot._actor = bot._actions.actor = day  # type: ignore[assignment]
    bot._freshness = Freshness(day)  # type: ignore[arg-type]
    bot._lead = lambda: True  # type: ignore[method-assign]
    bot._leadership = Leads()  # type: ignore[assignment]
    bot._recorded = day.recorded  # type: ignore[assignment]
    coming = sorted(runs)
    for n in itertools.count(1):
        while coming and coming[0] <= day.seconds:
            at, number = coming.pop(0), 99 + len(day.threads)
            message = Message(number, synthetic.GRACE, day.now() + timedelta(seconds=60), "/run")
            hour_ago = synthetic.START + timedelta(seconds=at - 3600)
            plan = PLANNED.model_copy(update={"pull": number, "commit": HEAD, "at": hour_ago})
            said = {Key.parse("plan.1"): replace(SAID, at=hour_ago)}
            id = ThreadId(7, number)
            day.threads[id] = pull(
                id=id, plans=(plan,), messages=(message,), answers={},
                said={**said, Key.parse("check.plan.1"): SAID},
            )  # fmt: skip
            bot.wake(id)
        wait = bot.work()
        assert not bot._failures
        if wait is None and not coming:
            return day
        next_one = coming[0] - day.seconds if coming else float("inf")
        day.seconds += max(0.05, min(wait if wait is not None else float("inf"), next_one))
        assert n < 10**6
    raise AssertionError("a day without an end")


def test_a_day_of_forty_executions_stays_within_the_budget_and_starves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    morning = [60.0 * 30 * n for n in range(12)]
    noon = [6 * 3600 + 7.0 * n for n in range(20)]  # twenty at once
    evening = [12 * 3600 + 60.0 * 45 * n for n in range(8)]
    day = a_day(tmp_path, monkeypatch, morning + noon + evening)
    assert len(day.begun) == 40
    times = [at for at, *_ in day.written]
    for span, most in LIMITS:
        assert most_in(span, times) <= most
    assert most_in(3600, times) > 200  # noon would be more than the budget
    asked_at = dict(zip(sorted(day.threads)[1:], sorted(morning + noon + evening), strict=True))
    del day.threads[ThreadId(7, 1)]
    for id, thread in day.threads.items():
        (execution,) = [one.execution.id for one in thread.executions]
        mine = {what: at for at, of, what, _ in day.written if of == id}
        assert mine[f"React react.{id.number}.eyes"] - asked_at[id] <= 5
        assert mine[f"React react.{id.number}.rocket"] - asked_at[id] <= 60
        assert day.begun[execution] - asked_at[id] <= 60  # a launch waits for no figure
        over = day.begun[execution] + 60 * MINUTES
        assert mine[f"Say result.{execution}"] - over <= 60
        assert mine[f"Show status.{execution}"] - over <= 2 * GROWS_AFTER
    edits = defaultdict(list)
    for at, id, what, level in day.written:
        if what.startswith("Show status") and level == FIGURES:
            edits[id].append(at)
    for id, moments in edits.items():
        gaps = [after - before for before, after in itertools.pairwise(moments)]
        assert min(gaps) >= 30, id
        assert max(gaps) <= 2 * GROWS_AFTER + 60, id  # also at noon each is edited
    assert len(edits) == 40


# ── Shares ───────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 20),
            st.sampled_from(Rank),
            st.integers(1, 12),  # accounts
            st.integers(1, 3),  # threads
            st.sampled_from([FIGURES, STATE, ANSWER]),
        ),
        min_size=50,
        max_size=300,
    )
)
def test_no_rank_ever_writes_more_than_its_part_however_many_write(
    wanted: list[tuple[float, Rank, int, int, int]],
) -> None:
    limits = ((60.0, 80), (3600.0, 120))
    pace, now, written = Pace(limits), 0.0, list[tuple[float, Cause]]()
    for n, (gap, rank, by, thread, level) in enumerate(wanted):
        now += gap
        cause = Cause(rank, by + 100 * rank if rank else 0, thread)
        if not pace.wait((thread, n), level, now, cause=cause):
            pace.wrote(now, cause)
            written.append((now, cause))
    for span, limit in limits:
        for rank in Rank:
            below = [at for at, cause in written if cause.rank >= rank]
            assert most_in(span, below) <= limit * POOL[rank]
        for by in {cause.by for _, cause in written} - {0}:
            (rank,) = {cause.rank for _, cause in written if cause.by == by}
            of_one = [at for at, cause in written if cause.by == by]
            assert most_in(span, of_one) <= max(1, limit * PERSON[rank] * (2 if span < 3600 else 1))
        for thread in (1, 2, 3):
            on_one = [
                at for at, one in written if one.rank == Rank.STRANGER and one.thread == thread
            ]
            assert most_in(span, on_one) <= limit * THREAD[Rank.STRANGER]


def test_strangers_without_number_leave_room_for_who_may_approve_and_for_results() -> None:
    pace = Pace()
    for n in range(1000):
        cause = Cause(Rank.STRANGER, n + 1, n % 50)
        if not pace.wait((n % 50, n), ANSWER, 0.0, cause=cause):
            pace.wrote(0.0, cause)
    approver = [Cause(Rank.APPROVER, 7, 1)] * 20
    lab = [Cause(Rank.LAB)] * 20
    for n, cause in enumerate(approver + lab):
        assert pace.wait((1, f"x{n}"), ANSWER, 0.0, cause=cause) == 0
        pace.wrote(0.0, cause)


def test_of_strangers_who_wait_goes_first_who_wrote_least() -> None:
    pace = Pace(((100.0, 20),))
    for n in range(7):  # all that strangers may
        cause = Cause(Rank.STRANGER, n + 1, n)
        assert pace.wait((n, n), ANSWER, float(n), cause=cause) == 0
        pace.wrote(float(n), cause)
    much, new = Cause(Rank.STRANGER, 4, 9), Cause(Rank.STRANGER, 9, 9)
    late = [pace.wait((9, name), ANSWER, 99.0, cause=cause)
            for name, cause in (("much", much), ("new", new))]  # fmt: skip
    assert all(late)
    now = 99.0 + max(late)
    assert pace.wait((9, "much"), ANSWER, now, cause=much) > 0
    assert pace.wait((9, "new"), ANSWER, now, cause=new) == 0


def test_the_writes_of_an_hour_are_known_to_the_next_process(tmp_path: Path) -> None:
    store, now = Store(tmp_path), synthetic.START
    log = WriteLog(store, 7)
    for minutes in (0, 30, 50):
        log.add(now + timedelta(minutes=minutes), Cause(Rank.STRANGER, 12, minutes))
    at = now + timedelta(minutes=70)
    assert [cause.thread for _, cause in lately(store, 7, at)] == [30, 50]
    WriteLog(store, 7).add(at, Cause(Rank.LAB))
    assert len(store.list("writes/7")) == 3, "the first counts no longer"
    assert lately(store, 8, at) == []


def test_a_full_disk_loses_no_outcome_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> bool:
        raise StoreError("no space left")

    store = Store(tmp_path)
    monkeypatch.setattr(Store, "create", full)
    WriteLog(store, 7).add(synthetic.START, Cause(Rank.LAB))
    assert "cannot be recorded" in caplog.text


def test_each_thread_has_its_turn_and_those_of_approvers_come_first() -> None:
    now = [0.0]
    approvers = ThreadId(7, 99)
    queue = ThreadQueue(lambda: now[0], lambda id: id == approvers)
    for n in range(1, 20):
        queue.put(ThreadId(7, n))
    queue.put(ThreadId(7, 50), live=True)
    now[0] = 1.0
    queue.put(approvers)
    order = [queue.take() for _ in range(7)]
    assert [id.number for id in order if id] == [99, 50, 1, 2, 3, 4, 5]
    queue.begin(ThreadId(7, 1), live=False, first=False)
    assert not queue.is_outranked()
    queue.put(approvers)
    assert queue.is_outranked(), "a stranger's turn ends when a command of an approver comes"
    queue.begin(approvers, live=False, first=True)
    queue.put(ThreadId(7, 50), live=True)
    seen = []
    for _ in range(40):  # however much is due of others, each fourth turn is the oldest thread's
        queue.put(approvers)
        id = queue.take()
        seen.append(id.number if id else 0)
    assert {6, 7, 8, 9} <= set(seen)


SAM = Person(login="sam", id=9)


# ── Causes ───────────────────────────────────────────────────────────────────────────────────


def test_who_causes_what() -> None:
    by_sam = replace(Message(50, synthetic.GRACE, synthetic.START, "/help"), author=SAM)
    thread = pull(messages=(by_sam,), plans=(PLANNED,))
    author = PLANNED.model_copy(update={"author": synthetic.ADA})

    def cause(key: str, thread: Thread = thread) -> Person | None:
        return caused_by(thread, Say(Key.parse(key), "body"))

    assert caused_by(thread, React(by_sam.id, "eyes")) == SAM
    for key in ("help.50-0", "status-of.50-1", "hint.50", "refused.50-0", "plan.50-0"):
        assert cause(key) == SAM, key
    for key in ("result.x1", "status.x1", "check.x1", "verdict.x1", "label.running.x1"):
        assert cause(key) is None, key
    assert cause("plan.1", replace(thread, plans=(author,))) == synthetic.ADA
    assert cause("check.plan.1", replace(thread, plans=(author,))) == synthetic.ADA
    answered = record.Answered(
        command="60-0", what="plan", by=synthetic.GRACE, at=synthetic.START, yes=True, plan=1
    )
    asked = replace(thread, plans=(author,), answered={CommandKey.parse("60-0"): answered})
    assert cause("plan.1", asked) == synthetic.GRACE, "who asked for a plan causes it"
    assert cause("help.77-0") == UNKNOWN, "nobody knows: a stranger"
    assert cause("label.planned.0", issue(seal=None)) == UNKNOWN


def test_the_rank_of_a_role() -> None:
    policy = Policy(agents={"a[bot]": {"sponsor": "grace", "device_hours_per_month": 1}})  # type: ignore[dict-item]
    broken = Policy(problems=("it is empty",))
    for role, rank in (
        ("maintain", Rank.APPROVER),
        ("write", Rank.MEMBER),
        ("read", Rank.STRANGER),
        ("none", Rank.STRANGER),
    ):
        assert rank_of(policy, SAM, role) == rank
    assert rank_of(broken, SAM, "maintain") == Rank.APPROVER, "who may still stop"
    assert rank_of(policy, Person(login="a[bot]", id=5), "admin") == Rank.MEMBER
