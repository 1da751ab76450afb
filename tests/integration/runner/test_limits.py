"""Isolated code is told to end, has a while to do so, and ends with whoever started it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.isolation import bubblewrap, cgroups, resource_watch
from runner.isolation.bubblewrap import Box
from runner.lib import process_tree
from runner.worker import step_process
from tests.decided import KINDS

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.probe()),
    reason=f"nothing was isolated, and so not tested: {bubblewrap.probe()}",
)
POLITE = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path("ended.txt").write_text("ended")
    sys.exit(3)
signal.signal(signal.SIGTERM, end if "deaf" not in sys.argv else signal.SIG_IGN)
pathlib.Path("begun.txt").write_text("begun")
time.sleep(60)
"""
OUTSIDE = """
import sys
from pathlib import Path
from runner.isolation import bubblewrap as isolate
isolate.TERM_MAY_TAKE = 1.0
here = Path(sys.argv[1])
box = isolate.Box(writes=((here, here),), folder=here,
                  environment={"PYTHONPATH": f"{isolate.LAB}:{here}"})
print(isolate.run(box, ["polite", *sys.argv[2:]], isolate.USUAL, keep=len))
"""


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Any]:
    """Starts what starts the child, and returns it once the child runs."""
    (tmp_path / "polite.py").write_text(POLITE)
    begun: list[subprocess.Popen[str]] = []

    def start(*words: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, "-c", OUTSIDE, str(tmp_path), *words]
        begun.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        until = time.monotonic() + 30
        while not (tmp_path / "begun.txt").exists() and time.monotonic() < until:
            time.sleep(0.02)
        return begun[0]

    yield start
    for process in begun:
        process.kill()
        process.wait()


def test_a_box_that_gets_sigterm_may_end_by_itself(outside: Any, tmp_path: Path) -> None:
    process = outside()
    process.send_signal(signal.SIGTERM)
    assert "code=3" in process.communicate(timeout=30)[0]
    assert (tmp_path / "ended.txt").exists()


def test_a_box_that_ignores_sigterm_is_killed(outside: Any, tmp_path: Path) -> None:
    process = outside("deaf")
    process.send_signal(signal.SIGTERM)
    assert "code=137, why='it was told to end'" in process.communicate(timeout=30)[0]
    assert not (tmp_path / "ended.txt").exists()


def test_a_box_ends_with_its_parent(outside: Any) -> None:
    process = outside("deaf")
    before = resource_watch.usage(process.pid).tasks
    inside = process_tree.descendants(process.pid)
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while any(Path(f"/proc/{one}").exists() for one in inside) and time.monotonic() < until:
        time.sleep(0.05)
    assert before > 2
    assert not [one for one in inside if Path(f"/proc/{one}").exists()]


def test_nothing_is_left_where_no_signal_tells_it_of_its_parents_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = bubblewrap.command
    monkeypatch.setattr(
        bubblewrap,
        "command",
        lambda *asked, **more: [x for x in usual(*asked, **more) if x != "--die-with-parent"],
    )
    (tmp_path / "polite.py").write_text(POLITE)
    box = Box(
        writes=((tmp_path, tmp_path),), folder=tmp_path, environment={"PYTHONPATH": path(tmp_path)}
    )
    limits = replace(bubblewrap.USUAL, seconds=2)
    begun: list[int] = []

    def look(process: int, *asked: Any) -> str:
        begun[:] = process_tree.descendants(process)
        return usual_look(process, *asked)

    usual_look = resource_watch.beyond
    monkeypatch.setattr(resource_watch, "beyond", look)
    assert (
        bubblewrap.run(box, ["polite", "deaf"], limits, keep=len).why == "it took longer than 2 s"
    )
    assert len(begun) > 1
    assert not [one for one in begun if alive(one)]


def alive(process: int) -> bool:
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return words[0] != "Z"


STEPS = """
import sys
from runner.worker.step_process import Job
from runner.worker.fork_server import StepServer
StepServer().make(Job.read(sys.argv[1].encode()))
"""
LAST_WORDS = """
import signal, sys, time
def step(config, inputs, out):
    def end(*_):
        (out / "ended.txt").write_text("ended")
        sys.exit(3)
    signal.signal(signal.SIGTERM, end)
    (out / "begun.txt").write_text("begun")
    time.sleep(60)
"""


def test_a_step_whose_worker_was_killed_is_told_to_end_and_then_ended(tmp_path: Path) -> None:
    for name in ("out", "out.scratch", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "code" / "own.py").write_text(LAST_WORDS)
    job = step_process.Job(
        function="own:step",
        config={},
        inputs={},
        out=str(tmp_path / "out"),
        scratch=str(tmp_path / "out.scratch"),
        code=str(tmp_path / "code"),
        devices=KINDS["cpu"],
        isolation="bubblewrap",
    )
    with subprocess.Popen([sys.executable, "-c", STEPS, job.written().decode()]) as worker:
        wait_for(lambda: (tmp_path / "out" / "begun.txt").exists())
        family = process_tree.descendants(worker.pid)
        worker.kill()
    wait_for(lambda: not [one for one in family if Path(f"/proc/{one}").exists()])
    assert len(family) > 3
    assert (tmp_path / "out" / "ended.txt").exists()


PLAIN_CHILD = """
import subprocess, sys, time
def step(config, inputs, out):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (out / "begun.txt").write_text("begun")
    time.sleep(60 * config["lasts"])
"""


