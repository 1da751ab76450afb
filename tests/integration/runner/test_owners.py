"""Who holds a lease is a process, and one that has ended on this very machine is not waited for."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.lib import process_owner
from runner.lib.canonical_json import to_json
from runner.store.artifacts import Start, make, newest
from runner.store.leases import STALE_AFTER, Leadership
from runner.store.store import Store
from tests.runner.maker_process import FINGERPRINT, NAME

ROOT = Path(__file__).parents[3]
LEADS = """
import sys, time
from pathlib import Path
from runner.store.leases import Leadership
from runner.store.store import Store
leadership = Leadership(Store(Path(sys.argv[1])), "bot")
while True:
    print("leads" if leadership.held() else "follows", flush=True)
    time.sleep(0.2)
"""
SAYS_WHO = "from runner.lib import process_owner as owners; print(owners.me(), flush=True); input()"

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
LIVING, DEAD = "a process that lives", "one that has ended"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def said() -> Iterator[dict[str, str]]:
    """What two other processes of this machine call themselves."""
    with _says_who() as living, _says_who() as ended:
        names = {LIVING: _line(living), DEAD: _line(ended)}
        ended.kill()
        ended.wait()
        yield names
        living.kill()


def _says_who(*before: str) -> "subprocess.Popen[str]":
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([*before, sys.executable, "-c", SAYS_WHO], cwd=ROOT, text=True, **pipes)


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def with_part(name: str, part: int, said: Callable[[str], str]) -> str:
    """The name of a process, of which one part is another."""
    parts = name.split()
    parts[part] = said(parts[part])
    return " ".join(parts)


BOOT, PIDS, TIMES, PID, BEGAN = range(5)
# How the words that name a process differ, and whether it has certainly ended.
NAMES: dict[str, tuple[Callable[[dict[str, str]], str], bool]] = {
    "a process that lives": (lambda said: said[LIVING], False),
    "one that was killed": (lambda said: said[DEAD], True),
    "this very one": (lambda _: process_owner.me(), False),
    "a number that was used again": (
        lambda said: with_part(said[LIVING], BEGAN, lambda ticks: str(int(ticks) - 1)),
        True,
    ),
    "one of another boot, or another machine": (
        lambda said: with_part(said[DEAD], BOOT, lambda _: "0c412859-0000-42bc-8dcb-8f4e1bc3c9ab"),
        False,
    ),
    "one of another container": (
        lambda said: with_part(said[DEAD], PIDS, lambda _: "pid:[4026530000]"),
        False,
    ),
    "one that counts time from another moment": (
        lambda said: with_part(said[DEAD], TIMES, lambda _: "time:[4026530000]"),
        False,
    ),
    "everybody": (lambda said: with_part(said[DEAD], PID, lambda _: "-1"), False),
    "our group": (lambda said: with_part(said[DEAD], PID, lambda _: "0"), False),
    "no number": (lambda said: with_part(said[DEAD], PID, lambda _: "²"), False),
    "a number that no process has": (
        lambda said: with_part(said[DEAD], PID, lambda _: "9" * 30),
        False,
    ),
    "half a name": (lambda said: said[DEAD].rpartition(" ")[0], False),
    "more than a name": (lambda said: f"{said[DEAD]} 1", False),
    "nobody, as an older lab has written": (lambda _: "", False),
}


@pytest.mark.parametrize(("name", "ended"), NAMES.values(), ids=NAMES)
def test_a_process_has_certainly_ended_only_where_this_machine_can_tell(
    said: dict[str, str], name: Callable[[dict[str, str]], str], ended: bool
) -> None:
    assert process_owner.has_ended(name(said)) == ended


def test_a_killed_but_unreaped_process_has_ended() -> None:
    with _says_who() as process:
        name = _line(process)
        assert not process_owner.has_ended(name)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie, and it stays one
        assert process_owner.has_ended(name)


def test_a_stopped_process_is_alive() -> None:
    with _says_who() as process:
        name = _line(process)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert not process_owner.has_ended(name)
        process.kill()


def test_a_process_that_sees_the_numbers_of_others_has_no_name(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    """As in a container whose /proc is its machine's."""
    monkeypatch.setattr(os, "getpid", lambda: 2)
    assert process_owner.me() == ""
    assert not process_owner.has_ended(said[DEAD])


