"""Runs a solution that a model wrote, a stranger's text, and answers calls of its function: `python
-m runner.worker.scores.solution_process`, started by `runner.worker.scores.examiner` in its box.
Requests and answers are lines of JSON. This process knows neither the tests nor what they expect,
and decides nothing: all it can do is answer."""

import json
import os
import resource
from typing import Any

from runner.worker.models.plain_values import decode, encode

SECONDS = 5  # of a processor
MEMORY = 1 << 30  # bytes of address space
MAX_FILE = 16 << 20  # bytes
MAX_WORDS = 300  # characters of an error's message


def main() -> None:
    """Take the solution, and answer each call. Each process that it starts has the same limits."""
    for limit, most in (
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, MAX_FILE),
    ):
        resource.setrlimit(limit, (most, most))
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in (0, 1, 2):  # what the solution reads and prints is no request and no answer
        os.dup2(nothing, file)
    names: dict[str, Any] = {"__name__": "solution"}
    given = json.loads(asked.readline())
    while True:
        try:
            if "module" in given:
                exec(compile(given["module"], "solution.py", "exec"), names)
                answer: dict[str, Any] = {"value": callable(names.get(given["entry_point"]))}
            else:
                found = names[given["entry_point"]](
                    *decode(given["args"]), **decode(given["named"])
                )
                answer = {"value": encode(found)}
            line = json.dumps(answer)
        except BaseException as error:
            words = _words(error)
            line = json.dumps({"raised": type(error).__name__[:100], "words": words})
        answers.write(line.encode() + b"\n")
        answers.flush()
        given = json.loads(asked.readline())


def _words(error: BaseException) -> str:
    try:
        return str(error)[:MAX_WORDS]
    except BaseException:  # its own __str__
        return ""


if __name__ == "__main__":
    main()
