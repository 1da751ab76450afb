"""Traces of makers as real processes, stopped, killed and continued by real signals."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.store.artifacts import find, make
from runner.store.store import Store
from tests.runner.maker_process import (
    END,
    FINGERPRINT,
    KILL,
    NAME,
    TRACES,
    Trace,
    act,
    state,
    text_of,
    write,
)

STALE = 0.5  # seconds. In a trace one runs at a time, so that none is too slow on a busy machine
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def wait_for(what: str, look: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < until, f"{what}: not within {PATIENCE} s"
        time.sleep(0.005)


class Cast:
    """Processes by name, all on one store. They are forked from one server that has the imports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.runner.maker_process"])
        self._processes: dict[str, multiprocessing.process.BaseProcess] = {}

    def start(
        self,
        who: str,
        stops: list[tuple[str, bool]],
        *,
        text: str = "",
        stale: float = STALE,
        failing: bool = False,
        work: float = 0.0,
    ) -> None:
        """`stops`: at which points to stop, or (True) to be killed. `work`: seconds of a build."""
        self._processes[who] = process = self._context.Process(
            target=act,
            args=(str(self.folder / "store"), who, text or text_of(who), stops),
            kwargs={"stale": stale, "failing": failing, "work": work},
        )
        process.start()

    def knows(self, who: str) -> bool:
        return who in self._processes

    def send(self, who: str, number: signal.Signals) -> None:
        os.kill(self._processes[who].pid or 0, number)

    def stops(self, who: str) -> None:
        """Wait until it has stopped itself."""
        process = self._processes[who].pid or 0
        wait_for(f"{who} stops", lambda: state(process) in ("T", "Z", ""))
        assert state(process) == "T", f"{who} ended before the point: {self.outcome(who)}"

    def over(self, who: str) -> bool:
        return self._processes[who].exitcode is not None

    def ends(self, who: str) -> dict[str, object]:
        """Wait until it has ended; what it says, {} if it was killed."""
        self._processes[who].join(PATIENCE)
        assert self.over(who), f"{who} waits for ever"
        return self.outcome(who)

    def outcome(self, who: str) -> dict[str, object]:
        path = self.folder / f"{who}.json"
        return dict(json.loads(path.read_bytes())) if path.exists() else {}

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[Cast]:
    cast = Cast(tmp_path.resolve())
    yield cast
    cast.close()


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES.keys())
def test_processes_that_are_stopped_killed_and_continued_agree(cast: Cast, trace: Trace) -> None:
    points: dict[str, list[tuple[str, bool]]] = {who: [] for who, _ in trace.moves}
    for who, move in trace.moves:
        if move not in (KILL, END):
            points[who].append((move, False))
    for who, move in trace.moves:
        if move == KILL:
            cast.send(who, signal.SIGKILL)
            assert cast.ends(who) == {}
            continue
        if cast.knows(who):
            cast.send(who, signal.SIGCONT)
        else:
            cast.start(who, points[who], failing=who == trace.failing)
        if move != END:
            cast.stops(who)
        elif who == trace.failing:
            assert "shard 7 has no such column" in str(cast.ends(who)["failed"])
        else:
            said = {"text": text_of(trace.wrote), "generation": trace.generation}
            assert cast.ends(who) == said


def test_a_process_that_works_longer_than_it_may_be_silent_is_not_taken_for_dead(
    cast: Cast,
) -> None:
    cast.start("a", [("after start", False)], stale=3, work=4)
    cast.stops("a")
    cast.start("b", [("sleep", False)], stale=3)
    cast.stops("b")
    cast.send("a", signal.SIGCONT)
    cast.send("b", signal.SIGCONT)
    for who in ("a", "b"):
        assert cast.ends(who) == {"text": text_of("a"), "generation": 1}


def test_a_maker_that_was_killed_is_followed_at_once_and_one_that_is_stopped_is_not(
    cast: Cast,
) -> None:
    cast.start("a", [("half", False)], stale=3600)
    cast.stops("a")
    cast.start("b", [("sleep", False), ("sleep", False)], stale=3600)
    cast.stops("b")
    cast.send("b", signal.SIGCONT)  # "a" is stopped, and lives
    cast.stops("b")
    cast.send("a", signal.SIGKILL)
    cast.send("b", signal.SIGCONT)
    killed = time.monotonic()
    assert cast.ends("b") == {"text": text_of("b"), "generation": 2}
    assert time.monotonic() - killed < 5


@pytest.mark.parametrize("seed", range(3))
def test_two_executions_share_a_step_while_their_makers_are_killed_at_seeded_points(
    cast: Cast, tmp_path: Path, seed: int
) -> None:
    text = text_of("the step")
    alone = make(
        Store(tmp_path / "alone"), NAME, FINGERPRINT, lambda x: write(x, text, lambda _: None), {}
    )
    chance = random.Random(seed)
    early = ["after start", "half", "built"]
    late = [*early, "before end", "after end", "before manifest", "after manifest"]
    deaths = {who: [chance.choice(early), chance.choice(late)] for who in ("x", "y")}
    lives, outcomes = {"x": 1, "y": 1}, {}
    until = time.monotonic() + PATIENCE
    while len(outcomes) < 2:
        assert time.monotonic() < until, f"they wait for ever: {lives}"
        for who, life in lives.items():
            name = f"{who}{life}"
            if not cast.knows(name):
                cast.start(
                    name, [(point, True) for point in deaths[who][life - 1 : life]], text=text
                )
            elif cast.over(name) and (said := cast.outcome(name)):
                outcomes[who] = said
            elif cast.over(name):
                lives[who] += 1
        time.sleep(0.005)
    assert sum(lives.values()) > 2, "nobody was killed"
    shared = find(Store(cast.folder / "store"), NAME, FINGERPRINT)
    assert shared
    assert shared.manifest.files == alone.manifest.files
    assert [said["text"] for said in outcomes.values()] == [text, text]
