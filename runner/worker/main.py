"""What runs inside a job: `python -m runner.worker.main <attempt's folder> [<SHA-256 of
spec.json>]`.

The folder is a path, or gs://bucket/prefix/work/<attempt>: what comes before `work/` is all of the
store that a job needs, and no records are there. It obeys the folder's `spec.json`, and no other
one where it is told the digest; it talks to nobody, and leaves reports
(`runner.schema.job_reports`) below `out/` for the lab to read. It writes nowhere else but to its
lease, the shared steps and the cache. Its first act is to begin its lease: of two workers on one
attempt, the second leaves at once. Before its last report it ends every process that it has
started. On SIGTERM while it trains it finishes the step, saves and leaves without a report, so that
the next attempt goes on from there; whoever sends it says how long that may take (Ray: its
RAY_JOB_STOP_WAIT_TIME_S, 5 s in the Ray that the lab starts), and what is not saved by then is done
again.
"""

import hashlib
import math
import os
import platform
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.data.tokenize import BadText, Text, read_text
from runner.isolation import bubblewrap
from runner.lib import process_tree
from runner.lib.canonical_json import to_json
from runner.lib.problems import BadExperiment
from runner.planning import lockfile
from runner.planning.planner import code_folder, text_folder
from runner.schema import job_reports, token_key
from runner.schema.devices import KINDS
from runner.schema.job_reports import (
    ANOTHER_SPEC,
    ANOTHER_WORKER,
    PREEMPTED,
    TOLD_TO_END,
    AttemptReport,
    AttemptSpec,
    EvaluationReport,
    Refused,
    RunReport,
    StepMetrics,
)
from runner.schema.record import Evaluated, PlannedArm, PlannedData, run_name
from runner.store import artifacts, checkpoint_sync
from runner.store.leases import AttemptLease
from runner.store.store import Remote, Store, StoreError, local
from runner.worker import environment
from runner.worker.step_process import NOT_ISOLATED

if TYPE_CHECKING:  # it imports TensorStore, whose threads are counted when it is imported
    from engine.data.token_store import TokenStore
    from engine.training.train import Metrics

FLUSH_EVERY = 2.0  # seconds between two chunks of metrics
MOST_CHUNK = job_reports.MOST_BYTES // 2
MOST_WHY = 500
MOST_LOG = 16 << 20  # bytes of what was printed that a bucket gets


class Refusal(Exception):
    """The worker will not do it; the message is the whole sentence."""


# ── The attempt ──────────────────────────────────────────────────────────────────────────────


def main(place: Path | str, spec_sha256: str | None = None) -> int:
    """Do the attempt in the folder `place`, and return the exit code."""
    process_tree.die_with_parent(signal.SIGKILL)  # a job does not outlive its Ray
    process_tree.adopt_orphans()
    os.umask(0o022)
    store, name = _opened(place)
    lease = AttemptLease(store, name)
    if not lease.start({"pid": os.getpid(), "host": socket.gethostname(), "job": name}):
        print(f"{name} was begun by another worker, or withdrawn; leaving it alone.")
        return ANOTHER_WORKER
    spec = store.read(f"work/{name}/spec.json") or b""
    if spec_sha256 not in (None, hashlib.sha256(spec).hexdigest()):
        print(f"{place}/spec.json is not the one that was claimed; not doing it.", file=sys.stderr)
        lease.release()
        return ANOTHER_SPEC
    folder = store.at(f"work/{name}")
    _log_to(local(folder / "out") / "log.txt")
    with lease.beating():
        code = _attempt(store, folder, spec)
        _leave(folder / "out")
    lease.release()
    return code


def _opened(place: Path | str) -> tuple[Store, str]:
    """The jobs' store, and the name of the attempt's folder in it."""
    if isinstance(place, str) and place.startswith("gs://"):
        from runner.store.gcs import tell_tensorstore

        tell_tensorstore()
        root, _, name = place.rpartition("/work/")
        return Store(root, make=False), name
    folder = Path(place).resolve()
    return Store(folder.parents[1]), folder.name


