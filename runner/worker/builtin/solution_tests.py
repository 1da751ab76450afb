"""Tests solutions that models wrote, each in a box of its own, whatever isolation is declared:
`python -m runner.worker.builtin.solution_tests` for each processor, started by `tested`. Each reads
questions and prints verdicts, as lines of JSON.

These processes are started anew: boxes are forked, and the caller has used JAX, which has
threads. `runner.worker.builtin.examiner` says why a solution cannot forge its verdict."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from signal import SIGKILL
from typing import Any

from runner.isolation import bubblewrap
from runner.lib import bounds, process_tree
from runner.spec.task_items import BadTask, Function
from runner.worker.builtin import examiner

LIMITS = bubblewrap.Limits(
    memory=2 << 30, tasks=64, file=16 << 20, written=0, seconds=60, printed=1 << 16
)
MAX_WORDS = 400  # characters of why a solution fails

Question = tuple[str, str]  # the item as JSON, and what is written after its prompt


def check(task: str, items: Sequence[Any]) -> None:
    """Raises BadTask unless the solution of each item (Function) passes its tests, and
    CannotIsolate."""
    found = tested([(item, item.canonical_solution) for item in items])
    for number, why in enumerate(found):
        if why is not None:
            raise BadTask(
                f"item {number} of {task}: its own solution fails its tests ({why}); mend or "
                "remove it"
            )


def tested(written: Sequence[tuple[Function, str]]) -> list[str | None]:
    """For each text that was written after an item's prompt why it fails the item's tests; None if
    it passes. Equal ones are run once. Raises CannotIsolate."""
    if why := bubblewrap.probe():
        raise bubblewrap.CannotIsolate(why)
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
    command, pipe = [sys.executable, "-P", "-m", __name__], subprocess.PIPE
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
        raise bubblewrap.CannotIsolate(found["cannot"])
    why: str | None = found["why"]
    return why


# ── In a child ───────────────────────────────────────────────────────────────────────────────


def main() -> None:
    """Answer each question on the standard input."""
    process_tree.die_with_parent(SIGKILL)
    for line in sys.stdin:
        item, written = json.loads(line)
        try:
            answer: dict[str, Any] = {"why": _in_a_box({**json.loads(item), "written": written})}
        except bubblewrap.CannotIsolate as error:
            answer = {"cannot": str(error)}
        print(json.dumps(answer), flush=True)


def _in_a_box(question: Mapping[str, Any]) -> str | None:
    word, said = secrets.token_hex(16), bytearray()
    ended = bubblewrap.run(
        bubblewrap.Box(),
        [examiner.__name__],
        LIMITS,
        given=json.dumps({**question, "word": word}).encode(),
        keep=said.extend,
        stderr=False,
    )
    return verdict(bytes(said), word, ended)


def verdict(said: bytes, word: str, ended: bubblewrap.Ended) -> str | None:
    """Why the solution failed, from what the examiner said and how it ended; None if it passed,
    which takes the word that only the examiner was told."""
    if ended.why or ended.code:
        return ended.why or f"its process ended with {ended.code}"
    try:
        found = bounds.plain(said)
        if found["word"] == word:
            why = found["why"]
            return None if why is None else str(why)[:MAX_WORDS]
    except (ValueError, KeyError, TypeError):
        pass
    return "its tests did not end"


if __name__ == "__main__":
    main()
