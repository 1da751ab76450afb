"""A process that answers for a model: what one turn of questions leaves in it, the next one does
not find, and it imports no more than it takes."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from runner.lib.own_code_errors import BadOwnCode
from runner.worker.model_client import Talk
from runner.worker.models import model_server
from runner.worker.models.model_server import Task
from tests.decided import KINDS

ROWS, LENGTH, VOCAB = 2, 3, 4
TOKENS = np.zeros((ROWS, LENGTH), np.int32)

# A process whose answers are how often it was asked, which no program of arithmetic can know.
REMEMBERS = """
import os, sys
import numpy as np
from runner.worker.models import model_server
asked = []
def by_program(task):
    def run(tokens):
        asked.append(tokens)
        if len(asked) == {dies_at}:
            os.kill(os.getpid(), 9)
        return np.full((*tokens.shape, 4), len(asked))
    return run
model_server._by_program = by_program
sys.exit(model_server.main())
"""

IMPORTED = """
import os, sys, warnings
from runner.worker.models import model_server, params_file, programs
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    if not os.fork():
        os._exit(0)
print(*{"flax", "orbax", "tensorstore", "engine.model.decoder"} & sys.modules.keys(), *said)
"""


@contextmanager
def talk(folder: Path, dies_at: int = 0) -> Iterator[tuple[Talk, "subprocess.Popen[bytes]"]]:
    """A talk with a process that is no box, and the process."""
    (folder / "box").mkdir()
    (folder / "asked").mkdir()
    talk = Talk(folder / "asked", VOCAB)
    task = Task(
        config={},
        own="model:Any",
        rows=ROWS,
        box=str(folder / "box"),
        devices=KINDS["cpu"],
        count=1,
        questions=str(folder / "asked"),
        program="there is one",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", REMEMBERS.format(dies_at=dies_at)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def hear() -> None:
        assert process.stdout
        while block := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            talk.heard(block)
        talk.over()

    hears = threading.Thread(target=hear)
    hears.start()
    try:
        assert process.stdin
        process.stdin.write(task.canonical())
        process.stdin.close()
        yield talk, process
    finally:
        talk.end()
        process.wait(60)
        hears.join()


def test_a_process_that_is_asked_anew_remembers_nothing_of_what_was_asked(tmp_path: Path) -> None:
    with talk(tmp_path) as (asked, process):
        assert [asked.logits(TOKENS).max() for _ in range(3)] == [1, 2, 3]
        left = list(model_server.of_turn(tmp_path / "asked", 0).iterdir())
        assert left == [], "an answered question takes no room"
        asked.anew()
        assert not model_server.of_turn(tmp_path / "asked", 0).exists(), "nor are there questions"
        again = [asked.logits(TOKENS, np.zeros(ROWS, np.int32)) for _ in range(2)]
        assert [logits.max() for logits in again] == [1, 2]
    assert process.returncode == 0


def test_a_process_that_dies_in_any_turn_ends_the_talk(tmp_path: Path) -> None:
    with talk(tmp_path, dies_at=2) as (asked, process):
        asked.logits(TOKENS)
        asked.anew()
        asked.logits(TOKENS)
        with pytest.raises(BadOwnCode, match="ended before it had answered"):
            asked.logits(TOKENS)
    assert process.returncode == 128 + 9


def test_answering_by_a_program_imports_no_lab_models_and_can_fork() -> None:
    said = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == []
