"""Trains a tiny model in stages: `in_stages.py PLACE SPEC` is one of several processes that `ask`
starts, and `leg` is what each of them does, once for each of `spec["legs"]`."""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import on_devices
import one_of_many
from on_devices import sampler

from engine.config.schema import ComputeConfig, ModelConfig, TrainConfig
from engine.model import processes
from engine.model.decoder import Decoder
from engine.model.processes import Place
from engine.pipeline.train import train

LAST = 12
MODEL = ModelConfig.model_validate(on_devices.MODEL.model_dump() | {"num_layers": 4})
CONFIG = TrainConfig.model_validate(
    on_devices.CONFIG.model_dump(exclude_unset=True)
    | {"num_train_steps": LAST, "gradient_accumulation_steps": 4, "checkpoint_every": LAST}
    | {"ema_decay": 0.9, "max_grad_norm": 0.5, "keep_every": 7}
)


def leg(
    folder: Path, stages: int, schedule: Any, inside: list[int], last: int = LAST
) -> dict[str, Any]:
    """Train on from what is in the folder to the step `last`, with a mesh of these sizes inside of
    each stage."""
    decoder = Decoder(MODEL, ComputeConfig(mesh=on_devices.mesh_of(inside)))
    losses: dict[int, float] = {}
    words: list[str] = []
    granted = 1 if jax.process_count() == 1 else 2  # steps later
    for metrics in train(
        *(decoder, CONFIG, sampler(), 3, folder),
        stages=stages,
        schedule=schedule,
        stop=lambda: max(losses, default=0) >= last - granted,
        say=words.append,
    ):
        losses[metrics.step] = metrics.loss
    return {"losses": losses, "words": words}


def main(place: Place, spec: dict[str, Any]) -> list[dict[str, Any]]:
    processes.join(place)
    answers = [leg(Path(folder), *how) for folder, *how in spec["legs"]]
    processes.leave()
    return answers


def ask(count: int, devices: int, legs: list[Any]) -> list[list[dict[str, Any]]]:
    """What each of `count` processes of so many devices answers."""
    return one_of_many.started(__file__, count, 1, devices, {"legs": legs})


if __name__ == "__main__":
    print(json.dumps(main(Place(*json.loads(sys.argv[1])), json.loads(sys.argv[2]))))
