"""The worker with JAX and without Ray: each job is a plain child process of the test."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

import engine.training.train
from engine.data.token_store import TokenStore
from engine.training.digest import tree_sha256
from runner.execution import effects, lifecycle
from runner.execution.lifecycle import Job
from runner.planning import planner
from runner.schema import job_reports, record
from runner.schema.job_reports import ANOTHER_SPEC, ANOTHER_WORKER, TOLD_TO_END, StepMetrics
from runner.store.leases import LeaseWatch
from runner.store.store import Store
from runner.worker import main, metrics_chunks
from tests import stub_trainer, synthetic

TINY = """
title: As small as it gets
data: {source: words.txt, tokenizer: byte}
model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 32}
train: {train_batch_size: 4, num_train_steps: 20, learning_rate: 0.01, checkpoint_every: 5}
eval: {tokens: 256}
resources: {kind: cpu, count: 1}
seeds: [0, 1]
arms:
  slow: {train: {learning_rate: 0.0001}}
  fast: {}
"""


def declare(folder: Path, text: str = TINY) -> Path:
    """An experiment with a text of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text(text)
    words = "".join(f"{n} bottles of beer on the wall, {n} bottles of beer.\n" for n in range(2000))
    (folder / "words.txt").write_text(words)
    return folder


class Processes:
    """A `drive.Launcher` whose jobs are children of this process."""

    def __init__(self) -> None:
        self.jobs: dict[str, subprocess.Popen[bytes]] = {}

    def look(self, folder: str) -> Job:
        if folder not in self.jobs:
            return "unknown"
        code = self.jobs[folder].poll()
        return "running" if code is None else "failed" if code else "succeeded"

    def submit(
        self,
        folder: str,
        where: Path,
        spec_sha256: str,
        plan: record.Plan,  # noqa: ARG002
    ) -> None:
        command = self.command(where, spec_sha256)
        with (where.parent / f"{where.name}.log").open("wb") as log:
            self.jobs[folder] = subprocess.Popen(command, stdout=log, stderr=log)

    def command(self, where: Path, spec_sha256: str) -> list[str]:
        return [sys.executable, "-m", "runner.worker.main", str(where), spec_sha256]

    def stop(self, folder: str) -> None:
        self.jobs[folder].kill()


