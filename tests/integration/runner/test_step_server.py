"""Steps share a server and nothing else."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from engine.data.token_store import TokenStore
from runner.spec.training_steps import Train
from runner.store.scratch_paths import WHY
from runner.worker import fork_server
from runner.worker.fork_server import LOG, ServerGone, StepServer
from runner.worker.step_process import NOT_ISOLATED, TRAIN, Job, Training
from tests.decided import KINDS

OWN = """
import os, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
seen = []

def remember(config, inputs, out):
    seen.append(config["n"])
    os.environ["SEEN"] = "yes" if "SEEN" in os.environ else "no"
    print("said", sys.stdin.read(), flush=True)
    (out / "seen.txt").write_text(f"{seen} {os.environ['SEEN']} {os.getpid()}")

def die(config, inputs, out):
    os.kill(os.getpid(), signal.SIGKILL)

def late(config, inputs, out):
    def write():
        time.sleep(0.2)
        (out / "late.txt").write_text("written")
    threading.Thread(target=write).start()

def leave_pool(config, inputs, out):
    global pool
    pool = ThreadPoolExecutor(2)
    (out / "n.txt").write_text(pool.submit(str, 7).result())

def leave_and_die(config, inputs, out):
    left = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (out / "left.txt").write_text(str(left.pid))
    os.kill(os.getpid(), signal.SIGKILL)

