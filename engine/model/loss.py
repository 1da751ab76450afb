"""The loss: cross-entropy from features and the output matrix, without holding all logits. At a
vocabulary of 50,000 these would be by far the largest array of a training step. So positions are
taken in chunks: each chunk's logits give loss and gradients at once and are then dropped; the
backward pass only scales the gradients."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from engine.config.memory import MAX_LOGITS, MIN_CHUNKS
from engine.model.decoder import soft_cap as capped
from engine.model.log_likelihood import normalized
from engine.model.mesh import ROWS, constrain, platform, row_groups


class Losses(NamedTuple):
    """Sums over the scored targets, float32."""

    nats: jax.Array  # cross-entropy
    penalty: jax.Array  # z-loss: z_loss_weight · Σ logsumexp²
    targets: jax.Array  # the number of scored targets


LossFunction = Callable[..., Losses]


def cross_entropy(
    x_TD: jax.Array,
    head_DV: jax.Array,
    targets_BS: jax.Array,
    *,
    soft_cap: float | None = None,
    z_loss_weight: float = 0.0,
    chunk: int | None = None,
) -> Losses:
    """Cross-entropy of `targets_BS` under softmax(soft_cap · tanh(x @ head / soft_cap)).

    Targets below 0 are not scored. `chunk` is how many positions of each row are taken at a time;
    the default suits the platform. It changes memory and speed only, up to rounding.

    Products are in the dtype of x with float32 sums, the rest is float32. Only a multiple of `nats
    + penalty` may be differentiated, because their gradients are computed together; the gradient of
    anything that weighs the two differently is nan.
    """
    B, S = targets_BS.shape
    chunk = min(S, chunk or _positions(B, S, head_DV.shape[1]))
    missing = -S % chunk
    x_BSD = jnp.pad(x_TD.reshape(B, S, -1), ((0, 0), (0, missing), (0, 0)))
    targets_BS = jnp.pad(targets_BS, ((0, 0), (0, missing)), constant_values=-1)
    # Chunks are cut from the sequence and not from the batch, because a mesh spreads rows over
    # devices: so each device has a part of every chunk.
    x_CBcD = jnp.moveaxis(x_BSD.reshape(B, -1, chunk, x_BSD.shape[2]), 1, 0)
    targets_CBc = jnp.moveaxis(targets_BS.reshape(B, -1, chunk), 1, 0)
    nats, penalty = _sums(_Terms(soft_cap, z_loss_weight), x_CBcD, head_DV, targets_CBc)
    return Losses(nats, penalty, jnp.sum(targets_BS >= 0).astype(jnp.float32))


class _Terms(NamedTuple):
    soft_cap: float | None
    z_loss_weight: float


# Below, t are the B · c positions of a chunk.


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sums(
    terms: _Terms,
    x_CBcD: jax.Array,
    head_DV: jax.Array,
    targets_CBc: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    def body(sums: Any, chunk: Any) -> tuple[Any, None]:
        x_tD, targets_t = _flat(chunk)
        found, _ = _chunk(terms, x_tD, head_DV, targets_t)
        return jax.tree.map(jnp.add, sums, found), None

    zero = jnp.zeros((), jnp.float32)
    return jax.lax.scan(body, (zero, zero), (x_CBcD, targets_CBc))[0]


def _forward(
    terms: _Terms,
    x_CBcD: jax.Array,
    head_DV: jax.Array,
    targets_CBc: jax.Array,
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    def body(carry: Any, chunk: Any) -> tuple[Any, jax.Array]:
        sums, dhead_GDV = carry
        x_tD, targets_t = _flat(chunk)
        found, dlogits_tV = _chunk(terms, x_tD, head_DV, targets_t)
        dlogits_tV = dlogits_tV.astype(x_tD.dtype)
        x_GtD, dlogits_GtV = (a.reshape(G, -1, a.shape[1]) for a in (x_tD, dlogits_tV))
        dhead_GDV += jnp.einsum(
            "gtd,gtv->gdv", x_GtD, dlogits_GtV, preferred_element_type=jnp.float32
        )
        dhead_GDV = constrain(dhead_GDV, ROWS, None, "tensor")
        dx_tD = jnp.einsum("tv,dv->td", dlogits_tV, head_DV, preferred_element_type=jnp.float32)
        dx_BcD = dx_tD.astype(x_tD.dtype).reshape(chunk[0].shape)
        return (jax.tree.map(jnp.add, sums, found), dhead_GDV), dx_BcD

    # Each of the G groups of devices that share the rows sums the output matrix's gradient of its
    # own rows. The sums are added once at the end, not after every chunk.
    G = math.gcd(row_groups(), x_CBcD.shape[1])
    zero = jnp.zeros((), jnp.float32)
    start = (zero, zero), jnp.zeros((G, *head_DV.shape), jnp.float32)
    (sums, dhead_GDV), dx_CBcD = jax.lax.scan(body, start, (x_CBcD, targets_CBc))
    return sums, (dx_CBcD, jnp.sum(dhead_GDV, axis=0).astype(head_DV.dtype))


def _backward(
    terms: _Terms,
    saved: tuple[jax.Array, jax.Array],
    weights: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array, None]:
    of_nats, of_penalty = weights
    if terms.z_loss_weight:
        of_nats = jnp.where(of_nats == of_penalty, of_nats, jnp.nan)
    dx_CBcD, dhead_DV = ((of_nats * x).astype(x.dtype) for x in saved)
    return dx_CBcD, dhead_DV, None


_sums.defvjp(_forward, _backward)


def _chunk(
    terms: _Terms,
    x_tD: jax.Array,
    head_DV: jax.Array,
    targets_t: jax.Array,
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """The chunk's (nats, penalty), and the gradient of their sum with respect to x @ head."""
    logits_tV = capped(
        jnp.matmul(x_tD, head_DV, preferred_element_type=jnp.float32), terms.soft_cap
    )
    scored_t = targets_t >= 0
    chosen_tV = jnp.arange(head_DV.shape[1]) == targets_t[:, None]
    softmax = normalized(logits_tV)
    lse_t = softmax.log_partition()[:, 0]
    chosen_t1 = jnp.sum(jnp.where(chosen_tV, softmax.logits, 0), axis=1, keepdims=True)
    nats = jnp.sum(jnp.where(scored_t, softmax.nats(chosen_t1)[:, 0], 0))
    penalty = terms.z_loss_weight * jnp.sum(jnp.where(scored_t, lse_t**2, 0))
    # d lse² = 2 · lse · softmax, and d tanh = 1 − tanh².
    weight_t = jnp.where(scored_t, 1 + 2 * terms.z_loss_weight * lse_t, 0)
    dlogits_tV = softmax.exps * (weight_t[:, None] / softmax.sums) - chosen_tV
    if terms.soft_cap is not None:
        dlogits_tV *= 1 - (logits_tV / terms.soft_cap) ** 2
    return (nats, penalty), dlogits_tV


def _flat(chunk: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    x_BcD, targets_Bc = chunk
    return x_BcD.reshape(-1, x_BcD.shape[2]), targets_Bc.reshape(-1)


def _positions(B: int, S: int, V: int) -> int:
    """How many positions of each row to take at a time. On a CPU (V 256 and 4,096) four chunks cost
    as much as one, and chunks below 32 positions cost more; on a GPU 4 to 16 chunks are usual."""
    devices = max(1, jax.sharding.get_abstract_mesh().size)
    chunks = math.ceil(B * S * V / devices / MAX_LOGITS[platform()])
    return math.ceil(S / max(MIN_CHUNKS, chunks))