def work(where: Path) -> int:
    """Run the worker on an attempt's folder; its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "runner.worker.main", str(where)], check=False
    ).returncode


class Life:
    """One execution of the experiment in `folder`, in `store`."""

    def __init__(self, folder: Path, store: Store, name: str = "1") -> None:
        self.store, self.jobs, self.leases = store, Processes(), LeaseWatch(store)
        plan = planner.plan_folder(folder, store)
        self.id = record.execution_id(f"{store.id}/{name}")
        effects.begin(
            store, record.Execution(id=self.id, at=datetime.now(UTC), plan=plan, origin=None)
        )

    def turn(self) -> None:
        facts = effects.observe(self.store, self.jobs.look, self.leases, self.id)
        if action := lifecycle.decide(facts):
            effects.act(self.store, self.jobs, facts, action, datetime.now(UTC))
        else:
            time.sleep(0.05)

    def until(self, event: str) -> None:
        deadline = time.monotonic() + 120
        while event not in record.names(self.store, f"executions/{self.id}"):
            assert time.monotonic() < deadline, f"no {event}"
            self.turn()

    def to_the_end(self) -> record.Result:
        self.until("result")
        return record.require(self.store, f"executions/{self.id}/result", record.Result)

    def out(self, attempt: str) -> Path:
        return next(self.store.path("work").glob(f"{self.id}.{attempt}-*/out"))

    def run(self, name: str) -> record.Run:
        return record.require(self.store, f"runs/{self.id}.{name}", record.Run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return declare(tmp_path_factory.mktemp("experiments") / "tiny")


@pytest.fixture(scope="module")
def life(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Life:
    life = Life(folder, Store(tmp_path_factory.mktemp("lab") / "store"))
    life.to_the_end()
    return life


# ── What it leaves ───────────────────────────────────────────────────────────────────────────


def test_it_trains_and_evaluates_what_the_spec_says(life: Life) -> None:
    result = life.to_the_end()
    assert (result.state, result.why, result.refused) == ("done", "", ())
    for name in ("slow.s0", "slow.s1", "fast.s0", "fast.s1"):
        run = life.run(name)
        assert (run.state, run.steps, run.tokens) == ("finished", 20, 20 * 4 * 32)
        assert [step for step, _ in run.curve] == list(range(1, 21))
        assert run.evaluated
        assert run.evaluated.targets == 256
    assert life.run("fast.s0").evaluated.bpb < life.run("slow.s0").evaluated.bpb - 0.5  # type: ignore[union-attr]


def test_seeds_differ_and_names_of_parameters_do_not_collide(life: Life) -> None:
    digests = {
        life.run(name).evaluated.params_sha256  # type: ignore[union-attr]
        for name in ("slow.s0", "slow.s1", "fast.s0", "fast.s1")
    }
    assert len(digests) == 4


def test_it_writes_nowhere_but_where_it_may(life: Life) -> None:
    top = {path.name for path in life.store.root.iterdir()}
    assert top == {"store.json", "records", "leases", "work", "steps", "texts", "cache"}
    for attempt in ("t1", "e1"):
        assert {path.name for path in life.out(attempt).parent.iterdir()} == {"spec.json", "out"}
    assert not list(life.out("e1").glob("copies/*"))


def test_the_receipt_names_what_equality_rests_on(life: Life) -> None:
    for attempt in ("t1", "e1"):
        path = f"executions/{life.id}/{attempt}.ended"
        receipt = record.require(life.store, path, record.Ended).receipt
        assert receipt["platform"] == "cpu"
        assert len(receipt["code_sha256"]) == 64
        assert {"python", "jax", "jaxlib", "flax", "numpy", "cpu", "affinity"} <= receipt.keys()
        assert len(receipt["affinity"].split(",")) == int(receipt["threads"]) <= 2


def test_training_tells_each_checkpoints_curve_before_the_checkpoint(life: Life) -> None:
    chunks = sorted((life.out("t1") / "metrics" / "fast.s0").glob("*.jsonl"))
    last = [json.loads(chunk.read_text().splitlines()[-1])["step"] for chunk in chunks]
    assert {5, 10, 15, 20} <= set(last)


def test_a_second_worker_leaves_with_its_own_code_and_touches_nothing(life: Life) -> None:
    folder = life.out("t1").parent
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    lease = life.store.list(f"leases/{folder.name}")
    assert work(folder) == ANOTHER_WORKER
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert life.store.list(f"leases/{folder.name}") == lease


# ── Told to end ──────────────────────────────────────────────────────────────────────────────

TERMINATED = """
import os, signal, sys
from pathlib import Path
from runner.worker import main, metrics_chunks as worker

real = worker.MetricsChunks.add

def add(self, line):
    real(self, line)
    if line["step"] == 7 and self._folder.name == "{run}":
        for _ in range({times}):
            os.kill(os.getpid(), signal.SIGTERM)

worker.MetricsChunks.add = add
sys.exit(worker.main(Path(sys.argv[1]), sys.argv[2]))
"""


class Terminated(Processes):
    """Jobs that get SIGTERM in the middle of a run's seventh step. Later attempts do not."""

    def __init__(self, run: str, times: int = 1) -> None:
        super().__init__()
        self._code = TERMINATED.format(run=run, times=times)

    def command(self, where: Path, spec_sha256: str) -> list[str]:
        if not self.jobs:
            return [sys.executable, "-c", self._code, str(where), spec_sha256]
        return super().command(where, spec_sha256)


def state_sha256(checkpoint: Path) -> str:
    """Over all parameters, moments and whatever else it takes to go on."""
    reader = ocp.StandardCheckpointer()
    return tree_sha256({item: reader.restore(checkpoint / item) for item in ("params", "rest")})


