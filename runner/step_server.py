"""Where steps are computed: each in a process of its own, of which nothing is left when the step is
over. Starting Python and importing take longer than many a step does, so a server does both once,
for all steps that a worker of Ray's makes one after another: `python -m runner.step_server` reads
a Job a line, forks for each, and answers with the fork's exit code. It runs no step itself and
imports neither NumPy nor JAX nor anybody's modules, so that each fork begins as a new process would
and no step sees what another one did. Where a file that it has imported is edited, it starts anew.
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

from runner import guard, machine, step_child
from runner.step_child import Job

LAB = Path(__file__).parents[1]  # where the lab's packages lie
LOG = "log.txt"  # in a step's scratch folder: what it prints
OUTDATED = b"outdated\n"


class ServerGone(Exception):
    """The server has ended before the step had; `code` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the server of steps ended with {code}")
        self.code = code


class StepServer:
    """One step at a time, however many threads ask."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have the server run. It ends with the thread that started it."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "runner.step_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=LAB,
            )

    def make(self, job: Job) -> int:
        """Have the step made. Returns its exit code. Raises ServerGone."""
        with self._turn:
            while (answer := self._ask(job.canonical())) == OUTDATED:
                assert self._process
                self._process.wait()
            assert self._process
            if not answer:
                raise ServerGone(self._process.wait())
            return int(answer)

    def _ask(self, question: bytes) -> bytes:
        self.start()
        assert self._process
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(question)
            self._process.stdin.flush()
        return self._process.stdout.readline()


def serve() -> None:
    """Make steps until nobody asks any more."""
    guard.die_with_parent(signal.SIGKILL)
    machine.look_around()
    files = _imported()
    begun_with = _written(files)
    gc.freeze()  # collecting would write to all of the memory that forks share
    while line := sys.stdin.buffer.readline():
        if _written(files) != begun_with:
            sys.stdout.buffer.write(OUTDATED)
            return
        job = Job.model_validate_json(line)
        if not (fork := os.fork()):
            _make(job)
        _, status = os.waitpid(fork, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _imported() -> list[str]:
    """The lab's files that this process has imported, which it does before it makes anything."""
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [file for file in loaded if file and file.startswith(f"{LAB}{os.sep}")]


def _written(files: list[str]) -> list[int]:
    """When each of these files was written; −1 for one that is just being replaced."""
    return [os.stat(x).st_mtime_ns if os.path.exists(x) else -1 for x in files]  # noqa: PTH110, PTH116


def _make(job: Job) -> NoReturn:
    """Make one step, wait for what it left running, and end."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(Path(job.scratch, LOG), os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(nothing, 0)  # neither the server's questions nor its answers are a step's to touch
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = step_child.main(job)
    threading._shutdown()  # type: ignore[attr-defined]  # as Python ends: pools, then threads
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
