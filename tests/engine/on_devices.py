"""Trains the mesh tests' tiny model on simulated devices, in a process of its own because JAX must
be told of them before it begins: `on_devices.py FOLDER SPEC`, the spec as JSON (see `main`). Prints
JSON. `test_mesh.py` reads it, and trains the same model on one device itself."""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from engine import checkpoint, mesh, optim, step
from engine.config import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from engine.loss import cross_entropy
from engine.model import Decoder
from engine.sampling import Sampler
from engine.train import Metrics, train

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


def sampler() -> Sampler:
    """Batches of a text that the model can learn something of in 50 steps."""
    words = [b"row ", b"your ", b"boat ", b"gently ", b"down ", b"the ", b"stream "]
    order = np.random.Generator(np.random.Philox(7)).integers(0, len(words), 4000)
    text = b"".join(words[word] for word in order)
    return Sampler(np.frombuffer(text, np.uint8), 3, CONFIG.train_batch_size, MODEL.seq_len)


def run(
    folder: Path, sizes: Sequence[int], config: TrainConfig = CONFIG, **options: Any
) -> Iterator[Metrics]:
    """Train on a mesh of these sizes."""
    decoder = Decoder(MODEL, ComputeConfig(mesh=mesh_of(sizes)))
    return train(decoder, config, sampler(), 3, folder, **options)


def mesh_of(sizes: Sequence[int]) -> MeshConfig:
    return MeshConfig(**dict(zip(mesh.AXES, sizes, strict=True)))


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
        steps = iter(range(len(losses) + 1, last + 1))
        stop = lambda steps=steps, last=last: next(steps) == last
        losses += [metrics.loss for metrics in run(folder, sizes, stop=stop)]
    return losses


def held(sizes: Sequence[int]) -> dict[str, int]:
    """Bytes of parameters and moments, of all devices' first, and what the same weighs whole."""
    like = abstract(sizes)
    on = mesh.make(mesh_of(sizes))
    recipe = step.recipe(Decoder(MODEL, ComputeConfig(mesh=mesh_of(sizes))), CONFIG, cross_entropy)
    state = step.starter(recipe, on)(jax.random.key(3))
    first = jax.devices()[0]
    here = sum(
        shard.data.nbytes
        for x in jax.tree.leaves(state)
        for shard in x.addressable_shards
        if shard.device == first
    )
    return {"here": here, "whole": sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(like))}


def main(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """`meshes`: train on each; `restore`: restore what each has left on every other one; `relay`:
    one run over these; `held`: what a device holds on each."""
    found: dict[str, Any] = {"devices": len(jax.devices())}
    name = lambda sizes: "x".join(map(str, sizes))
    found["losses"] = {
        name(sizes): [metrics.loss for metrics in run(folder / name(sizes), sizes)]
        for sizes in spec["meshes"]
    }
    found["batches"] = {name(sizes): digest_of_batches(sizes) for sizes in spec["meshes"]}
    found["restored"] = {
        name(there): {name(here): digest_at(folder / name(there), here) for here in spec["meshes"]}
        for there in spec["meshes"]
    }
    found["relay"] = relay(folder / "relay", spec["relay"])
    found["held"] = {name(sizes): held(sizes) for sizes in spec["meshes"]}
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))))