def leave_the_dead(config, inputs, out):
    dead = subprocess.Popen(["true"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)

def end_who_waits(config, inputs, out):
    while len(family := children(os.getppid())) < 2:
        time.sleep(0.01)
    (out / "waited.txt").write_text(" ".join(family))
    for process in map(int, family):
        if process != os.getpid():
            os.kill(process, signal.SIGKILL)

def children(of):
    return open(f"/proc/{of}/task/{of}/children").read().split()

def end_server(config, inputs, out):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
"""


AHEAD = """
import json, os, sys
from runner.schema.devices import Kind
from runner.worker import environment
kind = Kind.of_json(json.loads(sys.argv[1]))
environment.set_flags(kind)
import numpy
print(len(os.listdir("/proc/self/task")))
environment.settle(kind, 1)
print(len(os.listdir("/proc/self/task")))
"""
IMPORTED = """
import sys
from pathlib import Path
import runner.worker.fork_server
print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.fixture
def server() -> Iterator[StepServer]:
    server = StepServer()
    server.start()
    yield server
    assert server._server
    server._server.process.kill()
    server._server.process.communicate()


def job(folder: Path, function: str, n: int = 0) -> Job:
    (folder / "own_steps.py").write_text(OWN)
    out, scratch = folder / str(n), folder / f"{n}.scratch"
    out.mkdir()
    scratch.mkdir()
    return Job(
        function=f"own_steps:{function}",
        config={"n": n},
        inputs={},
        out=str(out),
        scratch=str(scratch),
        code=str(folder),
        devices=KINDS["cpu"],
        isolation="own machine",
    )


def test_no_step_sees_what_another_did(server: StepServer, tmp_path: Path) -> None:
    assert [server.make(job(tmp_path, "remember", n)) for n in (1, 2)] == [0, 0]
    first, second = ((tmp_path / f"{n}/seen.txt").read_text().split() for n in (1, 2))
    assert (first[:2], second[:2]) == (["[1]", "no"], ["[2]", "no"])
    assert first[2] != second[2]


def test_a_steps_output_is_its_log_and_its_stdin_is_empty(
    server: StepServer, tmp_path: Path
) -> None:
    assert server.make(job(tmp_path, "remember")) == 0
    assert (tmp_path / f"0.scratch/{LOG}").read_text() == "said \n"


def test_a_killed_step_says_by_which_signal_and_the_next_one_is_made(
    server: StepServer, tmp_path: Path
) -> None:
    assert server.make(job(tmp_path, "die", 1)) == -signal.SIGKILL
    assert server.make(job(tmp_path, "remember", 2)) == 0


def test_processes_of_a_killed_step_end_before_the_next_step(
    server: StepServer, tmp_path: Path
) -> None:
    assert server.make(job(tmp_path, "leave_and_die", 1)) == -signal.SIGKILL
    left = int((tmp_path / "1/left.txt").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(left, 0)


def test_no_zombie_is_left(server: StepServer, tmp_path: Path) -> None:
    assert server.make(job(tmp_path, "leave_the_dead", 1)) == 0
    assert len(waiting(server)) == 1


def waiting(server: StepServer) -> list[int]:
    """The processes that wait for the next step to make."""
    assert server._server
    here = server._server.process.pid
    return [int(x) for x in Path(f"/proc/{here}/task/{here}/children").read_text().split()]


def test_killing_the_waiting_fork_does_not_affect_the_next_step(
    server: StepServer, tmp_path: Path
) -> None:
    assert server.make(job(tmp_path, "end_who_waits", 1)) == 0
    assert len((tmp_path / "1/waited.txt").read_text().split()) == 2
    assert server.make(job(tmp_path, "remember", 2)) == 0
    assert len(waiting(server)) == 1


def test_the_fork_that_waits_ends_with_its_server(server: StepServer, tmp_path: Path) -> None:
    assert server.make(job(tmp_path, "remember", 1)) == 0
    (left,) = waiting(server)
    assert server._server
    server._server.process.kill()
    until = time.monotonic() + 30
    while Path(f"/proc/{left}").exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_server_imports_the_standard_library_alone() -> None:
    """So that a fork is cheap, and a step is there at once."""
    said = subprocess.run([sys.executable, "-c", IMPORTED], check=True, capture_output=True).stdout
    others = set(said.decode().split()) - sys.stdlib_module_names
    assert {name for name in others if not name.startswith(("_", "sitecustomize"))} == {
        "engine",
        "runner",
    }


def test_a_step_runs_even_if_no_fork_can_wait_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> int:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(os, "fork", none)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert fork_server._ahead() is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_own_code_runs_for_no_word_that_does_not_say_how_it_is_kept_apart(
    server: StepServer, tmp_path: Path
) -> None:
    unknown: Any = "Bubblewrap"
    assert server.make(replace(job(tmp_path, "remember"), isolation=unknown)) == 1
    assert (tmp_path / "0.scratch" / WHY).read_text() == NOT_ISOLATED[""]
    assert not list((tmp_path / "0").iterdir())


def test_a_job_that_is_not_json_is_not_sent(server: StepServer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        server.make(replace(job(tmp_path, "remember", 1), config={"n": math.nan}))
    assert server.make(job(tmp_path, "remember", 2)) == 0


def test_a_step_that_fails_leaves_its_reason(server: StepServer, tmp_path: Path) -> None:
    assert server.make(job(tmp_path, "nowhere")) == 1
    assert "has no attribute 'nowhere'" in (tmp_path / "0.scratch" / WHY).read_text()


def test_threads_that_a_step_left_running_are_waited_for(
    server: StepServer, tmp_path: Path
) -> None:
    assert server.make(job(tmp_path, "late")) == 0
    assert (tmp_path / "0/late.txt").read_text() == "written"


def test_a_step_ends_with_its_server_and_the_next_one_has_another(
    server: StepServer, tmp_path: Path
) -> None:
    with pytest.raises(ServerGone) as gone:
        server.make(job(tmp_path, "end_server", 1))
    assert gone.value.code == -signal.SIGKILL
    assert server.make(job(tmp_path, "remember", 2)) == 0
    assert str(os.getpid()) not in (tmp_path / "2/seen.txt").read_text()


def test_a_pool_that_nobody_shuts_down_holds_nobody_up(server: StepServer, tmp_path: Path) -> None:
    assert server.make(job(tmp_path, "leave_pool", 1)) == 0
    assert (tmp_path / "1/n.txt").read_text() == "7"


def test_many_threads_have_their_steps_made_each_with_its_own_answer(
    server: StepServer, tmp_path: Path
) -> None:
    """Also those that wait behind one whose server is killed."""
    jobs = {
        n: job(tmp_path, "end_server" if n == 2 else "die" if n == 5 else "remember", n)
        for n in range(8)
    }

    def made(n: int) -> int | str:
        try:
            return server.make(jobs[n])
        except ServerGone as error:
            return f"gone with {error.code}"

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(made, jobs))
    assert answers == [0, 0, "gone with -9", 0, 0, -9, 0, 0]
    assert all((tmp_path / f"{n}/seen.txt").is_file() for n in (0, 1, 3, 4, 6, 7))


# ── What comes after a training ──────────────────────────────────────────────────────────────────

TRAINING = {
    "model": {
        "hidden_dim": 8,
        "intermediate_dim": 16,
        "num_layers": 1,
        "num_heads": 2,
        "seq_len": 8,
    },
    "train": {"train_batch_size": 2, "num_train_steps": 2, "learning_rate": 0.01},
}


def training(folder: Path, n: int) -> Job:
    """The lab's training, which needs no own code."""
    if not (folder / "tokens").exists():
        TokenStore.build(folder / "tokens/train", ["A text to train on. " * 20])
    config = Train.model_validate(TRAINING).model_dump(mode="json")
    return replace(
        job(folder, "remember", n),
        function=TRAIN,
        config=config,
        inputs={"tokens": str(folder / "tokens")},
        code="",
        isolation="",
        cache=str(folder / "cache"),
        next=Training(KINDS["cpu"], str(folder / "cache")),
    )


def has_jax(server: StepServer) -> list[int]:
    """The forks that have imported JAX."""
    assert server._server
    pid = server._server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(x) for x in children if "jaxlib" in Path(f"/proc/{x}/maps").read_text()]


def test_while_a_training_ends_the_next_one_imports_and_ends_with_the_same_bytes(
    server: StepServer, tmp_path: Path
) -> None:
    assert server.make(training(tmp_path, 1)) == 0
    until = time.monotonic() + 60
    while not (waits := has_jax(server)) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(waits) == 1
    assert server.make(training(tmp_path, 2)) == 0
    assert waits[0] not in has_jax(server), "it has made the second one"
    one, two = ((tmp_path / f"{n}/params.safetensors").read_bytes() for n in (1, 2))
    assert one == two


def test_before_the_first_training_jax_is_imported_while_the_step_before_it_computes(
    server: StepServer, tmp_path: Path
) -> None:
    first = training(tmp_path, 1)
    assert server.make(replace(job(tmp_path, "remember", 0), next=first.next)) == 0
    until = time.monotonic() + 60
    while not (waits := has_jax(server)) and time.monotonic() < until:
        time.sleep(0.05)
    assert server.make(first) == 0
    assert waits[0] not in has_jax(server), "it has made the training"


def test_a_training_says_why_jax_cannot_be_imported_even_if_it_came_while_that_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    words = "import time; time.sleep(2); raise ImportError('no such driver')"
    (tmp_path / "broken/jax.py").write_text(words)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    server, first = StepServer(), training(tmp_path, 1)
    assert server.make(replace(job(tmp_path, "remember", 0), next=first.next)) == 0
    assert server.make(first) == 1
    assert (tmp_path / "1.scratch" / WHY).read_text() == "ImportError: no such driver"
    assert "no such driver" in (tmp_path / "1.scratch" / LOG).read_text()


def test_a_training_that_was_imported_ahead_has_as_many_threads_as_cores() -> None:
    kind = replace(KINDS["cpu"], ray_cpus=1)
    said = subprocess.run(
        [sys.executable, "-c", AHEAD, json.dumps(asdict(kind))],
        capture_output=True,
        text=True,
        check=True,
        env={name: of for name, of in os.environ.items() if name != "OMP_NUM_THREADS"},
    )
    assert said.stdout.split() == ["1", "1"], "before cores are taken, and after"


def test_after_a_training_any_other_step_begins_as_a_new_process_would(
    server: StepServer, tmp_path: Path
) -> None:
    assert server.make(training(tmp_path, 1)) == 0
    assert server.make(job(tmp_path, "remember", 2)) == 0
    assert (tmp_path / "2/seen.txt").read_text().startswith("[2] no")
    assert server.make(training(tmp_path, 3)) == 0
