"""What a job reports, and the only readers for it: schemas with size limits.

A job may be buggy, late, or hostile, so its reports are not facts. The lab reads them only through
`read_report` and `read_metrics`, which accept regular files, no links, limited sizes, known keys,
figures within `runner.lib.bounds`, and the attempt's own nonce. Everything else is refused, and the
reason is recorded. Files of an attempt, below `work/<attempt>-<nonce>/`:

    spec.json                       written by the lab: what to do
    out/finished.json, failed.json  the attempt is over
    out/preempted.json              it lost its machines
    out/log.txt                     its output; no decision depends on it

Outputs of steps are elsewhere (`runner.store.artifacts`). `read_metrics` reads what steps report
while they train: chunks of one line per step.

The files may be on disk or in a bucket, which has no links, pipes or folders.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from runner.lib import bounds, untrusted_files
from runner.lib.base_record import Record
from runner.lib.bounds import Count, Figure, Seconds, Size, Speed, Step, Word
from runner.lib.untrusted_files import MOST_BYTES as MOST_BYTES
from runner.lib.untrusted_files import MOST_REASON, refusing
from runner.lib.untrusted_files import Refused as Refused
from runner.lib.untrusted_files import printable as printable
from runner.schema.record import Plan
from runner.store.store import Remote

MOST_LINE = 2_000
MOST_SPARE = 64  # files and lines of metrics beyond one per step
A_LINE = 500  # maximum bytes per line of metrics, as a mean over a run
MOST_BAD_CHUNKS = 20  # after these, the rest of a run's metrics is not read
MOST_RECEIPT = 40
Receipt = Annotated[dict[Word, Word], Field(max_length=MOST_RECEIPT)]
ANOTHER_WORKER = 75  # exit code of a worker whose attempt was started by another worker
ANOTHER_SPEC = 76  # exit code of a worker that finds a `spec.json` other than the one it was given
PREEMPTED = 78  # exit code of a worker whose steps lost their machines

Isolation = Literal["", "bubblewrap", "trusted", "own machine"]  # "": not reported


class Report(BaseModel):
    """A report by a job. Refuses unknown keys and figures that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class StepMetrics(Report):
    """One line of metrics: the state after `step` steps, as in `engine.training.train.Metrics`. A
    figure that is not finite is None; only a skipped step may have such a loss or norm."""

    step: Step
    loss: Figure | None  # nats per token, over the batch of this step
    bpb: Figure | None = None
    grad_norm: Size | None
    param_norm: Size | None = None
    learning_rate: Figure
    tokens: Count  # seen so far
    skipped: bool = False  # the step changed nothing
    tokens_per_second: Speed | None = None
    mfu: Size | None = None
    compile_seconds: Seconds | None = None
    seconds: Seconds | None = None  # since its process began to train
    # Only a mixture of experts has these two.
    max_load: Size | None = Field(default=None, exclude_if=lambda load: load is None)
    dropped: Size | None = Field(default=None, exclude_if=lambda share: share is None)

    @model_validator(mode="after")
    def _figures_but_of_skipped_steps(self) -> "StepMetrics":
        if not self.skipped and None in (self.loss, self.grad_norm):
            raise PydanticCustomError("no_figure", "only a skipped step may have no loss or norm")
        return self


class AttemptReport(Report):
    """The attempt is over; `why` if it failed. The receipt names what reproducibility depends
    on."""

    nonce: Word
    why: Word = ""
    receipt: Receipt = {}


class ReceiptReport(RootModel[Receipt]):
    """What a step reports about how its figures were computed."""


class AttemptSpec(Record):
    """The job of an attempt: `spec.json`, whose digest is in the record."""

    attempt: str  # `<execution>.t<n>`
    nonce: str
    plan: Plan
    isolation: Isolation = ""  # of own code
    limit_seconds: float | None = None  # time limit of own code; None: a day

    @property
    def folder(self) -> str:
        """`<attempt>-<nonce>`: the name of its folder below `work/`, of its lease and of its
        job."""
        return f"{self.attempt}-{self.nonce}"


