"""Parts of a block that are a few lines of arithmetic: norms and rotations, and what a declaration
adds: gates of heads, exclusive attention, short convolutions. Modules of `decoder` call them."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from engine.config.rope_scaling import RopeScaling

if TYPE_CHECKING:
    from engine.model.decoder import Sequences


def rms_norm(x: jax.Array, epsilon: float, gain: jax.Array | None = None) -> jax.Array:
    """x · rsqrt(mean(x²) + ε) · gain over the last axis, in float32. Returns the dtype of x."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + epsilon)
    return (wide if gain is None else wide * gain).astype(x.dtype)


def rotate(
    x_BSHh: jax.Array,
    theta: float,
    positions_BS: jax.Array | None = None,
    turned: int | None = None,
    scaling: RopeScaling | None = None,
) -> jax.Array:
    """Rotary positions (RoPE), half-split as in Hugging Face's Llama: dimension i turns together
    with i + h/2 by position · θ^(−2i/h) radians. Without `positions_BS` they are 0 to S − 1. With
    `turned` only so many of the first dimensions turn, as if they were all; `scaling` slows some
    pairs. Returns the dtype of x."""
    if turned is not None and turned < x_BSHh.shape[3]:
        if not turned:
            return x_BSHh
        first, rest = x_BSHh[..., :turned], x_BSHh[..., turned:]
        return jnp.concatenate((rotate(first, theta, positions_BS, scaling=scaling), rest), axis=3)
    S, half = x_BSHh.shape[1], x_BSHh.shape[3] // 2
    frequency_i = theta ** (-np.arange(half) / half)
    if scaling is not None:
        frequency_i = np.array([scaling.slowed(float(one)) for one in frequency_i])
    cos: jax.Array | np.ndarray
    sin: jax.Array | np.ndarray
    if positions_BS is None:  # a table of constants
        angle_S1i = np.arange(S)[:, None, None] * frequency_i
        cos, sin = np.cos(angle_S1i).astype(np.float32), np.sin(angle_S1i).astype(np.float32)
    else:
        angle_BS1i = positions_BS[:, :, None, None] * frequency_i.astype(np.float32)
        cos, sin = jnp.cos(angle_BS1i), jnp.sin(angle_BS1i)
    a, b = jnp.split(x_BSHh, 2, axis=3)
    rotated = jnp.concatenate((a * cos - b * sin, b * cos + a * sin), axis=3)
    return rotated.astype(x_BSHh.dtype)


def gated(o_BSHh: jax.Array, x_TD: jax.Array, gate_DH: jax.Array) -> jax.Array:
    """o · 2σ(x · W), one factor for each head and position, as in Marin's recipe; after Qiu et al.,
    Gated Attention for Large Language Models (arXiv 2505.06708). At W = 0 it is o."""
    factor_TH = 2 * jax.nn.sigmoid(x_TD @ gate_DH.astype(x_TD.dtype))
    return o_BSHh * factor_TH.reshape(*o_BSHh.shape[:3], 1)


def exclusive(o_BSHh: jax.Array, v_BSKh: jax.Array) -> jax.Array:
    """o − (o·v)/(‖v‖² + 1e-6) · v in each head: what is left of the output is orthogonal to the
    position's own value (exclusive self-attention, XSA, as in Marin's recipe). Returns B, S, H,
    h."""
    B, S, H, h = o_BSHh.shape
    o_BSKGh = o_BSHh.reshape(B, S, v_BSKh.shape[2], -1, h).astype(jnp.float32)
    v_BSK1h = v_BSKh[:, :, :, None].astype(jnp.float32)
    along = jnp.sum(o_BSKGh * v_BSK1h, axis=-1, keepdims=True)
    length = jnp.sum(v_BSK1h**2, axis=-1, keepdims=True)
    left_BSKGh = o_BSKGh - along / (length + 1e-6) * v_BSK1h
    return left_BSKGh.reshape(B, S, H, h).astype(o_BSHh.dtype)


def identity(taps: int, channels: int) -> jax.Array:
    """The taps of a convolution that changes nothing, (N, C): 1 for the position itself."""
    return jnp.zeros((taps, channels)).at[0].set(1)


def convolved(x_TC: jax.Array, taps_NC: jax.Array, sequences: "Sequences") -> jax.Array:
    """Σ over j of taps_j ⊙ x at the j-th position before, in each channel alone, as in Marin's
    recipe; after So et al., Primer (arXiv 2109.08668). What is before a sequence's start, or of
    another document, is 0. Returns (T, C) in the dtype of x."""
    N, C = taps_NC.shape
    S, segments_BS = sequences.seq_len, sequences.segments_BS
    x_BSC = x_TC.reshape(-1, S, C)
    if sequences.memory is None:
        longer = jnp.pad(x_BSC, ((0, 0), (N - 1, 0), (0, 0)))
    else:
        longer = sequences.memory.with_earlier(x_BSC, N - 1)
    sum_BSC = x_BSC * taps_NC[0]
    for j in range(1, N):
        earlier_BSC = longer[:, N - 1 - j : N - 1 - j + S]
        if segments_BS is not None:
            earlier_BS = jnp.pad(segments_BS, ((0, 0), (j, 0)), constant_values=-1)[:, :S]
            earlier_BSC = jnp.where((earlier_BS == segments_BS)[:, :, None], earlier_BSC, 0)
        sum_BSC += earlier_BSC * taps_NC[j]
    return sum_BSC.astype(x_TC.dtype).reshape(x_TC.shape)
