"""`python -m runner.worker.solution_boxes EXAMINER LIMITS`, started by
`runner.worker.scores.solution_tests`: runs the module EXAMINER in a box for each question on the
standard input, and prints its verdict. Questions, verdicts and limits are JSON."""

import json
import secrets
import sys
from collections.abc import Mapping
from signal import SIGKILL
from typing import Any

from runner.isolation import bubblewrap
from runner.lib import bounds, process_tree

MAX_WORDS = 400  # characters of why a solution fails


def main(examiner: str, limits: bubblewrap.Limits) -> None:
    """Answer each question."""
    process_tree.die_with_parent(SIGKILL)
    cannot = bubblewrap.probe()
    for line in sys.stdin:
        item, written = json.loads(line)
        answer: dict[str, Any] = {"cannot": cannot}
        if cannot is None:
            try:
                answer = {"why": in_a_box(examiner, limits, json.loads(item), written)}
            except (bubblewrap.CannotIsolate, OSError) as error:
                answer = {"cannot": str(error)}
        print(json.dumps(answer), flush=True)


def in_a_box(
    examiner: str, limits: bubblewrap.Limits, item: Mapping[str, Any], written: str
) -> str | None:
    """Why a solution fails its tests; None if it passes. Raises CannotIsolate."""
    word, said = secrets.token_hex(16), bytearray()
    question = {**item, "written": written, "word": word}
    ended = bubblewrap.run(
        bubblewrap.Box(),
        [examiner],
        limits,
        given=json.dumps(question).encode(),
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
    main(sys.argv[1], bubblewrap.Limits(**json.loads(sys.argv[2])))
