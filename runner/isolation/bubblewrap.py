"""Runs own code in a box: a child under bubblewrap, with namespaces of its own, no network, no
capabilities and an empty environment. It can read the interpreter, the libraries, `engine`,
`runner` and what its box names. It can write to the folders that its box names and to a /tmp of its
own. It sees no other process, no token, no record and no other run.

The kernel enforces some limits: the size of a file; the number of processes, unless we are root
(root is not counted); and both the number of processes and memory where control groups are
available (`runner.isolation.cgroups`). In addition, the parent checks all of them, time and written
bytes four times a second, and ends the whole box if one is exceeded. There is no limit on address
space, because JAX reserves far more than it uses. Output comes through a pipe, and only a part is
kept.

The box shares the host's kernel. Bubblewrap narrows what is reachable, and a filter refuses system
calls that bypass namespaces (`runner.isolation.seccomp`).
"""

import contextlib
import fcntl
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runner.isolation import cgroups, resource_watch, seccomp
from runner.isolation.resource_watch import USUAL as USUAL
from runner.isolation.resource_watch import Hidden
from runner.isolation.resource_watch import Limits as Limits
from runner.lib import human_eval, paths, process_tree
from runner.lib.paths import LAB as LAB

if TYPE_CHECKING:
    from runner.isolation.gang_network import Network

# Tracks are scored on the lab's own text, which contains the bot's files; benchmarks on HumanEval.
HIDDEN = (LAB / "engine/data/texts", LAB / "bot", *filter(None, [human_eval.folder()]))
OWN = Path("/own")  # the same in every box, so that the path reveals nothing
LIBRARIES = ("site-packages", "dist-packages")
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr")  # below /
OF_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime")
# Root without capabilities still owns these files: without this, it could write core_pattern, which
# names a program that the kernel runs outside.
OF_PROC = ("sys", "sysrq-trigger", "mtrr", "pressure", "acpi", "scsi", "asound", "fs")
DEVICES = ("nvidia*", "accel*", "vfio")  # below /dev, for accelerators
KEPT = ("CUDA_", "NVIDIA_", "XLA_", "JAX_", "NCCL_", "LIBTPU_", "TPU_", "CUDNN_", "CUBLAS_")
KEPT_WHOLE = ("NPROC", "OMP_NUM_THREADS", "LD_LIBRARY_PATH")
NAMESPACES = ("--unshare-all", "--unshare-user", "--disable-userns")
NOBODY = ("--uid", "65534", "--gid", "65534")
LOOK_EVERY = 0.25  # seconds between checks
TOLD, FIRST = "it was told to end", "runner.isolation.first_process"
TERM_MAY_TAKE = 5.0  # seconds between TERM and KILL
SMALL = 1 << 30  # bytes of folders in memory: /tmp, /dev/shm
BLOCK = 1 << 16
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL

MISSING = (
    "bubblewrap is not there, and without it code of an experiment's own is not isolated. Install "
    "it (Debian: apt-get install bubblewrap)."
)


class CannotIsolate(Exception):
    """Bubblewrap does not work here; the message says why and what to do."""


@dataclass(frozen=True)
class Box:
    """What the child may see besides the lab's code. `writes` are pairs (path here, path in the
    box)."""

    own: Path | None = None  # a folder with the experiment's own modules, visible as OWN
    reads: tuple[Path, ...] = ()
    writes: tuple[tuple[Path, Path], ...] = ()
    folder: Path = Path("/tmp")  # its working directory
    accelerator: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float | None = None  # seconds between TERM and KILL; None: five
    network: "Network | None" = None  # with the other boxes of its gang


class Ended(NamedTuple):
    """How the child ended: its exit code (128 + n: by signal n), and the limit that it exceeded."""

    code: int
    why: str | None = None
    held: str = ""  # the isolation and limits it had, and what enforced them


# ── What it sees ─────────────────────────────────────────────────────────────────────────────