def _leave(out: Path | Remote) -> None:
    """Take what is left on this machine to the bucket, or away; on disk it is where it belongs."""
    if isinstance(out, Remote):
        with (local(out) / "log.txt").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - MOST_LOG))
            (out / "log.txt").create(log.read())
        shutil.rmtree(local(out).parent, ignore_errors=True)


def _log_to(path: Path) -> None:
    """Ray's own logs end with Ray; what this process prints is kept with the attempt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


def _attempt(store: Store, folder: Path | Remote, written: bytes) -> int:
    out, nonce = folder / "out", folder.name.rpartition("-")[2]
    try:
        spec = AttemptSpec.model_validate_json(written)
        if spec.folder != folder.name:
            raise Refusal(f"spec.json is of {spec.folder} and lies in {folder.name}")
        if spec.plan.steps:
            _steps(store, spec)
        else:
            environment.settle(spec.plan.resources.kind, spec.plan.resources.count)
            (_train if spec.kind == "train" else _evaluate)(store, spec, out)
        receipt = {} if spec.plan.steps else environment.receipt()  # each step has its own
        done = AttemptReport(nonce=nonce, receipt=receipt)
    except ToldToEnd:  # the attempt is lost, and the next one goes on from here
        print("told to end by SIGTERM; what was trained is saved", file=sys.stderr)
        process_tree.end_descendants(signal.SIGKILL)
        return TOLD_TO_END
    except Preempted as error:
        print(f"{error}; the next attempt goes on from there", file=sys.stderr)
        process_tree.end_descendants(signal.SIGKILL)
        return PREEMPTED
    except Exception as error:
        traceback.print_exc()
        process_tree.end_descendants(signal.SIGKILL)
        write_report(out / "failed.json", AttemptReport(nonce=nonce, why=_sentence(error)))
        return 1
    process_tree.end_descendants(signal.SIGKILL)
    write_report(out / "finished.json", done)
    return 0


def _sentence(error: Exception) -> str:
    """One sentence: as it is where the exception's words are meant for people."""
    meant = isinstance(error, (Refusal, Refused, StoreError, BadText, environment.WrongDevice))
    meant = meant or type(error).__module__.startswith("engine.")
    return " ".join((str(error) if meant else f"{type(error).__name__}: {error}").split())[
        :MOST_WHY
    ]


def write_report(path: Path | Remote, report: job_reports.Report) -> None:
    """Write a report, whole or not at all."""
    _write(path, to_json(report.model_dump(mode="json")))


