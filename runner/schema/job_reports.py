"""What a job says of itself, and the one way to believe it: size-limited schemas.

A job may be buggy, late, or hostile, so its reports are not facts. The lab reads them through
`read_report` and `read_metrics` only: regular files, no links, capped sizes, known keys, figures
within `runner.lib.bounds`, and the attempt's own nonce. What does not pass is refused with its
reason, which is recorded. Files of an attempt, below `work/<attempt>-<nonce>/`:

    spec.json                       the lab's own word: what to do
    out/metrics/<run>/<n>.jsonl     chunks of metrics, one line a step
    out/runs/<run>.json             a run is over
    out/checkpoints/<run>/<step>/   Orbax; `params` is an item of its own
    out/evaluated/<run>.json        of an evaluation
    out/finished.json, failed.json  the attempt is over
    out/tokens/                     its own tokens, where the shared ones were damaged
    out/log.txt                     what it printed; nobody decides by it

They are read where they lie, on disk or in a bucket, which has no links, pipes or folders.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
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
from runner.lib.bounds import Count, Figure, Seconds, Size, Speed, Step, Word
from runner.lib.canonical_json import to_json
from runner.lib.untrusted_files import MOST_BYTES as MOST_BYTES
from runner.lib.untrusted_files import MOST_REASON, open_regular, refusing
from runner.lib.untrusted_files import Refused as Refused
from runner.lib.untrusted_files import printable as printable
from runner.schema.record import Evaluated, Plan
from runner.store.checkpoint_sync import COMMITTED
from runner.store.store import BadName, Remote

MOST_LINE = 2_000
MOST_SPARE = 64  # files and lines of metrics beyond one for each step
A_LINE = 500  # bytes that a line of metrics takes at most, over a whole run
MOST_BAD_CHUNKS = 20  # then the rest of a run's metrics is not read
MOST_ENTRIES = 1_000  # files and folders of a checkpoint's parameters
MOST_RECEIPT = 40
Receipt = Annotated[dict[Word, Word], Field(max_length=MOST_RECEIPT)]
ANOTHER_WORKER = 75  # exit code of a worker that finds its attempt begun by another one
ANOTHER_SPEC = 76  # exit code of a worker that finds another `spec.json` than it was told of
TOLD_TO_END = 77  # exit code of a worker that got SIGTERM: it has saved, and the attempt is lost
PREEMPTED = 78  # exit code of a worker whose steps lost their machines; the attempt is lost too

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


class RunReport(Report):
    """A run is over. `step` steps were taken; a failed one says why."""

    nonce: Word
    state: Literal["finished", "failed"]
    step: Count
    why: Word = ""


class EvaluationReport(Report):
    """One run's checkpoint was scored."""

    nonce: Word
    evaluated: Evaluated


class AttemptReport(Report):
    """The attempt is over; `why` of one that failed. The receipt names what equality rests on."""

    nonce: Word
    why: Word = ""
    receipt: Receipt = {}


class ReceiptReport(RootModel[Receipt]):
    """What a step says that its figures rest on."""


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
    isolation: Isolation = ""  # of code of the experiment's own
    limit_seconds: float | None = None  # which own code may take at most; None: a day
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


def _chunks(folder: Path | Remote, steps: int) -> list[Path] | list[Remote]:
    most = steps + MOST_SPARE
    if isinstance(folder, Remote):
        within = folder.store.walk(folder.key, deep=False)
        found = [entry.name.rpartition("/")[2] for entry in islice(within, most + 1)]
        return [folder / name for name in _numbered(folder, found, steps)]
    with refusing(folder):
        if not folder.is_dir():
            return []
        if folder.resolve() != folder:
            raise Refused(f"{_short(folder)}: behind a link")
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, most + 1)]
    return [folder / name for name in _numbered(folder, names, steps)]


