"""Calls a function in a child with bounded time and memory. Whatever comes from strangers and costs
more than its size says is judged so: a declaration of seven lines can ask for more than a machine
has, and a regular expression can raise anything.

A server, which the first call starts, imports what the function needs and forks for each call, so
that a call costs milliseconds. It has one thread, so that it may fork whatever threads the caller
has, and none of the caller's environment or open files. Arguments go there as pickles. A value
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from runner.lib import process_tree
from runner.lib.paths import LAB

START_MAY_TAKE = 120.0  # seconds until a server has imported everything
LATE = 5.0  # seconds after which a server that does not answer is ended, beyond those of the call
ENVIRONMENT = {  # no secrets, no threads
    **{"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONPATH": str(LAB)},
    **{"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLCONFIGDIR": "/nonexistent"},
}

log = logging.getLogger(__name__)

Kind = Literal["seconds", "memory", "answer", "signal", "raised"]


class Limits(NamedTuple):
    """What one call may take."""

    seconds: float = 20.0
    memory: int = 256 << 20  # bytes of address space above what the child starts with
    answer: int = 16 << 20  # bytes


USUAL = Limits()


class Refused(Exception):
    """A call has no value; the message is a clause about it: "it took more than 20 s"."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def call(
    function: Callable[..., Any],
    *arguments: Any,
    limits: Limits = USUAL,
    prepare: Callable[[], object] | None = None,
) -> Any:
    """The value of `function(*arguments)`, which has to be JSON, computed in a child. The function
    is at the top level of a module. `prepare` is called once, in the server, before the first call:
    to import and to fill caches. Raises Refused."""
    name = _name(prepare) if prepare else ""
    with _STARTING:
        server = _SERVERS.setdefault(name, _Server(name))
    return server.call(_name(function), arguments, limits)


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


@dataclass
class _Server:
    """A server's process. One call at a time."""

    prepare: str
    process: "subprocess.Popen[bytes] | None" = None
    owner: int = 0  # the process that has started it: not one that was forked since
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, function: str, arguments: tuple[Any, ...], limits: Limits) -> Any:
        body = pickle.dumps(arguments)
        head = json.dumps([function, limits, len(body)]).encode() + b"\n"
        with self.lock:
            answer = None
            try:
                answer = self._asked(self._started(), head + body, limits)
            except OSError:
                log.exception("a server of limited calls has ended")
            finally:
                if answer is None:  # also where this call was interrupted
                    self._end()
        kind, value, *trace = json.loads(answer or b'["signal", "what computed it has ended"]')
        if kind == "value":
            return value
        log.warning("%s is refused: %s %s", function, value, *trace or [""])
        raise Refused(kind, value)

    def _started(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.owner != os.getpid() or self.process.poll() is not None:
            self.owner = os.getpid()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, self.prepare],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,  # Ctrl-C is the caller's
            )
            if not _line(self.process, START_MAY_TAKE):
                raise BrokenPipeError
        return self.process

    def _asked(
        self, process: "subprocess.Popen[bytes]", request: bytes, limits: Limits
    ) -> bytes | None:
        assert process.stdin
        process.stdin.write(request)
        process.stdin.flush()
        answer = _line(process, limits.seconds + LATE)
        if answer is None:
            self._end()
            return json.dumps(["seconds", _too_long(limits)]).encode()
        return answer or None

    def _end(self) -> None:
        if self.process and self.owner == os.getpid():
            self.process.kill()  # its child ends with it
            self.process.communicate()
        self.process = None


_SERVERS: dict[str, _Server] = {}
_STARTING = threading.Lock()


def _line(process: "subprocess.Popen[bytes]", seconds: float) -> bytes | None:
    """The next line that a server writes; empty if it has ended, None if this time is over."""
    assert process.stdout
    line, until, file = bytearray(), time.monotonic() + seconds, process.stdout.fileno()
    ready = select.poll()
    ready.register(file, select.POLLIN)
    while not line.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            return None
        if not (block := os.read(file, 1 << 20)):
            return b""
        line += block
    return bytes(line)


# ── The server ───────────────────────────────────────────────────────────────────────────────


def serve(prepare: str) -> None:
    """Answer calls until nobody asks any more."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    process_tree.adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if prepare:
        pkgutil.resolve_name(prepare)()
    gc.freeze()  # a collection would write to all memory that forks share
    answers.write(b"ready\n")
    answers.flush()
    while line := requests.readline():
        function, limits, length = json.loads(line)
        answers.write(_answered(function, requests.read(length), Limits(*limits)) + b"\n")
        answers.flush()


def _answered(function: str, body: bytes, limits: Limits) -> bytes:
    """The child's answer, or why there is none. Nothing that it started is left afterwards."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        _compute(function, body, limits, writing)
    os.close(writing)
    refusal, answer, until = None, bytearray(), time.monotonic() + limits.seconds
    ready = select.poll()
    ready.register(reading, select.POLLIN)
    while not refusal:
        left = until - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            refusal = ["seconds", _too_long(limits)]
        elif not (block := os.read(reading, 1 << 20)):
            break
        elif len(answer) + len(block) > limits.answer:
            refusal = ["answer", f"its answer has more than {limits.answer >> 20} MiB"]
        else:
            answer += block
    os.close(reading)
    if refusal:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    process_tree.end_descendants(signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    if os.WIFSIGNALED(status) and not refusal:
        number = signal.Signals(os.WTERMSIG(status))
        refusal = {
            signal.SIGXCPU: ["seconds", _too_long(limits)],
            signal.SIGABRT: ["memory", _too_large(limits)],  # so libraries end without memory
        }.get(number, ["signal", f"what computed it was ended by {number.name}"])
    return json.dumps(refusal).encode() if refusal else bytes(answer)


def _too_long(limits: Limits) -> str:
    return f"it took more than {limits.seconds:g} s"


def _too_large(limits: Limits) -> str:
    return f"it took more than {limits.memory >> 20} MiB of memory"


def _compute(function: str, body: bytes, limits: Limits, writing: int) -> NoReturn:
    """In the child: write the value, or why there is none, and exit."""
    try:
        process_tree.die_with_parent(signal.SIGKILL, os.getppid())
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        os.dup2(writing, 3)
        os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        _hold(limits)
        answer = _value(function, body, limits)
        _let_go()
        with os.fdopen(3, "wb") as file:
            file.write(answer)
    finally:
        os._exit(0)


def _value(function: str, body: bytes, limits: Limits) -> bytes:
    try:
        value = pkgutil.resolve_name(function)(*pickle.loads(body))
        return json.dumps(["value", value]).encode()
    except (MemoryError, SystemError):  # the latter is what the interpreter makes of the former
        pass  # its traceback, which holds all that memory, ends here
    except BaseException as error:  # a stranger's file may raise anything
        first = str(error).strip().partition("\n")[0][:200]
        sentence, trace = f"{type(error).__name__}: {first}".rstrip(": "), traceback.format_exc()
        return json.dumps(["raised", f"it failed with {sentence}", trace[-2000:]]).encode()
    return json.dumps(["memory", _too_large(limits)]).encode()


def _hold(limits: Limits) -> None:
    """Soft limits, so that children of this one may have others."""
    cpu = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limits.seconds), cpu))
    with contextlib.suppress(OSError):  # without /proc there is no size to start from
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + limits.memory
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _let_go() -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


if __name__ == "__main__":
    serve(sys.argv[1])
