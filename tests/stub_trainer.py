"""A trainer without Ray or JAX: `StubRay` takes attempts as Ray would and leaves the outputs and
reports that `runner.worker.main` would, with made-up figures. Time passes only when it is told to:
at each look (`pace`), or by `advance` and `finish`. And the ways in which a job may lie, each as a
function to hand to `StubRay(tamper=…)`.
"""

import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from runner.execution.lifecycle import Job
from runner.execution.ray_jobs import Listed, RayAway
from runner.history.step_runs import READ, read_by
from runner.lib.canonical_json import to_json
from runner.schema import job_reports, metrics, record, step_graph
from runner.schema.job_reports import AttemptSpec
from runner.schema.record import run_name
from runner.spec import measured
from runner.spec.tuning import TUNED, Search
from runner.store import artifacts, digests, scratch_paths
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
    curve: Path | None = None  # where the step that trains now notes its metrics
    unwritten: list[job_reports.StepMetrics] = field(default_factory=list)
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
        if self.curve and self.unwritten:
            number = len(list(self.curve.glob("*.jsonl"))) if self.curve.is_dir() else 0
            data = b"".join(to_json(line.model_dump(mode="json")) for line in self.unwritten)
            put(self.curve / f"{number:06d}.jsonl", data)
        self.unwritten.clear()


