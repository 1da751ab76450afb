"""Trains a part of a finished run again, from one of its checkpoints to the next, and compares.
`python -m runner.worker.replay` reads a `Stretch` and prints an `Outcome`. Training and comparing
are jobs like those of steps, each in a process of its own (`runner.worker.step_process`).

If the run's step has own code, or reads what own code made, it is trained under bubblewrap, as it
was the first time. It sees the checkpoint to start from and not the one to reach. Only the lab's
code compares, in children that see one checkpoint each: own code cannot influence the comparison,
except for its losses.

The engine's training is equal bit for bit if the receipts are equal; otherwise losses may differ by
the tolerance in `runner.analysis.run_comparison`."""

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
from runner.worker.models import stretch
from runner.worker.step_process import Job

TRAIN, DIGEST = (f"{stretch.__name__}:{name}" for name in ("train", "digest"))


class Stretch(Record):
    """Steps `first` + 1 to `last` of a run. `first` is 0 for its beginning."""

    config: dict[str, Any]  # of its `train` step
    inputs: dict[str, str]  # folders
    code: str = ""  # of the own modules
    own: tuple[str, ...] = ()
    isolated: bool = False
    limits: bubblewrap.Limits = bubblewrap.USUAL
    devices: Kind
    count: int  # of these
    checkpoints: str  # the folder with `<first>` and `<last>`
    first: int
    last: int


class Outcome(Record):
    """The comparison of the stretch."""

    same: bool  # the parameters, bit for bit
    before_sha256: str
    now_sha256: str
    losses: dict[int, float]  # by step
    receipt: dict[str, str]


class Losses(job_reports.Report):
    """The losses that the training job reports."""

    losses: dict[Word, Annotated[float, Field(ge=-1e9, le=1e9)]]  # by step


class Digest(job_reports.Report):
    """The digest of a checkpoint's parameters."""

    sha256: Sha256


def replay(asked: Stretch) -> Outcome:
    """Train the stretch and compare. Raises MakingFailed, and Refused for an invalid report."""
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
    """A job's output folder and its receipt."""
    place = Path(tempfile.mkdtemp(prefix="regatta-replay-")).resolve()
    out = place / "out"
    scratch = scratch_paths.of(out)
    out.mkdir()
    scratch.mkdir()
    try:
        shard_jobs.run(replace(job, out=str(out), scratch=str(scratch)))
        yield out, shard_jobs.receipts(scratch / scratch_paths.RECEIPT)
    finally:
        with suppress(OSError):  # the job may have left odd names
            remove_tree(place)


def _digest(trained: Job, checkpoint: Path) -> tuple[str, dict[str, str]]:
    """The digest of a checkpoint's parameters, and the receipt."""
    inputs: dict[str, str | dict[str, str]] = {stretch.CHECKPOINT: str(checkpoint)}
    job = replace(trained, function=DIGEST, config={}, inputs=inputs, code="", own=())
    with _made(job) as (out, receipt):
        found = job_reports.read_report(out / stretch.DIGEST, Digest)
    if found is None:
        raise MakingFailed(f"step {checkpoint.name} cannot be compared")
    return found.sha256, receipt


def _folder(path: Path) -> Path:
    """The same path, if it is a folder and not a link: the box would show the link's target, which
    may be another checkpoint or must stay hidden. Raises MakingFailed."""
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
    """Run the requested replay. Returns the exit code."""
    try:
        outcome = replay(Stretch.model_validate_json(sys.stdin.buffer.read()))
    except (MakingFailed, job_reports.Refused, ValidationError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    os.write(1, outcome.canonical())
    return 0


if __name__ == "__main__":
    sys.exit(main())
