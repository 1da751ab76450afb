"""Tests a solution that a model wrote: `python -m runner.worker.scores.examiner`, in a box of its
own (`runner.worker.scores.solution_tests`).

The solution never runs in this process, so that it cannot print the verdict, end the process with
exit code 0, replace what the tests compare with, or read what they expect. It runs in another
process (`solution_process`), without this one's files, and is called through a pipe. Only plain
values come back. Nobody in the box can read or trace this process. It prints its verdict, with a
word that only the caller knows, after the tests have ended."""

import builtins
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from runner.lib import process_tree
from runner.worker.models.plain_values import decode, encode
from runner.worker.scores import solution_process

MAX_ANSWER = 16 << 20  # bytes
MAX_WORDS = 300  # characters


class Ended(Exception):
    """The solution's process does not answer any more."""


class Raised(Exception):
    """The solution raised an exception that Python does not know."""


class Solution:
    """The solution as the tests call it."""

    def __init__(self, process: "subprocess.Popen[bytes]", entry_point: str) -> None:
        self._process, self._entry_point = process, entry_point
        self.__name__ = entry_point

    def begin(self, module: str) -> None:
        """Raises what the module raises, and NameError if it has no such function."""
        if self._ask({"module": module}) is not True:
            raise NameError(f"it defines no function {self._entry_point}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._ask({"args": encode(args), "named": encode(named)})

    def _ask(self, asked: Mapping[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        line = b""
        with contextlib.suppress(BrokenPipeError):
            words = json.dumps({"entry_point": self._entry_point, **asked})
            self._process.stdin.write(words.encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline(MAX_ANSWER)
        if not line.endswith(b"\n"):
            raise Ended("its process ended, or answered too much")
        answer = json.loads(line)
        if "raised" not in answer:
            return decode(answer["value"])
        raise _raised(str(answer["raised"]), str(answer["words"]))


def _raised(name: str, words: str) -> Exception:
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # some take other arguments
            return kind(words)
    return Raised(f"{name}: {words}")


def examined(asked: Mapping[str, str]) -> str | None:
    """Why the solution `written` of an item fails its tests; None if it passes."""
    names: dict[str, Any] = {"__name__": "tests"}
    command = [sys.executable, "-P", "-m", solution_process.main.__module__]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    solution = Solution(process, asked["entry_point"])
    try:
        # Tests may call other functions of the prompt. They get these, not the solution's.
        exec(asked["prompt"] + asked["canonical_solution"], names)
        names[asked["entry_point"]] = solution
        exec(asked["test"], names)
        random.seed(0)  # tests that draw ask every solution the same
        solution.begin(asked["prompt"] + asked["written"])
        names["check"](solution)
    except BaseException as error:
        return _words(error)
    finally:
        process.kill()
    return None


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_WORDS].rstrip(": ")


def main() -> None:
    """Print the verdict of the question on the standard input."""
    process_tree.be_dumpable(False)
    asked = json.loads(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):  # tests may print
        os.dup2(nothing, file)
    print(json.dumps({"why": examined(asked), "word": asked["word"]}), file=out, flush=True)


if __name__ == "__main__":
    main()
