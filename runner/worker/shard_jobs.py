"""A step's processes: one that makes everything, or for a text of many shards, one for some shards
each, in parallel with Ray and in sequence without it. The output is the same. This process runs no
code of a step: each child is forked by a `runner.worker.fork_server` and ends with its parent."""

import hashlib
import secrets
import shutil
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from runner.lib import bounds, preemption, untrusted_files
from runner.schema import job_reports
from runner.spec.step_types import BUILT_IN, KEPT, OverShards
from runner.store import digests
from runner.store.artifacts import MakerLost, MakerPreempted, MakingFailed
from runner.store.digests import BadOutput
from runner.store.scratch_paths import DIGESTS, HELD, PARTS, RECEIPT, WHY
from runner.worker.fork_server import ServerGone, StepServer
from runner.worker.host_group import PeerLost
from runner.worker.step_process import (
    MOST_WHY,
    NOT_ISOLATED,
    PEER_GONE,
    TRAIN,
    Job,
    reason,
)
from runner.worker.texts.shards import corpus_files, groups, shards

MADE = "made"  # a part's files; beside it is their description
MOST_DIGESTS = 64 << 20  # bytes
NOTICED = "it saved and left, because its machine was about to be taken away"


Child = Callable[[Job], None]  # raises MakingFailed and MakerLost
Mapper = Callable[[Child, Iterable[Job]], Iterable[None]]  # such as `map`


_server = StepServer()  # of this process, which makes steps of one execution only


def ready() -> None:
    """Start this process's server, which ends with the thread that called this first."""
    _server.start()


def run(job: Job) -> None:
    """Make what `job` names in a process of its own. Its log is in the scratch folder. Raises
    MakingFailed, MakerLost if its process was killed, and MakerPreempted if it left."""
    try:
        code = _server.make(job)
    except ServerGone as error:
        if error.code >= 0:
            raise MakerLost(str(error)) from error
        code = error.code
    _raise_for(job, Path(job.scratch), code)
    if not Path(job.scratch, RECEIPT).is_file():
        raise MakingFailed("its process ended before the step did")


def _raise_for(job: Job, scratch: Path, code: int) -> None:
    """Raise what the exit code of its process means."""
    if job.function == TRAIN and code in (preemption.LEFT, -signal.SIGTERM):
        raise MakerPreempted(NOTICED)
    if code == PEER_GONE and job.place:
        raise PeerLost("another process of the gang is gone")
    if code:
        raise (MakerLost if code < 0 else MakingFailed)(reason(scratch / WHY, code))


def reported(job: Job, scratch: Path, code: int) -> dict[str, str]:
    """The receipt of a part of an isolated step, which left it in `scratch` and ended with `code`.
    Raises MakingFailed and MakerLost."""
    _raise_for(job, scratch, code)
    try:
        return receipts(scratch / RECEIPT) | {
            "isolation": untrusted_files.words(scratch / HELD, MOST_WHY)
        }
    except untrusted_files.Refused as error:
        raise MakingFailed(str(error)) from error


def make(do: str, job: Job, child: Child, one: Mapper, many: Mapper) -> dict[str, str]:
    """Make a step. Returns its receipt. `child` does a job, called by `one` for single jobs and by
    `many` for several. Raises MakingFailed and MakerLost."""
    if over := _over(do, job):
        job = _over_shards(over, job, child, one, many)
    list(one(child, [job]))
    try:
        return receipts(Path(job.scratch) / RECEIPT) | _isolation(job)
    except untrusted_files.Refused as error:
        raise MakingFailed(str(error)) from error


def receipts(path: Path) -> dict[str, str]:
    """The step's receipt. Raises Refused."""
    found = job_reports.read_report(path, job_reports.ReceiptReport)
    if found is None:
        raise untrusted_files.Refused("its process ended before the step did")
    return dict(found.root)


