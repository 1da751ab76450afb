"""The fast causal attention of each platform: blocked with a gradient of its own on a CPU, cuDNN's
flash attention on a GPU, splash attention on a TPU. `attention.attend` chooses between them; tests
compare all with `attention.reference`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention

from engine.config.memory import attention_rows

LANES = 128  # splash needs multiples of a TPU register's width
SPLASH_BLOCKS = (512, 256, LANES)  # positions at a time: the first that divides the sequence

# What blocked attention saves for its gradient: q_NGSh, k_NSh, v_NSh and the probabilities of each
# block.
Saved = tuple[jax.Array, jax.Array, jax.Array, list[jax.Array]]


def visible(queries: np.ndarray, keys: np.ndarray, window: int | None) -> np.ndarray:
    """Whether each position of `queries` sees each of `keys`: itself and those before it, with a
    window only the window − 1 just before. Returns (queries, keys) of bool."""
    distance = queries[:, None] - keys
    return (distance >= 0) & (distance < (window or np.inf))


def cudnn(
    q_BSHh: jax.Array,
    k_BSKh: jax.Array,
    v_BSKh: jax.Array,
    segments_BS: jax.Array | None,
    window: int | None,
) -> jax.Array:
    """For an NVIDIA GPU, in bfloat16 or float16 and without segments. Asks JAX for cuDNN by name,
    because JAX would choose its plain path."""
    assert segments_BS is None, "attention.fast_path asks before"
    return jax.nn.dot_product_attention(
        q_BSHh,
        k_BSKh,
        v_BSKh,
        is_causal=True,
        local_window_size=window and (window - 1, 0),  # visible before and after a position
        implementation="cudnn",
    )


def splash(
    q_BSHh: jax.Array,
    k_BSKh: jax.Array,
    v_BSKh: jax.Array,
    segments_BS: jax.Array | None,
    window: int | None,
    interpret: bool = False,
) -> jax.Array:
    """For a TPU; with `interpret` on any device, slowly. Pads sequences to a multiple of 128.
    Padding comes last and no position sees later ones, so results do not change."""
    S, H, h = q_BSHh.shape[1:]
    padded = S + -S % LANES
    block = next(size for size in SPLASH_BLOCKS if padded % size == 0)
    shape = (padded, padded)
    mask: splash_attention.Mask = splash_attention.CausalMask(shape)
    if window:
        mask = splash_attention.LocalMask(shape, (window - 1, 0), offset=0)
    kernel = splash_attention.make_splash_mha_single_device(
        splash_attention.MultiHeadMask([mask] * H),
        block_sizes=splash_attention.BlockSizes(
            *(block, block, block), *(block, block, block), *(block, block)
        ),
        interpret=interpret,
    )

    def heads_first(x_BSNh: jax.Array) -> jax.Array:
        return jnp.pad(x_BSNh.swapaxes(1, 2), ((0, 0), (0, 0), (0, padded - S), (0, 0)))

    documents = None
    if segments_BS is not None:
        segments_BS = jnp.pad(segments_BS, ((0, 0), (0, padded - S)))
        documents = splash_attention.SegmentIds(segments_BS, segments_BS)
    scaled_BSHh = (q_BSHh.astype(jnp.float32) * h**-0.5).astype(q_BSHh.dtype)  # the kernel does not
    o_BHSh = jax.vmap(kernel)(*map(heads_first, (scaled_BSHh, k_BSKh, v_BSKh)), documents)
    return o_BHSh[:, :, :S].swapaxes(1, 2)


def blocked(
    q_BSHh: jax.Array,
    k_BSKh: jax.Array,
    v_BSKh: jax.Array,
    segments_BS: jax.Array | None,
    window: int | None,
) -> jax.Array:
    """For a CPU, float32 inside.

    Takes the queries block by block, each with the keys that it may see, so it computes neither the
    upper triangle nor the keys before the window. It saves the probabilities for the gradient. The
    gradient is written by hand because autodiff would save more and multiply more.
    """
    B, S, H, h = q_BSHh.shape
    K = k_BSKh.shape[2]
    q_NGSh = q_BSHh.reshape(B, S, K, H // K, h).transpose(0, 2, 3, 1, 4).reshape(B * K, -1, S, h)
    k_NSh, v_NSh = (x.transpose(0, 2, 1, 3).reshape(B * K, S, h) for x in (k_BSKh, v_BSKh))
    segments_NS = None if segments_BS is None else jnp.repeat(segments_BS, K, axis=0)
    # Queries are small: scaling them is cheaper than scaling all scores and their gradients.
    o_NGSh = _blocked(window, q_NGSh * h**-0.5, k_NSh, v_NSh, segments_NS)
    return o_NGSh.reshape(B, H, S, h).transpose(0, 2, 1, 3)


# Below, N is B·K, G is the number of query heads per key/value head, and R is the number of rows of
# a block of queries (for all G), which see P keys.


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _blocked(
    window: int | None,
    q_NGSh: jax.Array,
    k_NSh: jax.Array,
    v_NSh: jax.Array,
    segments_NS: jax.Array | None,
) -> jax.Array:
    return _forward(window, q_NGSh, k_NSh, v_NSh, segments_NS)[0]


def _forward(
    window: int | None,
    q_NGSh: jax.Array,
    k_NSh: jax.Array,
    v_NSh: jax.Array,
    segments_NS: jax.Array | None,
) -> tuple[jax.Array, Saved]:
    G, S = q_NGSh.shape[1:3]
    out, kept = [], []
    for first, start, stop in _spans(S, window):
        q_NRh = _rows(q_NGSh, start, stop)
        scores_NRP = _matmul("nrh,nph->nrp", q_NRh, k_NSh[:, first:stop])
        seen = np.tile(visible(np.arange(start, stop), np.arange(first, stop), window), (G, 1))
        if segments_NS is not None:
            same = segments_NS[:, start:stop, None] == segments_NS[:, None, first:stop]
            seen = seen & jnp.tile(same, (1, G, 1))
        p_NRP = jax.nn.softmax(jnp.where(seen, scores_NRP, -jnp.inf), axis=-1)
        o_NRh = _matmul("nrp,nph->nrh", p_NRP, v_NSh[:, first:stop])
        out.append(_unrows(o_NRh, G).astype(q_NGSh.dtype))
        kept.append(p_NRP)
    return jnp.concatenate(out, axis=2), (q_NGSh, k_NSh, v_NSh, kept)


def _backward(
    window: int | None, saved: Saved, do_NGSh: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    q_NGSh, k_NSh, v_NSh, kept = saved
    N, G, S, h = q_NGSh.shape
    # A product over R is twice as fast if its left side has R last. So the smaller of the two is
    # transposed, behind a barrier: XLA would move a plain transpose back into the product.
    turned = (x.transpose(0, 3, 1, 2) for x in (q_NGSh, do_NGSh))
    q_NhGS, do_NhGS = jax.lax.optimization_barrier(tuple(turned))
    dq = []
    dk_NhS = dv_NhS = jnp.zeros((N, h, S), jnp.float32)
    for (first, start, stop), p_NRP in zip(_spans(S, window), kept, strict=True):
        do_NRh = _rows(do_NGSh, start, stop)
        q_NhR, do_NhR = (x[..., start:stop].reshape(N, h, -1) for x in (q_NhGS, do_NhGS))
        dp_NRP = _matmul("nrh,nph->nrp", do_NRh, v_NSh[:, first:stop])
        ds_NRP = p_NRP * (dp_NRP - jnp.sum(dp_NRP * p_NRP, axis=-1, keepdims=True))
        dq.append(_unrows(_matmul("nrp,nph->nrh", ds_NRP, k_NSh[:, first:stop]), G))
        dk_NhS = _added(dk_NhS, _matmul("nhr,nrp->nhp", q_NhR, ds_NRP), first, stop)
        dv_NhS = _added(dv_NhS, _matmul("nhr,nrp->nhp", do_NhR, p_NRP), first, stop)
    dk_NSh, dv_NSh = dk_NhS.swapaxes(1, 2), dv_NhS.swapaxes(1, 2)
    dtype = q_NGSh.dtype
    dq_NGSh = jnp.concatenate(dq, axis=2)
    return dq_NGSh.astype(dtype), dk_NSh.astype(dtype), dv_NSh.astype(dtype), None


_blocked.defvjp(_forward, _backward)


def _added(sum_NhS: jax.Array, part_NhP: jax.Array, first: int, stop: int) -> jax.Array:
    """`sum_NhS` plus this part at its positions. A scatter over all positions has no indices, and
    XLA's compiler crashes on that in a `shard_map` (JAX 0.11.2, CPU)."""
    if part_NhP.shape == sum_NhS.shape:
        return sum_NhS + part_NhP
    return sum_NhS.at[..., first:stop].add(part_NhP)


def _spans(seq_len: int, window: int | None) -> list[tuple[int, int, int]]:
    """For each block: the first key that it may see, its first query, and the end of both."""
    rows = attention_rows(seq_len, window)
    return [
        (max(0, start - window + 1) if window else 0, start, min(start + rows, seq_len))
        for start in range(0, seq_len, rows)
    ]


def _rows(x_NGSh: jax.Array, start: int, stop: int) -> jax.Array:
    N, G, _, h = x_NGSh.shape
    return x_NGSh[:, :, start:stop].reshape(N, G * (stop - start), h)


def _unrows(x_NRh: jax.Array, groups: int) -> jax.Array:
    N, R, h = x_NRh.shape
    return x_NRh.reshape(N, groups, R // groups, h)


def _matmul(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
