"""Computes steps, each in a process of its own, none of whose processes is left when the step is
over. Starting Python and importing take longer than many steps, so a server does both once for all
steps that a Ray worker makes: `python -m runner.worker.fork_server` reads one Job per line, forks
for each, and answers with the fork's exit code. It runs no step itself and imports only the
standard library, so forks are cheap, start like new processes, and no step sees what another one
did. While one step computes, the fork for the next one is made and waits; if that is likely a
training outside of a box, it imports JAX meanwhile. If a file that the server has imported is
edited, the server restarts.

It makes one step at a time, so every descendant belongs to that step, except the waiting fork. It
adopts orphans and kills all of them when the step is over, however it ended, and when the caller is
gone.
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
from runner.store.scratch_paths import LOG
from runner.worker import environment, step_process
from runner.worker.step_process import TRAIN, Job, Training

LAB = Path(__file__).parents[2]  # the folder of the lab's packages
MAY_TAKE = 15.0  # seconds for an isolated step to end after SIGTERM; its box gives it five
OVER = 5.0  # seconds for a training to end after it has saved


class ServerGone(Exception):
    """The server ended before the step did; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the server of steps ended with {code}")
        self.code = code


@dataclass
class _Question:
    """A step that a thread waits for."""

    answer: bytes | None = None
    begun: bool = True  # False: certainly not started


class _Server:
    """A server's process, and the threads that wait for its answers. Answers come in the order of
    the questions; the next question is in its pipe already."""

    def __init__(self) -> None:
        self._files = {file: _written_at(file) for file in _imported()}  # before they are read
        surroundings = json.dumps(environment.surroundings())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runner.worker.fork_server", surroundings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=LAB,
        )
        self.over = False  # it no longer answers
        self._waiting: deque[_Question] = deque()
        self._reading = threading.Lock()

    def serves(self) -> bool:
        """Whether it is alive and has the current code of the lab."""
        if self.over or self.process.poll() is not None:
            return False
        return all(_written_at(file) == when for file, when in self._files.items())

    def ask(self, job: Job) -> _Question:
        """Send a step. One thread at a time."""
        assert self.process.stdin
        question, line = _Question(), job.written()
        self._waiting.append(question)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line)
            self.process.stdin.flush()
        return question

    def answer(self, question: _Question) -> bytes:
        """Wait for the answer: an exit code, or empty if the server has ended."""
        assert self.process.stdout
        while question.answer is None:
            with self._reading:
                if question.answer is None:
                    line, first = self.process.stdout.readline(), self._waiting.popleft()
                    # When it ended, the server was at the first question without an answer.
                    first.begun = not self.over
                    self.over = self.over or not line
                    first.answer = line
        return question.answer


class StepServer:
    """Makes one step at a time, in the order of the calls."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._server: _Server | None = None

    def start(self) -> _Server:
        """Start a server if none runs. It ends with the thread that started it; one with older code
        ends after its pending steps."""
        if self._server is None or not self._server.serves():
            if self._server and self._server.process.stdin:
                with contextlib.suppress(BrokenPipeError):
                    self._server.process.stdin.close()
            self._server = _Server()
        return self._server

    def make(self, job: Job) -> int:
        """Make the step. Returns its exit code. Raises ServerGone."""
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
    """Make steps until nobody asks any more. `surroundings`: from `machine`."""
    job: Job | None = None

    def gone(*_: object) -> None:
        _end(_patience(job) if job else 0.0)

    process_tree.adopt_orphans()
    signal.signal(signal.SIGTERM, gone)
    process_tree.die_with_parent(signal.SIGTERM)
    environment.believe(json.loads(surroundings))
    gc.freeze()  # a collection would write to all memory that forks share
    waiting = _ahead()
    while line := sys.stdin.buffer.readline():
        job = Job.read(line)
        fork = _handed(line, waiting)
        waiting = _ahead(job.next)
        _, status = os.waitpid(fork, 0)
        if os.WIFSIGNALED(status) and not Path(job.scratch, LOG).exists():
            # The last step killed the waiting fork, which was not reaped yet: nothing had started.
            _, status = os.waitpid(_handed(line, None), 0)
        process_tree.end_descendants(signal.SIGKILL, but=waiting.process if waiting else 0)
        process_tree.bury()
        print(os.waitstatus_to_exitcode(status), flush=True)
    process_tree.end_descendants(signal.SIGKILL)
    process_tree.bury()


class _Fork(NamedTuple):
    """A fork that waits for a step."""

    process: int
    tell: int  # an open file, to which the step is written
    ready: Training | None = None  # None: for any step; otherwise for such a training only


def _ahead(likely: Training | None = None) -> _Fork | None:
    """A fork for the next step; None if the machine has no room for it now."""
    try:
        return _fork(likely)
    except OSError:
        return None


def _fork(likely: Training | None = None) -> _Fork:
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
            with contextlib.suppress(Exception):  # the step itself fails by it, and says why
                importlib.import_module(TRAIN.partition(":")[0])
        with os.fdopen(told, "rb") as file:
            line = file.readline()
        if line.endswith(b"\n"):  # otherwise nobody asks any more
            _make(Job.read(line))
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(1)


def _handed(line: bytes, waiting: _Fork | None) -> int:
    """The process that makes the step: the waiting fork, or another one if there is none or the
    last step killed it."""
    if waiting and waiting.ready not in (None, Job.read(line).training):
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


def _patience(job: Job) -> float:
    """Seconds that a step has after SIGTERM: a training saves, and an isolated step ends itself."""
    if job.function == TRAIN:
        return step_process.SAVING_MAY_TAKE + OVER
    return MAY_TAKE if job.isolation == "bubblewrap" else 0.0


def _end(patience: float) -> None:
    """Kill what is left of the step after so many seconds, and end this process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until = time.monotonic() + patience
    for child in process_tree.children(os.getpid()) if patience else ():
        os.kill(child, signal.SIGTERM)
    while process_tree.children(os.getpid()) and time.monotonic() < until:
        time.sleep(0.05)
    process_tree.end_descendants(signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _imported() -> list[str]:
    """The files of the lab that this process (and so a server) has imported, and those that affect
    figures."""
    of_the_lab = (name for name in sys.modules if name.partition(".")[0] in paths.ROOMS)
    loaded = (getattr(sys.modules[name], "__file__", None) for name in of_the_lab)
    return [*(file for file in loaded if file), *map(str, environment.figures_code())]


def _written_at(file: str) -> int:
    """When a file was written; −1 if it is just being replaced."""
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116  often asked
    except OSError:
        return -1


def _make(job: Job) -> NoReturn:
    """Make one step, wait for what it left running, and exit."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the step must not touch the server's questions and answers
    step_process.print_to(Path(job.scratch, LOG))
    step_process.leave(step_process.main(job))


if __name__ == "__main__":
    serve(sys.argv[1])
