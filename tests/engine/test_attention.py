from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.attention import BLOCK, attend


def reference(q_BSHD: jax.Array, k_BSKD: jax.Array, v_BSKD: jax.Array) -> jax.Array:
    """The definition, materialised, with autodiff for its gradient."""
    groups = q_BSHD.shape[2] // k_BSKD.shape[2]
    k, v = jnp.repeat(k_BSKD, groups, axis=2), jnp.repeat(v_BSKD, groups, axis=2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q_BSHD, k) / q_BSHD.shape[-1] ** 0.5
    seen = jnp.tri(q_BSHD.shape[1], dtype=bool)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), v)


@pytest.mark.parametrize(
    ("seq_len", "num_kv_heads"), [(1, 4), (BLOCK, 1), (2 * BLOCK + 22, 4), (2 * BLOCK + 22, 2)]
)
def test_attention_and_its_gradient_are_those_of_the_definition(
    seq_len: int, num_kv_heads: int
) -> None:
    shapes = [(2, seq_len, heads, 8) for heads in (4, num_kv_heads, num_kv_heads, 4)]
    keys = jax.random.split(jax.random.key(0), 4)
    *qkv, direction = (jax.random.normal(key, s) for key, s in zip(keys, shapes, strict=True))

    @partial(jax.jit, static_argnums=0)
    def both_ways(attention: Callable[..., jax.Array]) -> tuple[jax.Array, ...]:
        out, pull = jax.vjp(attention, *qkv)
        return out, *pull(direction)

    for ours, theirs in zip(both_ways(attend), both_ways(reference), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