def _tuned(step: record.PlannedStep) -> bytes:
    """A search that tried the arm's own settings and stayed there."""
    space = Search.model_validate(step.config["search"]).space(step.config["train"])
    own = space.settings(space.start)
    trials = tuple(record.Trial(settings=own, seed=seed, bpb=2.5) for seed in space.seeds)
    return record.Tuned(settings=own, why="the budget is spent", trials=trials).canonical()


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
        by_metric: Callable[[str, int, str], float] | None = None,  # scores by other metrics
        die_after: dict[str, int] | None = None,  # {"t1": 5}: its job dies after 5 steps
        saves_every: int | None = None,  # steps between two checkpoints; None: as planned
        diverge: dict[str, int] | None = None,  # {"fast.s0": 3}: no finite loss at step 3
        skip: dict[str, int] | None = None,  # {"fast.s0": 3}: the same, and it is skipped
        tamper: Callable[[StubJob], None] | None = None,  # done before a training job finishes
        root: Path | None = None,
    ) -> None:
        self.pace = pace
        self.bpb = bpb
        self.by_metric = by_metric
        self.die_after = die_after or {}
        self.saves_every = saves_every
        self.diverge = diverge or {}
        self.skip = skip or {}
        self.tamper = tamper
        self.root = root
        self.make_steps: Callable[[StubJob], None] | None = None  # in a way of the test's own
        self.reachable = True
        self.busy = False  # no devices are free: jobs stay pending
        self.silent = False  # the nodes of jobs died: Ray says for ever that they run
        self.jobs: dict[str, StubJob] = {}
        self.submissions: list[str] = []

    # ── drive.Launcher ──

    def check(self) -> None:
        if not self.reachable:
            raise RayAway("No Ray answers.")

    def close(self) -> None:
        pass

    def look(self, folder: str) -> Job:
        job = self._job(folder)
        if job and job.status == "running":
            job.beat()
        if not self.reachable:
            return "unreachable"
        if job is None:
            return "unknown"
        if self.silent and job.status == "pending":
            return "running"
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
        why = ""
        if self.make_steps:
            self.make_steps(job)
        else:
            why = yield from self._steps(job, spec)
        if self.tamper:
            self.tamper(job)
        name = "failed" if why else "finished"
        if not (job.out / f"{name}.json").exists():
            done = job_reports.AttemptReport(nonce=spec.nonce, why=why)
            put_report(job.out / f"{name}.json", done)

    def _steps(self, job: StubJob, spec: AttemptSpec) -> Generator[None, None, str]:
        """Make each step, as far as the lab reads what it leaves. Returns why that failed."""
        steps, store = spec.plan.steps, Store(job.root, make=False)
        failed: dict[str, str] = {}
        needs = {name: steps[name].needs for name in sorted(steps, key=lambda x: steps[x].turn)}
        for name in step_graph.order(needs):
            step = step_graph.without(steps[name], failed)
            if step is None or any(other in failed for other in step.needs):
                failed[name] = ""
                continue
            start = yield from self._turn(job, spec, store, step)
            if start is None:
                continue
            out = job.root / start.folder
            out.mkdir(parents=True)
            run = spec.plan.arm_of(name)
            why = ""
            if run:
                why = yield from self._train(job, spec, run, out)
            elif step.do == "evaluate":
                put(out / "scores.json", to_json(self._scores(spec, step)))
                if self.by_metric:
                    put(out / metrics.MEASURED, metrics.written(self._measured(spec, step)))
                yield
            elif step.do == "tune":
                put(out / TUNED, _tuned(step))
                yield
            else:
                put(out / "words.txt", step.fingerprint.encode())
                yield
            if why:
                failed[name] = why
            read = {READ: read_by(store, step, steps)} if step.inputs else {}
            _end(job.root, start, why, read)
        scored = any(step.do == "evaluate" and x not in failed for x, step in steps.items())
        words = "; ".join(f"{name}: {why}" for name, why in failed.items() if why)
        return "" if scored or not words else words

    def _turn(
        self, job: StubJob, spec: AttemptSpec, store: Store, step: record.PlannedStep
    ) -> Generator[None, None, artifacts.Start | None]:
        """Begin to make a step, once nobody else does; None where somebody has made it."""
        while not artifacts.find(store, step.store, step.fingerprint, check=False):
            start, end = artifacts.newest(store, step.store, step.fingerprint)
            if start and not end:
                theirs = [x for x in self.jobs.values() if x.spec.attempt.startswith(start.by)]
                if start.by != spec.attempt.rpartition(".")[0] and any(
                    other.status == "running" for other in theirs
                ):
                    yield
                    continue
                lost = artifacts.End(how="lost", why="its process has ended")
                put(job.root / "leases" / start.lease / "end.json", lost.canonical())
            mine = artifacts.Start(
                name=step.store,
                fingerprint=step.fingerprint,
                generation=start.generation + 1 if start else 1,
                maker=secrets.token_hex(8),
                by=spec.attempt.rpartition(".")[0],
                host="stub",
            )
            put(job.root / "leases" / mine.lease / "start.json", mine.canonical())
            return mine
        return None

    def _scores(self, spec: AttemptSpec, step: record.PlannedStep) -> dict[str, object]:
        runs = {name: run for run, name in spec.plan.trained().items()}
        found = {}
        for name, trained in step.inputs["models"].items():
            bpb = self.bpb(*runs[name])
            if not math.isfinite(bpb):
                continue
            found[name.partition("/")[2]] = record.Evaluated(
                bpb=bpb,
                loss=bpb * math.log(2),
                targets=step.config["tokens"],
                params_sha256=hashlib.sha256(trained.encode()).hexdigest(),
            ).model_dump()
        return found

    def _measured(
        self, spec: AttemptSpec, step: record.PlannedStep
    ) -> dict[str, dict[str, metrics.Score | None]]:
        """Every planned metric of each model, over 20 items."""
        assert self.by_metric
        runs = {name: run for run, name in spec.plan.trained().items()}
        return {
            name.partition("/")[2]: {
                metric: metrics.score(
                    self.bpb(*runs[name])
                    if metric == metrics.BPB
                    else self.by_metric(*runs[name], metric),
                    *(() if metric == metrics.OUTPUT_NORM else (20, 0.01)),
                )
                for metric in measured.of_model(step, name, spec.plan.steps)
            }
            for name in step.inputs["models"]
        }

    def _train(
        self, job: StubJob, spec: AttemptSpec, of: tuple[str, int], out: Path
    ) -> Generator[None, None, str]:
        """Train one run into `out`. Returns why it failed."""
        (arm, seed), run = of, run_name(*of)
        planned, scratch = spec.plan.arms[arm], scratch_paths.of(out)
        steps = planned.train.num_train_steps
        every = self.saves_every or planned.train.checkpoint_every
        scratch.mkdir()
        put(scratch / "log.txt", f"training {run}\n".encode())
        job.curve = scratch / scratch_paths.CURVE
        for step in range(_newest(out) + 1, steps + 1):
            if step == self.diverge.get(run):
                job.flush()
                if job.curve.is_dir():
                    job.curve.rename(scratch / scratch_paths.STOPPED)
                return f"the loss was not finite (nan) at step {step}; lower learning_rate"
            loss = self.bpb(arm, seed) * math.log(2) + 3 * math.exp(-4 * step / steps)
            skipped = step == self.skip.get(run)
            line = job_reports.StepMetrics(
                step=step,
                loss=None if skipped else loss,
                bpb=None if skipped else loss / math.log(2),
                grad_norm=None if skipped else 1.0,
                param_norm=10.0,
                learning_rate=planned.train.learning_rate,
                tokens=planned.tokens_until(step),
                skipped=skipped,
                tokens_per_second=50_000.0,
                mfu=0.4,
                compile_seconds=2.0 if step == 1 else None,
            )
            job.unwritten.append(line)
            job.steps += 1
            if step % every == 0 or step == steps:
                job.flush()
                item = scratch / "checkpoints" / str(step) / "params" / "values.json"
                put(item, to_json({"run": run, "step": step}))
            yield
        put(out / "params.safetensors", to_json({"run": run}))
        put(out / "curve.jsonl", _whole_curve(out))
        return ""