def test_a_process_in_a_container_is_neither_known_outside_nor_knows_who_is() -> None:
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    with _says_who(*inside) as process:
        name = _line(process)
        if not name:
            assert process.wait(10), "it can be made, and says nothing"
            return  # this machine makes none; NAMES has what it would say
        assert name.split()[BOOT] == process_owner.me().split()[BOOT]
        assert name.split()[PIDS] != process_owner.me().split()[PIDS]
        assert process.stdin
        process.stdin.close()
        process.wait(10)
        assert not process_owner.has_ended(name)


# ── Who leads ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "ended"), NAMES.values(), ids=NAMES)
def test_the_lead_of_one_that_has_ended_here_is_taken_at_once_and_any_other_when_it_is_stale(
    store: Store, said: dict[str, str], name: Callable[[dict[str, str]], str], ended: bool
) -> None:
    now = 1000.0
    lease = {"holder": "another", "process": name(said)}
    store.create("leases/bot/000000000007.json", to_json(lease))
    first, second = (Leadership(store, "bot", lambda: now) for _ in range(2))
    assert first.held() == ended
    assert not second.held()
    if not ended:
        now += STALE_AFTER - 0.1
        assert not first.held()
        now += 0.1
        assert first.held()
    assert (
        json.loads(store.require("leases/bot/000000000008.json"))["process"] == process_owner.me()
    )


def test_an_old_lease_without_a_process_is_taken_when_stale(store: Store) -> None:
    now = 1000.0
    store.create("leases/bot/000000000007.json", b'{"holder":"another"}\n')
    leadership = Leadership(store, "bot", lambda: now)
    assert not leadership.held()
    now += STALE_AFTER
    assert leadership.held()


def test_the_successor_of_a_killed_leader_leads_within_five_seconds(store: Store) -> None:
    def another() -> "subprocess.Popen[str]":
        lead = [sys.executable, "-c", LEADS, str(store.root)]
        return subprocess.Popen(lead, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    with another() as first:
        assert _line(first) == "leads"
        with another() as second:
            assert [_line(second) for _ in range(5)] == ["follows"] * 5
            first.send_signal(signal.SIGSTOP)  # it lives
            assert [_line(second) for _ in range(5)] == ["follows"] * 5
            first.kill()  # and stays a zombie
            killed = time.monotonic()
            while _line(second) == "follows":
                assert time.monotonic() - killed < 5
            assert time.monotonic() - killed < 5
            second.kill()


# ── Who makes a step ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "ended"), NAMES.values(), ids=NAMES)
def test_a_maker_that_has_ended_here_is_followed_at_once_and_any_other_when_it_is_stale(
    store: Store, said: dict[str, str], name: Callable[[dict[str, str]], str], ended: bool
) -> None:
    now, slept = 1000.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now, slept
        now, slept = now + seconds, slept + 1

    begun = Start(
        name=NAME,
        fingerprint=FINGERPRINT,
        generation=1,
        maker="a" * 16,
        by="x1",
        host="here",
        process=name(said),
    )
    store.create(f"leases/{begun.lease}/start.json", begun.canonical())
    made = make(
        store,
        NAME,
        FINGERPRINT,
        lambda folder: (folder / "text").write_text("made"),
        {},
        monotonic=lambda: now,
        sleep=sleep,
    )
    assert made.manifest.generation == 2
    assert (slept == 0) == ended
    assert ended or now >= 1000 + STALE_AFTER
    start, _ = newest(store, NAME, FINGERPRINT)
    assert start
    assert start.process == process_owner.me()
    assert "process" not in made.manifest.model_dump()


def test_a_step_that_an_older_lab_began_is_read_and_followed_when_it_is_stale(
    store: Store,
) -> None:
    begun = {"name": NAME, "fingerprint": FINGERPRINT, "generation": 1, "maker": "a" * 16}
    lease = f"leases/steps/{NAME}/{FINGERPRINT[:16]}/1/start.json"
    store.create(lease, to_json(begun | {"by": "x1", "host": "here"}))
    build: Callable[[Path], object] = lambda folder: (folder / "text").write_text("made")  # noqa: E731
    made = make(store, NAME, FINGERPRINT, build, {}, stale_after=0.2)
    assert made.manifest.generation == 2
