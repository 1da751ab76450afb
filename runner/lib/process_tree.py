"""Guards one command and everything it starts, and ends all of it when the guard's parent is gone.

Ray starts some twenty processes, several of them in sessions of their own. A program that needs Ray
runs `python -m runner.lib.process_tree <scratch folder> <command> …` and holds its standard input
open. When that closes (because the program ended, for whatever reason), on SIGTERM, or when the
command ends by itself, the guard ends the command and its remaining descendants, and removes the
scratch folder. It uses a pipe and not a parent-death signal because such a signal depends on a
thread.
"""

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

COMMAND_MAY_TAKE = 10.0  # seconds to end after SIGTERM; descendants get two more
PATIENCE = {signal.SIGTERM: 2.0, signal.SIGKILL: 5.0}  # seconds for descendants to end
STOP_MAY_TAKE = 30.0  # seconds for a guard to end everything
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36  # from Linux's prctl.h


class Process(NamedTuple):
    """One process of this machine."""

    state: str  # a letter; Z: it has ended, but its parent has not reaped it
    parent: int
    threads: int
    began: int  # clock ticks since the machine's boot
    pages: int  # of memory, including shared ones


@contextlib.contextmanager
def kept(
    command: list[str], scratch: Path, output: Path, environment: dict[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `command` under a guard during the `with` body; yields the guard.

    The command runs in the folder `scratch`, with exactly the environment `environment`; its output
    goes to the file `output`. At the end of the body, or when this process ends for whatever
    reason, all of its processes are ended and the folder is removed.
    """
    scratch.mkdir(exist_ok=True)
    with output.open("wb") as file:
        guard = subprocess.Popen(
            [sys.executable, "-m", "runner.lib.process_tree", str(scratch), *command],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=scratch,
            start_new_session=True,  # the holder handles Ctrl-C
        )
    try:
        yield guard
    finally:
        if guard.stdin:
            guard.stdin.close()
        try:
            guard.wait(STOP_MAY_TAKE)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()


def die_with_parent(number: signal.Signals, parent: int = 0) -> None:
    """Make the kernel send `number` to this process when the thread that started it ends. If
    `parent` is given and has ended already, this process ends now, because the kernel would send no
    signal."""
    _prctl(PR_SET_PDEATHSIG, number)
    if parent and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every orphan among this process's descendants, so that it can find
    them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def be_dumpable(whether: bool) -> None:
    """Whether other processes of the same user may trace this process and read its memory."""
    _prctl(PR_SET_DUMPABLE, int(whether))


def hold_to(memory: int, seconds: float) -> None:
    """Limit this process, which only supervises, to so many bytes and seconds: exceeding them
    raises MemoryError or TimeoutError. A child undoes it with `let_go`."""

    def late(*_: object) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def let_go() -> None:
    """Undo `hold_to` in a child, which has limits of its own. (A child does not inherit the
    timer.)"""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


@contextlib.contextmanager
def noting(number: signal.Signals) -> Iterator[Callable[[], bool]]:
    """Yields a function: whether signal `number` has arrived during the `with` body. It is only
    noted, so that there is time to save."""
    noted = False

    def note(*_: object) -> None:
        nonlocal noted
        noted = True

    before = signal.signal(number, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(number, before)


def end_descendants(*numbers: signal.Signals, kept: int = 0, but: int = 0) -> None:
    """Send each of `numbers` in turn to the living descendants of this process, waiting in between.

    The process `kept` is reaped by whoever started it. The child `but` is left alone; this process
    must then have only one thread.
    """
    if not _has_children(but):
        return
    for number in numbers:
        until = time.monotonic() + PATIENCE[number]
        while (left := {*descendants(os.getpid())} - {but}) and time.monotonic() < until:
            for process in left:
                _signal(process, number)
            time.sleep(0.05)
            _reap(kept)


def bury() -> None:
    """Reap children that have ended; otherwise every later look would find them."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _has_children(but: int) -> bool:
    """Whether there is any child besides `but`. Much quicker than a scan of all processes; true if
    the kernel cannot tell."""
    try:
        if but:
            return Path("/proc/thread-self/children").read_text().split() != [str(but)]
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except OSError:
        return True
    return True


def end(numbers: Iterable[int]) -> None:
    """Kill these processes and wait until none is alive. Their parents reap them."""
    left, until = set(numbers), time.monotonic() + PATIENCE[signal.SIGKILL]
    for process in left:
        _signal(process, signal.SIGKILL)
    while left and time.monotonic() < until:
        left &= _living().keys()
        time.sleep(0.01 if left else 0.0)


def children(of: int) -> list[int]:
    """The process ids of all living children of `of`; [] without /proc."""
    return [number for number, process in _living().items() if process.parent == of]


def descendants(of: int, known: Mapping[int, Process] | None = None) -> list[int]:
    """The process ids of all living descendants of `of`, searched among `known` if given; []
    without /proc."""
    children: dict[int, list[int]] = {}
    for number, process in (_living() if known is None else known).items():
        children.setdefault(process.parent, []).append(number)
    found = list(children.get(of, []))
    for number in found:  # grows during the loop
        found.extend(children.get(number, []))
    return found


def _living() -> dict[int, Process]:
    return {number: one for number, one in processes().items() if one.state != "Z"}


def processes() -> dict[int, Process]:
    """All visible processes of this machine by process id; empty without /proc."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208
        with contextlib.suppress(OSError, ValueError):  # not a process, or it ended meanwhile
            found[int(name)] = process(int(name))
    return found


def process(number: int) -> Process:
    """The kernel's data about one process. Raises OSError if there is none or it is not
    readable."""
    with open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123  thousands of them
        # The second field is the name in parentheses; it may contain anything.
        words = file.read().rpartition(b")")[2].split()
    return Process(words[0].decode(), *(int(words[place]) for place in (1, 17, 19, 21)))


def main(scratch: Path, command: list[str]) -> int:
    """Run `command` until it ends or nobody holds our standard input open."""
    adopt_orphans()
    stop, stopped = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(stopped, b"!"))
    kept = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),
    )
    try:
        while kept.poll() is None and not select.select([0, stop], [], [], 1.0)[0]:
            _reap(kept.pid)
        return kept.poll() or 0
    finally:
        _end(kept)
        shutil.rmtree(scratch, ignore_errors=True)


def _end(kept: subprocess.Popen[bytes]) -> None:
    kept.terminate()
    try:
        kept.wait(COMMAND_MAY_TAKE)
    except subprocess.TimeoutExpired:
        kept.kill()
    end_descendants(signal.SIGTERM, signal.SIGKILL, kept=kept.pid)


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _reap(kept: int) -> None:
    """Reap orphans that have ended; `Popen` reaps the command itself."""
    for number, one in processes().items():
        if one.parent == os.getpid() and number != kept and one.state == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(number, os.WNOHANG)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _libc().prctl(option, value, 0, 0, 0)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
