"""Trains the mesh tests' tiny model on simulated devices, in processes of their own because JAX
must be told of devices and hosts before it begins. `test_mesh.py` starts them by `ask`, which runs
`on_devices.py FOLDER SPEC` (see `main`), and trains the same model on one device itself."""

import hashlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import compile_fast
import jax
import numpy as np

from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from engine.data.sampling import Sampler
from engine.model import mesh
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy
from engine.training import checkpoint, step
from engine.training.train import Metrics, train

# 16 query and 8 key/value heads, so that `tensor` can be 8 and queries are grouped.
MODEL = ModelConfig(
    hidden_dim=32,
    intermediate_dim=48,
    num_layers=2,
    num_heads=16,
    num_kv_heads=8,
    head_dim=4,
    seq_len=16,
    vocab_size=256,
)
CONFIG = TrainConfig(
    train_batch_size=16, num_train_steps=50, learning_rate=0.01, warmup=5, checkpoint_every=50
)


MOE = {"num_experts": 16, "top_k": 3, "expert_dim": 8, "shared_dim": 16}


def sampler() -> Sampler:
    """Batches of a text that the model can learn something of in 50 steps."""
    words = [b"row ", b"your ", b"boat ", b"gently ", b"down ", b"the ", b"stream "]
    order = np.random.Generator(np.random.Philox(7)).integers(0, len(words), 4000)
    text = b"".join(words[word] for word in order)
    return Sampler(np.frombuffer(text, np.uint8), 3, CONFIG.train_batch_size, MODEL.seq_len)


