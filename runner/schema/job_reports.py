"""What a job says of itself, and the one way to believe it: size-limited schemas.

A job may be buggy, late, or hostile, so its reports are not facts. The lab reads them through
`read_report` and `read_metrics` only: regular files, no links, capped sizes, known keys, figures
within `runner.lib.bounds`, and the attempt's own nonce. What does not pass is refused with its
reason, which is recorded. Files of an attempt, below `work/<attempt>-<nonce>/`:

    spec.json                       the lab's own word: what to do
    out/finished.json, failed.json  the attempt is over
    out/preempted.json              it lost the machines that it ran on
    out/log.txt                     what it printed; nobody decides by it

What its steps leave lies where others find it, see `runner.store.artifacts`; what they note while
they train is read by `read_metrics`, from chunks of one line a step.

They are read where they lie, on disk or in a bucket, which has no links, pipes or folders.
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
MOST_SPARE = 64  # files and lines of metrics beyond one for each step
A_LINE = 500  # bytes that a line of metrics takes at most, over a whole run
MOST_BAD_CHUNKS = 20  # then the rest of a run's metrics is not read
MOST_RECEIPT = 40
Receipt = Annotated[dict[Word, Word], Field(max_length=MOST_RECEIPT)]
ANOTHER_WORKER = 75  # exit code of a worker that finds its attempt begun by another one
ANOTHER_SPEC = 76  # exit code of a worker that finds another `spec.json` than it was told of
PREEMPTED = 78  # exit code of a worker whose steps lost their machines

Isolation = Literal["", "bubblewrap", "trusted", "own machine"]  # "": nobody has said


class Report(BaseModel):
    """A job's word. Unknown keys and figures that are not finite are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class StepMetrics(Report):
    """One line of metrics: the state after `step` steps, as `engine.training.train.Metrics` has it.
    A figure that is not finite is None, and only a step that was skipped may have such a loss or
    norm."""

    step: Step
    loss: Figure | None  # nats a token, over the batch of this step
    bpb: Figure | None = None
    grad_norm: Size | None
    param_norm: Size | None = None
    learning_rate: Figure
    tokens: Count  # seen so far
    skipped: bool = False  # the step changed nothing
    tokens_per_second: Speed | None = None
    mfu: Size | None = None
    compile_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _figures_but_of_skipped_steps(self) -> "StepMetrics":
        if not self.skipped and None in (self.loss, self.grad_norm):
            raise PydanticCustomError("no_figure", "only a skipped step may have no loss or norm")
        return self


class AttemptReport(Report):
    """The attempt is over; `why` of one that failed. The receipt names what equality rests on."""

    nonce: Word
    why: Word = ""
    receipt: Receipt = {}


class ReceiptReport(RootModel[Receipt]):
    """What a step says that its figures rest on."""


class AttemptSpec(Record):
    """What an attempt is to do: `spec.json`, whose digest is in the record."""

    attempt: str  # `<execution>.t<n>`
    nonce: str
    plan: Plan
    isolation: Isolation = ""  # of code of the experiment's own
    limit_seconds: float | None = None  # which own code may take at most; None: a day

    @property
    def folder(self) -> str:
        """`<attempt>-<nonce>`: its folder below `work/`, its lease's and its job's name."""
        return f"{self.attempt}-{self.nonce}"


C = TypeVar("C", bound=BaseModel)


def read_report(path: Path | Remote, kind: type[C], nonce: str | None = None) -> C | None:
    """The report in the file `path`, or None if there is no such file.

    Raises Refused for what is not a regular file, too large, of another form, or of another
    attempt (where `nonce` is given). Like all functions here it raises StoreError where a bucket
    could not be asked, which says nothing of the report.
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
    """The metrics in the numbered chunks of `folder` (or the `newest` few of them), in order.

    A chunk is read up to its first bad line, which goes to `refused`: a flood of them is one. No
    more is read than a run of `steps` steps can have to say.
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
    """The bytes of a regular file that lies behind no link, or None if there is no such file."""
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