def _isolation(job: Job) -> dict[str, str]:
    """The isolation of a step for its receipt: reported by the lab, not by the step."""
    if job.isolation == "bubblewrap":
        return {"isolation": untrusted_files.words(Path(job.scratch) / HELD, MOST_WHY)}
    if not job.code or not job.isolation:
        return {}
    return {"isolation": NOT_ISOLATED[job.isolation]}


# ── Many shards ──────────────────────────────────────────────────────────────────────────────


def _over(do: str, job: Job) -> OverShards | None:
    """How the step runs in several processes; None if one is enough. Depends on the step and its
    input only, not on the machine."""
    over = BUILT_IN[do].over if do in BUILT_IN else None
    if over is None or not isinstance(job.inputs.get(over.of), str):
        return None
    if over.when and job.config[over.when[0]] not in over.when[1]:
        return None
    return over if len(_groups(over, job)) > 1 else None


def _groups(over: OverShards, job: Job) -> list[dict[str, Path]]:
    folder = Path(str(job.inputs[over.of]))
    return list(groups(corpus_files(folder) if over.of == KEPT else shards(folder)))


def _over_shards(over: OverShards, job: Job, child: Child, one: Mapper, many: Mapper) -> Job:
    """Make all parts of a step. Returns the remaining job, which joins them."""
    inputs = dict(job.inputs)
    if over.first:
        first = _part(job, over.first, inputs)
        (inputs["first"],) = _parts([first], child, one)
    jobs = [
        _part(
            job, over.each, inputs | {"shards": {name: str(path) for name, path in group.items()}}
        )
        for group in _groups(over, job)
    ]
    parts = {f"{number:06d}": made for number, made in enumerate(_parts(jobs, child, many))}
    return replace(job, function=over.join, inputs=inputs | {"parts": parts}, own=())


def _part(job: Job, function: str, inputs: dict[str, Any]) -> Job:
    """A part of a job, in a folder named by a digest of everything it depends on."""
    part = replace(
        job, function=function, inputs=inputs, receipt=False, out="", scratch="", next=None
    )
    # Its code is in a folder of this maker's; other makers have the same.
    digest = hashlib.sha256(replace(part, code="").written()).hexdigest()
    place = Path(job.scratch) / PARTS / digest[:32]
    return replace(part, out=str(place / MADE), scratch=str(place))


def _parts(jobs: list[Job], child: Child, mapper: Mapper) -> list[str]:
    """The folders of these parts' outputs: made here, or by an earlier maker that was lost
    later."""
    found = {job.scratch: _earlier(job) for job in jobs}
    missing = [job for job in jobs if found[job.scratch] is None]
    list(mapper(partial(_make_part, child), missing))
    return [found[job.scratch] or job.out for job in jobs]


def _make_part(child: Child, job: Job) -> None:
    """Make a part in a temporary folder and rename it when it is complete. A maker that was taken
    for lost may still do the same."""
    place = Path(job.scratch)
    aside = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
    (aside / MADE).mkdir(parents=True)
    child(replace(job, out=str(aside / MADE), scratch=str(aside)))
    (aside / DIGESTS).write_bytes(digests.listed(digests.accepted(aside / MADE)))
    try:
        aside.rename(place)
    except OSError:  # the other one was first, with the same bytes
        shutil.rmtree(aside, ignore_errors=True)


def _earlier(job: Job) -> str | None:
    """The folder of a complete part in any maker's scratch folder."""
    place = Path(job.scratch)
    for other in sorted(place.parents[2].glob(f"*/{place.parent.name}/{place.name}")):
        try:
            said = untrusted_files.read(other / DIGESTS, MOST_DIGESTS) or b""
            files = bounds.parse(digests.FILES, said, MOST_DIGESTS)
            digests.verify(other / MADE, files)
        except (untrusted_files.Refused, OSError, ValueError, BadOutput):
            continue  # make it again
        return str(other / MADE)
    return None
