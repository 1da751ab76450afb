"""Calls a function in a child with bounded time and memory. Whatever comes from strangers and costs
more than its size says is judged so: a declaration of seven lines can ask for more than a machine
has, and a regular expression can raise anything.

A server, which the first call starts, imports what the function needs and forks for each call, so
that a call costs milliseconds; a `resident` one computes itself until it fails, so that many small
calls cost little. It has one thread, so that it may fork whatever threads the caller has, and none
of the caller's environment or open files. Arguments go there as pickles. A value
comes back as JSON, so that nothing that a child may have been made to write is run here. The child
runs the lab's own code only; strangers' code belongs into `runner.isolation.bubblewrap`.
"""

import contextlib
import gc
import json
import logging
import math
import os
import pickle
import pkgutil
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from runner.lib import process_tree
from runner.lib.paths import LAB

PATIENCE = 20.0  # times a processor's seconds that a resident child may take on a busy machine
MAX_MESSAGE = 2000  # characters
LATE = 5.0  # seconds after which a server that does not answer is ended, beyond those of the call
ENVIRONMENT = {  # no secrets, no threads; the order of sets is always the same
    **{"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONPATH": str(LAB), "PYTHONHASHSEED": "0"},
    **{"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLCONFIGDIR": "/nonexistent"},
}

log = logging.getLogger(__name__)


class Limits(NamedTuple):
    """What one call may take."""

    seconds: float = 20.0
    memory: int = 256 << 20  # bytes of address space above what the child starts with
    answer: int = 16 << 20  # bytes


USUAL, START = Limits(), Limits(seconds=120.0)


class Refused(Exception):
    """A call has no value: it took too many `seconds`, too much `memory`, made too long an
    `answer`, `raised`, or was ended by a `signal`; or its server does not `start`, which is no
    fault of the arguments. The message is a clause about it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def call(
    function: Callable[..., Any] | str,
    *arguments: Any,
    limits: Limits = USUAL,
    prepare: Callable[[], object] | None = None,
    lane: str = "",
    resident: bool = False,
    expected: type[Exception] | None = None,
) -> Any:
    """The value of `function(*arguments)`, which has to be JSON, computed in a child. The function
    is at the top level of a module, or is `module:name`. `prepare` is called once, in the server,
    before the first call: to import and to fill caches. Calls in one `lane` wait for each other. A
    `resident` child serves one function call after call, each with so many seconds of a processor.
    An `expected` exception of the function is raised here with its message, cut to MAX_MESSAGE.
    Raises Refused."""
    name = _name(function)
    key = _name(prepare) if prepare else "", name if resident else "", lane
    body, answer, number = pickle.dumps((name, arguments, expected)), b"", 0
    patience = limits.seconds * (PATIENCE if resident else 1) + LATE
    with _LOCKS[key]:
        try:
            server = _SERVERS[key] = _started(key)
            assert server.stdin
            server.stdin.write(json.dumps([*limits, len(body)]).encode() + b"\n" + body)
            server.stdin.flush()
            answer = _read(server, limits._replace(seconds=patience))
        except OSError:
            log.exception("a server of limited calls has ended")
        finally:
            if not answer and (broken := _SERVERS.pop(key, None)):  # also at an interruption
                broken.kill()  # its child ends with it
                broken.communicate()
                number = -broken.returncode
    kind, value, *trace = json.loads(answer or _ended(number, limits))
    if kind == "value":
        return value
    if expected and kind == "expected":
        raise expected(value)
    log.warning("%s is refused: %s %s", name, value, *trace or [""])
    raise Refused(kind, value)


_Key = tuple[str, str, str]  # what prepares a server, the function if it is resident, the lane
_SERVERS: dict[_Key, "subprocess.Popen[bytes]"] = {}
_LOCKS: defaultdict[_Key, threading.Lock] = defaultdict(threading.Lock)


def _name(function: Callable[..., Any] | str) -> str:
    return (
        function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    )


def _started(key: _Key) -> "subprocess.Popen[bytes]":
    """The server, started if it does not run."""
    if key in _SERVERS and _SERVERS[key].poll() is None:
        return _SERVERS[key]
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *key[:2]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd="/",
        start_new_session=True,  # Ctrl-C is the caller's
    )
    _SERVERS[key] = server
    try:
        ready = _read(server, START)
    except Refused:
        ready = b""
        server.kill()
    if not ready:
        words = f"its process ended with {server.wait()} before the first call; its log says why"
        raise Refused("start", words)
    return server


def _read(source: "subprocess.Popen[bytes] | int", limits: Limits) -> bytes:
    """The line that a process writes; empty if it ends instead. Raises Refused."""
    file = source if isinstance(source, int) else source.stdout.fileno()  # type: ignore[union-attr]
    line, until, ready = bytearray(), time.monotonic() + limits.seconds, select.poll()
    ready.register(file, select.POLLIN)
    while not line.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            raise Refused("seconds", f"it took more than {limits.seconds:g} s")
        if not (block := os.read(file, 1 << 20)):
            return b""
        if len(line) > limits.answer:
            raise Refused("answer", f"its answer has more than {limits.answer >> 20} MiB")
        line += block
    return bytes(line)


# ── The server ───────────────────────────────────────────────────────────────────────────────


def serve(prepare: str, resident: str) -> None:
    """Answer calls until nobody asks any more, in children if it is not resident."""
    answer = _value if resident else _answered
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    process_tree.adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if prepare:
        pkgutil.resolve_name(prepare)()
    gc.freeze()  # a collection would write to all memory that forks share
    answers.write(b"ready\n")
    while line := requests.readline():
        *limits, length = json.loads(line)
        answers.write(answer(requests.read(length), Limits(*limits)))


def _answered(body: bytes, limits: Limits) -> bytes:
    """The child's answer, or why there is none. Nothing that it started is left afterwards."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        _compute(body, limits, writing)
    os.close(writing)
    try:
        answer = _read(reading, limits)
    except Refused as error:
        answer = _line(error.kind, str(error))
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    process_tree.end_descendants(signal.SIGKILL)
    process_tree.bury()
    return answer or _ended(os.WTERMSIG(status), limits)