def test_sigterm_saves_and_the_next_attempt_ends_as_an_undisturbed_one(
    life: Life, folder: Path
) -> None:
    told = Life(folder, Store(life.store.root), "told")
    told.jobs = jobs = Terminated("fast.s1")
    told.until("t1.ended")
    out = told.out("t1")
    [job] = jobs.jobs.values()
    assert job.returncode == TOLD_TO_END
    ended = record.require(told.store, f"executions/{told.id}/t1.ended", record.Ended)
    assert (ended.how, ended.why, ended.refused) == ("lost", "its job died", ())
    assert not list(out.glob("finished.json")) + list(out.glob("failed.json"))
    assert [path.name for path in out.glob("runs/*")] == ["fast.s0.json"]
    assert LeaseWatch(told.store).look(out.parent.name).released
    # It saved the step it was in, which no rule asked for, and its curve reaches as far.
    assert sorted(path.name for path in out.glob("checkpoints/fast.s1/*")) == ["5", "8"]
    lines = job_reports.read_metrics(out / "metrics" / "fast.s1", 20, [])
    assert [line.step for line in lines] == list(range(1, 9))
    assert "told to end by SIGTERM" in (out / "log.txt").read_text()

    assert told.to_the_end().state == "done"
    second = job_reports.read_metrics(told.out("t2") / "metrics" / "fast.s1", 20, [])
    assert next(second).step == 9
    for run in ("fast.s0", "fast.s1", "slow.s0", "slow.s1"):
        attempt = "t1" if run == "fast.s0" else "t2"
        last = told.out(attempt) / "checkpoints" / run / "20"
        undisturbed = life.out("t1") / "checkpoints" / run / "20"
        assert state_sha256(last) == state_sha256(undisturbed)
        assert told.run(run).curve == life.run(run).curve
        assert told.run(run).evaluated == life.run(run).evaluated


def test_a_second_sigterm_ends_it_at_once(life: Life, folder: Path) -> None:
    told = Life(folder, Store(life.store.root), "told twice")
    told.jobs = jobs = Terminated("fast.s0", times=2)
    told.until("t1.ended")
    [job] = jobs.jobs.values()
    assert job.returncode == -signal.SIGTERM
    saved = {path.name for path in told.out("t1").glob("checkpoints/fast.s0/*")}
    assert saved <= {"5", "5.orbax-checkpoint-tmp"}


BEFORE = """
import os, signal, sys, time
from pathlib import Path
from runner.worker import environment as machine, main as worker

def settle(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

machine.settle = settle
sys.exit(worker.main(Path(sys.argv[1])))
"""


def test_sigterm_before_training_ends_it_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = synthetic.plan(arms={"fast": synthetic.planned_arm()}, seeds=[0])
    spec = job_reports.AttemptSpec(attempt="x.t1", nonce="aa", kind="train", plan=plan)
    store.create(f"work/{spec.folder}/spec.json", spec.canonical())
    where = store.path(f"work/{spec.folder}")
    ended = subprocess.run([sys.executable, "-c", BEFORE, where], check=False, timeout=50)
    assert ended.returncode == -signal.SIGTERM
    assert not list(where.glob("out/*.json"))


# ── What it shares ───────────────────────────────────────────────────────────────────────────