def command(box: Box, argv: Iterable[str], calls: int | None = None) -> list[str]:
    """The whole command line; `calls` is an open file with the filter of system calls. Raises
    CannotIsolate if there is no bubblewrap."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise CannotIsolate(MISSING)
    words = [bwrap, *NAMESPACES, *NOBODY, "--hostname", "isolated"]
    words += ["--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv"]
    for name, value in sorted(_environment(box).items()):
        words += ["--setenv", name, value]
    for name in SYSTEM:
        words += _system(Path("/", name))
    words += [x for name in OF_ETC for x in _bind("--ro-bind-try", Path("/etc", name))]
    words += box.network.shown() if box.network else []
    words += ["--proc", "/proc"]
    words += [x for name in OF_PROC for x in _bind("--ro-bind-try", Path("/proc", name))]
    words += ["--dev", "/dev", "--size", str(SMALL), "--tmpfs", "/dev/shm"]
    if box.accelerator:
        words += _bind("--ro-bind-try", Path("/sys"))
        for pattern in DEVICES:
            for device in sorted(Path("/dev").glob(pattern)):
                words += _bind("--dev-bind-try", device)
    words += ["--size", str(SMALL), "--tmpfs", "/tmp"]
    for path in _code():
        words += _bind("--ro-bind", path)
    for path in _hidden():
        words += ["--size", "4096", "--tmpfs", str(path), "--remount-ro", str(path)]
    for here, there in box.writes:
        words += ["--bind", str(here), str(there)]
    for path in sorted(set(box.reads)):  # a folder before its content
        words += _bind("--ro-bind", path)
    words += ["--ro-bind", str(box.own), str(OWN)] if box.own else []
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(box.folder)]
    words += ["--seccomp", str(calls)] if calls is not None else []
    return [*words, "--", *argv]


def _bind(how: str, path: Path) -> list[str]:
    return [how, str(path), str(path)]


def _system(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return _bind("--ro-bind", path) if path.is_dir() else []


@cache
def _code() -> list[Path]:
    """The interpreter, the libraries, the lab's packages and its hardware.yaml, but not the folder
    around them, which may contain a store."""
    found = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)}
    found |= {Path(place) for place in sys.path if Path(place).name in LIBRARIES}
    found |= {LAB / room for room in paths.SHOWN}
    # A folder before its content, which is bound again, because it may be the target of a link.
    return sorted(x for x in found if x.exists() and not x.is_relative_to("/usr"))


def _shown() -> list[Path]:
    """The folders that every box can read; the lab may be installed in any of them, also below
    /usr."""
    return [*(Path("/", name) for name in SYSTEM), *_code()]


def _hidden() -> list[Path]:
    """Folders that must stay hidden inside a readable folder; empty folders replace them."""
    return [path for path in HIDDEN if path.is_dir() and _is_below(path, _shown())]


def shows(path: Path) -> bool:
    """Whether every box can read `path`, apart from programs and libraries."""
    return _is_below(path, _shown()) and not _is_below(path, HIDDEN)


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.resolve().is_relative_to(folder.resolve()) for folder in folders)


def _environment(box: Box) -> dict[str, str]:
    given = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_WHOLE or (name.startswith(KEPT) and "/" not in value)
    }
    return {
        **given,
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "USER": "nobody",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(LAB),
        "PYTHONDONTWRITEBYTECODE": "1",
        **box.environment,
    }


# ── Whether it works ─────────────────────────────────────────────────────────────────────────


@cache
def probe() -> str | None:
    """Why bubblewrap does not work on this machine, in a sentence; None if it does."""
    try:
        with filtered() as calls:
            said = subprocess.run(
                command(Box(), ["/usr/bin/env", "true"], *calls),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=20,
                check=False,
                env={},
                pass_fds=calls,
            )
    except CannotIsolate as error:
        return str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not start here ({error})."
    if said.returncode == 0:
        return None
    words = " ".join(said.stderr.split())[-300:] or f"it ended with {said.returncode}"
    return (
        f"bubblewrap does not work here ({words}). In a container it needs user namespaces: allow "
        "them, and unmask /proc."
    )


@cache
def version() -> str:
    """The version of bubblewrap."""
    said = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False)
    return said.stdout.strip()


def _held(box: Box, limits: Limits, controllers: Iterable[str]) -> str:
    """For a receipt: the limits and what enforces them."""
    network = "a network with its gang alone" if box.network else "no network"
    grouped = "by cgroups"
    memory = grouped if "memory" in controllers else "watched"
    tasks = grouped if "pids" in controllers else "by the kernel" if os.getuid() else "watched"
    unfiltered = "" if seccomp.program() else ", system calls not filtered"
    most = limits.most_memory() >> 20, limits.file >> 20, limits.written >> 20
    return (
        f"{version()}, {network}{unfiltered}; limits: memory {most[0]:,} MiB {memory}, "
        f"{limits.tasks} processes {tasks}, a file {most[1]:,} MiB by the kernel, "
        f"written {most[2]:,} MiB watched, "
        f"{limits.seconds:g} s watched, printed {limits.printed} B kept"
    )


# ── Running ──────────────────────────────────────────────────────────────────────────────────


def run(
    box: Box,
    module: Iterable[str],
    limits: Limits,
    *,
    given: bytes = b"",
    keep: Callable[[bytes], object],
    stderr: bool = True,
) -> Ended:
    """Run `python -m <module> …` in the box until it ends, exceeds a limit, or this process gets
    SIGTERM (which is passed on, with the box's seconds to obey). `given` is its standard input;
    `keep` gets its output, with stderr if `stderr`. Must be called from the main thread of a
    process. Raises CannotIsolate."""
    argv = [sys.executable, "-P", "-m", FIRST, str(limits.tasks), *module]
    most = {"pids": limits.tasks, "memory": limits.most_memory()}
    with (
        _sealed(given) as question,
        filtered() as calls,
        process_tree.noting(signal.SIGTERM) as told,
        cgroups.held(most) as groups,
    ):
        process = subprocess.Popen(
            command(box, argv, *calls),
            pass_fds=calls,
            stdin=question,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if stderr else subprocess.DEVNULL,
            env={},  # others inside can read the environment of the box's first process
            preexec_fn=partial(_limit, os.getpid(), limits, groups, box),
        )
        try:
            ended = _watch(process, box, limits, keep, told, "memory" in groups.controllers)
            return ended._replace(held=_held(box, limits, groups.controllers))
        finally:
            _end(process)


@contextlib.contextmanager
def filtered() -> Iterator[tuple[int, ...]]:
    """Yields an open file with the filter of system calls for bubblewrap; nothing if there is no
    filter for this machine."""
    if program := seccomp.program():
        with _sealed(program) as file:
            yield (file,)
    else:
        yield ()


@contextlib.contextmanager
def _sealed(given: bytes) -> Iterator[int]:
    """A readable file that is nowhere on disk and that no holder can change."""
    with os.fdopen(os.memfd_create("given", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb") as file:
        file.write(given)
        file.flush()
        file.seek(0)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
        yield file.fileno()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End everything inside, even without parent-death signals, and wait until it has ended,
    because its output is read next."""
    inside = process_tree.descendants(process.pid)
    process.kill()
    process_tree.end(inside)
    process.wait()


def _limit(parent: int, limits: Limits, groups: cgroups.Held, box: Box) -> None:
    groups.enter()
    if box.network:
        box.network.enter()
    process_tree.die_with_parent(signal.SIGKILL, parent)  # `enter` would undo it
    process_tree.let_go()
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file, limits.file))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watch(
    process: "subprocess.Popen[bytes]",
    box: Box,
    limits: Limits,
    keep: Callable[[bytes], object],
    told: Callable[[], bool],
    grouped: bool,
) -> Ended:
    """`grouped`: a control group holds its memory."""
    assert process.stdout
    folders = [here for here, _ in box.writes]
    least, hidden = resource_watch.least(resource_watch.left(folders)), Hidden()
    began = looked = look_at_files = time.monotonic()
    asked: float | None = None  # when it was asked to end
    printed, reading = 0, True
    while process.poll() is None:
        if reading and select.select([process.stdout], [], [], LOOK_EVERY)[0]:
            block = os.read(process.stdout.fileno(), BLOCK)
            reading, printed = bool(block), printed + len(block)
            _keep(keep, block, printed, limits.printed)
        elif not reading:
            time.sleep(LOOK_EVERY / 5)
        now = time.monotonic()
        if asked is not None and now - asked > (box.patience or TERM_MAY_TAKE):
            return Ended(128 + signal.SIGKILL, TOLD)
        if now - looked < LOOK_EVERY:
            continue
        if told() and asked is None:
            asked = now
            _terminate(process.pid)
        looked = now
        why = resource_watch.beyond(
            process.pid, limits, now - began, 0 if grouped else hidden.memory
        )
        why = why or resource_watch.out_of(resource_watch.left(folders), least, grouped)
        if not why and now > look_at_files:
            inside = resource_watch.usage(process.pid).processes
            hidden = resource_watch.hidden(inside, [there for _, there in box.writes])
            why = resource_watch.written(folders, limits, hidden.disk)
            # With many files, checks take at most a tenth of the time.
            look_at_files = now + 10 * (time.monotonic() - now)
        if why:
            return Ended(128 + signal.SIGKILL, why)
    while reading and select.select([process.stdout], [], [], 0.1)[0]:
        block = os.read(process.stdout.fileno(), BLOCK)
        reading, printed = bool(block), printed + len(block)
        _keep(keep, block, printed, limits.printed)
    if asked is not None:
        return Ended(process.returncode, TOLD)
    # The last writes were not checked yet, and the next step reads all of it.
    why = None if process.returncode else resource_watch.written(folders, limits)
    return Ended(process.returncode, why)


def _keep(keep: Callable[[bytes], object], block: bytes, printed: int, most: int) -> None:
    """Pass on the part of a block that is within the limit; `printed` includes this block."""
    before = printed - len(block)
    if before < most:
        keep(block[: most - before])
    if before <= most < printed:
        keep(b"\n(more was printed, and is not kept)\n")


def _terminate(bwrap: int) -> None:
    """Send TERM to everything inside except process 1 there, whose end would kill all."""
    inside = process_tree.descendants(bwrap)
    for process in inside[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
