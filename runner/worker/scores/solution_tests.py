"""Tests solutions that models wrote, each in a box of its own, whatever isolation is declared.

One process for each processor (`runner.worker.solution_boxes`) starts the boxes. These processes
are new and no forks, because the caller has used JAX, which has threads.
`runner.worker.scores.examiner` says why a solution cannot forge its verdict."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from runner.spec.task_items import BadTask, Function
from runner.worker.scores import examiner

BOXES = "runner.worker.solution_boxes"  # by name: how a box is made changes no score
LIMITS: dict[str, int] = {  # of a box; `runner.isolation.resource_watch` says of what
    **{"memory": 2 << 30, "tasks": 64, "file": 16 << 20, "written": 0},
    **{"seconds": 60, "printed": 1 << 16},
}

Question = tuple[str, str]  # the item as JSON, and what is written after its prompt


class CannotTest(Exception):
    """There is no box in which solutions could run; the message says why and what to do."""


def check(task: str, items: Sequence[Any]) -> None:
    """Raises BadTask unless the solution of each item (Function) passes its tests, and
    CannotTest."""
    found = tested([(item, item.canonical_solution) for item in items])
    for number, why in enumerate(found):
        if why is not None:
            raise BadTask(
                f"item {number} of {task}: its own solution fails its tests ({why}); mend or "
                "remove it"
            )


def tested(written: Sequence[tuple[Function, str]]) -> list[str | None]:
    """For each text that was written after an item's prompt why it fails the item's tests; None if
    it passes. Equal ones are run once. Raises CannotTest."""
    questions = [(item.model_dump_json(), text) for item, text in written]
    different = list(dict.fromkeys(questions))
    count = min(len(os.sched_getaffinity(0)), len(different))
    with _children(count) as free, ThreadPoolExecutor(max(count, 1)) as pool:

        def answer(question: Question) -> str | None:
            child = free.get()
            try:
                return _answer(child, question)
            finally:
                free.put(child)

        verdicts = dict(zip(different, pool.map(answer, different), strict=True))
    return [verdicts[question] for question in questions]


@contextmanager
def _children(count: int) -> Iterator["SimpleQueue[subprocess.Popen[str]]"]:
    of = examiner.main.__module__  # names a function, whose code so counts in fingerprints
    command = [sys.executable, "-P", "-m", BOXES, of, json.dumps(LIMITS)]
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")
        for _ in range(count)
    ]
    free: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    for child in started:
        free.put(child)
    try:
        yield free
    finally:
        for child in started:
            child.kill()  # bubblewrap ends with its parent
            child.communicate()


def _answer(child: "subprocess.Popen[str]", question: Question) -> str | None:
    assert child.stdin
    assert child.stdout
    child.stdin.write(json.dumps(question) + "\n")
    child.stdin.flush()
    if not (line := child.stdout.readline()):
        raise RuntimeError("a process that tests solutions has ended; its memory may be out")
    found = json.loads(line)
    if "cannot" in found:
        raise CannotTest(f"solutions run only in boxes: {found['cannot']}")
    why: str | None = found["why"]
    return why
