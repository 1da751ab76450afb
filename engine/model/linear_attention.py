"""A layer in which each head keeps a matrix of fixed size in the place of all keys and values, so
that a position costs the same however long the sequence is: Gated DeltaNet (Yang, Kautz and
Hatamizadeh, arXiv 2412.06464).

Names of dimensions, beside those of the decoder: C positions of a chunk, N chunks; Q, P positions
in a chunk; i, o the two sides of a head's state, which takes a key to a value."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec

from engine.config.flops import chunk
from engine.config.shapes import LINEAR_TAPS
from engine.model.decoder import Decoder, Sequences, rms_norm
from engine.model.mesh import ROWS
from engine.model.parameters import gain, into_stream, weights
from engine.model.parts import convolved, identity

# What is drawn at the start, as in Mamba-2 (arXiv 2405.21060), both in logarithms.
DECAYS, STEPS = (1.0, 16.0), (1e-3, 1e-1)


class GatedDeltaNet(nnx.Module):
    """In the place of Attention, with `num_heads` heads for queries, keys and values alike. These
    three go through a convolution of 4 taps and silu, and queries and keys are scaled to length 1.
    At each position a head has a rate β = σ(x · W) and a decay α = exp(−exp(log) · softplus(x · W +
    bias)) of `delta_rule`, whose output is RMS-normed and multiplied by silu(x · gate)."""

    def __init__(self, decoder: Decoder, rngs: nnx.Rngs) -> None:
        config = decoder.config
        D, H, h = config.hidden_dim, config.num_heads, config.head_dim
        self.heads, self.epsilon = H, config.norm_epsilon
        self.q_proj = weights(rngs, "column", (D, H * h))
        self.k_proj = weights(rngs, "column", (D, H * h))
        self.v_proj = weights(rngs, "column", (D, H * h))
        self.gate_proj = weights(rngs, "column", (D, H * h))
        taps_NC = identity(LINEAR_TAPS, H * h)
        self.q_conv = nnx.Param(taps_NC, role="gain")
        self.k_conv = nnx.Param(taps_NC, role="gain")
        self.v_conv = nnx.Param(taps_NC, role="gain")
        self.rate, self.decay = (weights(rngs, "gain", (D, H)) for _ in range(2))
        low, high = jnp.log(jnp.array((DECAYS, STEPS))).T
        decay_log, step_log = jax.random.uniform(rngs.params(), (H, 2), minval=low, maxval=high).T
        self.decay_log = nnx.Param(decay_log, role="gain")
        # softplus of this is the step.
        self.decay_bias = nnx.Param(jnp.log(jnp.expm1(jnp.exp(step_log))), role="gain")
        self.norm = gain(h)
        self.o_proj = weights(rngs, "row", (H * h, D), into_stream(config))

    def __call__(self, x_TD: jax.Array, sequences: Sequences) -> jax.Array:
        S, H = sequences.seq_len, self.heads

        def each_head(proj: nnx.Param, conv: nnx.Param) -> jax.Array:
            y_TN = jax.nn.silu(convolved(x_TD @ proj[...], conv[...], sequences))
            return y_TN.reshape(-1, S, H, y_TN.shape[1] // H).astype(jnp.float32)

        q_BSHh = _of_length_1(each_head(self.q_proj, self.q_conv))
        k_BSHh = _of_length_1(each_head(self.k_proj, self.k_conv))
        v_BSHh = each_head(self.v_proj, self.v_conv)
        wide_TD = x_TD.astype(jnp.float32)
        rate_TH = jax.nn.sigmoid(wide_TD @ self.rate[...])
        step_TH = jax.nn.softplus(wide_TD @ self.decay[...] + self.decay_bias[...])
        log_decay_TH = -jnp.exp(self.decay_log[...]) * step_TH
        both = (x_TH.reshape(-1, S, H) for x_TH in (rate_TH, log_decay_TH))
        if sequences.memory is None:
            o_BSHh = _on_mesh(q_BSHh, k_BSHh, v_BSHh, *both, sequences.segments_BS)
        else:
            o_BSHh = sequences.memory.recurrent(q_BSHh, k_BSHh, v_BSHh, *both)
        o_TN = rms_norm(o_BSHh, self.epsilon, self.norm[...]).reshape(len(x_TD), -1)
        gate_TN = jax.nn.silu(x_TD @ self.gate_proj[...])
        return (o_TN.astype(x_TD.dtype) * gate_TN) @ self.o_proj[...]


def _of_length_1(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-6)


def _on_mesh(*arrays: jax.Array | None) -> jax.Array:
    """The outputs of `delta_rule`; each device computes its own sequences and heads."""

    def outputs(*arrays: jax.Array | None) -> jax.Array:
        return delta_rule(*arrays)[0]  # type: ignore[arg-type]

    if jax.sharding.get_abstract_mesh().size <= 1:
        return outputs(*arrays)
    heads = PartitionSpec(ROWS, None, "tensor")
    documents = None if arrays[-1] is None else PartitionSpec(ROWS, None)
    return jax.shard_map(
        outputs, in_specs=(heads,) * 5 + (documents,), out_specs=heads, check_vma=False
    )(*arrays)


def delta_rule(
    q_BSHh: jax.Array,
    k_BSHh: jax.Array,
    v_BSHh: jax.Array,
    rate_BSH: jax.Array,
    log_decay_BSH: jax.Array,
    segments_BS: jax.Array | None = None,
    state_BHio: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The gated delta rule: at each position t, of each head,

        S_t = α_t · (I − β_t · k_t k_tᵀ) · S_{t−1} + β_t · k_t v_tᵀ
        o_t = S_tᵀ q_t / √h

    from `state_BHio`, 0 if left out; at a document's first position (`segments_BS`, int32) from 0.
    α is given by its logarithm. Returns the outputs (B, S, H, h), and the state after the last
    position. All float32.

    Computed by chunks (Yang et al., arXiv 2406.06484): with Γ_tj = α_{j+1} ⋯ α_t from j to t, and
    γ_t that from before the chunk, what the chunk's positions write is the solution U of the
    triangular system u_t = β_t · (v_t − γ_t · S₀ᵀ k_t − Σ_{j<t} Γ_tj · (k_j·k_t) · u_j), and then
    S_t = γ_t · S₀ + Σ_{j≤t} Γ_tj · k_j u_jᵀ. Only S₀ goes from chunk to chunk."""
    B, S, H, h = q_BSHh.shape
    C = chunk(S)

    def chunks(x_BS: jax.Array) -> jax.Array:
        """(B, S, …) to (N, B, …, C): padding neither writes nor forgets."""
        padded = jnp.pad(x_BS, ((0, 0), (0, -S % C), *((0, 0),) * (x_BS.ndim - 2)))
        return jnp.moveaxis(padded.reshape(B, -1, C, *x_BS.shape[2:]), (1, 2), (0, -1))

    q_NBHQh, k_NBHQh, v_NBHQh = (chunks(x).swapaxes(-1, -2) for x in (q_BSHh, k_BSHh, v_BSHh))
    rate_NBHQ1 = chunks(rate_BSH)[..., None]
    sum_NBHQ = jnp.cumsum(chunks(log_decay_BSH), axis=-1)
    seen_QP = jnp.tril(jnp.ones((C, C), bool))
    reaches: jax.Array | bool = True  # whether the state before a chunk reaches a position
    if segments_BS is not None:
        of_NB1Q = chunks(segments_BS)[:, :, None]
        seen_QP = seen_QP & (of_NB1Q[..., :, None] == of_NB1Q[..., None, :])
        before_NB11 = jnp.concatenate((of_NB1Q[:1, ..., :1], of_NB1Q[:-1, ..., -1:]))
        reaches = of_NB1Q == before_NB11
    log_NBHQP = sum_NBHQ[..., :, None] - sum_NBHQ[..., None, :]
    between_NBHQP = jnp.exp(jnp.where(seen_QP, log_NBHQP, -jnp.inf))  # Γ
    since_NBHQ1 = jnp.where(reaches, jnp.exp(sum_NBHQ), 0)[..., None]  # γ

    k_NBHhQ = k_NBHQh.swapaxes(-1, -2)
    coupled_NBHQP = jnp.tril(rate_NBHQ1 * between_NBHQP * (k_NBHQh @ k_NBHhQ), -1)
    solved_NBHQP = inverse(coupled_NBHQP)
    written = solved_NBHQP @ (rate_NBHQ1 * v_NBHQh)  # U, if the state before were 0
    undone = solved_NBHQP @ (rate_NBHQ1 * since_NBHQ1 * k_NBHQh)
    scores_NBHQP = between_NBHQP * (q_NBHQh @ k_NBHhQ)
    into_NBHhQ = k_NBHhQ * between_NBHQP[..., -1:, :]

    def one(state_BHio: jax.Array, of: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        written, undone, scores_BHQP, q_BHQh, since_BHQ1, into_BHhQ = of
        u_BHQo = written - undone @ state_BHio
        o_BHQo = (since_BHQ1 * q_BHQh) @ state_BHio + scores_BHQP @ u_BHQo
        return since_BHQ1[..., -1:, :] * state_BHio + into_BHhQ @ u_BHQo, o_BHQo

    start = jnp.zeros((B, H, h, h)) if state_BHio is None else state_BHio
    of: tuple[jax.Array, ...] = written, undone, scores_NBHQP, q_NBHQh, since_NBHQ1, into_NBHhQ
    last_BHio, o_NBHQo = jax.lax.scan(one, start, of)
    o_BNQHo = o_NBHQo.transpose(1, 0, 3, 2, 4)
    return o_BNQHo.reshape(B, -1, H, h)[:, :S] * h**-0.5, last_BHio


def inverse(a: jax.Array) -> jax.Array:
    """(I + a)⁻¹ of strictly lower triangular matrices (…, n, n), n a power of two, by halves:
    that of [[P, 0], [R, Q]] is [[P⁻¹, 0], [−Q⁻¹ R P⁻¹, Q⁻¹]]. A series of powers of a would be
    shorter, but its terms can be 10¹⁸ times the result."""
    n = a.shape[-1]
    if n == 1:
        return jnp.ones_like(a)
    half = n // 2
    p, q = inverse(jnp.stack((a[..., :half, :half], a[..., half:, half:])))
    low = -q @ a[..., half:, :half] @ p
    upper = jnp.concatenate((p, jnp.zeros_like(p)), axis=-1)
    return jnp.concatenate((upper, jnp.concatenate((low, q), axis=-1)), axis=-2)
