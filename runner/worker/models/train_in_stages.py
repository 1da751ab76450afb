"""A `train` step with a pipeline, as the processes of its gang do it: they train to the last
checkpoint. One process then writes the output from it, as `runner.worker.models.train` does of any
other."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from engine.config.stages import StagedCompute, without_stages
from engine.model.decoder import Decoder
from engine.pipeline.train import train as steps_of
from engine.training.heap import keep_heap
from runner.lib import preemption, process_tree
from runner.store import scratch_paths
from runner.store.scratch_paths import CHECKPOINTS, CURVE
from runner.worker.models import train as in_one
from runner.worker.models.plugin_model import Functions
from runner.worker.models.plugins import Parts


def train(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path],
    out: Path,
    functions: Functions = {},  # noqa: B006  # never changed
    *,
    output: bool = False,
    saves: in_one.Saves | None = None,
) -> None:
    """As `runner.worker.models.train.train` without `output`."""
    assert not output, "one process writes it"
    began = time.monotonic()
    keep_heap()
    compute = StagedCompute.model_validate(config["compute"])
    assert compute.schedule, "the plan chooses one"
    parts = Parts(without_stages(config), inputs, functions)
    last = parts.recipe.num_train_steps
    makers = [*scratch_paths.others(out), scratch_paths.of(out)]
    places = [maker / CHECKPOINTS for maker in makers]
    saves = saves or in_one.Saves(places[-1], places[:-1], makers[-1] / CURVE)
    with process_tree.noting(signal.SIGTERM) as told:
        steps = steps_of(
            cast(Decoder, parts.model),
            parts.recipe,
            parts.batches,
            parts.config["seed"],
            saves.mine,
            saves.earlier,
            stages=compute.mesh.pipeline,
            schedule=compute.schedule,
            start_from=parts.start.params,
            start_rest=parts.start.rest,
            rates=parts.rates,
            peak_flops=in_one._peak_flops(parts.model.config),
            stop=told,
            say=lambda words: print(words, flush=True),
        )
        if in_one._note(steps, last, saves.curve, began) < last:
            raise preemption.Left
