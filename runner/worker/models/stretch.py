"""Trains a part of a finished run again, and computes the digests for the comparison
(`runner.worker.replay`)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.worker.models.plugin_model import Functions

BEFORE = "before"  # an input: the checkpoint to start from; missing at the run's beginning
CHECKPOINT = "checkpoint"  # an input: the checkpoint to digest
NOW, LOSSES, DIGEST = "now", "losses.json", "digest.json"


def train(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    out: Path,
    functions: "Functions" = {},  # noqa: B006  # never changed
) -> None:
    """Train steps `first` + 1 to `last` of the run that `step` describes, and write the last
    checkpoint and the losses. Raises what training does."""
    # Imports JAX, which callers need not.
    from runner.worker.models.plugins import Parts
    from runner.worker.models.train import steps

    first, last = config["first"], config["last"]
    parts = Parts(config["step"], inputs, functions)
    begun = Path("begun")
    begun.mkdir()
    if BEFORE in inputs:
        (begun / str(first)).symlink_to(inputs[BEFORE])
    asked = iter(range(first + 1, last + 1))  # called once after each step
    done = steps(parts, out / NOW, [begun], stop=lambda: next(asked) == last)
    losses = {str(metrics.step): metrics.loss for metrics in done}
    (out / LOSSES).write_text(json.dumps({"losses": losses}))


def digest(_: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """The digest of a checkpoint's parameters, for any model. Raises engine's BadCheckpoint."""
    from engine.training.checkpoint import params_sha256

    (out / DIGEST).write_text(json.dumps({"sha256": params_sha256(inputs[CHECKPOINT])}))
