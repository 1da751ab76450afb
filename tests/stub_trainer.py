"""A trainer without Ray or JAX: `StubRay` takes attempts as Ray would and leaves the reports that
`runner.worker.main` would, with made-up figures. Time passes only when it is told to: at each look
(`pace`), or by `advance` and `finish`. And the ways in which a job may lie, each as a function to
hand to `StubRay(tamper=…)`.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from runner.execution.lifecycle import Job
from runner.execution.ray_jobs import Listed
from runner.lib.canonical_json import to_json
from runner.schema import job_reports, record, step_graph
from runner.schema.job_reports import AttemptSpec
from runner.schema.record import run_name
from runner.store import artifacts
from runner.store.store import Store

RECEIPT = {"python": "3.11.0", "jax": "0.10.2", "device": "1 × stub"}


def steady_bpb(arm: str, seed: int) -> float:
    """A plain effect: `fast` ends 0.8 below every other arm; seeds differ a little."""
    return (2.4 if arm == "fast" else 3.2) + 0.01 * (seed % 7)


@dataclass
class StubJob:
    """One attempt's job: what it was told, and how far it is."""

    folder: Path  # `<store>/work/<attempt>-<nonce>`
    status: Job = "pending"
    steps: int = 0  # taken by this job, over all its runs
    beats: int = 0
    unwritten: dict[str, list[job_reports.StepMetrics]] = field(default_factory=dict)
    work: Iterator[None] = field(default_factory=lambda: iter(()))

    @property
    def spec(self) -> AttemptSpec:
        return AttemptSpec.model_validate_json((self.folder / "spec.json").read_bytes())

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def root(self) -> Path:
        return self.folder.parents[1]

    def lease(self, name: str) -> None:
        """Write a file of the lease. Not through the store: its fault points are the bot's."""
        put(self.root / "leases" / self.folder.name / f"{name}.json", b"{}\n")

    def beat(self) -> None:
        """A heartbeat of its lease."""
        self.lease(f"beat-{self.beats + 1:09d}")
        (self.root / "leases" / self.folder.name / f"beat-{self.beats:09d}.json").unlink(True)
        self.beats += 1

    def flush(self) -> None:
        """Write the metrics that were made since the last time."""
        for run, lines in self.unwritten.items():
            chunks = self.out / "metrics" / run
            number = len(list(chunks.glob("*.jsonl"))) if chunks.is_dir() else 0
            data = b"".join(to_json(line.model_dump(mode="json")) for line in lines)
            put(chunks / f"{number:06d}.jsonl", data)
        self.unwritten.clear()


