"""Causal attention, one function for everybody. It walks down the queries in blocks of 64 rows and
gives each its own key prefix, so that the upper triangle is never computed, and it keeps the
probabilities for the backward pass: on a CPU both are what makes it fast. The gradient is written
out because autodiff would keep more and multiply more."""

import jax
import jax.numpy as jnp
import numpy as np

BLOCK = 64  # query rows at a time; 64 measured best at sequence 256 on a CPU

Arrays = tuple[jax.Array, ...]


def attend(q_BSHD: jax.Array, k_BSKD: jax.Array, v_BSKD: jax.Array) -> jax.Array:
    """softmax(q kᵀ / √D) v over this and earlier positions. Returns B, S, H, D.

    Query head h reads key/value head h // (H / K), so K must divide H.
    """
    B, S, H, D = q_BSHD.shape
    K = k_BSKD.shape[2]
    q_NGSD = q_BSHD.reshape(B, S, K, H // K, D).transpose(0, 2, 3, 1, 4).reshape(B * K, -1, S, D)
    k_NSD, v_NSD = (x.transpose(0, 2, 1, 3).reshape(B * K, S, D) for x in (k_BSKD, v_BSKD))
    o_NGSD = _attend(q_NGSD, k_NSD, v_NSD)
    return o_NGSD.reshape(B, H, S, D).transpose(0, 2, 1, 3)


# In what follows N is B·K, G the query heads of one key/value head, R the G·block query rows that
# meet one key prefix of P positions.


@jax.custom_vjp
def _attend(q_NGSD: jax.Array, k_NSD: jax.Array, v_NSD: jax.Array) -> jax.Array:
    return _forward(q_NGSD, k_NSD, v_NSD)[0]


def _forward(
    q_NGSD: jax.Array, k_NSD: jax.Array, v_NSD: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array, Arrays]]:
    out, kept = [], []
    for start, stop in _blocks(q_NGSD.shape[2]):
        q_NRD = _rows(q_NGSD, start, stop)
        scores_NRP = _matmul("nrd,npd->nrp", q_NRD, k_NSD[:, :stop]) * q_NGSD.shape[3] ** -0.5
        seen_RP = np.tile(np.tri(stop - start, stop, start, dtype=bool), (q_NGSD.shape[1], 1))
        p_NRP = jax.nn.softmax(jnp.where(seen_RP, scores_NRP, -jnp.inf), axis=-1)
        out.append(_unrows(_matmul("nrp,npd->nrd", p_NRP, v_NSD[:, :stop]), q_NGSD.shape[1]))
        kept.append(p_NRP)
    return jnp.concatenate(out, axis=2), (q_NGSD, k_NSD, v_NSD, tuple(kept))


def _backward(
    saved: tuple[jax.Array, jax.Array, jax.Array, Arrays], do_NGSD: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    q_NGSD, k_NSD, v_NSD, kept = saved
    dq, dk_NSD, dv_NSD = [], jnp.zeros_like(k_NSD), jnp.zeros_like(v_NSD)
    for (start, stop), p_NRP in zip(_blocks(q_NGSD.shape[2]), kept, strict=True):
        q_NRD, do_NRD = _rows(q_NGSD, start, stop), _rows(do_NGSD, start, stop)
        dp_NRP = _matmul("nrd,npd->nrp", do_NRD, v_NSD[:, :stop])
        ds_NRP = p_NRP * (dp_NRP - jnp.sum(dp_NRP * p_NRP, axis=-1, keepdims=True))
        ds_NRP *= q_NGSD.shape[3] ** -0.5
        dq.append(_unrows(_matmul("nrp,npd->nrd", ds_NRP, k_NSD[:, :stop]), q_NGSD.shape[1]))
        dk_NSD = dk_NSD.at[:, :stop].add(_matmul("nrp,nrd->npd", ds_NRP, q_NRD))
        dv_NSD = dv_NSD.at[:, :stop].add(_matmul("nrp,nrd->npd", p_NRP, do_NRD))
    return jnp.concatenate(dq, axis=2), dk_NSD, dv_NSD


_attend.defvjp(_forward, _backward)


def _blocks(seq_len: int) -> list[tuple[int, int]]:
    return [(start, min(start + BLOCK, seq_len)) for start in range(0, seq_len, BLOCK)]


def _rows(x_NGSD: jax.Array, start: int, stop: int) -> jax.Array:
    N, G, _, D = x_NGSD.shape
    return x_NGSD[:, :, start:stop].reshape(N, G * (stop - start), D)


def _unrows(x_NRD: jax.Array, groups: int) -> jax.Array:
    N, R, D = x_NRD.shape
    return x_NRD.reshape(N, groups, R // groups, D)


def _matmul(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)