def _numbered(folder: Path | Remote, names: list[str], steps: int) -> list[str]:
    if len(names) > steps + MOST_SPARE:
        raise Refused(f"{_short(folder)}: holds more files than {steps} steps can fill")
    return sorted(name for name in names if name[0] in "0123456789" and name.endswith(".jsonl"))


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


def most_checkpoint(parameters: int) -> int:
    """The most bytes that so many parameters may take on disk: in float32, half as much again,
    and 16 MiB for what Orbax writes beside them."""
    return parameters * 4 * 3 // 2 + (16 << 20)


def has_checkpoint(step: Path | Remote) -> bool:
    """Whether anything lies at `step`; in a bucket, a whole checkpoint. Raises Refused where that
    cannot be seen."""
    if isinstance(step, Remote):
        return step.store.peek((step / COMMITTED).key, 1) is not None
    with refusing(step):
        return step.is_dir()


def checkpoint_sha256(step: Path | Remote, most_bytes: int) -> str:
    """SHA-256 over the sorted relative paths, sizes and bytes of the `params` item below `step`.

    It names this copy: two saves of equal parameters differ. Raises Refused where the item is
    missing, larger than `most_bytes`, or holds anything but regular files.
    """
    if isinstance(step, Remote):
        return _sha256_in_bucket(step / "params", most_bytes)
    folder = step / "params"
    whole, left = hashlib.sha256(), most_bytes
    with refusing(folder):
        if folder.resolve() != folder or not folder.is_dir():
            raise Refused(f"{_short(folder)}: there is no checkpoint")
        for name in sorted(_files(folder)):
            digest, size = hashlib.sha256(), 0
            with open_regular(folder / name) as file:
                while block := file.read(1 << 20):
                    digest.update(block)
                    size += len(block)
                    if size > left:
                        raise Refused(f"{_short(folder)}: larger than {most_bytes} bytes")
            left -= size
            whole.update(os.fsencode(f"{name}\0{size}\0{digest.hexdigest()}\n"))
    return whole.hexdigest()


def _sha256_in_bucket(folder: Remote, most_bytes: int) -> str:
    whole = hashlib.sha256()
    for name, size in sorted(sizes(folder, most_bytes).items()):
        with tempfile.TemporaryFile() as file:
            try:
                there = folder.store.copy(f"{folder.key}/{name}", file)
            except BadName as error:
                raise Refused(f"{_short(folder)}: {error}") from error
            if not there:
                raise Refused(f"{_short(folder / name)}: it was removed")
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(os.fsencode(f"{name}\0{size}\0{digest}\n"))
    return whole.hexdigest()


def sizes(folder: Remote, most_bytes: int) -> Mapping[str, int]:
    """The bytes of each file below a checkpoint's `params`, by relative path. Raises Refused where
    there are none, and where they are too many or larger than `most_bytes` in all."""
    entries = list(islice(folder.walk(), MOST_ENTRIES + 1))
    if not entries:
        raise Refused(f"{_short(folder)}: there is no checkpoint")
    if len(entries) > MOST_ENTRIES:
        raise Refused(f"{_short(folder)}: holds more than {MOST_ENTRIES} files")
    if sum(entry.size for entry in entries) > most_bytes:
        raise Refused(f"{_short(folder)}: larger than {most_bytes} bytes")
    return {entry.name.removeprefix(f"{folder.key}/"): entry.size for entry in entries}


def _files(folder: Path) -> list[str]:
    """The relative paths of the files below `folder`, which holds nothing else but folders."""
    files, folders, seen = [], [""], 0
    for inner in folders:  # which grows while we walk it
        with os.scandir(folder / inner) as entries:
            for entry in entries:
                name = f"{inner}/{entry.name}" if inner else entry.name
                if (seen := seen + 1) > MOST_ENTRIES:
                    raise Refused(f"{_short(folder)}: holds more than {MOST_ENTRIES} files")
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif entry.is_file(follow_symlinks=False):
                    files.append(name)
                else:
                    raise Refused(f"{_short(folder / name)}: not a regular file")
    return files