def put(path: Path, data: bytes) -> None:
    """Write a file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    draft.write_bytes(data)
    draft.replace(path)


def put_report(path: Path, report: job_reports.Report) -> None:
    put(path, to_json(report.model_dump(mode="json")))


class StubRay:
    """A `drive.Launcher`. It outlives the bot in a test's process; with `root` (the store's), a
    new one in a new process knows the jobs of the one before it."""

    def __init__(
        self,
        *,
        pace: int | None = None,  # steps a job takes at each look; None: all at once
        bpb: Callable[[str, int], float] = steady_bpb,
        die_after: dict[str, int] | None = None,  # {"t1": 5}: its job dies after 5 steps
        saves_every: int | None = None,  # steps between two checkpoints; None: as planned
        diverge: dict[str, int] | None = None,  # {"fast.s0": 3}: no finite loss at step 3
        skip: dict[str, int] | None = None,  # {"fast.s0": 3}: the same, and it is skipped
        tamper: Callable[[StubJob], None] | None = None,  # done before a training job finishes
        root: Path | None = None,
    ) -> None:
        self.pace = pace
        self.bpb = bpb
        self.die_after = die_after or {}
        self.saves_every = saves_every
        self.diverge = diverge or {}
        self.skip = skip or {}
        self.tamper = tamper
        self.root = root
        self.make_steps: Callable[[StubJob], None] | None = None  # in a way of the test's own
        self.reachable = True
        self.busy = False  # no devices are free: jobs stay pending
        self.jobs: dict[str, StubJob] = {}
        self.submissions: list[str] = []

    # ── drive.Launcher ──

    def look(self, folder: str) -> Job:
        job = self._job(folder)
        if job and job.status == "running":
            job.beat()
        if not self.reachable:
            return "unreachable"
        if job is None:
            return "unknown"
        if self.pace != 0:
            self._move(job, self.pace)
        return job.status

    def submit(self, folder: str, where: Path, spec_sha256: str, plan: record.Plan) -> None:
        if not self.reachable or self._job(folder):
            return
        assert where.name == folder
        assert spec_sha256 == hashlib.sha256((where / "spec.json").read_bytes()).hexdigest()
        assert plan == AttemptSpec.model_validate_json((where / "spec.json").read_bytes()).plan
        self.submissions.append(folder)
        self.jobs[folder] = StubJob(where)
        if self.root:
            put(self._note(folder), b"{}\n")

    def listed(self) -> list[Listed]:
        live = {folder: job for folder, job in self.jobs.items() if job.status == "running"}
        return [Listed(folder, Store(job.root).id) for folder, job in live.items()]

    def stop(self, folder: str) -> None:
        job = self._job(folder) if self.reachable else None
        if job and job.status == "running":
            job.status = "stopped"

    # ── What a test does to it ──

    def advance(self, steps: int = 1) -> None:
        """Let every job that runs take some steps."""
        for job in list(self.jobs.values()):
            self._move(job, steps)

    def finish(self) -> None:
        """Let every job come to its end."""
        for job in list(self.jobs.values()):
            self._move(job, None)

    def kill(self, attempt: str) -> None:
        """End the job of the attempt (`t1`) as SIGKILL would."""
        self.of(attempt).status = "failed"

    def forget(self) -> None:
        """The head dies and comes back: no job is known. Their files stay."""
        for folder in self.jobs:
            if self.root:
                self._note(folder).unlink(missing_ok=True)
        self.jobs.clear()

    def of(self, attempt: str) -> StubJob:
        """The newest job of the attempt `t1`, `e1`, …"""
        names = [name for name in self.jobs if f".{attempt}-" in name]
        return self.jobs[names[-1]]

    # ── Inside ──

    def _note(self, folder: str) -> Path:
        assert self.root is not None
        return self.root / "stub-jobs" / f"{folder}.json"

    def _job(self, folder: str) -> StubJob | None:
        if folder not in self.jobs and self.root and self._note(folder).is_file():
            self.jobs[folder] = job = StubJob(self.root / "work" / folder)
            if (self.root / "leases" / folder / "released.json").is_file():
                job.status = "failed" if (job.out / "failed.json").is_file() else "succeeded"
        return self.jobs.get(folder)

    def _move(self, job: StubJob, steps: int | None) -> None:
        if job.status == "pending" and not self.busy:
            started = job.root / "leases" / job.folder.name / "start.json"
            if started.is_file() and b"withdrawn" in started.read_bytes():
                self.jobs.pop(job.folder.name)  # the worker leaves; Ray has no word on the attempt
                return
            job.status, job.work = "running", self._work(job)
            job.lease("start")
        while job.status == "running" and steps != 0:
            steps = None if steps is None else steps - 1
            if next(job.work, "over") == "over":
                job.status = "failed" if (job.out / "failed.json").is_file() else "succeeded"
                job.flush()
                job.lease("released")
            elif job.steps >= self.die_after.get(job.spec.attempt.rpartition(".")[2], math.inf):
                job.status = "failed"
        job.flush()

    def _work(self, job: StubJob) -> Iterator[None]:
        spec = job.spec
        if spec.plan.steps and self.make_steps:
            self.make_steps(job)
        elif spec.plan.steps:
            yield from self._steps(job, spec)
        elif spec.kind == "train":
            for arm, seed in spec.plan.runs():
                yield from self._train(job, spec, arm, seed)
            job.flush()
            if self.tamper:
                self.tamper(job)
        else:
            yield
            if why := _evaluate(job, spec, self.bpb):
                put_report(
                    job.out / "failed.json", job_reports.AttemptReport(nonce=spec.nonce, why=why)
                )
                return
        if not (job.out / "finished.json").exists():
            done = job_reports.AttemptReport(nonce=spec.nonce, receipt=RECEIPT)
            put_report(job.out / "finished.json", done)

    def _steps(self, job: StubJob, spec: AttemptSpec) -> Iterator[None]:
        """Each step's output, as far as the lab reads it; one a step of time."""
        steps, store = spec.plan.steps, Store(job.root, make=False)
        runs = {name: run for run, name in spec.plan.trained().items()}

        def build(step: record.PlannedStep, run: tuple[str, int] | None, out: Path) -> None:
            if run:
                put(
                    out / "curve.jsonl",
                    b"".join(to_json({"step": n, "loss": 9 / n}) for n in (1, 2)),
                )
            elif step.do == "evaluate":
                scored = {x: self.bpb(*runs[x]) for x in step.inputs["models"]}
                figures = {
                    name.partition("/")[2]: record.Evaluated(
                        bpb=bpb, loss=bpb, targets=step.config["tokens"], params_sha256="0" * 64
                    ).model_dump()
                    for name, bpb in scored.items()
                }
                put(out / "scores.json", to_json(figures))
            else:
                put(out / "words.txt", step.fingerprint.encode())

        for name in step_graph.order({name: step.needs for name, step in steps.items()}):
            step, by = steps[name], spec.attempt.rpartition(".")[0]
            made = partial(build, step, runs.get(name))
            artifacts.make(store, step.store, step.fingerprint, made, {}, by=by)
            job.steps += 1
            yield

    def _train(self, job: StubJob, spec: AttemptSpec, arm: str, seed: int) -> Iterator[None]:
        run, planned = run_name(arm, seed), spec.plan.arms[arm]
        steps = planned.train.num_train_steps
        every = self.saves_every or planned.train.checkpoint_every
        said = {"nonce": spec.nonce, "state": "finished", "step": steps}
        for step in range(_newest(job, spec, run) + 1, steps + 1):
            if step == self.diverge.get(run):
                why = f"the loss was not finite (nan) at step {step}; lower learning_rate"
                said = {"nonce": spec.nonce, "state": "failed", "step": step, "why": why}
                break
            loss = self.bpb(arm, seed) * math.log(2) + 3 * math.exp(-4 * step / steps)
            skipped = step == self.skip.get(run)
            line = job_reports.StepMetrics(
                step=step,
                loss=None if skipped else loss,
                bpb=None if skipped else loss / math.log(2),
                grad_norm=None if skipped else 1.0,
                param_norm=10.0,
                learning_rate=planned.train.learning_rate,
                tokens=step * planned.train.train_batch_size * planned.model.seq_len,
                skipped=skipped,
                tokens_per_second=50_000.0,
                mfu=0.4,
                compile_seconds=2.0 if step == 1 else None,
            )
            job.unwritten.setdefault(run, []).append(line)
            job.steps += 1
            if step % every == 0 or step == steps:
                job.flush()
                item = job.out / "checkpoints" / run / str(step) / "params" / "values.json"
                put(item, to_json({"run": run, "step": step}))
            yield
        put_report(job.out / "runs" / f"{run}.json", job_reports.RunReport(**said))


