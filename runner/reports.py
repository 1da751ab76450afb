"""What a job says of itself, and the one way to believe it: size-limited schemas.

A job may be buggy, late, or hostile, so its reports are not facts. The lab reads them through
`read_report` and `read_metrics` only: regular files, no links, capped sizes, known keys, finite
figures, and the attempt's own nonce. What does not pass is refused with its reason, which is
recorded. Files of an attempt, below `work/<attempt>-<nonce>/`:

    spec.json                       the lab's own word: what to do
    out/metrics/<run>/<n>.jsonl     chunks of metrics, one line a step
    out/runs/<run>.json             a run is over
    out/checkpoints/<run>/<step>/   Orbax; `params` is an item of its own
    out/evaluated/<run>.json        of an evaluation
    out/finished.json, failed.json  the attempt is over
    out/log.txt                     what it printed; nobody decides by it
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from runner.record import Evaluated, Plan
from runner.store import to_json

MOST_BYTES = 1 << 20  # of one file
MOST_LINE = 2_000
MOST_REASON = 300  # characters of why something was refused; keys and values are the job's words
ANOTHER_WORKER = 75  # exit code of a worker that finds its attempt begun by another one

Word = Annotated[str, StringConstraints(max_length=500)]


class Refused(Exception):
    """A report that is not believed; the message names the file and the reason."""


class Report(BaseModel):
    """A job's word. Unknown keys and figures that are not finite are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class StepMetrics(Report):
    """One line of metrics: the state after `step` steps."""

    step: int = Field(ge=1)
    loss: float  # nats a token, over the batch of this step
    grad_norm: float
    learning_rate: float
    tokens: int  # seen so far
    tokens_per_second: float | None = None


class RunReport(Report):
    """A run is over. `step` steps were taken; a failed one says why."""

    nonce: str
    state: Literal["finished", "failed"]
    step: int = Field(ge=0)
    why: Word = ""


class EvaluationReport(Report):
    """One run's checkpoint was scored."""

    nonce: str
    evaluated: Evaluated


class AttemptReport(Report):
    """The attempt is over; `why` of one that failed. The receipt names what equality rests on."""

    nonce: str
    why: Word = ""
    receipt: dict[Word, Word] = {}


class ToEvaluate(BaseModel):
    """A checkpoint to score, by the digest that the lab recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str  # of `<step>` below the store's `work/`
    sha256: str


class AttemptSpec(BaseModel):
    """What an attempt is to do: `spec.json`, whose digest is in the record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt: str  # `<execution>.t<n>` or `<execution>.e<n>`
    nonce: str
    kind: Literal["train", "evaluate"]
    plan: Plan
    earlier: tuple[str, ...] = ()  # folders of earlier attempts, to take checkpoints from
    evaluate: dict[str, ToEvaluate] = {}  # by run

    @property
    def folder(self) -> str:
        """`<attempt>-<nonce>`: its folder below `work/`, its lease's and its job's name."""
        return f"{self.attempt}-{self.nonce}"

    def canonical(self) -> bytes:
        """The bytes of `spec.json`."""
        return to_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """SHA-256 of `spec.json`, as the attempt's claim records it."""
        return hashlib.sha256(self.canonical()).hexdigest()


C = TypeVar("C", bound=Report)


def read_report(path: Path, kind: type[C], nonce: str | None = None) -> C | None:
    """The report in the file `path`, or None if there is no such file.

    Raises Refused for what is not a regular file, too large, of another form, or of another
    attempt (where `nonce` is given).
    """
    data = _read_regular(path, MOST_BYTES)
    if data is None:
        return None
    try:
        report = kind.model_validate_json(data)
    except ValueError as error:
        raise Refused(f"{_short(path)}: {_first_reason(error)}") from error
    if nonce is not None and getattr(report, "nonce", nonce) != nonce:
        raise Refused(f"{_short(path)}: it was not written by this attempt (wrong nonce)")
    return report


def read_metrics(
    folder: Path, refused: list[str], newest: int | None = None
) -> Iterator[StepMetrics]:
    """The metrics in the numbered chunks of `folder` (or the `newest` few of them), in order.

    A chunk is read up to its first bad line, which goes to `refused`: a flood of them is one.
    """
    chunks = sorted(folder.glob("[0-9]*.jsonl"))
    for path in chunks[-newest:] if newest else chunks:
        try:
            data = _read_regular(path, MOST_BYTES) or b""
        except Refused as error:
            refused.append(str(error))
            continue
        for number, line in enumerate(data.splitlines(), 1):
            if len(line) > MOST_LINE:
                refused.append(f"{_short(path)}, line {number}: longer than {MOST_LINE} bytes")
                break
            try:
                metrics = StepMetrics.model_validate_json(line)
            except ValueError as error:
                refused.append(f"{_short(path)}, line {number}: {_first_reason(error)}")
                break
            yield metrics


def _read_regular(path: Path, limit: int) -> bytes | None:
    if path.parent.resolve() != path.parent:
        raise Refused(f"{_short(path)}: behind a link")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(f"{_short(path)}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused(f"{_short(path)}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Refused(f"{_short(path)}: larger than {limit} bytes")
    return data


def _short(path: Path) -> str:
    """The path from the attempt's folder on, which is what a reader can place."""
    _, work, after = path.as_posix().rpartition("/work/")
    return after if work else path.name


def _first_reason(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return "not JSON"
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}"[:MOST_REASON] if where else first["msg"][:MOST_REASON]


def checkpoint_sha256(step: Path) -> str:
    """SHA-256 over the sorted relative paths, sizes and bytes of the `params` item below `step`.

    It names this copy: two saves of equal parameters differ. Raises Refused where the item is
    missing or holds anything but regular files.
    """
    folder = step / "params"
    if folder.resolve() != folder or not folder.is_dir():
        raise Refused(f"{_short(folder)}: there is no checkpoint")
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise Refused(f"{_short(path)}: not a regular file")
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            name = path.relative_to(folder).as_posix()
            whole.update(f"{name}\0{path.stat().st_size}\0{digest}\n".encode())
    return whole.hexdigest()
