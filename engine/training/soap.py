"""SOAP (Vyas et al., 2024, arXiv 2409.11321): Adam in the eigenbasis of Shampoo's factors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

EVERY = 10  # steps between two updates of the bases
KEEP, REFRESH, FIRST = range(3)  # what a step does with the bases


class Factors(NamedTuple):
    """Of a gradient G (…, I, O): running means of G·Gᵀ and Gᵀ·G, and orthogonal bases in whose
    first columns these are largest."""

    left_II: jax.Array
    right_OO: jax.Array
    left_basis_II: jax.Array
    right_basis_OO: jax.Array


class SoapState(NamedTuple):
    steps: jax.Array  # so far
    mu: Any  # mean of the gradients
    nu: Any  # mean of their squares, in the bases
    factors: Any


def scale_by_soap(beta1: float, beta2: float, epsilon: float) -> optax.GradientTransformation:
    """SOAP's direction for each matrix, the last two axes.

    The factors are L = mean of G·Gᵀ and R = mean of Gᵀ·G, both with decay `beta2`. In their bases
    P and Q, Adam runs on Pᵀ·G·Q, and its direction is rotated back. The first step only fills the
    factors, takes their eigenvectors, and has the direction 0. After each tenth step later, as in
    the authors' code (`soap.py` of nikhilvyas/SOAP), the columns of P are sorted by the diagonal of
    Pᵀ·L·P, the largest first, those of Q likewise, and the mean of squares with them; then the
    bases take a step of the power iteration: P ← qr(L·P), Q ← qr(R·Q).
    """

    def init(params: Any) -> SoapState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return SoapState(jnp.zeros((), jnp.int32), zeros, zeros, jax.tree.map(_none_yet, params))

    def update(grads: Any, state: SoapState, _: Any = None) -> tuple[Any, SoapState]:
        t = state.steps  # how often the moments have moved, with this step
        begun = t > 0

        def one(g: jax.Array, mu: jax.Array, nu: jax.Array, of: Factors) -> tuple[jax.Array, ...]:
            mu = jnp.where(begun, beta1 * mu + (1 - beta1) * g, mu)
            nu = jnp.where(begun, beta2 * nu + (1 - beta2) * _into(of, g) ** 2, nu)
            mean = _into(of, mu) / jnp.where(begun, 1 - beta1**t, 1)
            root = (jnp.sqrt(nu) + epsilon) / jnp.sqrt(jnp.where(begun, 1 - beta2**t, 1))
            return _out_of(of, mean / root), mu, nu

        doing = jnp.where(begun, jnp.where(t % EVERY == 0, REFRESH, KEEP), FIRST)

        def turned(g: jax.Array, nu: jax.Array, factors: Factors) -> tuple[Factors, jax.Array]:
            left = beta2 * factors.left_II + (1 - beta2) * g @ _transposed(g)
            right = beta2 * factors.right_OO + (1 - beta2) * _transposed(g) @ g
            bases = factors.left_basis_II, factors.right_basis_OO

            def refreshed() -> tuple[jax.Array, ...]:
                rows, columns = _order(left, bases[0]), _order(right, bases[1])
                sorted_nu = jnp.take_along_axis(nu, _transposed(rows), axis=-2)
                return (
                    _qr(left @ jnp.take_along_axis(bases[0], rows, axis=-1)),
                    _qr(right @ jnp.take_along_axis(bases[1], columns, axis=-1)),
                    jnp.take_along_axis(sorted_nu, columns, axis=-1),
                )

            *bases, nu = jax.lax.switch(
                doing,
                [
                    lambda: (*bases, nu),
                    refreshed,
                    lambda: (_eigenvectors(left), _eigenvectors(right), nu),
                ],
            )
            return Factors(left, right, *bases), nu

        def take(trees: Any, at: int) -> Any:
            return jax.tree.map(lambda _, leaf: leaf[at], grads, trees)

        with jax.default_matmul_precision("highest"):
            moved = jax.tree.map(one, grads, state.mu, state.nu, state.factors)
            refreshed = jax.tree.map(turned, grads, take(moved, 2), state.factors)
        moments = take(moved, 1), take(refreshed, 1), take(refreshed, 0)
        return take(moved, 0), SoapState(t + 1, *moments)

    return optax.GradientTransformation(init, update)


def _none_yet(p_IO: jax.Array) -> Factors:
    *leading, rows, columns = p_IO.shape
    left, right = (jnp.zeros((*leading, n, n), p_IO.dtype) for n in (rows, columns))
    return Factors(left, right, left, right)


def _into(of: Factors, g_IO: jax.Array) -> jax.Array:
    return _transposed(of.left_basis_II) @ g_IO @ of.right_basis_OO


def _out_of(of: Factors, g_IO: jax.Array) -> jax.Array:
    return of.left_basis_II @ g_IO @ _transposed(of.right_basis_OO)


def _order(factor: jax.Array, basis: jax.Array) -> jax.Array:
    """The numbers of a basis's columns (…, 1, n), the one that the factor stretches most first."""
    stretch = jnp.sum(basis * (factor @ basis), axis=-2, keepdims=True)
    return jnp.argsort(stretch, axis=-1, descending=True)


def _transposed(x: jax.Array) -> jax.Array:
    return jnp.swapaxes(x, -1, -2)


def _qr(x: jax.Array) -> jax.Array:
    return _each(lambda x: jnp.linalg.qr(x)[0], x)


def _eigenvectors(x: jax.Array) -> jax.Array:
    return _each(lambda x: jnp.linalg.eigh(x)[1][..., ::-1], x)  # the largest first


def _each(factored: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Of each matrix. On a CPU one after another: jaxlib spreads a batch over the threads on which
    the call itself runs, and waits for them. Two such calls at once on two threads wait for each
    other forever (jaxlib 0.10.2, `ParallelBatchMap`; a batch of one does not use the threads).
    """

    def in_turn(x: jax.Array) -> jax.Array:
        return jax.lax.map(factored, x.reshape(-1, *x.shape[-2:])).reshape(x.shape)

    return jax.lax.platform_dependent(x, cpu=in_turn, default=factored)
