"""Functions that `tests/unit/sandbox/test_limited.py` calls in a child."""

import ctypes
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runner.lib import process_tree
from runner.spec.task_items import BadTask

prepared = 0


def prepare() -> None:
    global prepared
    prepared += 1


def echo(value: Any) -> Any:
    return value


def surroundings() -> list[Any]:
    """Whether it was prepared, its environment, its open files, its limit of core dumps."""
    import resource

    files = [str(path.resolve()) for path in Path("/proc/self/fd").iterdir()]
    return [prepared, dict(os.environ), files, resource.getrlimit(resource.RLIMIT_CORE)]


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def spin() -> None:
    while True:
        pass


def take(count: int) -> int:
    return len(bytearray(count))


def answer(count: int) -> str:
    return "x" * count


def compile_pattern(pattern: str) -> None:
    re.compile(pattern)


def end(number: int) -> None:
    os.kill(os.getpid(), number)


def crash() -> None:
    ctypes.string_at(0)


def leave(path: str, seconds: float) -> None:
    """Leave a process behind, in a session of its own, and write its number."""
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = subprocess.Popen(command, start_new_session=True)
    Path(path).write_text(str(child.pid))
    time.sleep(seconds)


def not_json() -> object:
    return object()


def leave_exit() -> None:
    sys.exit(3)


def parent() -> list[int]:
    """The server, and its threads."""
    return [os.getppid(), process_tree.process(os.getppid()).threads]


def leave_at_once() -> None:
    sys.exit(1)


def resident(what: str) -> int:
    """The process; or it fails so."""
    if what == "take":
        take(300 << 20)
    if what == "compile":
        compile_pattern("a{99999999999}")
    {"own": lambda: None, "spin": spin, "crash": crash}[what]()
    return os.getpid()


def refuse(words: str) -> None:
    raise BadTask(words)