def _ended(number: int, limits: Limits) -> bytes:
    """Why a process that this signal has ended, or none (0), has no answer."""
    if number == signal.SIGXCPU:
        return _line("seconds", f"it took more than {limits.seconds:g} s")
    if number == signal.SIGABRT:  # so libraries end without memory
        return _too_large(limits)
    how = f"was ended by {signal.Signals(number).name}" if number > 0 else "has ended"
    return _line("signal", f"what computed it {how}")


def _line(*answer: Any) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _too_large(limits: Limits) -> bytes:
    return _line("memory", f"it took more than {limits.memory >> 20} MiB of memory")


def _compute(body: bytes, limits: Limits, writing: int) -> NoReturn:
    """In the child: write the value, or why there is none, and exit."""
    try:
        process_tree.die_with_parent(signal.SIGKILL, os.getppid())
        null = os.open(os.devnull, os.O_RDWR)
        for here, standard in ((null, 0), (null, 1), (null, 2), (writing, 3)):
            os.dup2(here, standard)
        os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        answer = _value(body, limits)
        with os.fdopen(3, "wb") as file:
            file.write(answer)
    finally:
        os._exit(0)


def _value(body: bytes, limits: Limits) -> bytes:
    """The answer, computed within limits."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _hold(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + limits.seconds))
    with contextlib.suppress(OSError):  # without /proc there is no size to start from
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        _hold(resource.RLIMIT_AS, pages * resource.getpagesize() + limits.memory)
    answer, expected = b"", None
    try:
        name, arguments, expected = pickle.loads(body)
        answer = _line("value", pkgutil.resolve_name(name)(*arguments))
    except (MemoryError, SystemError):  # the latter is what the interpreter makes of the former
        pass
    except BaseException as error:  # a stranger's file may raise anything
        first = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
        answer = _line("raised", f"it failed with {first}", traceback.format_exc()[-2000:])
        if expected and isinstance(error, expected):
            answer = _line("expected", str(error)[:MAX_MESSAGE])
    _hold(resource.RLIMIT_AS, resource.getrlimit(resource.RLIMIT_AS)[1])
    return answer or _too_large(limits)


def _hold(what: int, most: int) -> None:
    """A soft limit, so that a child of this process may have another."""
    resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


if __name__ == "__main__":
    serve(*sys.argv[1:])