def _whole_curve(out: Path) -> bytes:
    """The metrics of all makers, without what tells of the machine."""
    lines = {}
    for maker in (*scratch_paths.others(out), scratch_paths.of(out)):
        for chunk in sorted((maker / scratch_paths.CURVE).glob("*.jsonl")):
            for line in map(json.loads, chunk.read_bytes().splitlines()):
                for name in ("tokens_per_second", "mfu", "compile_seconds", "seconds"):
                    del line[name]
                lines[line["step"]] = line
    return b"".join(to_json(lines[step]) for step in sorted(lines))


def _end(root: Path, start: artifacts.Start, why: str, read: dict[str, str]) -> None:
    """End a generation: as failed, or as made with what lies in its folder."""
    end = artifacts.End(how="failed", why=why)
    if not why:
        manifest = artifacts.Manifest(
            **start.model_dump(exclude={"process"}),
            files=digests.accepted(root / start.folder),
            parts={},
            receipt=RECEIPT | read,
            made_at=datetime.now(UTC),
            seconds=10.0,
        )
        end = artifacts.End(how="made", manifest=manifest)
    put(root / "leases" / start.lease / "end.json", end.canonical())
    if end.manifest:
        put(root / start.folder / ".." / "manifest.json", end.manifest.canonical())


def _newest(out: Path) -> int:
    """The step of the newest checkpoint of other makers."""
    found = [x for maker in scratch_paths.others(out) for x in maker.glob("checkpoints/[0-9]*")]
    return max((int(path.name) for path in found), default=0)


# ── Lies ─────────────────────────────────────────────────────────────────────────────────────


def _curves(job: StubJob) -> list[Path]:
    return list(job.root.glob("steps/*train/*/*.scratch/curve"))


def _made(job: StubJob, what: str) -> list[Path]:
    """The outputs' files of this name."""
    return list(job.root.glob(f"steps/*/*/*/{what}"))


def _again(path: Path) -> Path:
    """The manifest beside an output's folder, which names the file's digest as it is now."""
    manifest = path.parents[1] / "manifest.json"
    said = json.loads(manifest.read_bytes())
    said["files"] = {name: of.model_dump() for name, of in digests.accepted(path.parent).items()}
    manifest.chmod(0o644)
    put(manifest, to_json(said))
    return manifest


def false_metrics(job: StubJob) -> None:
    """Lines that contradict the plan, are no JSON, hold no finite figure, or have no end."""
    lines = [
        b'{"step":3,"loss":0.001,"grad_norm":1,"learning_rate":1,"tokens":999999999}',
        b'{"step":999,"loss":0.001,"grad_norm":1,"learning_rate":1,"tokens":999}',
        b'{"step":1,"loss":NaN,"grad_norm":1,"learning_rate":1,"tokens":1}',
        b"not json",
        b'{"step":' + b"1" * 5_000 + b"}",
    ]
    for curve in _curves(job):
        put(curve / "999999.jsonl", b"\n".join(lines))


