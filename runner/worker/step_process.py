"""Makes one step, in a process of its own (forked by `runner.worker.fork_server`). Sets its cores,
threads and flags before any import, and ends with its parent. The step's output is its log. Own
code runs in an isolated child of this process (`runner.isolation.bubblewrap`), unless the job names
a reason why it need not.

Of an isolated step, only the output, its checkpoints and its curve are where others read them.
Everything else it writes is in the scratch folder's `box`, which is removed at the end. It cannot
reach what the lab writes about it (log.txt, why.txt, isolation.txt); receipt.json is a copy of its
own report, which `runner.worker.shard_jobs` checks. All of it is read through
`runner.lib.untrusted_files`.

Every step starts here, and many are short: this module imports the standard library alone, so that
a fork is cheap and, in a box, Python starts fast."""

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from runner.isolation import bubblewrap
from runner.lib import preemption, process_tree, untrusted_files
from runner.lib.canonical_json import to_json
from runner.lib.own_code_errors import BadOwnCode, blamed
from runner.schema.devices import Kind
from runner.store.backends import remove_tree
from runner.store.scratch_paths import BOX, HELD, RECEIPT, SHARED, WHY, others
from runner.worker import environment

if TYPE_CHECKING:
    from runner.isolation.gang_network import Network
    from runner.schema.job_reports import Isolation

EVALUATE = "runner.worker.scores.evaluate:evaluate"
ASKS_MODELS = (  # in boxes of their own
    EVALUATE,
    "runner.worker.scores.generate:generate",
    "runner.worker.scores.benchmark:benchmark",
)
TRAIN = "runner.worker.models.train:train"
MOST_WHY = 2_000  # bytes
PEER_GONE = 80  # exit code of a process of a gang
SAVING_MAY_TAKE = 20.0  # seconds for a training to save and end after SIGTERM

NOT_ISOLATED = {
    "": "nobody has said how code of the experiment's own is to be isolated; nothing was run",
    "trusted": "none: the operator trusts approved code (--trust-approved-code)",
    "own machine": "none: run by hand on one's own machine",
}


class PeerGone(Exception):
    """Another process of the gang is gone."""


class Training(NamedTuple):
    """What JAX needs to know at import for a training outside of a box."""

    devices: Kind
    cache: str


@dataclass(frozen=True)
class Job:
    """What to make. Written by the lab, and trusted."""

    function: str  # module:function
    config: dict[str, Any]
    inputs: dict[str, str | dict[str, str]]  # folders
    out: str
    scratch: str
    code: str  # the folder of the own modules; empty if none are needed
    devices: Kind
    count: int = 1  # of these
    slices: int = 1  # in which they are
    min_slices: int = 1  # with which a gang may do
    own: tuple[str, ...] = ()  # own functions that it calls, as module:function
    # {label: (the declared `model:`, module:function that makes it)} of the models it scores
    models: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    receipt: bool = True  # whether to write a receipt
    isolation: "Isolation" = ""  # of own code, and of steps that read its output
    limits: bubblewrap.Limits = bubblewrap.USUAL
    cache: str = ""  # a folder of compiled programs; empty if none can be trusted
    spot: bool = False  # its devices may be taken away
    # This process's place in a gang, as `engine.model.processes.Place` has it: it trains a part.
    place: tuple[int, int, str, int] | None = None
    next: "Training | None" = None  # the likely next step

    def written(self) -> bytes:
        """As one line for `read`; always the same bytes."""
        return to_json(asdict(self))

    @classmethod
    def read(cls, line: bytes) -> "Job":
        """The inverse of `written`."""
        said = json.loads(line)
        said |= {"own": tuple(said["own"]), "limits": bubblewrap.Limits(**said["limits"])}
        said["devices"] = Kind.of_json(said["devices"])
        said["place"] = tuple(said["place"]) if said["place"] else None
        if said["next"]:
            devices, cache = said["next"]
            said["next"] = Training(Kind.of_json(devices), cache)
        return cls(**said)

    @property
    def training(self) -> Training | None:
        """What JAX may be imported with before this job arrives; None if it needs no JAX, or a
        box."""
        alone = self.function == TRAIN and self.isolation != "bubblewrap"
        return Training(self.devices, self.cache) if alone else None