def _write(path: Path | Remote, data: bytes) -> None:
    if isinstance(path, Remote):
        path.create(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


# ── Steps ────────────────────────────────────────────────────────────────────────────────────


class Preempted(Exception):
    """Steps lost the machines that they ran on; the message names them."""


def _steps(store: Store, spec: AttemptSpec) -> None:
    from runner.worker import executor

    plan, isolation = spec.plan, spec.isolation
    if (plan.own_code() or plan.compiled) and not isolation:
        raise Refusal(NOT_ISOLATED[""])
    if isolation == "bubblewrap" and (words := bubblewrap.probe()):
        raise Refusal(f"{words} Nothing of the experiment's own was run.")
    if plan.compiled:
        try:
            lockfile.check(store.fetch(code_folder(plan)), isolated=isolation == "bubblewrap")
        except (BadExperiment, bubblewrap.CannotIsolate) as error:
            raise Refusal(str(error)) from error
    limits = bubblewrap.Limits(seconds=spec.limit_seconds or bubblewrap.USUAL.seconds)
    terms = executor.Terms(isolation, limits)
    try:
        executor.run(store, plan, code_folder(plan), spec.attempt.rpartition(".")[0], terms)
    except executor.StepsFailed as error:
        raise Refusal(str(error)) from error
    except executor.StepsLost as error:
        raise Preempted(str(error)) from error


# ── Training ─────────────────────────────────────────────────────────────────────────────────


class ToldToEnd(Exception):
    """SIGTERM has come; what was trained has been saved."""


def _train(store: Store, spec: AttemptSpec, out: Path | Remote) -> None:
    """Train all runs, one after the other. Raises ToldToEnd if that is not all that is left."""
    import jax

    from engine.training.heap import keep_heap

    keep_heap()
    jax.config.update("jax_compilation_cache_dir", str(store.local("cache/xla")))
    tokens = _tokens(store, spec)
    with process_tree.noting(signal.SIGTERM) as told:
        for arm, seed in spec.plan.runs():
            if told():
                raise ToldToEnd
            run = run_name(arm, seed)
            earlier = checkpoint_sync.brought(
                [store.at(f"work/{name}/out/checkpoints/{run}") for name in spec.earlier]
            )
            report = _run(spec, spec.plan.arms[arm], seed, run, tokens, out, earlier, told)
            write_report(out / "runs" / f"{run}.json", report)
    if isinstance(out, Remote):  # what was brought to go on from is needed no more
        for name in spec.earlier:
            shutil.rmtree(store.local(f"work/{name}"), ignore_errors=True)


def _run(
    spec: AttemptSpec,
    arm: PlannedArm,
    seed: int,
    run: str,
    tokens: "TokenStore",
    out: Path | Remote,
    earlier: list[Path],
    told: Callable[[], bool],
) -> RunReport:
    """Train one run. One that diverges has failed, and the next one goes on. Raises ToldToEnd when
    it was saved before its end."""
    from engine.data.sampling import Sampler
    from engine.model.decoder import Decoder
    from engine.training.train import Diverged, train

    steps = reached = arm.train.num_train_steps
    sampler = Sampler(tokens, seed, arm.train.train_batch_size, arm.model.seq_len)
    chunks = MetricsChunks(out / "metrics" / run)
    saved = out / "checkpoints" / run
    try:
        with checkpoint_sync.copied(saved):
            for line in train(
                Decoder(arm.model),
                arm.train,
                sampler,
                seed,
                local(saved),
                earlier,
                peak_flops=KINDS[spec.plan.resources.kind].peak_flops,
                stop=told,
            ):
                chunks.add(_metrics(line))
                if line.saving:  # so that who resumes from the checkpoint finds the curve up to it
                    chunks.flush()
                reached = line.step
    except Diverged as error:
        return RunReport(
            nonce=spec.nonce, state="failed", step=error.step, why=str(error)[:MOST_WHY]
        )
    finally:
        chunks.flush()
    if reached < steps:
        raise ToldToEnd
    return RunReport(nonce=spec.nonce, state="finished", step=steps)


def _metrics(line: "Metrics") -> StepMetrics:
    """A step's metrics as they are reported, where what is not finite is no figure."""
    figures = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in line._asdict().items()
        if name != "saving"
    }
    return StepMetrics.model_validate(figures)


