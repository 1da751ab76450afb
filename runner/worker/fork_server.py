"""Where steps are computed: each in a process of its own, of which nothing is left when the step is
over. Starting Python and importing take longer than many a step does, so a server does both once,
for all steps that a worker of Ray's makes one after another: `python -m runner.worker.fork_server`
reads a Job a line, forks for each, and answers with the fork's exit code. It runs no step itself
and imports the standard library alone, so that a fork is cheap and begins as a new process would,
and no step sees what another one did. While one step computes, the fork for the next one is made,
and waits; after a training of the lab's, which is seldom alone, it imports JAX meanwhile. Where a
file that the server has imported is edited, it starts anew.

As it makes one step at a time, whatever has descended from it is that step's, but for the fork that
waits: it adopts orphans, and leaves nobody alive once the step is over, however that ended, nor
when whoever asks is gone.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from runner.lib import paths, process_tree
from runner.schema.devices import Kind
from runner.store.scratch_paths import LOG
from runner.worker import environment, step_process
from runner.worker.step_process import TRAIN, Job

LAB = Path(__file__).parents[2]  # where the lab's packages lie
MAY_TAKE = 15.0  # seconds for an isolated step to end that was told to: its box gives it five


class ServerGone(Exception):
    """The server has ended before the step had; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the server of steps ended with {code}")
        self.code = code


@dataclass
class _Question:
    """A step that somebody waits for."""

    answer: bytes | None = None
    begun: bool = True  # as far as anybody can know


class _Server:
    """A server's process, and who waits for which of its answers: they come in the order of the
    questions, the next of which it finds in its pipe as soon as it is done with one."""

    def __init__(self) -> None:
        self._files = {file: _written_at(file) for file in _imported()}  # before they are read
        surroundings = json.dumps(environment.surroundings())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runner.worker.fork_server", surroundings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=LAB,
        )
        self.over = False  # it answers no more
        self._waiting: deque[_Question] = deque()
        self._reading = threading.Lock()

    def serves(self) -> bool:
        """Whether it lives and has the lab's code as it is now."""
        if self.over or self.process.poll() is not None:
            return False
        return all(_written_at(file) == when for file, when in self._files.items())

    def ask(self, job: Job) -> _Question:
        """Hand a step in. One thread at a time."""
        assert self.process.stdin
        question, line = _Question(), job.written()
        self._waiting.append(question)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line)
            self.process.stdin.flush()
        return question

    def answer(self, question: _Question) -> bytes:
        """Wait for the answer: an exit code, or nothing where the server has ended."""
        assert self.process.stdout
        while question.answer is None:
            with self._reading:
                if question.answer is None:
                    line, first = self.process.stdout.readline(), self._waiting.popleft()
                    # Of those without an answer, the server was at the first when it ended.
                    first.begun = not self.over
                    self.over = self.over or not line
                    first.answer = line
        return question.answer


class StepServer:
    """Makes one step at a time, in the order in which threads ask."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._server: _Server | None = None

    def start(self) -> _Server:
        """Have a server run. It ends with the thread that started it, and one that has older code
        when it is done with what it was asked."""
        if self._server is None or not self._server.serves():
            if self._server and self._server.process.stdin:
                with contextlib.suppress(BrokenPipeError):
                    self._server.process.stdin.close()
            self._server = _Server()
        return self._server

    def make(self, job: Job) -> int:
        """Have the step made. Returns its exit code. Raises ServerGone."""
        while True:
            with self._asking:
                server = self.start()
                question = server.ask(job)
            if answer := server.answer(question):
                return int(answer)
            code = server.process.wait()
            if question.begun:
                raise ServerGone(code)


def serve(surroundings: str) -> None:
    """Make steps until nobody asks any more. `surroundings`: as `machine` has found them."""
    job: Job | None = None

    def gone(*_: object) -> None:
        _end(patiently=job is not None and job.isolation == "bubblewrap")

    process_tree.adopt_orphans()
    signal.signal(signal.SIGTERM, gone)
    process_tree.die_with_parent(signal.SIGTERM)
    environment.believe(json.loads(surroundings))
    gc.freeze()  # collecting would write to all of the memory that forks share
    waiting = _ahead()
    while line := sys.stdin.buffer.readline():
        job = Job.read(line)
        fork = _handed(line, waiting)
        waiting = _ahead(_likely(job))
        _, status = os.waitpid(fork, 0)
        if os.WIFSIGNALED(status) and not Path(job.scratch, LOG).exists():
            # The last step had ended the one that waited, which was not gone yet: nothing began.
            _, status = os.waitpid(_handed(line, None), 0)
        process_tree.end_descendants(signal.SIGKILL, but=waiting.process if waiting else 0)
        _bury()
        print(os.waitstatus_to_exitcode(status), flush=True)
    process_tree.end_descendants(signal.SIGKILL)
    _bury()


def _bury() -> None:
    """Take leave of the dead whom the step has left, who would be looked at after each step."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class _Likely(NamedTuple):
    """What the next step may need as this one did, and what is imported for it ahead."""

    module: str
    devices: Kind
    cache: str