def main(job: Job) -> int:
    """Make the step. Returns the exit code."""
    process_tree.adopt_orphans()
    with preemption.watched(job.spot and job.function == TRAIN):
        return _main(job)


def _main(job: Job) -> int:
    if job.isolation == "bubblewrap":
        # The lab's step, which runs models and solutions in boxes: no box can be in a box.
        if job.function in ASKS_MODELS and (job.code or job.config.get("samples")):
            process_tree.die_with_parent(signal.SIGKILL)
            return _asking(job)
        process_tree.die_with_parent(signal.SIGTERM)  # it ends in its own way
        return _isolated(job)
    process_tree.die_with_parent(signal.SIGKILL)
    if job.code and job.isolation not in ("trusted", "own machine"):
        return _failed(Path(job.scratch, WHY), NOT_ISOLATED[""])
    return make(job)


def print_to(log: Path) -> None:
    """Redirect the output of this process, and of everything it starts, to a log."""
    sys.stdout.flush()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def leave(code: int) -> NoReturn:
    """End this fork as Python would: pools, then threads."""
    threading._shutdown()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def make(
    job: Job, *, taken: bool = False, handed: Callable[[], tuple[Any, ...]] | None = None
) -> int:
    """Make the step in this process. Returns the exit code. `taken`: the parent has already taken
    its cores. `handed` returns what the function gets instead of own functions, which are then not
    imported."""
    scratch = Path(job.scratch)
    os.chdir(scratch)
    compile_into(job.cache)

    def made() -> None:
        environment.settle(job.devices, job.count, taken=taken)
        more = handed() if handed else own_functions(job)
        with _in_gang(job) as how:
            _imported(job.function)(job.config, _paths(job.inputs), Path(job.out), *more, **how)
        # Without JAX, the result does not depend on JAX's devices.
        receipt = environment.receipt(jax="jax" in sys.modules) if job.receipt else {}
        (scratch / RECEIPT).write_bytes(to_json(receipt))

    try:
        return told(made, scratch / WHY)
    finally:
        process_tree.end_descendants(signal.SIGKILL)


@contextlib.contextmanager
def _in_gang(job: Job) -> Iterator[dict[str, Any]]:
    """Join the other processes of a gang, if there is one, during the `with` body. Yields what the
    function is told besides."""
    if job.place is None:
        yield {}
        return
    from engine.model import processes  # imports JAX

    try:
        processes.join(processes.Place(*job.place))
        yield {"output": False}
        processes.leave()
    except Exception as error:
        if type(error).__name__ == "JaxRuntimeError":  # so JAX says that another one is gone
            raise PeerGone from error
        raise


def told(do: Callable[[], object], why: Path) -> int:
    """Call `do`; if it fails, write the reason to the file `why`. Returns the exit code."""
    try:
        do()
    except preemption.Left:
        return preemption.LEFT
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, PeerGone):
            return PEER_GONE
        words = str(error) if isinstance(error, BadOwnCode) else f"{type(error).__name__}: {error}"
        return _failed(why, " ".join(words.split()))
    return 0


def reason(why: Path, code: int, otherwise: Callable[[], str | None] = str) -> str:
    """Why a process failed that ended with `code` (−n or 128 + n: by signal n): the content of the
    file `why` or, if there is none, the result of `otherwise`."""
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        name = signal.Signals(number).name
        words = "; the system does so where memory is out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{words}"
    return untrusted_files.words(why, MOST_WHY) or otherwise() or f"its process ended with {code}"


def reason_isolated(why: Path, ended: bubblewrap.Ended) -> str:
    """The same for a process in a box. If bubblewrap itself failed, its message is in the log,
    which nobody reads."""
    if ended.why:
        return f"{ended.why}; all of it was ended"
    return reason(why, ended.code, bubblewrap.probe)


def compile_into(cache: str) -> None:
    """Make JAX cache compiled programs in this folder, if there is one, once it is imported."""
    if cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


def own_functions(job: Job) -> tuple[Any, ...]:
    """The own functions that a step calls, by name."""
    if job.code:
        sys.path.insert(0, job.code)
        sys.dont_write_bytecode = True  # it would appear beside the code
    own = {name: imported_own(name) for name in job.own}
    return (own,) if own else ()


