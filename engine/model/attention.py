"""Causal attention. `reference` is the definition. `attend` computes the same with the platform's
fast path (`kernels.py`); if the fast path does not support the request, `attend` logs the reason
once and uses the reference. On a mesh, each device computes its own sequences and heads."""

import functools
import logging
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from engine.model import kernels
from engine.model.mesh import ROWS, platform

log = logging.getLogger(__name__)

# (q_BSHh, k_BSKh, v_BSKh, segments_BS | None, window | None) -> o_BSHh
Path = Callable[[jax.Array, jax.Array, jax.Array, jax.Array | None, int | None], jax.Array]


def attend(
    q_BSHh: jax.Array,
    k_BSKh: jax.Array,
    v_BSKh: jax.Array,
    segments_BS: jax.Array | None = None,
    window: int | None = None,
    implementation: Literal["fast", "reference"] = "fast",
) -> jax.Array:
    """softmax(q kᵀ / √h) v over the visible positions. Returns B, S, H, h in the dtype of q.

    A position sees itself and what comes before it; with a `window` only the window − 1 positions
    just before, and with `segments_BS` (int32) only positions of its own segment. Query head i
    reads key/value head i // (H / K), so K must divide H.
    """
    path: Path = reference
    if implementation == "fast":
        path, why_not = fast_path(
            platform(), q_BSHh.dtype, q_BSHh.shape[3], segments_BS is not None
        )
        if why_not:
            _say_once(f"{why_not}; attention takes the plain path, which is slow and large")
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size <= 1:
        return path(q_BSHh, k_BSKh, v_BSKh, segments_BS, window)
    heads = PartitionSpec(ROWS, None, "tensor", None)
    documents = None if segments_BS is None else PartitionSpec(ROWS, None)
    return jax.shard_map(
        lambda q, k, v, segments: path(q, k, v, segments, window),
        in_specs=(heads, heads, heads, documents),
        out_specs=heads,
        check_vma=False,  # the kernels do not declare which values vary over which axis
    )(q_BSHh, k_BSKh, v_BSKh, segments_BS)


def fast_path(platform: str, dtype: Any, head_dim: int, segmented: bool) -> tuple[Path, str | None]:
    """The fast path of `platform` and None, or the reference and a sentence with the reason."""
    if platform == "cpu":
        return kernels.blocked, None
    if platform == "tpu":
        return kernels.splash, None
    if platform != "gpu":
        return reference, f"there is no fast attention for the platform {platform}"
    if segmented:
        return reference, "cuDNN attention cannot keep packed documents apart"
    if dtype not in (jnp.bfloat16, jnp.float16):
        return reference, f"cuDNN attention needs bfloat16 and the compute dtype is {dtype}"
    if head_dim % 8 or head_dim > 128:
        return reference, (
            f"cuDNN attention needs a head_dim that is a multiple of 8 up to 128, not {head_dim}"
        )
    return kernels.cudnn, None


def reference(
    q_BSHh: jax.Array,
    k_BSKh: jax.Array,
    v_BSKh: jax.Array,
    segments_BS: jax.Array | None = None,
    window: int | None = None,
) -> jax.Array:
    """The definition of `attend`: in float32, with all scores in memory."""
    B, S, H, h = q_BSHh.shape
    K = k_BSKh.shape[2]
    q_BSKGh = q_BSHh.reshape(B, S, K, H // K, h)
    q_BSKGh, k_BSKh, v_BSKh = (x.astype(jnp.float32) for x in (q_BSKGh, k_BSKh, v_BSKh))
    scores_BKGQP = jnp.einsum("bqkgh,bpkh->bkgqp", q_BSKGh, k_BSKh) / h**0.5
    seen = kernels.visible(np.arange(S), np.arange(S), window)
    if segments_BS is not None:
        seen = seen & (segments_BS[:, None, None, :, None] == segments_BS[:, None, None, None])
    p_BKGQP = jax.nn.softmax(jnp.where(seen, scores_BKGQP, -jnp.inf), axis=-1)
    o_BSKGh = jnp.einsum("bkgqp,bpkh->bqkgh", p_BKGQP, v_BSKh)
    return o_BSKGh.reshape(q_BSHh.shape).astype(q_BSHh.dtype)


@functools.cache
def _say_once(sentence: str) -> None:
    log.warning(sentence)
