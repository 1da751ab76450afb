"""cuDNN's attention against the reference, on a machine with an NVIDIA GPU: `pytest tests/gpu`.
Elsewhere each of these tests is reported as skipped, with the reason: it has not been run."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.config.schema import ComputeConfig, ModelConfig
from engine.model import kernels
from engine.model.attention import attend, reference
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy


@pytest.fixture(autouse=True)
def on_a_gpu() -> None:
    """Asked in each test and not at import, because JAX reads XLA's flags when it is first asked
    for devices, and other tests set flags."""
    if jax.default_backend() != "gpu":
        pytest.skip(f"not run: needs an NVIDIA GPU, and JAX sees only {jax.default_backend()}")


@pytest.mark.parametrize(
    ("seq_len", "heads", "kv_heads", "head_dim", "window"),
    [
        (1024, 8, 8, 64, None),
        (4096, 4, 4, 128, None),
        (1000, 8, 2, 64, None),  # grouped queries, a length that is no power of two
        (1024, 8, 8, 64, 256),
        (1024, 8, 2, 80, 1),
    ],
)
def test_cudnn_attention_and_its_gradient_are_those_of_the_reference(
    seq_len: int, heads: int, kv_heads: int, head_dim: int, window: int | None
) -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v, direction = (
        jax.random.normal(key, (2, seq_len, n, head_dim), jnp.bfloat16)
        for key, n in zip(keys, (heads, kv_heads, kv_heads, heads), strict=True)
    )

    @partial(jax.jit, static_argnums=0)
    def both_ways(path: attend) -> tuple[jax.Array, ...]:
        out, pull = jax.vjp(lambda q, k, v: path(q, k, v, None, window), q, k, v)
        return out, *pull(direction)

    for ours, theirs in zip(both_ways(kernels.cudnn), both_ways(reference), strict=True):
        ours, theirs = ours.astype(np.float32), theirs.astype(np.float32)
        # Both round to bfloat16, 8 bits, and add up in another order: compare as a whole.
        assert jnp.linalg.norm(ours - theirs) < 0.01 * jnp.linalg.norm(theirs)


def test_attend_takes_cudnn() -> None:
    q = jnp.zeros((1, 128, 2, 64), jnp.bfloat16)
    assert "__cudnn$fmhaSoftmax" in jax.jit(attend).lower(q, q, q).as_text()


def test_a_model_trains_with_cudnn_as_with_the_reference() -> None:
    config = ModelConfig(
        hidden_dim=256, intermediate_dim=512, num_layers=2, num_heads=4, seq_len=256
    )
    tokens_BS = jax.random.randint(jax.random.key(1), (4, 257), 0, 256)

    def curve(attention: str) -> list[float]:
        decoder = Decoder(config, ComputeConfig(attention=attention))
        assert decoder.dtype == jnp.bfloat16

        def loss(params: dict) -> jax.Array:
            x_TD = decoder.features(params, tokens_BS[:, :-1])
            losses = cross_entropy(x_TD, decoder.output_matrix(params), tokens_BS[:, 1:])
            return losses.nats / losses.targets

        step = jax.jit(jax.value_and_grad(loss))
        params, losses = jax.jit(decoder.init)(jax.random.key(0)), []
        for _ in range(20):
            value, grads = step(params)
            losses.append(float(value))
            params = jax.tree.map(lambda p, g: p - 0.3 * g, params, grads)
        return losses

    fast, plain = curve("fast"), curve("reference")
    assert fast[-1] < fast[0] - 0.5
    np.testing.assert_allclose(fast, plain, rtol=0.02)
