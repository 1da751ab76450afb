"""Makes one step, in a process of its own (`runner.worker.fork_server` forks it). Its cores,
threads and flags are set before anything is imported, and it ends with whoever started it. What the
step prints is its log. Code of the experiment's own runs in a child of this process that reaches
nothing else (`runner.isolation.bubblewrap`), unless the job says whose word it is that it need not.

Of an isolated step, only the output, its checkpoints and its curve lie where others read them. What
else it writes beside them lies in the scratch folder's `box`, which is removed at the end. What the
lab says of it (log.txt, why.txt, isolation.txt) is out of its reach; receipt.json is a copy of its
own word, which `runner.worker.shard_jobs` checks. All of it is read through
`runner.lib.untrusted_files`.

Every step begins here, and many have little to do: it imports the standard library alone, so that
a fork is cheap and, in a box, Python is soon there."""

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from runner.isolation import bubblewrap
from runner.lib import process_tree, untrusted_files
from runner.lib.canonical_json import to_json
from runner.schema.devices import Kind
from runner.store.backends import remove_tree
from runner.store.scratch_paths import BOX, HELD, RECEIPT, SHARED, WHY, others
from runner.worker import environment
from runner.worker.builtin.own_code_errors import BadOwnCode, blamed

if TYPE_CHECKING:
    from runner.schema.job_reports import Isolation

EVALUATE = "runner.worker.builtin.evaluate:evaluate"
TRAIN = "runner.worker.builtin.train:train"
MOST_WHY = 2_000  # bytes

NOT_ISOLATED = {
    "": "nobody has said how code of the experiment's own is to be isolated; nothing was run",
    "trusted": "none: the operator trusts approved code (--trust-approved-code)",
    "own machine": "none: run by hand on one's own machine",
}


@dataclass(frozen=True)
class Job:
    """What there is to make. It is the lab's own word, and believed."""

    function: str  # module:function
    config: dict[str, Any]
    inputs: dict[str, str | dict[str, str]]  # folders
    out: str
    scratch: str
    code: str  # the folder of the experiment's own modules; empty for what needs none of them
    devices: Kind
    count: int = 1  # of these
    own: tuple[str, ...] = ()  # module:function of the experiment's that it calls
    # {label: (what `model:` says, module:function that makes it)} of the planned models it scores
    models: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    receipt: bool = True  # whether to say what figures rest on
    isolation: "Isolation" = ""  # of code of the experiment's own, and of who reads what it made
    limits: bubblewrap.Limits = bubblewrap.USUAL
    cache: str = ""  # a folder of what was compiled before; empty where nobody may trust one

    def written(self) -> bytes:
        """In a line, as `read` reads it: always the same one."""
        return to_json(asdict(self))

    @classmethod
    def read(cls, line: bytes) -> "Job":
        """The job that was written so."""
        said = json.loads(line)
        said |= {"own": tuple(said["own"]), "limits": bubblewrap.Limits(**said["limits"])}
        said["devices"] = Kind.of_json(said["devices"])
        return cls(**said)


def main(job: Job) -> int:
    """Make the step; returns the exit code."""
    process_tree.adopt_orphans()
    if job.isolation == "bubblewrap":
        if job.code and job.function == EVALUATE:  # the lab's, which asks models in their own boxes
            process_tree.die_with_parent(signal.SIGKILL)
            return _asking(job)
        process_tree.die_with_parent(signal.SIGTERM)  # it has its own way to end
        return _isolated(job)
    process_tree.die_with_parent(signal.SIGKILL)
    if job.code and job.isolation not in ("trusted", "own machine"):
        return _failed(Path(job.scratch, WHY), NOT_ISOLATED[""])
    return make(job)


def print_to(log: Path) -> None:
    """Have all that this process prints from here on, and all that it starts, be in a log."""
    sys.stdout.flush()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def leave(code: int) -> NoReturn:
    """End this fork as Python ends: pools, then threads."""
    threading._shutdown()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def make(
    job: Job, *, taken: bool = False, handed: Callable[[], tuple[Any, ...]] | None = None
) -> int:
    """Make the step in this process; returns the exit code. `taken`: whoever started this process
    has taken its cores. `handed` gives what the function gets in the place of own functions, of
    which nothing is then imported."""
    scratch = Path(job.scratch)
    os.chdir(scratch)
    compile_into(job.cache)

    def made() -> None:
        environment.settle(job.devices, job.count, taken=taken)
        more = handed() if handed else _own(job)
        _imported(job.function)(job.config, _paths(job.inputs), Path(job.out), *more)
        # What has not imported JAX does not depend on what JAX finds here.
        receipt = environment.receipt(jax="jax" in sys.modules) if job.receipt else {}
        (scratch / RECEIPT).write_bytes(to_json(receipt))

    try:
        return told(made, scratch / WHY)
    finally:
        process_tree.end_descendants(signal.SIGKILL)


def told(do: Callable[[], object], why: Path) -> int:
    """Do it, and where that fails leave the reason in the file `why`; returns the exit code."""
    try:
        do()
    except BaseException as error:
        traceback.print_exc()
        words = str(error) if isinstance(error, BadOwnCode) else f"{type(error).__name__}: {error}"
        return _failed(why, " ".join(words.split()))
    return 0


