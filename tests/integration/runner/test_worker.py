"""The worker with JAX and without Ray: each job is a plain child process of the test."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.training.train import Metrics
from runner.execution import effects, lifecycle
from runner.execution.lifecycle import Job
from runner.lib import preemption
from runner.planning import planner
from runner.schema import job_reports, record
from runner.schema.job_reports import ANOTHER_SPEC, ANOTHER_WORKER, StepMetrics
from runner.store import artifacts, scratch_paths
from runner.store.leases import LeaseWatch
from runner.store.store import Store
from runner.worker import environment, metrics_chunks
from runner.worker.models import train as built_in
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
        return [sys.executable, "-m", "tests.runner.inline_ray", str(where), spec_sha256]

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
        return next(self.store.local("work").glob(f"{self.id}.{attempt}-*/out"))

    def run(self, name: str) -> record.Run:
        return record.require(self.store, f"runs/{self.id}.{name}", record.Run)

    @property
    def plan(self) -> record.Plan:
        return record.require(self.store, f"executions/{self.id}/execution", record.Execution).plan

    def ended(self, attempt: str) -> record.Ended:
        path = f"executions/{self.id}/{attempt}.ended"
        return record.require(self.store, path, record.Ended)

    def place(self, step: str) -> Path:
        """Where the outputs of this step lie."""
        of = self.plan.steps[step]
        return self.store.local(f"steps/{of.store}/{of.fingerprint[:16]}")

    def made(self, step: str) -> artifacts.Made:
        of = self.plan.steps[step]
        found = artifacts.find(self.store, of.store, of.fingerprint)
        assert found
        return found

    def noted(self, step: str, generation: int = 1) -> list[StepMetrics]:
        """What that maker noted while it trained."""
        [folder] = self.place(step).glob(f"{generation}-*.scratch/curve")
        return list(job_reports.read_metrics(folder.resolve(), 1000, []))


ONE_SEED = TINY.replace("[0, 1]", "[0]")
SLOW = "  slow: {train: {learning_rate: 0.0001}}\n"


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    folder = declare(tmp_path_factory.mktemp("experiments") / "tiny", ONE_SEED)
    life = Life(folder, Store(tmp_path_factory.mktemp("lab") / "store"))
    life.to_the_end()
    return life


RUNS = ("slow.s0", "fast.s0")
TRAINED = "train/fast,seed=0"


# ── What it leaves ───────────────────────────────────────────────────────────────────────────


def test_the_worker_trains_and_evaluates_what_the_spec_says(life: Life) -> None:
    result = life.to_the_end()
    assert (result.state, result.why, result.refused) == ("done", "", ())
    for name in RUNS:
        run = life.run(name)
        assert (run.state, run.steps, run.tokens) == ("finished", 20, 20 * 4 * 32)
        assert [step for step, _ in run.curve] == list(range(1, 21))
        assert run.evaluated
        assert run.evaluated.targets == 256
        assert run.measured["eval/bpb"].value == run.evaluated.bpb
        assert run.measured["weights/output_norm"].value > 0
    assert life.run("fast.s0").evaluated.bpb < life.run("slow.s0").evaluated.bpb - 0.5  # type: ignore[union-attr]


def test_the_worker_writes_only_where_it_may(life: Life) -> None:
    top = {path.name for path in life.store.root.iterdir()}
    assert top == {"store.json", "records", "leases", "work", "steps", "texts", "cache"}
    attempt = life.out("t1").parent
    assert {path.name for path in attempt.iterdir()} == {"spec.json", "out"}
    assert {path.name for path in (attempt / "out").iterdir()} == {"log.txt", "finished.json"}


def test_the_receipt_names_what_equality_rests_on(life: Life) -> None:
    ended = life.ended("t1")
    for name in life.plan.trained().values():
        receipt = ended.steps[name].receipt
        assert receipt["platform"] == "cpu"
        assert len(receipt["code_sha256"]) == 64
        assert {"python", "jax", "jaxlib", "flax", "numpy", "cpu", "affinity"} <= receipt.keys()
        assert len(receipt["affinity"].split(",")) == int(receipt["threads"]) <= 2
    assert ended.receipt["jax"] == ended.steps[TRAINED].receipt["jax"]


def test_training_tells_its_pace_and_how_well_it_uses_the_device(life: Life) -> None:
    lines = life.noted(TRAINED)
    assert [line.step for line in lines] == list(range(1, 21))
    assert lines[0].compile_seconds
    paces = [line for line in lines if line.tokens_per_second]
    assert paces
    assert all(line.mfu and 0 < line.mfu < 1 for line in paces)
    whole = (life.made(TRAINED).folder / "curve.jsonl").read_text().splitlines()
    told_of_the_machine = {"mfu", "tokens_per_second", "compile_seconds", "seconds"}
    assert not any(told_of_the_machine & json.loads(line).keys() for line in whole)


def test_training_tells_each_checkpoints_curve_before_the_checkpoint(life: Life) -> None:
    [curve] = life.place(TRAINED).glob("*.scratch/curve")
    chunks = sorted(curve.glob("*.jsonl"))
    last = [json.loads(chunk.read_text().splitlines()[-1])["step"] for chunk in chunks]
    assert {5, 10, 15, 20} <= set(last)


def test_a_second_worker_leaves_with_its_own_code_and_touches_nothing(life: Life) -> None:
    folder = life.out("t1").parent
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    lease = life.store.list(f"leases/{folder.name}")
    assert work(folder) == ANOTHER_WORKER
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert life.store.list(f"leases/{folder.name}") == lease


# ── What it shares ───────────────────────────────────────────────────────────────────────────


def test_one_more_seed_trains_that_seed_alone_and_has_figures_of_its_own(
    life: Life, tmp_path: Path
) -> None:
    folder = declare(tmp_path / "more-seeds", TINY.replace(SLOW, ""))
    more = Life(folder, Store(life.store.root), "more")
    assert more.to_the_end().state == "done"
    states = {name: end.state for name, end in more.ended("t1").steps.items()}
    assert states == {
        **{"tokenize": "cached", TRAINED: "cached"},
        **{"train/fast,seed=1": "made", "evaluate": "made"},
    }
    assert more.run("fast.s0").evaluated == life.run("fast.s0").evaluated
    runs = [more.run("fast.s0"), more.run("fast.s1"), life.run("slow.s0")]
    assert len({run.evaluated.params_sha256 for run in runs if run.evaluated}) == 3


# ── What it refuses ──────────────────────────────────────────────────────────────────────────


def test_a_run_that_diverges_ends_with_its_step_and_the_others_are_scored(
    life: Life, tmp_path: Path
) -> None:
    text = ONE_SEED.replace("fast: {}", "fast: {train: {learning_rate: 1.0e+30}}")
    one = Life(declare(tmp_path / "x", text), Store(life.store.root), "one diverges")
    assert one.to_the_end().state == "done"
    failed = one.run("fast.s0")
    assert (failed.state, failed.evaluated) == ("failed", None)
    assert f"at step {failed.steps + 1}" in failed.why
    assert len(failed.curve) == failed.steps > 0, "what it noted is kept"
    assert one.run("slow.s0").evaluated == life.run("slow.s0").evaluated


def test_an_execution_fails_if_every_run_diverges(life: Life, tmp_path: Path) -> None:
    text = ONE_SEED.replace(SLOW, "").replace("0.01,", "2.0e+30,")
    every = Life(declare(tmp_path / "x", text), Store(life.store.root), "all diverge")
    result = every.to_the_end()
    assert result.state == "failed"
    assert f"{TRAINED}: " in result.why
    assert "lower learning_rate" in result.why
    assert every.run("fast.s0").state == "failed"


def test_a_text_that_is_not_the_planned_one_is_refused_in_words(tmp_path: Path) -> None:
    life = Life(declare(tmp_path / "x", ONE_SEED), Store(tmp_path / "store"))
    [text] = life.store.local("texts").iterdir()
    (text / "train").write_text("another text, and not a short one\n" * 1000)
    result = life.to_the_end()
    assert result.state == "failed"
    assert "the train split of words.txt is another one on this machine" in result.why
    assert all(life.run(name).evaluated is None for name in RUNS)


def test_a_spec_that_cannot_be_read_is_said_and_not_retried(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    where = store.local("work/x.t1-aa")
    where.mkdir(parents=True)
    (where / "spec.json").write_text("{}")
    assert work(where) == 1
    failed = job_reports.read_report(where / "out" / "failed.json", job_reports.AttemptReport, "aa")
    assert failed
    assert failed.why.startswith("ValidationError: ")
    assert len(failed.why) <= 500


def test_a_spec_of_another_digest_is_left_alone_with_a_code_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    where = store.local("work/x.t1-aa")
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
from runner.worker import executor, main as worker

def leave_an_orphan(*_):
    sleep = "trap '' TERM; echo $$ > {pid}; while :; do sleep 1; done"
    subprocess.run(["setsid", "--fork", "sh", "-c", sleep], check=True)
    while not Path("{pid}").exists(): pass
    raise RuntimeError("the job is over, and what it started is not")

executor.run = leave_an_orphan
sys.exit(worker.main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of orphans")
def test_nothing_that_a_job_started_outlives_its_last_report(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = synthetic.plan(arms={"fast": synthetic.planned_arm()}, seeds=[0])
    spec = job_reports.AttemptSpec(attempt="x.t1", nonce="aa", plan=plan)
    store.create(f"work/{spec.folder}/spec.json", spec.canonical())
    where, pid = store.local(f"work/{spec.folder}"), tmp_path / "pid"
    code = ORPHAN.format(pid=pid)
    assert subprocess.run([sys.executable, "-c", code, where], check=False).returncode == 1
    assert "is not" in (where / "out" / "failed.json").read_text()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


# ── Its parts ────────────────────────────────────────────────────────────────────────────────


def test_metrics_are_written_after_two_seconds_or_when_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    chunks = metrics_chunks.MetricsChunks(tmp_path / "m")

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
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which steps are saved is the engine's to know: by number, by time, or since it was told."""
    out = tmp_path.resolve() / "out"
    folder, said, seen = scratch_paths.of(out) / "curve", {}, []

    def steps_of(*_: object, **named: object) -> Iterator[Metrics]:
        said.update(named)
        for step in range(1, 6):
            bad = step == 2
            yield Metrics(
                step=step,
                loss=float("nan") if bad else 5.5,
                bpb=float("nan") if bad else 8.0,
                grad_norm=float("inf") if bad else 1.0,
                param_norm=10.0,
                learning_rate=0.1,
                tokens=step * 4 * 32,
                skipped=bad,
                saving=step == 3,
            )
            seen.append([line.step for line in job_reports.read_metrics(folder, 5, [])])

    monkeypatch.setattr(built_in, "steps_of", steps_of)
    monkeypatch.setenv(environment.PEAK_FLOPS, "1.92e11")
    tokens = {"tokens": life.made("tokenize").folder}
    with pytest.raises(preemption.Left):  # as steps end before the last only after a notice
        built_in.train(life.plan.steps[TRAINED].config, tokens, out, output=False)
    assert seen == [[], [], [1, 2, 3], [1, 2, 3], [1, 2, 3]]
    lines = list(job_reports.read_metrics(folder, 5, []))
    assert [line.step for line in lines] == [1, 2, 3, 4, 5]
    assert (lines[1].loss, lines[1].bpb, lines[1].grad_norm) == (None, None, None)
    assert [line.skipped for line in lines] == [False, True, False, False, False]
    assert said["peak_flops"] == 1.92e11