# ── Isolated ─────────────────────────────────────────────────────────────────────────────────


def _asking(job: Job) -> int:
    """Score models here; own code, of models or that models wrote, runs in isolated children."""
    from runner.worker.model_client import Asker  # imports NumPy

    if job.devices.platform != "cpu":
        # This process and the children share the GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    asker = Asker(job)
    process_tree.hold_to(job.limits.most_memory(), job.limits.seconds)
    code = make(job, handed=lambda: ({}, asker))
    held = asker.held or f"{bubblewrap.version()}, for each solution; no other own code ran"
    Path(job.scratch, HELD).write_text(held[: environment.MOST_WORDS])
    return code


def _isolated(job: Job) -> int:
    """Make the step in a box."""
    # Here, because inside, its own network would offer all names again.
    environment.take(job.devices, job.count)
    return in_box(box_of(job), job, Path(job.scratch))


def in_box(box: bubblewrap.Box, job: Job, scratch: Path) -> int:
    """Make the step in this box, whose first folder to write is its view of its scratch folder.
    What the lab says about it goes to `scratch`. Returns the exit code."""
    for here, _ in box.writes:
        here.mkdir(parents=True, exist_ok=True)
    view = box.writes[0][0]
    try:
        return _made_in(box, job, scratch, view)
    finally:
        with contextlib.suppress(OSError):
            remove_tree(view)


def _made_in(box: bubblewrap.Box, job: Job, scratch: Path, view: Path) -> int:
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
        # Also if bubblewrap itself was killed.
        process_tree.end_descendants(signal.SIGKILL)
    if ended.why == bubblewrap.TOLD and job.function == TRAIN:
        return preemption.LEFT
    # Another host's notice ends this one with LEFT; SIGABRT is from JAX's coordination.
    if job.place and ended.code in (PEER_GONE, preemption.LEFT, 128 + signal.SIGABRT):
        return PEER_GONE
    if ended.code or ended.why:
        return _failed(scratch / WHY, reason_isolated(view / WHY, ended))
    try:
        receipt = untrusted_files.read(view / RECEIPT, untrusted_files.MOST_BYTES)
    except untrusted_files.Refused as error:
        return _failed(scratch / WHY, str(error))
    (scratch / HELD).write_text(ended.held[: environment.MOST_WORDS])
    if receipt is not None:
        (scratch / RECEIPT).write_bytes(receipt)  # its own report, unchanged
    return 0


def box_of(job: Job, network: "Network | None" = None) -> bubblewrap.Box:
    """What an isolated step sees: its code, its inputs and what earlier makers saved (to read); its
    output and scratch folder (to write); as a part of a gang, its network."""
    scratch, out = Path(job.scratch), Path(job.out)
    view = scratch / (f"{BOX}-{job.place[0]}" if job.place else BOX)
    reads: list[Path] = []
    for given in job.inputs.values():
        reads += map(Path, given.values() if isinstance(given, dict) else [given])
    earlier = [x / name for x in others(out) for name in SHARED]
    return bubblewrap.Box(
        own=Path(job.code) if job.code else None,
        reads=(*reads, *(x for x in earlier if x.is_dir() and not x.is_symlink())),
        writes=(
            (view, scratch),
            (out, out),
            *((scratch / name, scratch / name) for name in SHARED),
        ),
        folder=scratch,
        accelerator=job.devices.platform != "cpu",
        patience=SAVING_MAY_TAKE if job.function == TRAIN else None,
        network=network,
    )


def _failed(why: Path, words: str) -> int:
    """Cut to the length that is read, and in UTF-8."""
    why.write_bytes(words.encode(errors="replace")[:MOST_WHY])
    return 1


# ── Imports ──────────────────────────────────────────────────────────────────────────────────


def _imported(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def imported_own(function: str) -> Callable[..., Any]:
    """An own function (module:function). Raises BadOwnCode."""
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


if __name__ == "__main__":  # inside an isolated child
    given = sys.stdin.buffer.read()
    sys.exit(make(Job.read(given), taken=True))
