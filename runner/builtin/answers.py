"""Answers for a model of the experiment's own, in a child that reaches nothing: tokens in, logits
out. `python -m runner.builtin.answers` reads a `Task` and prints a `Header`, then the logits of
each batch that it finds in its folder of questions, until it finds the word that there are no more.
What is computed is the very trace whose FLOPs the header tells. Whoever asks believes nothing of it
but the logits (`runner.builtin.apart`).

What is printed begins with the header's length (4 bytes); logits are little-endian float32. What
the model prints itself is a log.
"""

import importlib
import os
import sys
import time
import traceback
from itertools import count as counting
from pathlib import Path
from typing import Any

from runner import machine
from runner.builtin.blame import BadOwnCode, blamed
from runner.record import Record, Resources

ALL = -1  # in the place of a position: the logits of the whole window
END = "end"
LOOK_EVERY = 0.002  # seconds
WHY, LOG = "why.txt", "log.txt"


class Task(Record):
    """Which model is to answer, and where."""

    own: tuple[str, ...]  # module:function of the experiment's, one of which made it
    model: str  # its folder
    code: str  # the folder of the experiment's own modules
    rows: int  # of a batch
    questions: str  # the folder where they appear
    box: str  # the folder that it may write to
    resources: Resources


class Header(Record):
    """What the model's own process says of it. Its logits are what counts."""

    forward_flops_per_token: int | None
    uncounted: str = ""  # why its FLOPs could not be counted


def question(number: int) -> str:
    """The name of a question's file: int32 (rows, 1 + S), a row's position (or ALL) before it."""
    return f"{number:08d}.npy"


def answer(task: Task) -> None:
    """Answer until there are no more questions. Raises BadOwnCode."""
    out = os.fdopen(os.dup(1), "wb")
    log = os.open(Path(task.box, LOG), os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    machine.settle(task.resources.kind, task.resources.count, taken=True)
    sys.path.insert(0, task.code)

    import jax
    import jax.numpy as jnp
    import numpy as np

    from engine import traced_flops
    from runner.builtin.evaluate import read_model, read_params

    model, name = read_model(Path(task.model), {one: _imported(one) for one in task.own})
    params = jax.device_put(read_params(Path(task.model), model))
    tokens = jax.ShapeDtypeStruct((task.rows, model.config.seq_len), jnp.int32)
    with blamed(name, "scored"):
        traced = jax.jit(model.logits).trace(params, tokens)
        flops, why = None, ""
        try:
            whole = traced_flops.count(traced.jaxpr.jaxpr)
            flops = -(-whole // (task.rows * model.config.seq_len))
        except traced_flops.Uncountable as error:
            why = str(error)
        run = traced.lower().compile()
    header = Header(forward_flops_per_token=flops, uncounted=why).canonical()
    out.write(len(header).to_bytes(4, "little") + header)
    out.flush()
    for number in counting():
        asked = _next(Path(task.questions), number)
        if asked is None:
            return
        table = np.load(asked, allow_pickle=False)
        with blamed(name, "scored"):
            logits = np.asarray(run(params, jnp.asarray(table[:, 1:])), "<f4")
        if (table[:, 0] != ALL).all():
            logits = logits[np.arange(len(table)), table[:, 0]]
        out.write(np.ascontiguousarray(logits).data)
        out.flush()


def _next(folder: Path, number: int) -> Path | None:
    while True:
        if (found := folder / question(number)).exists():
            return found
        if (folder / END).exists():
            return None
        time.sleep(LOOK_EVERY)


def _imported(function: str) -> Any:
    module, _, name = function.partition(":")
    with blamed(function, "imported"):
        return getattr(importlib.import_module(module), name)


def main() -> int:
    """Answer; returns the exit code."""
    task = Task.model_validate_json(sys.stdin.buffer.read())
    try:
        answer(task)
    except BaseException as error:
        traceback.print_exc()
        words = str(error) if isinstance(error, BadOwnCode) else f"{type(error).__name__}: {error}"
        Path(task.box, WHY).write_text(" ".join(words.split()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