def test_the_stub_and_the_worker_leave_the_lab_the_same_to_read(life: Life, tmp_path: Path) -> None:
    def keys(path: Path) -> Iterable[str]:
        """What a file says, as far as it is by names that are the same for all runs."""
        said = json.loads(path.read_bytes() if path.suffix == ".json" else path.open().readline())
        said = next(iter(said.values())) if path.name == "scores.json" else said
        return sorted(said)

    def shape(root: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in sorted(root.glob("steps/train/*/*/curve.jsonl")):
            found["curve"] = keys(path)
        for path in sorted(root.glob("steps/train/*/*.scratch/curve/000000.jsonl")):
            found["chunk"] = keys(path)
            found["log"] = (path.parents[1] / "log.txt").is_file()
        for path in sorted(root.glob("steps/evaluate/*/*/scores.json")):
            found["scores"] = keys(path)
        for path in sorted(root.glob("steps/*/*/manifest.json")):
            found[f"manifest of {path.parts[-3]}"] = keys(path)
        for path in sorted(root.glob("leases/steps/*/*/*/[es]*.json")):
            found[f"{path.parts[-4]} {path.name}"] = keys(path)
        attempt = root.glob(f"work/{life.id}.*/**/*.json")
        return found | {path.name: keys(path) for path in attempt}

    store, ray = Store(tmp_path / "store"), stub_trainer.StubRay()
    execution = record.require(life.store, f"executions/{life.id}/execution", record.Execution)
    effects.begin(store, execution)
    leases = LeaseWatch(store)
    while not (facts := effects.observe(store, ray.look, leases, execution.id)).result:
        if action := lifecycle.decide(facts):
            effects.act(store, ray, facts, action, execution.at)
    assert shape(store.root) == shape(life.store.root)