C = TypeVar("C", bound=BaseModel)


def read_report(path: Path | Remote, kind: type[C], nonce: str | None = None) -> C | None:
    """The report in the file `path`, or None if there is no such file.

    Raises Refused if it is not a regular file, too large, of another form, or (with `nonce`) of
    another attempt. Like all functions here it raises StoreError if a bucket does not answer, which
    says nothing about the report.
    """
    data = read_regular(path)
    if data is None:
        return None
    try:
        report = bounds.parse(kind, data)
    except ValueError as error:
        raise Refused(f"{_short(path)}: {_first_reason(error)}") from error
    if nonce is not None and getattr(report, "nonce", nonce) != nonce:
        raise Refused(f"{_short(path)}: it was not written by this attempt (wrong nonce)")
    return report


def read_metrics(
    folder: Path | Remote, steps: int, refused: list[str], newest: int | None = None
) -> Iterator[StepMetrics]:
    """The metrics in the numbered chunks of `folder` (or only in the `newest` few), in order.

    A chunk is read up to its first bad line, which is added to `refused`. Reads no more than a run
    of `steps` steps can report.
    """
    try:
        chunks = _chunks(folder, steps)
    except Refused as error:
        refused.append(str(error))
        return
    most_lines, most_bytes = steps + MOST_SPARE, (steps + MOST_SPARE) * A_LINE
    bad = lines = size = 0
    for path in chunks[-newest:] if newest else chunks:
        if bad == MOST_BAD_CHUNKS:
            refused.append(f"{_short(folder)}: {bad} files of it are bad; the rest was not read")
            return
        try:
            data = read_regular(path) or b""
            size += len(data)
            for number, line in enumerate(data.splitlines(), 1):
                lines += 1
                if lines > most_lines:
                    break
                if len(line) > MOST_LINE:
                    raise Refused(f"{_short(path)}, line {number}: longer than {MOST_LINE} bytes")
                try:
                    metrics = bounds.parse(StepMetrics, line)
                except ValueError as error:
                    words = f"{_short(path)}, line {number}: {_first_reason(error)}"
                    raise Refused(words) from error
                yield metrics
        except Refused as error:
            refused.append(str(error))
            bad += 1
        if lines > most_lines or size > most_bytes:
            refused.append(f"{_short(path)}: more than {steps} steps have to say; not read further")
            return


def _chunks(folder: Path | Remote, steps: int) -> list[Path | Remote]:
    most = steps + MOST_SPARE
    if isinstance(folder, Remote):
        within = folder.store.walk(folder.key, deep=False)
        names = [entry.name.rpartition("/")[2] for entry in islice(within, most + 1)]
    else:
        with refusing(folder):
            if not folder.is_dir():
                return []
            if folder.resolve() != folder:
                raise Refused(f"{_short(folder)}: behind a link")
            with os.scandir(folder) as entries:
                names = [entry.name for entry in islice(entries, most + 1)]
    if len(names) > most:
        raise Refused(f"{_short(folder)}: holds more files than {steps} steps can fill")
    chunks = sorted(name for name in names if name[0] in "0123456789" and name.endswith(".jsonl"))
    return [folder / name for name in chunks]


def read_regular(path: Path | Remote, most_bytes: int = MOST_BYTES) -> bytes | None:
    """The bytes of a regular file that is behind no link; None if there is no file."""
    if isinstance(path, Path):
        return untrusted_files.read(path, most_bytes)
    data = path.store.peek(path.key, most_bytes + 1)
    return None if data is None else untrusted_files.within(data, path.as_posix(), most_bytes)


def _short(path: Path | Remote) -> str:
    return untrusted_files.short(path.as_posix())


def _first_reason(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return printable(f"Invalid JSON: {error}")[:MOST_REASON]
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    said = f"{where}: {first['msg']}" if where else first["msg"]
    return printable(said)[:MOST_REASON]