def unknown_keys(job: StubJob) -> None:
    """Scores with a figure that nobody asked for."""
    for path in _made(job, "scores.json"):
        said = {name: {**of, "better": 0.001} for name, of in json.loads(path.read_bytes()).items()}
        put(path, to_json(said))
        _again(path)


def another_metric(job: StubJob) -> None:
    """Scores by a metric that was not planned."""
    for path in _made(job, metrics.MEASURED):
        more = {"task/luck/accuracy": {"value": 1.0}}
        put(
            path,
            to_json({name: {**of, **more} for name, of in json.loads(path.read_bytes()).items()}),
        )
        _again(path)


def other_figures(job: StubJob) -> None:
    """Better scores, in the place of those whose digest the manifest has."""
    for path in _made(job, "scores.json"):
        put(path, path.read_bytes().replace(b'"bpb":', b'"bpb":0'))


def fewer_tokens(job: StubJob) -> None:
    """Scores on fewer tokens than were planned."""
    for path in _made(job, "scores.json"):
        said = {name: {**of, "targets": 1} for name, of in json.loads(path.read_bytes()).items()}
        put(path, to_json(said))
        _again(path)


def wrong_nonce(job: StubJob) -> None:
    """An attempt's word that another attempt has given."""
    said = {"nonce": "0" * 16, "why": "", "receipt": {}}
    put(job.out / "finished.json", to_json(said))


def boast(job: StubJob) -> None:
    """A curve of more steps than were planned."""
    for path in _made(job, "curve.jsonl"):
        line = json.loads(path.read_bytes().splitlines()[-1])
        more = b"".join(to_json({**line, "step": n}) for n in range(1, 1_000))
        put(path, more)
        _again(path)


def linked_files(job: StubJob) -> None:
    """Links in the place of scores."""
    for path in _made(job, "scores.json"):
        elsewhere = job.out / "elsewhere.json"
        elsewhere.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, elsewhere)
        path.symlink_to(elsewhere)


def pipes(job: StubJob) -> None:
    """A named pipe, on which a careless reader waits for ever."""
    for path in _made(job, "scores.json"):
        path.unlink()
        os.mkfifo(path)
    for curve in _curves(job)[:1]:
        os.mkfifo(curve / "000777.jsonl")
    job.out.mkdir(parents=True, exist_ok=True)
    os.mkfifo(job.out / "failed.json")


def odd_names(job: StubJob) -> None:
    """Names that are no UTF-8: of a chunk, and of a folder where an attempt is to write."""
    attempt = job.spec.attempt.rpartition(".")[0] + ".t2-"
    Path(os.fsdecode(os.fsencode(job.root / "work" / attempt) + b"\xff")).mkdir()
    for curve in _curves(job):
        put(Path(os.fsdecode(os.fsencode(curve) + b"/9\xff.jsonl")), b"no JSON")


def flood_of_metrics(job: StubJob) -> None:
    """A megabyte of lines under a thousand names."""
    for curve in _curves(job):
        first = curve / "100000.jsonl"
        put(first, b"no JSON\n" * 100_000)
        for n in range(1, 1_000):
            (curve / f"{100_000 + n}.jsonl").hardlink_to(first)


def endless_receipt(job: StubJob) -> None:
    """More lines than a comment can hold."""
    receipt = {f"{n}": "x" * 100 for n in range(3_000)}
    said = {"nonce": job.spec.nonce, "receipt": receipt, "why": ""}
    put(job.out / "finished.json", to_json(said))


def another_spec(job: StubJob) -> None:
    """The spec that a worker would have obeyed if it had been changed before it came."""
    spec = job.spec.model_copy(update={"limit_seconds": 1e9})
    put(job.folder / "spec.json", spec.canonical())


def swapped_models(job: StubJob) -> None:
    """Other parameters than those that were scored, under the same manifest's name."""
    for path in _made(job, "params.safetensors"):
        put(path, b"better ones")
        _again(path)
