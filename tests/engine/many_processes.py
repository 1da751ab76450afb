"""Eight simulated devices in 2, 4 or 8 processes, on meshes that use each axis alone and three of
them at a time: `many_processes.py FOLDER SPEC`, once for each process. On meshes with the axis
`expert` the model is a mixture, elsewhere a dense one, because the choice of an expert may turn on
a rounding. As a program without a SPEC it goes through all of them and prints a table."""

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import on_devices
from jax.experimental import multihost_utils

from engine.config.schema import ComputeConfig, ModelConfig
from engine.model import mesh, processes
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy
from engine.training import checkpoint, step
from engine.training.train import train

DEVICES, PROCESSES = 8, (2, 4, 8)
MESHES = {  # sizes of data, fsdp, tensor, expert
    "data 8": (8, 1, 1, 1),
    "fsdp 8": (1, 8, 1, 1),
    "tensor 8": (1, 1, 8, 1),
    "expert 8": (1, 1, 1, 8),
    "data 2 × fsdp 2 × tensor 2": (2, 2, 2, 1),
    "data 2 × fsdp 2 × expert 2": (2, 2, 1, 2),
    "fsdp 2 × tensor 2 × expert 2": (1, 2, 2, 2),
}
MIXTURE = ModelConfig.model_validate(
    on_devices.MODEL.model_dump() | {"intermediate_dim": None, "moe": on_devices.MOE}
)


def model_of(name: str) -> ModelConfig:
    """The model on the mesh of this name."""
    return MIXTURE if "expert" in name else on_devices.MODEL


def losses(folder: Path, model: ModelConfig, sizes: Sequence[int]) -> list[float]:
    """Of 50 steps of the model on a mesh of these sizes."""
    decoder = Decoder(model, ComputeConfig(mesh=on_devices.mesh_of(sizes)))
    steps = train(decoder, on_devices.CONFIG, on_devices.sampler(), 3, folder)
    return [metrics.loss for metrics in steps]


def digest(folder: Path, sizes: Sequence[int]) -> str:
    """SHA-256 of the last checkpoint in `folder`, restored on a mesh of these sizes."""
    config = on_devices.mesh_of(sizes)
    decoder = Decoder(model_of(folder.name), ComputeConfig(mesh=config))
    recipe = step.recipe(decoder, on_devices.CONFIG, cross_entropy)
    like, found = step.abstract_state(recipe, mesh.make(config)), hashlib.sha256()
    path = folder / str(checkpoint.latest(folder))
    for item, part in (("params", like.scored), ("rest", like.rest)):
        restored = checkpoint.restore(path, item, part, step.shardings_of(part))
        whole = multihost_utils.process_allgather(restored, tiled=True)
        for x in jax.tree.leaves(whole):
            found.update(np.asarray(x).tobytes())
    return found.hexdigest()


def main(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Train on each mesh, or restore every checkpoint below `folder` on each."""
    count = spec["count"]
    processes.join(processes.Place(spec["rank"], count, spec["address"]))
    answer: dict[str, Any] = {"devices": jax.device_count(), "processes": jax.process_count()}
    if spec["do"] == "train":
        answer["losses"] = {
            name: losses(folder / f"{count} {name}", model_of(name), sizes)
            for name, sizes in MESHES.items()
        }
    else:
        answer["digests"] = {
            there.name: {
                name: digest(there, sizes)
                for name, sizes in MESHES.items()
                if "expert" in there.name or "expert" not in name  # a dense model has none
            }
            for there in sorted(folder.iterdir())
        }
    processes.leave()
    return answer


def ask(folder: Path, count: int, do: str) -> dict[str, Any]:
    """What the first of `count` processes answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "{}:{}".format(*free.getsockname())
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(DEVICES // count),
        "XLA_FLAGS": "--xla_backend_optimization_level=0",  # compiles in half the time
        # Of 8 processes on 2 cores, programs that ran side by side took each other's messages.
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    }
    started = []
    for rank in range(count):
        spec = json.dumps({"count": count, "rank": rank, "address": address, "do": do})
        out, errors = (
            (folder.parent / f"{do}-{count}-{rank}.{kind}").open("w+") for kind in ("out", "err")
        )
        started.append(
            subprocess.Popen(
                [sys.executable, __file__, str(folder), spec],
                env=environment,
                stdout=out,
                stderr=errors,
            )
        )
    for rank, process in enumerate(started):
        code = process.wait(1800)
        if code:
            for other in started:
                other.kill()
            raise AssertionError((folder.parent / f"{do}-{count}-{rank}.err").read_text()[-3000:])
    said = (folder.parent / f"{do}-{count}-0.out").read_text()
    found: dict[str, Any] = json.loads(said.strip().rpartition("\n")[2])
    return found


def everything(folder: Path) -> None:
    """Print the table of all, and how many restored checkpoints are equal."""
    (saved := folder / "saved").mkdir(parents=True)
    alone = {
        model: losses(folder / f"alone-{n}", model, (1, 1, 1, 1))
        for n, model in enumerate((on_devices.MODEL, MIXTURE))
    }
    print("| processes | mesh | first loss | 50th loss |\n| --- | --- | --: | --: |", flush=True)
    for count in PROCESSES:
        for name, found in ask(saved, count, "train")["losses"].items():
            off = [abs(found[n] / alone[model_of(name)][n] - 1) for n in (0, -1)]
            print(f"| {count} | {name} | {off[0]:.1e} | {off[1]:.1e} |", flush=True)
    same = whole = 0
    of: dict[str, set[str]] = {}
    for count in PROCESSES:
        for there, digests in ask(saved, count, "restore")["digests"].items():
            of.setdefault(there, set()).update(digests.values())
            whole += len(digests)
    same = sum(len(digests) == 1 for digests in of.values())
    print(f"{whole} restorations of {len(of)} checkpoints; {same} have one digest everywhere")


if __name__ == "__main__":
    if sys.argv[2:]:
        print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))))
    else:
        everything(Path(sys.argv[1]))