class MetricsChunks:
    """A run's metrics as numbered files, each written once and whole."""

    def __init__(self, folder: Path | Remote) -> None:
        self._folder = folder
        self._number = 0
        self._lines = b""
        self._flushed_at = time.monotonic()

    def add(self, line: StepMetrics) -> None:
        """Keep a line; write a chunk when it is time."""
        self._lines += to_json(line.model_dump(mode="json"))
        if time.monotonic() - self._flushed_at >= FLUSH_EVERY or len(self._lines) > MOST_CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what has not been written."""
        if self._lines:
            _write(self._folder / f"{self._number:06d}.jsonl", self._lines)
            self._number, self._lines = self._number + 1, b""
        self._flushed_at = time.monotonic()


# ── The text ─────────────────────────────────────────────────────────────────────────────────


def _tokens(store: Store, spec: AttemptSpec) -> "TokenStore":
    """The planned text's tokens to train on, in memory: a step that is made once and checked by
    all who use it. What was checked is what is trained on, whoever writes to the files later."""
    from engine.data.token_store import TokenStore, WrongTokens

    data = spec.plan.data
    assert data

    def build(folder: Path) -> None:
        TokenStore.build(folder / "train", [_text(store, data).train.decode()])

    key, fingerprint = token_key.tokens_key(data), token_key.tokens_fingerprint(data)
    try:
        made = artifacts.make(store, token_key.TOKENS, fingerprint, build, key, by=spec.folder)
        place = store.url(f"{made.manifest.folder}/train")
        return TokenStore.open(place, tokens_sha256=data.train_sha256).load()
    except (WrongTokens, artifacts.BadOutput, artifacts.MakingFailed, StoreError) as error:
        print(f"{error}\nBuilding our own.", file=sys.stderr)
    mine = store.local(f"work/{spec.folder}/out/tokens")
    build(mine)
    return TokenStore.open(mine / "train").load()


def _text(store: Store, data: PlannedData) -> Text:
    """The planned text, from this machine's library or from the store. Raises Refusal where it is
    another one."""
    if data.source == "stdlib":
        text = read_text("stdlib", None)
    else:
        folder = text_folder(data.train_sha256, data.validation_sha256)
        train, validation = (store.require(f"{folder}/{x}") for x in ("train", "validation"))
        text = Text(data.source, train, validation)
    for split, found, planned in (
        ("train", text.train_sha256, data.train_sha256),
        ("validation", text.validation_sha256, data.validation_sha256),
    ):
        if found != planned:
            raise Refusal(
                f"the {split} split of {data.source} has SHA-256 {found[:16]}… on this machine "
                f"(Python {platform.python_version()}) and {planned[:16]}… in the plan; use the "
                "plan's Python, or plan again here"
            )
    return text


# ── Evaluation ───────────────────────────────────────────────────────────────────────────────


def _evaluate(store: Store, spec: AttemptSpec, out: Path | Remote) -> None:
    """Score each checkpoint, from a copy that has the recorded digest. Training's compilation
    cache and token store are not used: a job wrote them."""
    import numpy as np

    from engine.model.decoder import Decoder
    from engine.training.digest import tree_sha256
    from engine.training.evaluate import bits_per_byte, load_params

    assert spec.plan.data
    validation = np.frombuffer(_text(store, spec.plan.data).validation, np.uint8)
    arms = {run_name(arm, seed): spec.plan.arms[arm] for arm, seed in spec.plan.runs()}
    for run, wanted in spec.evaluate.items():
        arm, copy = arms[run], local(out) / "copies" / run
        decoder, most_bytes = Decoder(arm.model), job_reports.most_checkpoint(arm.parameters)
        _copy(store.at(f"work/{wanted.path}"), copy, run, wanted.sha256, most_bytes)
        params = load_params(copy, decoder)
        found = bits_per_byte(decoder, params, validation, spec.plan.eval.tokens)
        if math.isfinite(found.bpb):
            evaluated = Evaluated(
                bpb=found.bpb,
                loss=found.loss,
                targets=found.targets,
                params_sha256=tree_sha256(params),
            )
            report = EvaluationReport(nonce=spec.nonce, evaluated=evaluated)
            write_report(out / "evaluated" / f"{run}.json", report)
        else:  # no figure is written, and the lab says so; the other runs have theirs
            print(f"{run}: {found.bpb} bits per byte is no figure", file=sys.stderr)
        shutil.rmtree(copy)


def _copy(checkpoint: Path | Remote, copy: Path, run: str, wanted: str, most_bytes: int) -> None:
    """Take the parameters out of the reach of whoever wrote them, if they are those recorded."""
    try:
        params = checkpoint / "params"
        if isinstance(params, Remote):
            job_reports.sizes(params, most_bytes)
            params.store.download_folder(params.key, copy / "params")
        else:
            shutil.copytree(params, copy / "params", symlinks=True)
        found = f"SHA-256 {job_reports.checkpoint_sha256(copy, most_bytes)}"
    except OSError as error:
        found = f"unreadable ({' '.join(str(error).split())[:150]})"
    except Refused as error:
        found = str(error)
    if found != f"SHA-256 {wanted}":
        raise Refusal(
            f"the checkpoint of {run} is not the one recorded ({found} instead of SHA-256 "
            f"{wanted}); nothing was scored"
        )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