def run(
    folder: Path,
    sizes: Sequence[int],
    config: TrainConfig = CONFIG,
    experts: str | None = None,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[Metrics]:
    """Train on a mesh of these sizes; with `experts`, how these are multiplied; with `model`, a
    model with these changes."""
    compute = ComputeConfig(mesh=mesh_of(sizes), experts=experts)
    if experts:
        model = {"intermediate_dim": None, "moe": MOE} | (model or {})
    shape = ModelConfig.model_validate(MODEL.model_dump() | (model or {}))
    if model:
        # Not for long: a choice may turn on a rounding.
        config = config.model_copy(update={"num_train_steps": 12})
    decoder = Decoder(shape, compute)
    return train(decoder, config, sampler(), 3, folder, **options)


def mesh_of(sizes: Sequence[int]) -> MeshConfig:
    """Sizes of data, fsdp, tensor and, if there is a fourth, expert."""
    return MeshConfig(**dict(zip(("data", "fsdp", "tensor", "expert"), sizes, strict=False)))


def abstract(sizes: Sequence[int]) -> step.State:
    """The state's shapes and shardings on a mesh of these sizes."""
    config = mesh_of(sizes)
    recipe = step.recipe(Decoder(MODEL, ComputeConfig(mesh=config)), CONFIG, cross_entropy)
    return step.abstract_state(recipe, mesh.make(config))


def digest_of_batches(sizes: Sequence[int]) -> str:
    """SHA-256 over the first three batches as they lie on the devices of the mesh."""
    on, digest = mesh.make(mesh_of(sizes)), hashlib.sha256()
    rows = mesh.local_rows(on, CONFIG.train_batch_size)
    for number in (1, 2, 3):
        batch = mesh.put(on, sampler().rows(number, rows), CONFIG.train_batch_size)
        for x in jax.tree.leaves(batch):
            digest.update(np.asarray(x).tobytes())
    return digest.hexdigest()


def digest_at(folder: Path, sizes: Sequence[int]) -> list[str]:
    """Digests of the last checkpoint in `folder`, restored on a mesh of these sizes."""
    like, path = abstract(sizes), folder / str(checkpoint.latest(folder))
    return [
        checkpoint.tree_sha256(checkpoint.restore(path, item, part, step.shardings_of(part)))
        for item, part in (("params", like.scored), ("rest", like.rest))
    ]


def relay(folder: Path, legs: Sequence[Sequence[int]]) -> list[float]:
    """The losses of one run that goes on on another mesh after each leg."""
    losses: list[float] = []
    for leg, sizes in enumerate(legs, start=1):
        last = CONFIG.num_train_steps * leg // len(legs)
        after_each_step = iter([False] * (last - len(losses) - 1) + [True])
        steps = run(folder, sizes, stop=partial(next, after_each_step))
        losses += [metrics.loss for metrics in steps]
    return losses


def held(sizes: Sequence[int]) -> dict[str, int]:
    """Bytes of the whole state, and of what lies of it on the first device."""
    config = mesh_of(sizes)
    recipe = step.recipe(Decoder(MODEL, ComputeConfig(mesh=config)), CONFIG, cross_entropy)
    state = step.starter(recipe, mesh.make(config))(jax.random.key(3))
    here = sum(
        shard.data.nbytes
        for x in jax.tree.leaves(state)
        for shard in x.addressable_shards
        if shard.device == jax.local_devices()[0]
    )
    return {"here": here, "whole": sum(x.nbytes for x in jax.tree.leaves(state))}


def cuts(sizes: Sequence[int], optimizer: str) -> dict[str, list[str]]:
    """How each leaf of the state is cut: by the path of the parameter, its own and its moments'."""
    declared = CONFIG.model_dump(exclude_unset=True)
    config = TrainConfig(**declared | {"optimizer": optimizer, "ema_decay": 0.9})
    decoder = Decoder(MODEL, ComputeConfig(mesh=mesh_of(sizes)))
    recipe = step.recipe(decoder, config, cross_entropy)
    state = step.abstract_state(recipe, mesh.make(mesh_of(sizes)))
    return {
        parameter: [
            str(x.sharding.spec)
            for path, x in _leaves(state).items()
            if path.endswith(f"/{parameter}")
        ]
        for parameter in _leaves(state.params)
    }


def _leaves(tree: Any) -> dict[str, Any]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def rows_of_each_device(sizes: Sequence[int]) -> dict[str, Any]:
    """What this host reads of the first batch, and the rows that each of its devices then has, each
    row by its first tokens."""
    on, asked = mesh.make(mesh_of(sizes)), []
    rows = mesh.local_rows(on, CONFIG.train_batch_size)
    asked = rows.tolist()
    batch = mesh.put(on, sampler().rows(1, rows), CONFIG.train_batch_size)
    shards = batch.inputs_BS.addressable_shards
    return {"read": asked, "have": {str(x.device.id): np.asarray(x.data).tolist() for x in shards}}


def main(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """`meshes`: train on each (with `experts` and `model`, see `run`), see the batches, restore
    what each has left on every other; `relay`: one run over these; `held`, `cuts`, `rows`: the
    functions of these names."""
    if "host" in spec:
        jax.distributed.initialize(spec["address"], spec["hosts"], spec["host"])
    meshes = spec.get("meshes", [])
    return {
        "devices": len(jax.devices()),
        "losses": {
            name(sizes): [
                metrics.loss
                for metrics in run(
                    folder / name(sizes),
                    sizes,
                    experts=spec.get("experts"),
                    model=spec.get("model"),
                )
            ]
            for sizes in meshes
        },
        "batches": {name(sizes): digest_of_batches(sizes) for sizes in spec.get("batches", [])},
        "restored": {
            name(there): {name(here): digest_at(folder / name(there), here) for here in meshes}
            for there in spec.get("restore", [])
        },
        "relay": relay(folder / "relay", spec["relay"]) if "relay" in spec else [],
        "held": {name(sizes): held(sizes) for sizes in spec.get("held", [])},
        "cuts": [cuts(spec["cuts"], x) for x in ("adamw", "muonh")] if "cuts" in spec else [],
        "rows": {name(sizes): rows_of_each_device(sizes) for sizes in spec.get("rows", [])},
    }


def name(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def ask(folder: Path, hosts: int = 1, **spec: Any) -> list[dict[str, Any]]:
    """`main(folder, spec)` on 8 simulated devices in all, as each of `hosts` processes answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    devices = f"--xla_force_host_platform_device_count={8 // hosts}"
    environment = compile_fast.in_environment(devices) | {"JAX_PLATFORMS": "cpu"}
    started = []
    for host in range(hosts):
        place = {"address": address, "hosts": hosts, "host": host} if hosts > 1 else {}
        command = [sys.executable, __file__, str(folder), json.dumps({**spec, **place})]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=environment, **pipes))
    answers = []
    for process in started:
        out, errors = process.communicate(timeout=280)
        assert process.returncode == 0, errors[-3000:]
        answers.append(json.loads(out.strip().rpartition("\n")[2]))
    return answers


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))))
