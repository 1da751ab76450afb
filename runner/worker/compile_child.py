"""`python -m runner.worker.compile_child`: compiles one training step for described devices and
reports the result. Called by `runner.planning.compile_check`: JSON on stdin, JSON on the last line
of stdout."""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies

from engine.config.schema import ComputeConfig, ModelConfig, TrainConfig
from engine.model import mesh
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy
from engine.training import step

COLLECTIVES = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"


def main() -> None:
    try:
        answer = compiled(json.load(sys.stdin))
    except jax.errors.JaxRuntimeError as error:  # XLA's error; its first line says it all
        answer = {"error": str(error).partition("\n")[0]}
    print(json.dumps(answer), end="")


def compiled(asked: dict[str, Any]) -> dict[str, Any]:
    """Compile the requested step and measure it."""
    model = ModelConfig.model_validate(asked["model"])
    train = TrainConfig.model_validate(asked["train"])
    compute = ComputeConfig.model_validate(asked["compute"])
    devices: Sequence[jax.Device] = jax.devices()
    if asked["topology"]:
        options: dict[str, Any] = {}
        if asked["topology"].startswith("v4:"):  # its two cores are not separate devices
            options["chip_config_name"] = "megacore"
        if asked["slices"] > 1:
            options["num_slices"] = asked["slices"]
        if len(devices) < 4:  # a part of a host
            options["chips_per_host_bounds"] = (1, 1, 1)
        devices = topologies.get_topology_desc(asked["topology"], "tpu", **options).devices
    began = time.monotonic()
    lowered = step.lower(
        step.recipe(Decoder(model, compute), train, cross_entropy),
        mesh.make(compute.mesh, devices),
        train.train_batch_size,
        model.seq_len,
    )
    traced = time.monotonic()
    program = lowered.compile()
    finished = time.monotonic()
    held: Any = program.memory_analysis()
    new = held.output_size_in_bytes - held.alias_size_in_bytes
    return {
        "arguments": held.argument_size_in_bytes,
        "temporaries": held.temp_size_in_bytes + new,
        "trace_seconds": traced - began,
        "compile_seconds": finished - traced,
        "collectives": collectives(program.as_text() or ""),
    }


def collectives(program: str) -> dict[str, int]:
    """How often each kind of collective occurs in an HLO program."""
    found = re.findall(rf" ({COLLECTIVES})(?:-start)?\(", program)
    return dict(sorted(Counter(found).items()))


if __name__ == "__main__":
    main()