def reason(why: Path, code: int, otherwise: Callable[[], str | None] = str) -> str:
    """Why a process failed that ended with `code` (−n or 128 + n: by signal n) and may have left
    a word in the file `why`. `otherwise` is asked where it has not."""
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        name = signal.Signals(number).name
        words = "; the system does so where memory is out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{words}"
    return untrusted_files.words(why, MOST_WHY) or otherwise() or f"its process ended with {code}"


def reason_isolated(why: Path, ended: bubblewrap.Ended) -> str:
    """The same of one in a box. Where bubblewrap itself ended with a word, that word is in the log,
    and nobody reads that."""
    if ended.why:
        return f"{ended.why}; all of it was ended"
    return reason(why, ended.code, bubblewrap.probe)


def compile_into(cache: str) -> None:
    """Have JAX keep what it compiles in this folder, if there is one, once it is imported."""
    if cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache


def _own(job: Job) -> tuple[Any, ...]:
    """Functions of the experiment's own, by name, for a step that calls some."""
    if job.code:
        sys.path.insert(0, job.code)
        sys.dont_write_bytecode = True  # which would be seen beside it
    own = {name: imported_own(name) for name in job.own}
    return (own,) if own else ()


# ── Isolated ─────────────────────────────────────────────────────────────────────────────────


def _asking(job: Job) -> int:
    """Have models scored here whose code runs in children that reach nothing."""
    from runner.worker.model_client import Asker  # needs NumPy

    if job.devices.platform != "cpu":
        # Whoever asks and whoever answers share its memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    asker = Asker(job)
    process_tree.hold_to(job.limits.most_memory(), job.limits.seconds)
    code = make(job, handed=lambda: ({}, asker))
    Path(job.scratch, HELD).write_text(asker.held[: environment.MOST_WORDS])
    return code


def _isolated(job: Job) -> int:
    """Have the step made where it reaches nothing but what it is given."""
    scratch = Path(job.scratch)
    # Here, since its own network has all names to give away again.
    environment.take(job.devices, job.count)
    box = box_of(job)
    for here, _ in box.writes:
        here.mkdir(parents=True, exist_ok=True)
    try:
        return _made_in(box, job, scratch)
    finally:
        with contextlib.suppress(OSError):
            remove_tree(scratch / BOX)


def _made_in(box: bubblewrap.Box, job: Job, scratch: Path) -> int:
    try:
        ended = bubblewrap.run(
            box,
            ["runner.worker.step_process"],
            job.limits,
            given=replace(job, code=str(bubblewrap.OWN) if job.code else "").written(),
            keep=partial(os.write, sys.stdout.fileno()),  # its log
        )
    except bubblewrap.CannotIsolate as error:
        return _failed(scratch / WHY, str(error))
    finally:
        # Also whom the system took bubblewrap away from.
        process_tree.end_descendants(signal.SIGKILL)
    if ended.code or ended.why:
        return _failed(scratch / WHY, reason_isolated(scratch / BOX / WHY, ended))
    try:
        receipt = untrusted_files.read(scratch / BOX / RECEIPT, untrusted_files.MOST_BYTES)
    except untrusted_files.Refused as error:
        return _failed(scratch / WHY, str(error))
    (scratch / HELD).write_text(ended.held[: environment.MOST_WORDS])
    if receipt is not None:
        (scratch / RECEIPT).write_bytes(receipt)  # its word, as it is
    return 0


def box_of(job: Job) -> bubblewrap.Box:
    """What an isolated step sees: its code, its inputs and what earlier makers saved, to read; its
    output and scratch folder, to write."""
    scratch, out = Path(job.scratch), Path(job.out)
    reads: list[Path] = []
    for given in job.inputs.values():
        reads += map(Path, given.values() if isinstance(given, dict) else [given])
    earlier = [x / name for x in others(out) for name in SHARED]
    return bubblewrap.Box(
        own=Path(job.code) if job.code else None,
        reads=(*reads, *(x for x in earlier if x.is_dir() and not x.is_symlink())),
        writes=(
            (scratch / BOX, scratch),
            (out, out),
            *((scratch / name, scratch / name) for name in SHARED),
        ),
        folder=scratch,
        accelerator=job.devices.platform != "cpu",
    )


def _failed(why: Path, words: str) -> int:
    """As far as it is read, and in UTF-8: a word that is lost helps nobody."""
    why.write_bytes(words.encode(errors="replace")[:MOST_WHY])
    return 1


# ── Imports ──────────────────────────────────────────────────────────────────────────────────


def _imported(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def imported_own(function: str) -> Callable[..., Any]:
    """A function (module:function) of the experiment's own. Raises BadOwnCode."""
    with blamed(function, "imported"):
        found = _imported(function)
        if not callable(found):
            raise TypeError(f"it is a {type(found).__name__} and cannot be called")
        return found


def _paths(inputs: dict[str, str | dict[str, str]]) -> dict[str, Path | dict[str, Path]]:
    return {
        key: {label: Path(place) for label, place in given.items()}
        if isinstance(given, dict)
        else Path(given)
        for key, given in inputs.items()
    }


if __name__ == "__main__":  # inside of an isolated child
    given = sys.stdin.buffer.read()
    sys.exit(make(Job.read(given), taken=True))