@pytest.mark.parametrize("lasts", [0, 1])
def test_trusted_code_leaves_no_process_either(tmp_path: Path, lasts: int) -> None:
    for name in ("out", "out.scratch", "code"):
        (tmp_path / name).mkdir()
    (tmp_path / "code" / "own.py").write_text(PLAIN_CHILD)
    job = step_process.Job(
        function="own:step",
        config={"lasts": lasts},
        inputs={},
        out=str(tmp_path / "out"),
        scratch=str(tmp_path / "out.scratch"),
        code=str(tmp_path / "code"),
        devices=KINDS["cpu"],
        isolation="trusted",
    )
    with subprocess.Popen([sys.executable, "-c", STEPS, job.written().decode()]) as worker:
        wait_for(lambda: (tmp_path / "out" / "begun.txt").exists())
        family = process_tree.descendants(worker.pid)
        if lasts:
            worker.kill()
    wait_for(lambda: not [one for one in family if alive(one)])


def wait_for(there: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not there():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert there()


# ── The kernel's limit ──


def test_a_file_is_no_larger_than_the_kernel_lets_it_be(tmp_path: Path) -> None:
    script = "open('x', 'wb').write(b'x' * (2 << 20))"
    (tmp_path / "big.py").write_text(script)
    box = Box(
        writes=((tmp_path, tmp_path),), folder=tmp_path, environment={"PYTHONPATH": path(tmp_path)}
    )
    limits = replace(bubblewrap.USUAL, file=1 << 20)
    assert bubblewrap.run(box, ["big"], limits, keep=len).code
    assert (tmp_path / "x").stat().st_size <= 1 << 20


def path(folder: Path) -> str:
    return f"{bubblewrap.LAB}:{folder}"


# ── What is watched ──

TAKES = """
import os, time
held = os.memfd_create("x")
for _ in range(96):
    os.write(held, b"x" * (1 << 20))
time.sleep(20)
"""


def run(tmp_path: Path, script: str, **limits: Any) -> bubblewrap.Ended:
    (tmp_path / "trap.py").write_text(script)
    box = Box(
        writes=((tmp_path, tmp_path),), folder=tmp_path, environment={"PYTHONPATH": path(tmp_path)}
    )
    return bubblewrap.run(box, ["trap"], replace(bubblewrap.USUAL, **limits), keep=len)


def test_memory_that_is_a_file_is_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "held", lambda *_: contextlib.nullcontext(cgroups.Held()))
    ended = run(tmp_path, TAKES, memory=80 << 20, seconds=15)
    assert "bytes of memory, and 83,886,080 is the most" in ended.why


# Of a megabyte at a time, each of which it lets go of at once: no process has any of it mapped in.
TAKES_SHARED = {
    "mapped nowhere": """
import mmap, time
held = mmap.mmap(-1, 96 << 20)
for n in range(96):
    held[n << 20 : (n + 1) << 20] = b"x" * (1 << 20)
    held.madvise(mmap.MADV_DONTNEED, n << 20, 1 << 20)
time.sleep(20)
""",
    "without an open file": """
import ctypes, os, time
held = os.memfd_create("x")
for _ in range(96):
    os.write(held, b"x" * (1 << 20))
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
assert libc.mmap(None, 96 << 20, 1, 1, held, 0) not in (None, ctypes.c_void_p(-1).value)
os.close(held)
time.sleep(20)
""",
    "some of each kind": """
import mmap, os, time
held = mmap.mmap(-1, 36 << 20)
held[:] = b"x" * (36 << 20)
file = os.memfd_create("x")
for _ in range(36):
    os.write(file, b"x" * (1 << 20))
with open("/dev/shm/x", "wb") as shm:
    shm.write(b"x" * (36 << 20))
time.sleep(20)
""",
}


@pytest.mark.parametrize("seen", [True, False], ids=["as it is", "as it is mapped"])
@pytest.mark.parametrize("how", TAKES_SHARED)
def test_shared_memory_is_counted_whoever_has_it_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, seen: bool
) -> None:
    monkeypatch.setattr(cgroups, "held", lambda *_: contextlib.nullcontext(cgroups.Held()))
    if not seen:  # only root may ask the kernel for the file behind a mapping
        monkeypatch.setattr(resource_watch, "MAPPED", "nowhere")
    ended = run(tmp_path, TAKES_SHARED[how], memory=90 << 20, seconds=15)
    assert "bytes of memory, and 94,371,840 is the most" in ended.why


def test_shared_memory_below_the_limit_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "held", lambda *_: contextlib.nullcontext(cgroups.Held()))
    script = TAKES_SHARED["some of each kind"].replace("time.sleep(20)", "[os.fork(), os.fork()]\n")
    assert run(tmp_path, script + "time.sleep(2)", memory=180 << 20, seconds=15).why is None


def test_swapped_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"Pss": 10, "Pss_Shmem": 4, "SwapPss": 7, "VmSwap": 7}
    monkeypatch.setattr(resource_watch, "_said", lambda *_: said)
    assert resource_watch.memory([1], 0) == 10 + 7
    found = resource_watch.usage(os.getpid())
    assert found.memory % resource_watch.PAGE == 7 * len(found.processes)


@pytest.mark.parametrize("what", ["disk", "memory"])
def test_a_box_ends_before_its_machine_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(cgroups, "held", lambda *_: contextlib.nullcontext(cgroups.Held()))
    looks = iter([8 << 30, 8 << 30, 8 << 30, 200 << 20])
    monkeypatch.setattr(resource_watch, "left", lambda *_: {what: next(looks)})
    ended = run(tmp_path, "import time; time.sleep(20)", seconds=15)
    assert ended.why == f"its machine has only 209,715,200 bytes of {what} left"


def test_a_machine_with_little_left_may_run_a_box() -> None:
    assert resource_watch.least({"disk": 100 << 20, "memory": 8 << 30}) == {
        "disk": 50 << 20,
        "memory": 256 << 20,
    }
