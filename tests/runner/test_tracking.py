"""The job's runs for W&B: real offline runs, read back from the files that W&B wrote."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import guard, tracking, worker
from runner.reports import AttemptSpec, RunReport, StepMetrics
from runner.store import Store
from tests import synthetic, wandb_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CANARY = "canary-of-the-environment"
PLAN = synthetic.plan(arms={"fast": synthetic.planned_arm(steps=10)}, seeds=[0, 1])
A_STEP = 16 * 256


def line(step: int, loss: float | None, **more: object) -> StepMetrics:
    return StepMetrics(
        step=step, loss=loss, grad_norm=loss, learning_rate=0.1, tokens=step * A_STEP, **more
    )


class Job:
    """An attempt's folder, in which the test does what the worker would."""

    def __init__(self, store: Store, name: str = "t1", earlier: tuple[str, ...] = ()) -> None:
        self.store = store
        self.spec = AttemptSpec(
            attempt=f"x0.{name}", nonce="aa", kind="train", plan=PLAN, earlier=earlier, wandb=True
        )
        self.folder = store.path(f"work/{self.spec.folder}")
        self.out = self.folder / "out"
        self.chunks: dict[str, worker.MetricsChunks] = {}
        store.create(f"work/{self.spec.folder}/spec.json", self.spec.canonical())

    def train(self, run: str, lines: list[StepMetrics], over: str = "finished") -> None:
        folder = self.out / "metrics" / run
        chunks = self.chunks.setdefault(run, worker.MetricsChunks(folder))
        for one in lines:
            chunks.add(one)
        chunks.flush()
        if over:
            said = RunReport(nonce="aa", state=over, step=10)  # type: ignore[arg-type]
            worker.write_report(self.out / "runs" / f"{run}.json", said)

    def file(self, run: str) -> Path:
        [found] = self.out.glob(f"wandb/offline-run-*-x0.{run}/run-x0.{run}.wandb")
        return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def family() -> list[int]:
    return guard.descendants(os.getpid())


def wait_for(what: str, path: Path, pattern: str) -> None:
    until = time.monotonic() + 30
    while not list(path.glob(pattern)):
        assert time.monotonic() < until, f"no {what}"
        time.sleep(0.05)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where anything that speaks HTTP would go."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, url)
        listener.setblocking(False)
        yield listener


