"""Run by `test_attention.py` in a process of its own, because JAX must be told of simulated devices
before it begins: attends on four devices and prints, as JSON, how far that is from the reference,
and what a model's gradient exchanges between devices that split each matrix."""

import json
import os
import re

import compile_fast

os.environ["XLA_FLAGS"] = " ".join(
    (*compile_fast.FLAGS, "--xla_force_host_platform_device_count=4")
)

import jax
import jax.numpy as jnp

from engine.config.schema import MeshConfig, ModelConfig
from engine.model import mesh
from engine.model.attention import attend, reference
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy


def furthest(config: MeshConfig) -> float:
    """The largest difference from the reference, of the output and of all gradients."""
    draw = jax.random.normal
    keys = jax.random.split(jax.random.key(0), 4)
    q, direction = (draw(key, (4, 10, 8, 4)) for key in keys[:2])
    k, v = (draw(key, (4, 10, 4, 4)) for key in keys[2:])
    segments = jnp.sort(jax.random.randint(keys[0], (4, 10), 1, 4))

    def both_ways(path: object) -> list[jax.Array]:
        def run() -> tuple[jax.Array, ...]:
            out, pull = jax.vjp(lambda q, k, v: path(q, k, v, segments, 6), q, k, v)
            return out, *pull(direction)

        return jax.device_get(jax.jit(run)())

    theirs = both_ways(reference)
    with jax.set_mesh(mesh.make(config)):
        ours = both_ways(attend)
    return max(abs(a - b).max().item() for a, b in zip(ours, theirs, strict=True))


def exchanged(config: MeshConfig) -> list[str]:
    """The collective operations in the gradient of a model's loss."""
    decoder = Decoder(
        ModelConfig(
            hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=8, num_kv_heads=4, seq_len=8
        )
    )

    def loss(params: dict, tokens_BS: jax.Array) -> jax.Array:
        x_TD = decoder.features(params, tokens_BS)
        return cross_entropy(x_TD, decoder.output_matrix(params), tokens_BS).nats

    params = jax.eval_shape(decoder.init, jax.random.key(0))
    on = mesh.make(config)
    lying = mesh.shardings(on, decoder.roles(), params)
    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), params, lying
    )
    with jax.set_mesh(on):
        step = jax.jit(jax.grad(loss), out_shardings=lying)
        text = step.lower(params, jnp.zeros((4, 8), jnp.int32)).compile().as_text()
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    return sorted(set(re.findall(rf" ({kinds})(?:-start)?\(", text)))


if __name__ == "__main__":
    meshes = (MeshConfig(data=4), MeshConfig(tensor=4), MeshConfig(fsdp=2, tensor=2))
    found = {
        "furthest": [furthest(config) for config in meshes],
        "exchanged": exchanged(MeshConfig(tensor=4)),
    }
    print(json.dumps(found))