def _newest(job: StubJob, spec: AttemptSpec, run: str) -> int:
    """The step of the newest checkpoint of `run`, in an earlier attempt or this one."""
    folders = [job.folder.name, *spec.earlier]
    found = [job.root / "work" / name / "out" / "checkpoints" / run for name in folders]
    return max((int(path.name) for folder in found for path in folder.glob("[0-9]*")), default=0)


def _evaluate(job: StubJob, spec: AttemptSpec, bpb: Callable[[str, int], float]) -> str:
    """Score what is to be scored. Returns why it could not be, or nothing."""
    seeds = {run_name(arm, seed): (arm, seed) for arm, seed in spec.plan.runs()}
    most_bytes = job_reports.most_checkpoint(0)
    for run, wanted in spec.evaluate.items():
        step = job.root / "work" / wanted.path
        with contextlib.suppress(job_reports.Refused):
            if job_reports.checkpoint_sha256(step, most_bytes) == wanted.sha256:
                value = bpb(*seeds[run])
                evaluated = record.Evaluated(
                    bpb=value,
                    loss=value * math.log(2),
                    targets=spec.plan.eval.tokens,
                    params_sha256=hashlib.sha256(
                        json.dumps([run, wanted.path]).encode()
                    ).hexdigest(),
                )
                report = job_reports.EvaluationReport(nonce=spec.nonce, evaluated=evaluated)
                put_report(job.out / "evaluated" / f"{run}.json", report)
                continue
        return f"the checkpoint of {run} is not the one recorded; nothing was scored"
    return ""


# ── Lies ─────────────────────────────────────────────────────────────────────────────────────


def false_metrics(job: StubJob) -> None:
    """Lines that contradict the plan, are no JSON, hold no finite figure, or have no end."""
    lines = [
        b'{"step":3,"loss":0.001,"grad_norm":1,"learning_rate":1,"tokens":999999999}',
        b'{"step":999,"loss":0.001,"grad_norm":1,"learning_rate":1,"tokens":999}',
        b'{"step":1,"loss":NaN,"grad_norm":1,"learning_rate":1,"tokens":1}',
        b"not json",
        b'{"step":' + b"1" * 5_000 + b"}",
    ]
    for run in _runs(job):
        put(job.out / "metrics" / run / "999999.jsonl", b"\n".join(lines))


def unknown_keys(job: StubJob) -> None:
    """A run's word with a figure in it that only the lab may find."""
    for run in _runs(job):
        path = job.out / "runs" / f"{run}.json"
        put(path, to_json({**json.loads(path.read_bytes()), "bpb": 0.001}))


def wrong_nonce(job: StubJob) -> None:
    """A run's word that another attempt has given."""
    for run in _runs(job):
        path = job.out / "runs" / f"{run}.json"
        put(path, to_json({**json.loads(path.read_bytes()), "nonce": "0" * 16}))