def test_each_run_is_an_offline_run_with_its_settings_and_every_step(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: socket.socket
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WANDB_API_KEY", CANARY)
    monkeypatch.setenv("WANDB_MODE", "online")
    before, scratch = set(family()), set(Path("/tmp").glob("regatta-*"))
    job = Job(store)
    with tracking.following(job.folder):
        job.train("fast.s0", [line(1, 5.0)], over="")
        wait_for("file", job.out, "wandb/offline-run-*/*.wandb")
        children = set(family()) - before
        environments = [Path(f"/proc/{one}/environ").read_bytes() for one in children]
        later = [line(step, 5.0 / step, bpb=2.5, mfu=0.25) for step in range(2, 11)]
        job.train("fast.s0", later)
        skipped = line(2, None, skipped=True)
        job.train("fast.s1", [line(1, 4.0), skipped, line(3, 3.0)], over="failed")

    logged = wandb_files.history(job.file("fast.s0"))
    assert list(logged) == list(range(1, 11))
    assert logged[4] == {
        **{"loss": 1.25, "grad_norm": 1.25, "learning_rate": 0.1, "tokens": 4 * A_STEP},
        **{"bpb": 2.5, "mfu": 0.25, "skipped": 0},
    }
    other = wandb_files.history(job.file("fast.s1"))
    assert other[2] == {"learning_rate": 0.1, "tokens": 2 * A_STEP, "skipped": 1}
    assert other[3]["loss"] == 3.0

    of = wandb_files.run(job.file("fast.s1"))
    assert (of.run_id, of.display_name, of.run_group) == ("x0.fast.s1", "fast.s1", "x0")
    assert (of.project, of.host, of.git.commit) == ("regatta", "regatta", "")
    config = wandb_files.config(job.file("fast.s1"))
    assert (config["arm"], config["seed"]) == ("fast", 1)
    assert config["model"]["hidden_dim"] == 128
    assert config["train"]["num_train_steps"] == 10
    assert config["data"]["train_sha256"] == PLAN.data.train_sha256
    exits = [
        [one.exit.exit_code for one in wandb_files.read(job.file(run)) if one.HasField("exit")]
        for run in ("fast.s0", "fast.s1")
    ]
    assert exits == [[0], [1]]

    assert len(children) == 2  # the child and W&B's own
    assert not any(CANARY.encode() in environment for environment in environments)
    assert set(family()) == before
    assert list(home.iterdir()) == []
    assert set(Path("/tmp").glob("regatta-*")) <= scratch
    with pytest.raises(BlockingIOError):
        proxy.accept()  # nobody came


def test_a_resumed_run_is_written_whole_under_the_same_id(store: Store) -> None:
    first = Job(store)
    first.train("fast.s0", [line(step, 5.0) for step in range(1, 11)])
    first.train("fast.s1", [line(step, 5.0) for step in range(1, 8)], over="")
    second = Job(store, "t2", earlier=(first.spec.folder,))
    second.train("fast.s1", [line(step, 4.0) for step in range(5, 11)])
    second.train("fast.s0", [])  # it was finished
    with tracking.following(second.folder):
        pass
    losses = [step["loss"] for step in wandb_files.history(second.file("fast.s1")).values()]
    assert losses == [5.0] * 4 + [4.0] * 6
    assert list(wandb_files.history(second.file("fast.s0"))) == list(range(1, 11))
    assert wandb_files.run(second.file("fast.s1")).run_id == "x0.fast.s1"


def test_a_run_that_never_began_is_not_written(store: Store) -> None:
    job = Job(store)
    with tracking.following(job.folder):
        pass
    assert not list(job.out.glob("wandb/*"))


def test_its_trouble_disturbs_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job(store)
    (job.folder / "spec.json").write_text("{}")
    with tracking.following(job.folder):
        pass
    assert "W&B: its child ended with 1" in capfd.readouterr().err

    monkeypatch.setattr(tracking, "FINISH_MAY_TAKE", 0.2)
    before = set(family())
    with tracking.following(Job(store, "t2").folder):
        [child] = set(family()) - before
        os.kill(child, signal.SIGSTOP)  # it hangs
    assert "W&B: its child ended with -9" in capfd.readouterr().err
    assert set(family()) == before

    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with tracking.following(job.folder):
        pass
    assert "W&B: its child did not start" in capfd.readouterr().err


HELD = """
import sys, time
from pathlib import Path
from runner import tracking

with tracking.following(Path(sys.argv[1])):
    time.sleep(600)
"""


def test_no_child_outlives_a_worker_that_is_killed(store: Store) -> None:
    job = Job(store)
    job.train("fast.s0", [line(1, 5.0)], over="")
    with tempfile.TemporaryDirectory() as scratch:  # short, for W&B's socket
        holder = subprocess.Popen(
            [sys.executable, "-c", HELD, job.folder], env={**os.environ, "TMPDIR": scratch}
        )
        wait_for("file", job.out, "wandb/offline-run-*/*.wandb")
        children = guard.descendants(holder.pid)
        holder.kill()
        holder.wait()
        until = time.monotonic() + 20
        while any(Path(f"/proc/{child}/cmdline").exists() for child in children):
            assert time.monotonic() < until
            time.sleep(0.1)
    assert len(children) == 2


def test_sigterm_to_all_of_a_job_leaves_the_child_time_to_finish(store: Store) -> None:
    before = set(family())
    job = Job(store)
    with tracking.following(job.folder):
        [child] = set(family()) - before
        until = time.monotonic() + 20
        while not _ignored(child) >> (signal.SIGTERM - 1) & 1:
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(child, signal.SIGTERM)
        job.train("fast.s0", [line(1, 5.0)], over="")
    assert list(wandb_files.history(job.file("fast.s0"))) == [1]


def _ignored(process: int) -> int:
    """The signals that a process ignores, a bit each."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("SigIgn")).split()[1], 16)
