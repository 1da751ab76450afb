"""Runs a model in an isolated child: tokens in, logits out. `python -m
runner.worker.models.model_server` reads a `Task` and does one of two things.

*Export*: it imports the own code that defines the model, and writes the model's program
(`runner.worker.models.programs`) with a report about it. It sees no token of the validation text.
*Answer*: it loads a program, runs no own code, and prints the logits of each batch that it finds in
its folder of questions, until it finds the file that ends them. A model without a program answers
with its own code, and gets no rank.

Questions come in turns, and each process answers those of one turn only. It is a fork of a process
that has done its imports and has seen neither a token nor a parameter, so nothing stays in memory
from one turn to the next. JAX has no thread until it has a device, which each fork takes for
itself.

Logits are little-endian float32. The model's own output is a log. The caller trusts nothing but the
logits (`runner.worker.models.look_ahead_probe`)."""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count as counting
from pathlib import Path
from typing import Any

from runner.isolation import bubblewrap
from runner.lib import untrusted_files
from runner.lib.base_record import Record
from runner.lib.bounds import MOST_COUNT, MOST_WORDS, Count, Words
from runner.lib.own_code_errors import BadOwnCode, blamed
from runner.schema.devices import Kind
from runner.store.scratch_paths import LOG, WHY
from runner.worker import environment, step_process

ALL = -1  # instead of a position: the logits of the whole window
END = "end"
LOOK_EVERY = 0.002  # seconds
PROGRAM, HEADER = "program.bin", "header.json"  # in its box


class Task(Record):
    """Which model, and what to do with it."""

    config: dict[str, Any]  # the declared `model:`
    own: str  # module:function that makes it
    rows: int  # per batch
    box: str  # the folder that it may write to
    devices: Kind
    count: int  # of these
    model: str = ""  # to answer: the folder of its parameters
    questions: str = ""  # to answer: has a folder of questions for each turn
    program: str = ""  # to answer: the file; empty: its own code answers


class Header(Record):
    """What the model's own process reports about it; a claim."""

    forward_flops_per_token: Count | None
    uncounted: Words = ""  # why its FLOPs could not be counted
    not_exported: Words = ""  # why there is no program


def question(number: int) -> str:
    """The name of a question's file: int32 (rows, 1 + S), each row's position (or ALL) first."""
    return f"{number:08d}.npy"


def of_turn(questions: Path, turn: int) -> Path:
    """The folder of a turn's questions. When it exists, the turn before is over."""
    return questions / str(turn)


def export(task: Task) -> None:
    """Write the model's program, or why there is none, to the box. Raises BadOwnCode."""
    environment.settle(task.devices, task.count, taken=True)
    model = _own(task)
    from engine.model import traced_flops
    from runner.worker.models import programs

    with blamed(task.own, "scored"):
        flops, uncounted, not_exported = None, "", ""
        try:
            flops = min(traced_flops.forward_flops_per_token(model, task.rows), MOST_COUNT)
        except traced_flops.Uncountable as error:
            uncounted = str(error)[:MOST_WORDS]
        try:
            Path(task.box, PROGRAM).write_bytes(programs.exported(model, task.rows))
        except programs.NotExported as error:
            not_exported = str(error)
    header = Header(forward_flops_per_token=flops, uncounted=uncounted, not_exported=not_exported)
    Path(task.box, HEADER).write_bytes(header.canonical())


def answer(task: Task, out: Any) -> int:
    """Answer, each turn in a process of its own. Returns the first exit code that is not 0."""
    environment.set_flags(task.devices)
    if task.program:
        from runner.worker.models import params_file, programs  # noqa: F401  for all forks
    turn = 0
    while True:
        if not (fork := os.fork()):
            do = partial(_answer_turn, task, turn, out)
            step_process.leave(step_process.told(do, Path(task.box, WHY)))
        _, status = os.waitpid(fork, 0)
        if code := os.waitstatus_to_exitcode(status):
            return code if code > 0 else 128 - code
        turn += 1
        if not of_turn(Path(task.questions), turn).exists():
            return 0


def _answer_turn(task: Task, turn: int, out: Any) -> None:
    """Answer until there are no more questions. Raises BadOwnCode."""
    environment.look(task.devices)
    run = _by_program(task) if task.program else _by_own_code(task)
    import numpy as np

    for number in counting():
        asked = _next(Path(task.questions), turn, number)
        if asked is None:
            return
        table = np.load(asked, allow_pickle=False)
        with blamed(task.own, "scored"):
            logits = np.asarray(run(table[:, 1:]), "<f4")
        if (table[:, 0] != ALL).all():
            logits = logits[np.arange(len(table)), table[:, 0]]
        out.write(np.ascontiguousarray(logits).data)
        out.flush()


def _by_program(task: Task) -> Callable[[Any], Any]:
    from runner.worker.models import params_file, programs

    program = untrusted_files.read(Path(task.program), programs.MAX_PROGRAM) or b""
    tokens = task.rows, int(task.config["seq_len"])
    params = params_file.arrays_of(Path(task.model))
    try:
        return programs.loaded(program, params, tokens, int(task.config["vocab_size"]))
    except programs.NotExported as error:
        raise BadOwnCode(f"{task.own}: {error}") from error


def _by_own_code(task: Task) -> Callable[[Any], Any]:
    model = _own(task)
    import jax

    from runner.worker.models import trained

    params = jax.device_put(trained.params_of(Path(task.model), model))
    run = jax.jit(model.logits)
    return lambda tokens_BS: run(params, tokens_BS)


def _next(questions: Path, turn: int, number: int) -> Path | None:
    found = of_turn(questions, turn) / question(number)
    over = of_turn(questions, turn + 1), questions / END
    while True:
        if found.exists():
            return found
        if any(sign.exists() for sign in over):
            return None
        time.sleep(LOOK_EVERY)


def _own(task: Task) -> Any:
    sys.path.insert(0, str(bubblewrap.OWN))
    from runner.worker.models.plugin_model import own_model

    return own_model(task.config, task.own, step_process.imported_own(task.own))


def main() -> int:
    """Do the task; returns the exit code."""
    task = Task.model_validate_json(sys.stdin.buffer.read())
    out = os.fdopen(os.dup(1), "wb")
    step_process.print_to(Path(task.box, LOG))
    if task.questions:
        return answer(task, out)
    return step_process.told(partial(export, task), Path(task.box, WHY))


if __name__ == "__main__":
    sys.exit(main())
