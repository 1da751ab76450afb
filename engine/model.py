"""The decoder: token embedding, blocks of attention and SwiGLU, a final norm and an output matrix,
as in Llama. Flax NNX modules declare each parameter and its role once; everything else works on
the plain tree of arrays that `init` returns:

    {"embedding": VD, "blocks": {name: L, …}, "final_norm": D, "lm_head": DV unless tied}

Blocks are stacked on a leading axis of layers and run by a scan. Activations stay two-dimensional,
(B·S, D), outside of attention: three-dimensional ones get transposed copies in the gradient."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engine.attention import attend
from engine.config import ModelConfig

NORM_EPSILON = 1e-5
ROPE_THETA = 10_000.0
INIT_STD = 0.02

Params = dict[str, Any]
Role = Literal["embedding", "matrix", "head", "gain"]


class Block(nnx.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, model: ModelConfig, rngs: nnx.Rngs) -> None:
        D, F, kv_dim = model.hidden_dim, model.intermediate_dim, model.num_kv_heads * model.head_dim
        into_stream = INIT_STD / (2 * model.num_layers) ** 0.5
        self.model = model
        self.attention_norm = _gain(D)
        self.q_proj = _weights(rngs, "matrix", (D, D))
        self.k_proj = _weights(rngs, "matrix", (D, kv_dim))
        self.v_proj = _weights(rngs, "matrix", (D, kv_dim))
        self.o_proj = _weights(rngs, "matrix", (D, D), into_stream)
        self.mlp_norm = _gain(D)
        self.gate_proj = _weights(rngs, "matrix", (D, F))
        self.up_proj = _weights(rngs, "matrix", (D, F))
        self.down_proj = _weights(rngs, "matrix", (F, D), into_stream)

    def __call__(self, x_TD: jax.Array, seq_len: int) -> jax.Array:
        x_TD = x_TD + self.attention(rms_norm(x_TD, self.attention_norm[...]), seq_len)
        return x_TD + self.mlp(rms_norm(x_TD, self.mlp_norm[...]))

    def attention(self, x_TD: jax.Array, seq_len: int) -> jax.Array:
        model = self.model
        H, K, h = model.num_heads, model.num_kv_heads, model.head_dim
        # One matmul for the three is faster than three; as parameters they stay apart, because
        # optimizers and exchange formats want them so.
        qkv = (self.q_proj[...], self.k_proj[...], self.v_proj[...])
        qkv_BSNh = (x_TD @ jnp.concatenate(qkv, axis=1)).reshape(-1, seq_len, H + 2 * K, h)
        q_BSHh, k_BSKh, v_BSKh = jnp.split(qkv_BSNh, (H, H + K), axis=2)
        o_BSHh = attend(rotate(q_BSHh), rotate(k_BSKh), v_BSKh)
        return o_BSHh.reshape(-1, H * h) @ self.o_proj[...]

    def mlp(self, x_TD: jax.Array) -> jax.Array:
        both_T2F = x_TD @ jnp.concatenate((self.gate_proj[...], self.up_proj[...]), axis=1)
        gate_TF, up_TF = jnp.split(both_T2F, 2, axis=1)
        return (jax.nn.silu(gate_TF) * up_TF) @ self.down_proj[...]


class Ends(nnx.Module):
    """What comes before the blocks and after them."""

    def __init__(self, model: ModelConfig, rngs: nnx.Rngs) -> None:
        V, D = model.vocab_size, model.hidden_dim
        self.embedding = _weights(rngs, "embedding", (V, D))
        self.final_norm = _gain(D)
        if not model.tie_word_embeddings:
            self.lm_head = _weights(rngs, "head", (D, V))
        self.tied = model.tie_word_embeddings

    def embed(self, tokens_T: jax.Array) -> jax.Array:
        return self.embedding[...][tokens_T]

    def logits(self, x_TD: jax.Array) -> jax.Array:
        head_DV = self.embedding[...].T if self.tied else self.lm_head[...]
        return rms_norm(x_TD, self.final_norm[...]) @ head_DV


def init(model: ModelConfig, key: jax.Array) -> Params:
    """Fresh float32 parameters.

    Gains are 1. All weights are drawn from a normal distribution with standard deviation 0.02 cut
    at two standard deviations; those that write to the residual stream (o_proj and down_proj) are
    scaled by 1/√(2 · num_layers), so that its variance does not grow with depth (GPT-2).
    """
    ends_key, blocks_key = jax.random.split(key)

    def block(key: jax.Array) -> Params:
        return nnx.to_pure_dict(nnx.state(Block(model, nnx.Rngs(params=key))))

    ends = nnx.to_pure_dict(nnx.state(Ends(model, nnx.Rngs(params=ends_key))))
    return {**ends, "blocks": jax.vmap(block)(jax.random.split(blocks_key, model.num_layers))}


def roles(model: ModelConfig) -> Params:
    """The role of each parameter, in the same tree as `init`. Optimizers go by it, never by a
    parameter's number of dimensions: stacked gains look like matrices."""
    (_, ends), (_, block) = _declared(Ends, model), _declared(Block, model)

    def role(parameter: nnx.Param) -> Role:
        return parameter.get_metadata("role")

    return {
        **nnx.to_pure_dict(ends, extract_fn=role),
        "blocks": nnx.to_pure_dict(block, extract_fn=role),
    }


