"""Trains a stretch of a finished run once more, from one of its checkpoints to the next, and says
whether it came to the same. `python -m runner.replay` reads a `Stretch` and prints an `Outcome`: a
process of its own, as cores and flags are fixed before JAX is imported.

The engine's training is the same bit for bit where the receipts are; elsewhere the losses may
differ by the tolerance that `runner.reproduce` states."""

import importlib
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runner import machine
from runner.record import Record, Resources


class Stretch(Record):
    """Steps `first` + 1 to `last` of a run. `first` is 0 for its beginning."""

    config: dict[str, Any]  # of its `train` step
    inputs: dict[str, str]  # folders
    code: str = ""  # of the experiment's own modules
    own: tuple[str, ...] = ()
    resources: Resources
    checkpoints: str  # the folder with `<first>` and `<last>`
    first: int
    last: int


class Outcome(Record):
    """What the stretch came to."""

    same: bool  # the parameters, bit for bit
    before_sha256: str
    now_sha256: str
    losses: dict[int, float]  # by step
    receipt: dict[str, str]


def replay(stretch: Stretch) -> Outcome:
    """Train the stretch. Raises what training does."""
    machine.settle(stretch.resources)
    if stretch.code:
        sys.path.insert(0, stretch.code)
        sys.dont_write_bytecode = True

    import jax

    from engine.checkpoint import restore, tree_sha256
    from engine.config import TrainConfig
    from engine.train import train
    from runner.builtin import own
    from runner.builtin.mixtures import sampler

    config = stretch.config
    inputs = {key: Path(folder) for key, folder in stretch.inputs.items()}
    functions = {name: _imported(name) for name in stretch.own}
    parts = own.parts(config, inputs, functions)
    recipe = TrainConfig.model_validate(config["train"])
    batches = parts.batches or sampler(recipe, config["seed"], parts.model.config.seq_len, inputs)
    losses: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as place:
        here, before = Path(place, "now"), Path(stretch.checkpoints)
        begun = Path(place, "begun")
        begun.mkdir()
        if stretch.first:
            (begun / str(stretch.first)).symlink_to(before.resolve() / str(stretch.first))
        asked = iter(range(stretch.first + 1, stretch.last + 1))  # once after each step
        for metrics in train(
            parts.model,
            recipe,
            batches,
            config["seed"],
            here,
            [begun],
            loss=parts.loss,
            optimizer=parts.optimizer,
            rates=parts.rates,
            stop=lambda: next(asked) == stretch.last,
        ):
            losses[metrics.step] = metrics.loss
        like = jax.eval_shape(parts.model.init, jax.random.key(0))
        digests = [
            tree_sha256(restore(folder / str(stretch.last), "params", like))
            for folder in (before, here)
        ]
    return Outcome(
        same=digests[0] == digests[1],
        before_sha256=digests[0],
        now_sha256=digests[1],
        losses=losses,
        receipt=machine.receipt(),
    )


def _imported(function: str) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def main() -> int:
    """Replay what is asked for; returns the exit code."""
    try:
        stretch = Stretch.model_validate_json(sys.stdin.buffer.read())
    except ValidationError as error:
        print(error, file=sys.stderr)
        return 2
    with redirect_stdout(sys.stderr):
        outcome = replay(stretch)
    os.write(1, outcome.canonical())
    return 0


if __name__ == "__main__":
    sys.exit(main())
