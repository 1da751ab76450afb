"""How likely tokens are under logits: the one formula of every loss, score and log-probability, in
JAX (`normalized`) and in NumPy (`_nats_in_numpy`).

With d = z − max z, the negative log-softmax of a token t is log Σ exp d − d_t. The maximum is not
added back. In float32, log Σ exp z − z_t loses what is smaller than the spacing of numbers as large
as z: at 1e9 this is 64, more than log V is of any vocabulary. d is exact, or off by 6e-8 of its
value; a token's nats are never below 0.

Logits with nan, with +inf or with −inf alone are no predictions: all nats are nan. A token with the
logit −inf, or one whose d is beyond float32 in JAX, has infinite nats. NumPy computes in float64.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

MAX_SUM_ERROR = 1e-5  # of probabilities from 1: more than float32 rounds at any vocabulary


class Normalized(NamedTuple):
    """Logits (…, V) in float32 with what their softmax is made of, by JAX."""

    logits: jax.Array  # (…, V)
    max: jax.Array  # (…, 1)
    exps: jax.Array  # (…, V) exp(logits − max)
    sums: jax.Array  # (…, 1) Σ of that over V

    def nats(self, logits_XK: jax.Array) -> jax.Array:
        """−log softmax of tokens with these of the logits, (…, K)."""
        return jnp.log(self.sums) - (logits_XK - self.max)

    def log_partition(self) -> jax.Array:
        """log Σ exp of the logits, (…, 1), for the z-loss alone: it is as coarse as the logits."""
        return self.max + jnp.log(self.sums)


def normalized(logits_XV: jax.Array) -> Normalized:
    """What losses and scores are made of. All but `max` may be differentiated."""
    # The logits as rounded: a compiler that computes one use of them in higher precision (by fused
    # multiply-add) and another not would give a token two different d.
    logits_XV = jax.lax.optimization_barrier(logits_XV.astype(jnp.float32))
    max_X1 = jax.lax.stop_gradient(jnp.max(logits_XV, axis=-1, keepdims=True))
    exps_XV = jnp.exp(logits_XV - max_X1)
    return Normalized(logits_XV, max_X1, exps_XV, jnp.sum(exps_XV, axis=-1, keepdims=True))


def log_probabilities(logits_XV: jax.Array) -> jax.Array:
    """The log-softmax (…, V) by JAX, in nats."""
    softmax = normalized(logits_XV)
    return -softmax.nats(softmax.logits)


def nats_of_targets(logits_XV: Any, targets_XK: Any) -> Any:
    """−log softmax(logits) of K tokens for each distribution, (…, K): of NumPy arrays in float64,
    of other arrays by JAX in float32."""
    by_numpy = isinstance(logits_XV, np.ndarray)
    return (_nats_in_numpy if by_numpy else _nats_in_jax)(logits_XV, targets_XK)


def sum_to_one(logits_XV: Any) -> np.ndarray:
    """Of each distribution (…,) whether the probabilities exp(−nats) of its V tokens, as
    `nats_of_targets` gives them, sum to 1. Of nan: no."""
    every_XV = np.broadcast_to(np.arange(logits_XV.shape[-1]), logits_XV.shape)
    nats_XV = np.asarray(nats_of_targets(logits_XV, every_XV), np.float64)
    return np.abs(np.exp(-nats_XV).sum(axis=-1) - 1) <= MAX_SUM_ERROR


@jax.jit
def _nats_in_jax(logits_XV: jax.Array, targets_XK: jax.Array) -> jax.Array:
    softmax = normalized(logits_XV)
    return softmax.nats(jnp.take_along_axis(softmax.logits, targets_XK, axis=-1))


def _nats_in_numpy(logits_XV: np.ndarray, targets_XK: np.ndarray) -> np.ndarray:
    if logits_XV.ndim > 2:  # by rows, whose float64 is small
        rows = zip(logits_XV, targets_XK, strict=True)
        return np.stack([_nats_in_numpy(*row) for row in rows])
    with np.errstate(invalid="ignore"):
        shifted_XV = logits_XV.astype(np.float64)
        shifted_XV -= logits_XV.max(axis=-1, keepdims=True)
    chosen_XK = np.take_along_axis(shifted_XV, targets_XK, axis=-1)
    sums_X1 = np.exp(shifted_XV, out=shifted_XV).sum(axis=-1, keepdims=True)
    return np.log(sums_X1) - chosen_XK