def _likely(job: Job) -> _Likely | None:
    """None where that would not pay, or own code runs."""
    pays = job.function == TRAIN and not job.code and not job.isolation
    return _Likely(job.function.partition(":")[0], job.devices, job.cache) if pays else None


class _Fork(NamedTuple):
    """One that waits for a step to make."""

    process: int
    tell: int  # an open file: which step
    ready: _Likely | None = None  # for what: for any, or for such a step alone


def _ahead(likely: _Likely | None = None) -> _Fork | None:
    """One for the next step; none where the machine has no room for it now."""
    try:
        return _fork(likely)
    except OSError:
        return None


def _fork(likely: _Likely | None = None) -> _Fork:
    server, (told, tell) = os.getpid(), os.pipe()
    try:
        process = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if process:
        os.close(told)
        return _Fork(process, tell, likely)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        process_tree.die_with_parent(signal.SIGKILL, server)
        os.close(tell)
        if likely:
            step_process.compile_into(likely.cache)
            environment.set_flags(likely.devices)
            importlib.import_module(likely.module)
        with os.fdopen(told, "rb") as file:
            line = file.readline()
        if line.endswith(b"\n"):  # or nobody asks any more
            _make(Job.read(line))
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(1)


def _handed(line: bytes, waiting: _Fork | None) -> int:
    """The process that makes the step: the one that waits or, if there is none or the last step has
    ended it, another one."""
    if waiting and waiting.ready not in (None, _likely(Job.read(line))):
        os.close(waiting.tell)
        os.kill(waiting.process, signal.SIGKILL)
        waiting = None
    fork = waiting or _fork()
    try:
        with os.fdopen(fork.tell, "wb") as file:
            file.write(line)
    except BrokenPipeError:
        return _handed(line, None)
    return fork.process


def _end(*, patiently: bool) -> None:
    """End what is left of the step, and this process. An isolated step has its own way to end,
    which takes time."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    until = time.monotonic() + (MAY_TAKE if patiently else 0.0)
    for child in process_tree.children(os.getpid()) if patiently else ():
        os.kill(child, signal.SIGTERM)
    while process_tree.children(os.getpid()) and time.monotonic() < until:
        time.sleep(0.05)
    process_tree.end_descendants(signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGTERM)


def _imported() -> list[str]:
    """The lab's files that this process has imported, and so a server of it does, and those that
    make figures."""
    of_the_lab = (name for name in sys.modules if name.partition(".")[0] in paths.ROOMS)
    loaded = (getattr(sys.modules[name], "__file__", None) for name in of_the_lab)
    return [*(file for file in loaded if file), *map(str, environment.figures_code())]


def _written_at(file: str) -> int:
    """When a file was written; −1 for one that is just being replaced."""
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116  often asked
    except OSError:
        return -1


def _make(job: Job) -> NoReturn:
    """Make one step, wait for what it left running, and end."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # neither the server's questions nor its answers are a step's to touch
    step_process.print_to(Path(job.scratch, LOG))
    step_process.leave(step_process.main(job))


if __name__ == "__main__":
    serve(sys.argv[1])