def boast(job: StubJob) -> None:
    """A failed run that took a billion steps, whose FLOPs would count."""
    for run in _runs(job):
        said = job_reports.RunReport(
            nonce=job.spec.nonce, state="failed", step=10**9, why="so many"
        )
        put_report(job.out / "runs" / f"{run}.json", said)


def linked_files(job: StubJob) -> None:
    """Links in the place of a word and of a checkpoint's files."""
    for run in _runs(job):
        path = job.out / "runs" / f"{run}.json"
        shutil.move(path, job.out / f"elsewhere-{run}.json")
        path.symlink_to(job.out / f"elsewhere-{run}.json")


def linked_checkpoints(job: StubJob) -> None:
    """A checkpoint whose parameters are a link to files that can change later."""
    for item in (job.out / "checkpoints").glob("*/*/params"):
        shutil.move(item, item.with_name("elsewhere"))
        item.symlink_to(item.with_name("elsewhere"))


def pipes(job: StubJob) -> None:
    """A named pipe, on which a careless reader waits for ever."""
    for run in _runs(job):
        (job.out / "runs" / f"{run}.json").unlink()
        os.mkfifo(job.out / "runs" / f"{run}.json")
    os.mkfifo(job.out / "metrics" / _runs(job)[0] / "000777.jsonl")
    os.mkfifo(job.out / "failed.json")


def looped_runs(job: StubJob) -> None:
    """A folder that is a link to itself, which nothing can resolve."""
    shutil.rmtree(job.out / "runs")
    (job.out / "runs").symlink_to("runs")


def odd_names(job: StubJob) -> None:
    """Names that are no UTF-8: of a chunk, and of a folder where evaluation is to write."""
    evaluation = job.spec.attempt.rpartition(".")[0] + ".e1-"
    Path(os.fsdecode(os.fsencode(job.root / "work" / evaluation) + b"\xff")).mkdir()
    for chunks in (job.out / "metrics").iterdir():
        put(Path(os.fsdecode(os.fsencode(chunks) + b"/9\xff.jsonl")), b"no JSON")


def vast_checkpoints(job: StubJob) -> None:
    """Four GiB beside the parameters, which take no room on disk and much time to read."""
    for item in (job.out / "checkpoints").glob("*/*/params"):
        with (item / "more").open("wb") as file:
            file.truncate(4 << 30)


def flood_of_metrics(job: StubJob) -> None:
    """A megabyte of lines under a thousand names."""
    for chunks in (job.out / "metrics").iterdir():
        first = chunks / "100000.jsonl"
        put(first, b"no JSON\n" * 100_000)
        for n in range(1, 1_000):
            (chunks / f"{100_000 + n}.jsonl").hardlink_to(first)


def endless_receipt(job: StubJob) -> None:
    """More lines than a comment can hold."""
    receipt = {f"{n}": "x" * 100 for n in range(3_000)}
    said = {"nonce": job.spec.nonce, "receipt": receipt, "why": ""}
    put(job.out / "finished.json", to_json(said))


def another_spec(job: StubJob) -> None:
    """The spec that a worker would have obeyed if it had been changed before it came."""
    spec = job.spec.model_copy(update={"earlier": ("somebody-elses",)})
    put(job.folder / "spec.json", spec.canonical())


def squat(job: StubJob) -> None:
    """Figures in the folder of the coming evaluation, under the names it could guess."""
    spec = job.spec
    evaluation = spec.attempt.rpartition(".")[0] + ".e1"
    for name in (evaluation, f"{evaluation}-{spec.nonce}", f"{evaluation}-{'0' * 16}"):
        for arm, seed in spec.plan.runs():
            evaluated = record.Evaluated(
                bpb=0.001, loss=0.001, targets=spec.plan.eval.tokens, params_sha256="0" * 64
            )
            put_report(
                job.root / "work" / name / "out" / "evaluated" / f"{run_name(arm, seed)}.json",
                job_reports.EvaluationReport(nonce=name.rpartition("-")[2], evaluated=evaluated),
            )
        put(job.root / "leases" / name / "start.json", b"{}\n")
        put(job.root / "leases" / name / "released.json", b"{}\n")


def swap_checkpoints(root: Path, attempt: str) -> int:
    """Change the parameters that the attempt (`t1`) left. For after their digests are recorded."""
    found = list((root / "work").glob(f"*.{attempt}-*/out/checkpoints/*/*/params/*"))
    for path in found:
        if path.is_file():
            path.write_bytes(b"better ones")
    return len(found)


def _runs(job: StubJob) -> list[str]:
    return [run_name(arm, seed) for arm, seed in job.spec.plan.runs()]
