"""Trains a stretch of a finished run once more, from one of its checkpoints to the next, and says
whether it came to the same. `python -m runner.worker.replay` reads a `Stretch` and prints an
`Outcome`. What trains and what compares are jobs like those of steps, each in a process of its own
(`runner.worker.step_process`).

Where the run's step has code of the experiment's own, or reads what such code made, it is trained
under bubblewrap, as it was the first time. It sees the checkpoint that it begins with and not the
one it should come to. What compares is the lab's code alone, in children that see one checkpoint
each: who trains again has no word in how that came out, but for its losses.

The engine's training is the same bit for bit where the receipts are; elsewhere the losses may
differ by the tolerance that `runner.analysis.run_comparison` states."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from runner.isolation import bubblewrap
from runner.lib.base_record import Record, Sha256
from runner.lib.bounds import Word
from runner.schema import job_reports
from runner.schema.devices import Kind
from runner.store import scratch_paths
from runner.store.artifacts import MakingFailed
from runner.store.backends import remove_tree
from runner.worker import shard_jobs
from runner.worker.builtin import stretch
from runner.worker.step_process import Job

TRAIN, DIGEST = (f"{stretch.__name__}:{name}" for name in ("train", "digest"))


class Stretch(Record):
    """Steps `first` + 1 to `last` of a run. `first` is 0 for its beginning."""

    config: dict[str, Any]  # of its `train` step
    inputs: dict[str, str]  # folders
    code: str = ""  # of the experiment's own modules
    own: tuple[str, ...] = ()
    isolated: bool = False
    limits: bubblewrap.Limits = bubblewrap.USUAL
    devices: Kind
    count: int  # of these
    checkpoints: str  # the folder with `<first>` and `<last>`
    first: int
    last: int


class Outcome(Record):
    """What the stretch came to."""

    same: bool  # the parameters, bit for bit
    before_sha256: str
    now_sha256: str
    losses: dict[int, float]  # by step
    receipt: dict[str, str]


class Losses(job_reports.Report):
    """What the one who trained says of its losses."""

    losses: dict[Word, Annotated[float, Field(ge=-1e9, le=1e9)]]  # by step


class Digest(job_reports.Report):
    """Of a checkpoint's parameters."""

    sha256: Sha256


def replay(asked: Stretch) -> Outcome:
    """Train the stretch and compare. Raises MakingFailed, and Refused for what a job says."""
    before = Path(asked.checkpoints).resolve()
    job = Job(
        function=TRAIN,
        config={"step": asked.config, "first": asked.first, "last": asked.last},
        inputs=dict(asked.inputs),
        out="",
        scratch="",
        code=asked.code,
        devices=asked.devices,
        count=asked.count,
        own=asked.own,
        isolation="bubblewrap" if asked.isolated else "",
        limits=asked.limits,
    )
    if asked.first:
        job.inputs[stretch.BEFORE] = str(_folder(before / str(asked.first)))
    with _made(job) as (trained, _):
        ends = [_folder(folder / str(asked.last)) for folder in (before, trained / stretch.NOW)]
        (then, _), (now, receipt) = (_digest(job, folder) for folder in ends)
        losses = _losses(asked, trained)
    return Outcome(
        same=then == now, before_sha256=then, now_sha256=now, losses=losses, receipt=receipt
    )


@contextmanager
def _made(job: Job) -> Iterator[tuple[Path, dict[str, str]]]:
    """What a job made, and its receipt."""
    place = Path(tempfile.mkdtemp(prefix="regatta-replay-")).resolve()
    out = place / "out"
    scratch = scratch_paths.of(out)
    out.mkdir()
    scratch.mkdir()
    try:
        shard_jobs.run(replace(job, out=str(out), scratch=str(scratch)))
        yield out, shard_jobs.receipts(scratch / scratch_paths.RECEIPT)
    finally:
        with suppress(OSError):  # who wrote there may have left odd names
            remove_tree(place)


def _digest(trained: Job, checkpoint: Path) -> tuple[str, dict[str, str]]:
    """Of a checkpoint's parameters, and what was there to train with."""
    inputs: dict[str, str | dict[str, str]] = {stretch.CHECKPOINT: str(checkpoint)}
    job = replace(trained, function=DIGEST, config={}, inputs=inputs, code="", own=())
    with _made(job) as (out, receipt):
        found = job_reports.read_report(out / stretch.DIGEST, Digest)
    if found is None:
        raise MakingFailed(f"step {checkpoint.name} cannot be compared")
    return found.sha256, receipt


def _folder(path: Path) -> Path:
    """The same path, if a folder lies there behind no link: what it leads to would be shown in the
    box, and that may be another checkpoint, or what no box may show. Raises MakingFailed."""
    if path.resolve() != path or not path.is_dir():
        raise MakingFailed(f"step {path.name} has left no folder to compare, or one behind a link")
    return path


def _losses(asked: Stretch, trained: Path) -> dict[int, float]:
    found = job_reports.read_report(trained / stretch.LOSSES, Losses)
    steps = range(asked.first + 1, asked.last + 1)
    if found is None or set(found.losses) != set(map(str, steps)):
        raise MakingFailed(f"it did not say its losses of steps {steps[0]} to {steps[-1]}")
    return {int(step): loss for step, loss in found.losses.items()}


def main() -> int:
    """Replay what is asked for; returns the exit code."""
    try:
        outcome = replay(Stretch.model_validate_json(sys.stdin.buffer.read()))
    except (MakingFailed, job_reports.Refused, ValidationError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    os.write(1, outcome.canonical())
    return 0


if __name__ == "__main__":
    sys.exit(main())
