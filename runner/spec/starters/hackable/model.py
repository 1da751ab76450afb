"""A language model in one file: edit it, and run the experiment again.

It is a decoder as in Llama: token embedding, blocks of attention and MLP, a norm, an output matrix.
The lab needs three things of it: `init` draws the parameters, `logits` says which token comes next,
and `roles` tells the optimizer what each parameter is for. All of this is plain JAX on dictionaries
of arrays: whatever you can write as a function of arrays, you can train.

Letters in names are dimensions: B rows of a batch, S positions, D width, F inside of the MLP,
H heads, h size of a head, V vocabulary. So `x_BSD` is an array (batch, position, width).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Params = dict[str, Any]  # nested dictionaries of arrays


@dataclass(frozen=True)
class Shape:
    """What `model:` in experiment.yaml contains. For an option of your own, add a line here, use it
    below, and write it there; keys that are not listed here are refused."""

    width: int  # D, width of the stream that runs through all blocks
    layers: int  # blocks
    heads: int  # of attention; must divide width
    seq_len: int  # S, tokens in a window
    vocab_size: int  # V; with byte tokens 256, which experiment.yaml may leave out
    mlp_ratio: int = 4  # F / D


class Parameter(NamedTuple):
    """How one array of parameters is initialised, and its role."""

    shape: tuple[int, ...]
    std: float | None  # standard deviation of its normal distribution; None: all ones
    role: str  # embedding, head, column or row (matrices), gain (everything else)


class Transformer:
    """The model. experiment.yaml names it as `model:Transformer`: this class in model.py."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.shape = Shape(**config)
        assert self.shape.width % (2 * self.shape.heads) == 0, "width / heads must be even"

    # ── Parameters ───────────────────────────────────────────────────────────────────────────

    def parameters(self) -> Params:
        """All parameters, declared once; `init` and `roles` follow from it."""
        D, V = self.shape.width, self.shape.vocab_size
        F = self.shape.mlp_ratio * D
        # Weights that write to the stream start smaller, so that it does not grow with depth.
        into_stream = 0.02 / (2 * self.shape.layers) ** 0.5
        block = {
            "attention_norm": Parameter((D,), None, "gain"),
            "qkv": Parameter((D, 3 * D), 0.02, "column"),  # queries, keys and values at once
            "out": Parameter((D, D), into_stream, "row"),
            "mlp_norm": Parameter((D,), None, "gain"),
            "up": Parameter((D, F), 0.02, "column"),
            "down": Parameter((F, D), into_stream, "row"),
        }
        return {
            "embedding": Parameter((V, D), 0.02, "embedding"),
            **{f"block{number}": block for number in range(self.shape.layers)},
            "final_norm": Parameter((D,), None, "gain"),
            "head": Parameter((D, V), 0.02, "head"),
        }

    def init(self, key: jax.Array) -> Params:
        """Draw the parameters, float32. Each array has a key of its own, derived from `key`: the
        same seed gives the same model, another seed another one."""
        declared, tree = jax.tree.flatten(self.parameters(), is_leaf=_is_parameter)
        keys = jax.random.split(key, len(declared))
        return jax.tree.unflatten(
            tree, [_draw(k, one) for k, one in zip(keys, declared, strict=True)]
        )

    def roles(self) -> Params:
        """What each parameter is for. AdamW decays all but gains, and Muon moves the matrices."""
        return jax.tree.map(lambda one: one.role, self.parameters(), is_leaf=_is_parameter)

    # ── From tokens to logits ────────────────────────────────────────────────────────────────

    def logits(self, params: Params, tokens_BS: jax.Array) -> jax.Array:
        """Logits of the next token at every position: (batch, position, vocabulary). A position
        must not see those after it; the lab checks that."""
        x_BSD = params["embedding"][tokens_BS]
        for number in range(self.shape.layers):
            x_BSD = self.block(params[f"block{number}"], x_BSD)
        return norm(x_BSD, params["final_norm"]) @ params["head"]

    def block(self, block: Params, x_BSD: jax.Array) -> jax.Array:
        """One block: attention and MLP each read the normed stream and add to it."""
        x_BSD = x_BSD + self.attention(block, norm(x_BSD, block["attention_norm"]))
        return x_BSD + self.mlp(block, norm(x_BSD, block["mlp_norm"]))

    def attention(self, block: Params, x_BSD: jax.Array) -> jax.Array:
        """Causal attention: each position reads a weighted mean of the values up to itself."""
        B, S, _ = x_BSD.shape
        qkv_BS3Hh = (x_BSD @ block["qkv"]).reshape(B, S, 3, self.shape.heads, -1)
        q_BSHh, k_BSHh, v_BSHh = (qkv_BS3Hh[:, :, which] for which in range(3))
        q_BSHh, k_BSHh = rotate(q_BSHh), rotate(k_BSHh)
        scores_BHSS = jnp.einsum("bqhd,bkhd->bhqk", q_BSHh, k_BSHh) / q_BSHh.shape[3] ** 0.5
        visible_SS = jnp.tril(jnp.ones((S, S), bool))  # a query's row: keys up to itself
        weights_BHSS = jax.nn.softmax(jnp.where(visible_SS, scores_BHSS, -jnp.inf), axis=3)
        mixed_BSHh = jnp.einsum("bhqk,bkhd->bqhd", weights_BHSS, v_BSHh)
        return mixed_BSHh.reshape(B, S, -1) @ block["out"]

    def mlp(self, block: Params, x_BSD: jax.Array) -> jax.Array:
        """Two matrices with a nonlinearity between, for each position alone."""
        return jax.nn.gelu(x_BSD @ block["up"]) @ block["down"]


# ── Pieces ───────────────────────────────────────────────────────────────────────────────────────


def norm(x_BSD: jax.Array, gain_D: jax.Array) -> jax.Array:
    """RMSNorm: every position's vector is scaled to the same length, then times a learned gain."""
    return x_BSD * jax.lax.rsqrt(jnp.mean(x_BSD**2, axis=2, keepdims=True) + 1e-5) * gain_D


def rotate(x_BSHh: jax.Array) -> jax.Array:
    """Rotary positions: pairs of dimensions are rotated by an angle that grows with the position,
    each pair at its own speed. So attention depends on the distance of two positions."""
    S, half = x_BSHh.shape[1], x_BSHh.shape[3] // 2
    angle_S1i = jnp.arange(S)[:, None, None] * 10_000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle_S1i), jnp.sin(angle_S1i)
    a, b = jnp.split(x_BSHh, 2, axis=3)
    return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), axis=3)


def _draw(key: jax.Array, one: Parameter) -> jax.Array:
    return jnp.ones(one.shape) if one.std is None else one.std * jax.random.normal(key, one.shape)


def _is_parameter(x: Any) -> bool:
    return isinstance(x, Parameter)
