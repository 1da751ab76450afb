"""`python -m runner.worker.ten_steps KINDS`: trains ten steps on one device of each kind, or on its
smallest slice, as a job of Ray. `regatta doctor --train` submits it. KINDS is JSON, {name: fields
of a `Kind`}; of each kind that Ray has, a line of JSON says what happened."""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from runner.schema.devices import Kind, takes_gang
from runner.worker import environment, multi_host_step

STEPS, MEASURED = 10, 5
# Half a million parameters for a CPU, 130 million for anything faster.
SMALL = {"hidden_dim": 128, "intermediate_dim": 352, "num_layers": 2, "num_heads": 4}
LARGE = {"hidden_dim": 768, "intermediate_dim": 3072, "num_layers": 12, "num_heads": 12}


def main() -> None:
    import ray

    ray.init(log_to_driver=False)
    there = ray.cluster_resources()
    for name, said in json.loads(sys.argv[1]).items():
        kind = Kind.of_json(said)
        if count := _count(kind, there):
            print(json.dumps({"kind": name, "count": count, **_on_ray(kind, count)}), flush=True)


def _count(kind: Kind, there: Mapping[str, float]) -> int:
    """How many devices of a kind to train on, of what Ray has: one, or the smallest slice; 0 if
    there is none."""
    if not kind.ray_tpu:
        needs = {"CPU": kind.ray_cpus, "GPU": kind.ray_gpus}
        return int(all(there.get(what, 0) >= much for what, much in needs.items()))
    from ray._private.accelerators.tpu import infer_tpu_pod_type_from_topology

    for count, topology in sorted(kind.topologies.items()):
        named = infer_tpu_pod_type_from_topology(topology, kind.ray_tpu)
        if there.get(f"TPU-{named}-head", 0):
            return count
    return 0


def _on_ray(kind: Kind, count: int) -> dict[str, Any]:
    """What `trained` measures there, or the error."""
    import ray

    try:
        if takes_gang(kind, count):
            from runner.worker import host_group_ray

            gang = multi_host_step.gang_of(kind, count)
            found: dict[str, Any] = host_group_ray.run(_in_gang, gang, kind, count)
            return found
        # The process has JAX's devices after that, so that nothing else may run in it.
        alone = ray.remote(max_calls=1)(trained)
        task = alone.options(num_cpus=kind.ray_cpus, num_gpus=kind.ray_gpus)
        done: dict[str, Any] = ray.get(task.remote(kind, count))
        return done
    except Exception as error:  # a finding, whatever it is
        return {"error": " ".join(str(error).split())[-300:]}


def _in_gang(_place: Any, kind: Kind, count: int) -> dict[str, Any]:
    return trained(kind, count)


def trained(kind: Kind, count: int) -> dict[str, Any]:
    """Train on so many devices, those of this process or of its gang. Returns the MFU and the
    tokens per second over the last 5 steps, and the first and the last loss."""
    environment.settle(kind, min(count, kind.devices_per_host))
    import jax
    import numpy as np

    from engine.config import flops
    from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
    from engine.data.token_store import Batch
    from engine.model import mesh as meshes
    from engine.model.decoder import Decoder
    from engine.model.loss import cross_entropy
    from engine.training import optim, step

    small = kind.platform == "cpu"
    length, rows = (256, 8) if small else (1024, 32 * count)
    config = TrainConfig(train_batch_size=rows, num_train_steps=STEPS, learning_rate=0.001)
    model = ModelConfig.model_validate(
        {**(SMALL if small else LARGE), "seq_len": length, "vocab_size": 256 if small else 50304}
    )
    compute = ComputeConfig(mesh=MeshConfig(data=count))
    recipe = step.recipe(Decoder(model, compute), config, cross_entropy)
    mesh = meshes.make(compute.mesh)
    state = step.starter(recipe, mesh)(jax.random.key(0))
    run = step.compiled(recipe, mesh, rows, length, False)
    here = len(meshes.local_rows(mesh, rows))
    tokens = np.resize(np.arange(256, dtype=np.int32), (here, length + 1))
    batch = meshes.put(mesh, Batch(tokens[:, :-1], tokens[:, 1:], None), rows)
    rates, losses, began = optim.rates(config), [], 0.0
    for number in range(1, STEPS + 1):
        state, figures = run(state, batch, rates(number))
        losses.append(figures.loss)
        if number in (STEPS - MEASURED, STEPS):
            jax.block_until_ready(state)
            began, passed = time.monotonic(), time.monotonic() - began
    pace = MEASURED * rows * length / passed
    return {
        "mfu": pace * flops.model_flops(model, 1) / kind.peak_flops / count,
        "tokens_per_second": pace,
        "losses": [losses[0].item(), losses[-1].item()],
    }


if __name__ == "__main__":
    main()