def logits(model: ModelConfig, params: Params, tokens_BS: jax.Array) -> jax.Array:
    """Logits of each position's next token. Returns (B·S, V), float32. S may be any length."""
    (ends_def, _), (block_def, _) = _declared(Ends, model), _declared(Block, model)
    ends = nnx.merge(ends_def, {name: x for name, x in params.items() if name != "blocks"})

    def body(x_TD: jax.Array, layer: Params) -> tuple[jax.Array, None]:
        return nnx.merge(block_def, layer)(x_TD, tokens_BS.shape[1]), None

    x_TD, _ = jax.lax.scan(body, ends.embed(tokens_BS.reshape(-1)), params["blocks"])
    return ends.logits(x_TD)


def rms_norm(x_TD: jax.Array, gain_D: jax.Array) -> jax.Array:
    """x · rsqrt(mean(x²) + 1e-5) · gain, in float32."""
    x_TD = x_TD.astype(jnp.float32)
    return x_TD * jax.lax.rsqrt(jnp.mean(x_TD**2, axis=-1, keepdims=True) + NORM_EPSILON) * gain_D


def rotate(x_BSHh: jax.Array) -> jax.Array:
    """Rotary positions (RoPE), half-split as in Hugging Face's Llama: dimension i turns together
    with i + h/2 by position · 10,000^(−2i/h) radians."""
    S, half = x_BSHh.shape[1], x_BSHh.shape[3] // 2
    angle_S1i = np.arange(S)[:, None, None] * ROPE_THETA ** (-np.arange(half) / half)
    cos, sin = np.cos(angle_S1i).astype(np.float32), np.sin(angle_S1i).astype(np.float32)
    a, b = jnp.split(x_BSHh, 2, axis=3)
    return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), axis=3)


def _gain(size: int) -> nnx.Param:
    return nnx.Param(jnp.ones(size, jnp.float32), role="gain")


def _weights(
    rngs: nnx.Rngs, role: Role, shape: tuple[int, int], std: float = INIT_STD
) -> nnx.Param:
    # JAX's truncated_normal is cut at ±2 but not rescaled: its own deviation is 0.88.
    drawn = jax.random.truncated_normal(rngs.params(), -2, 2, shape, jnp.float32)
    return nnx.Param(std * drawn, role=role)


def _declared(module: Callable[..., nnx.Module], model: ModelConfig) -> tuple[Any, nnx.State]:
    """The module's definition and abstract parameters, without drawing any."""
    return nnx.split(nnx.eval_shape(lambda: module(model, nnx.Rngs(params=jax.random.key(0)))))