def test_tokens_are_made_once_and_checked_by_who_uses_them(life: Life, folder: Path) -> None:
    [manifest] = life.store.path("steps/tokens").glob("*/manifest.json")
    written = manifest.read_bytes()
    [made] = [path for path in manifest.parent.iterdir() if path.is_dir()]
    data = made / "train"
    damaged = max(
        (path for path in data.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    damaged.write_bytes(damaged.read_bytes()[::-1])
    again = Life(folder, Store(life.store.root), "again")
    assert again.to_the_end().state == "done"
    # Somebody's claim was wrong: it made a copy of its own, and the figures are the same.
    assert (again.out("t1") / "tokens" / "train").is_dir()
    assert manifest.read_bytes() == written
    for name in ("slow.s0", "fast.s1"):
        assert again.run(name).evaluated == life.run(name).evaluated


# ── What it refuses ──────────────────────────────────────────────────────────────────────────


def test_a_run_that_diverges_ends_with_its_step_and_the_next_one_goes_on(tmp_path: Path) -> None:
    text = TINY.replace("fast: {}", "fast: {train: {learning_rate: 1.0e+30}}")
    life = Life(declare(tmp_path / "x", text.replace("[0, 1]", "[0]")), Store(tmp_path / "store"))
    assert life.to_the_end().state == "done"
    failed = life.run("fast.s0")
    assert (failed.state, failed.evaluated) == ("failed", None)
    assert f"at step {failed.steps}" in failed.why
    assert life.run("slow.s0").evaluated


def test_a_text_that_is_not_the_planned_one_is_refused_in_words(tmp_path: Path) -> None:
    life = Life(declare(tmp_path / "x"), Store(tmp_path / "store"))
    [text] = life.store.path("texts").iterdir()
    (text / "train").write_text("another text, and not a short one\n" * 1000)
    result = life.to_the_end()
    assert result.state == "failed"
    assert result.why.startswith("the train split of words.txt has SHA-256 ")
    assert "in the plan" in result.why


def test_a_standard_library_of_another_python_is_refused_in_words(tmp_path: Path) -> None:
    folder = declare(tmp_path / "x")
    store = Store(tmp_path / "store")
    plan = planner.plan_folder(folder, store)
    data = plan.data.model_copy(update={"source": "stdlib"})
    spec = job_reports.AttemptSpec(
        attempt="x.t1", nonce="aa", kind="train", plan=plan.model_copy(update={"data": data})
    )
    store.create(f"work/{spec.folder}/spec.json", spec.canonical())
    where = store.path(f"work/{spec.folder}")
    assert work(where) == 1
    failed = json.loads((where / "out" / "failed.json").read_bytes())
    assert "train split of stdlib" in failed["why"]
    assert "plan again here" in failed["why"]
    assert "Traceback" in (where / "out" / "log.txt").read_text()
    assert LeaseWatch(store).look(spec.folder).released


def test_a_checkpoint_swapped_after_its_digest_was_recorded_is_not_scored(
    life: Life, tmp_path: Path, folder: Path
) -> None:
    shutil.copytree(life.store.root, tmp_path / "store")  # compiled already
    swapped = Life(folder, Store(tmp_path / "store"), "swapped")
    swapped.until("t1.ended")
    # A real checkpoint of the same model, only another one: each slow one in a fast one's place.
    for run, other in (("fast.s0", "slow.s0"), ("fast.s1", "slow.s1")):
        target = swapped.out("t1") / "checkpoints" / run / "20" / "params"
        shutil.rmtree(target)
        shutil.copytree(swapped.out("t1") / "checkpoints" / other / "20" / "params", target)
    result = swapped.to_the_end()
    assert result.state == "failed"
    assert result.why.startswith("the checkpoint of fast.s0 is not the one recorded (SHA-256 ")
    assert result.why.endswith("; nothing was scored")
    assert all(swapped.run(f"{arm}.s0").evaluated is None for arm in ("slow", "fast"))


def test_a_spec_that_cannot_be_read_is_said_and_not_retried(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    where = store.path("work/x.t1-aa")
    where.mkdir(parents=True)
    (where / "spec.json").write_text("{}")
    assert work(where) == 1
    failed = job_reports.read_report(where / "out" / "failed.json", job_reports.AttemptReport, "aa")
    assert failed
    assert failed.why.startswith("ValidationError: ")
    assert len(failed.why) <= 500


def test_a_spec_of_another_digest_is_left_alone_with_a_code_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    where = store.path("work/x.t1-aa")
    where.mkdir(parents=True)
    (where / "spec.json").write_text("{}")
    left = subprocess.run(
        [sys.executable, "-m", "runner.worker.main", str(where), "0" * 64],
        capture_output=True,
        text=True,
        check=False,
    )
    assert left.returncode == ANOTHER_SPEC
    assert "spec.json is not the one that was claimed" in left.stderr
    assert [path.name for path in where.iterdir()] == ["spec.json"]
    assert LeaseWatch(store).look(where.name).released


ORPHAN = """
import subprocess, sys
from pathlib import Path
from runner.worker import environment as machine, main as worker

def leave_an_orphan(*_):
    sleep = "trap '' TERM; echo $$ > {pid}; while :; do sleep 1; done"
    subprocess.run(["setsid", "--fork", "sh", "-c", sleep], check=True)
    while not Path("{pid}").exists(): pass
    raise RuntimeError("the job is over, and what it started is not")

machine.settle = leave_an_orphan
sys.exit(worker.main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of orphans")
def test_nothing_that_a_job_started_outlives_its_last_report(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = synthetic.plan(arms={"fast": synthetic.planned_arm()}, seeds=[0])
    spec = job_reports.AttemptSpec(attempt="x.t1", nonce="aa", kind="train", plan=plan)
    store.create(f"work/{spec.folder}/spec.json", spec.canonical())
    where, pid = store.path(f"work/{spec.folder}"), tmp_path / "pid"
    code = ORPHAN.format(pid=pid)
    assert subprocess.run([sys.executable, "-c", code, where], check=False).returncode == 1
    assert "is not" in (where / "out" / "failed.json").read_text()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_pipe_in_the_place_of_the_shared_tokens_holds_nobody_up(
    life: Life, tmp_path: Path, folder: Path
) -> None:
    shutil.copytree(life.store.root, tmp_path / "store")  # compiled already
    [manifest] = (tmp_path / "store" / "steps" / "tokens").glob("*/manifest.json")
    manifest.unlink()
    os.mkfifo(manifest)
    again = Life(folder, Store(tmp_path / "store"), "a pipe")
    again.until("t1.ended")
    assert "Building our own" in (again.out("t1") / "log.txt").read_text()


# ── Its parts ────────────────────────────────────────────────────────────────────────────────


def test_metrics_are_written_after_two_seconds_or_when_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    chunks = main.MetricsChunks(tmp_path / "m")

    def add(step: int) -> list[str]:
        figures = StepMetrics(step=step, loss=1.0, grad_norm=1.0, learning_rate=1.0, tokens=step)
        chunks.add(figures.model_dump())
        return sorted(path.name for path in tmp_path.glob("m/*"))

    assert add(1) == []
    now[0] = 1.9
    assert add(2) == []
    now[0] = 2.0
    assert add(3) == ["000000.jsonl"]
    monkeypatch.setattr(metrics_chunks, "MOST_CHUNK", 300)
    assert add(4) == ["000000.jsonl"]
    assert add(5) == ["000000.jsonl", "000001.jsonl"]
    assert [line.step for line in job_reports.read_metrics(tmp_path.resolve() / "m", 5, [])] == [
        1,
        2,
        3,
        4,
        5,
    ]


def test_a_curve_is_on_disk_before_any_checkpoint_and_odd_figures_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which steps are saved is the engine's to know: by number, by time, or since it was told."""
    arm = synthetic.planned_arm(steps=5)
    folder, said, seen = tmp_path.resolve() / "metrics" / "fast.s0", {}, []

    def train(*given: object, **named: object) -> Iterator[engine.training.train.Metrics]:
        said.update(named, given=given)
        for step in range(1, 6):
            bad = step == 2
            yield engine.training.train.Metrics(
                step=step,
                loss=math.nan if bad else 5.5,
                bpb=math.nan if bad else 8.0,
                grad_norm=math.inf if bad else 1.0,
                param_norm=10.0,
                learning_rate=0.1,
                tokens=step * 16 * 256,
                skipped=bad,
                saving=step == 3,
            )
            seen.append([line.step for line in job_reports.read_metrics(folder, 5, [])])

    monkeypatch.setattr(engine.training.train, "train", train)
    plan = synthetic.plan(arms={"fast": arm}, seeds=[0])
    spec = job_reports.AttemptSpec(attempt="x.t1", nonce="aa", kind="train", plan=plan)
    tokens = TokenStore.of(np.zeros(10_000, np.uint8))
    report = main._run(spec, arm, 0, "fast.s0", tokens, tmp_path, [], lambda: False)
    assert (report.state, report.step) == ("finished", 5)
    assert seen == [[], [], [1, 2, 3], [1, 2, 3], [1, 2, 3]]
    lines = list(job_reports.read_metrics(folder, 5, []))
    assert [line.step for line in lines] == [1, 2, 3, 4, 5]
    assert (lines[1].loss, lines[1].bpb, lines[1].grad_norm) == (None, None, None)
    assert [line.skipped for line in lines] == [False, True, False, False, False]
    assert said["peak_flops"] == 1.92e11  # of the one device that two cores are to JAX


def test_the_stub_and_the_worker_leave_the_same_files(life: Life, tmp_path: Path) -> None:
    def shape(store: Store, execution: str) -> set[str]:
        found = set()
        for out in store.path("work").glob(f"{execution}.*/out"):
            for path in out.rglob("*.json*"):
                name = path.relative_to(out).as_posix()
                if not name.startswith(("checkpoints", "metrics")):
                    found.add(f"{out.parent.name.partition('-')[0][-2:]}/{name}")
        return found

    store, ray = Store(tmp_path / "store"), stub_trainer.StubRay()
    execution = record.require(life.store, f"executions/{life.id}/execution", record.Execution)
    effects.begin(store, execution)
    leases = LeaseWatch(store)
    while not (facts := effects.observe(store, ray.look, leases, execution.id)).result:
        if action := lifecycle.decide(facts):
            effects.act(store, ray, facts, action, execution.at)
    assert shape(store, life.id) == shape(life.store, life.id)
