from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from engine.model import loss
from engine.model.loss import Losses, cross_entropy

B, S, D, V = 3, 10, 8, 32

draw = np.random.default_rng(0)
X_TD = draw.standard_normal((B * S, D)).astype(np.float32)
HEAD_DV = draw.standard_normal((D, V)).astype(np.float32)
TARGETS_BS = draw.integers(0, V, (B, S))
SOME_BS = np.where(draw.random((B, S)) < 0.3, -1, TARGETS_BS)


def plain(
    x_TD: jax.Array,
    head_DV: jax.Array,
    targets_BS: jax.Array,
    *,
    soft_cap: float | None = None,
    z_loss_weight: float = 0.0,
) -> Losses:
    """The definition, with all logits and autodiff for its gradient."""
    logits_TV = x_TD @ head_DV
    if soft_cap is not None:
        logits_TV = soft_cap * jnp.tanh(logits_TV / soft_cap)
    targets_T = targets_BS.reshape(-1)
    lse_T = jax.nn.logsumexp(logits_TV, axis=1)
    nats_T = lse_T - logits_TV[jnp.arange(len(targets_T)), targets_T]
    scored_T = targets_T >= 0
    return Losses(
        jnp.sum(nats_T, where=scored_T),
        z_loss_weight * jnp.sum(lse_T**2, where=scored_T),
        jnp.sum(scored_T).astype(jnp.float32),
    )


def objective(how: Any, x_TD: jax.Array, head_DV: jax.Array, targets_BS: jax.Array) -> jax.Array:
    losses = how(x_TD, head_DV, targets_BS)
    return (losses.nats + losses.penalty) / losses.targets


@pytest.mark.parametrize("chunk", [4, None])  # 10 positions: the last chunk is not full
@pytest.mark.parametrize(
    ("targets", "options"),
    [
        (TARGETS_BS, {}),
        (SOME_BS, {}),
        (SOME_BS, {"soft_cap": 3.0}),
        (SOME_BS, {"z_loss_weight": 0.1}),
        (TARGETS_BS, {"soft_cap": 3.0, "z_loss_weight": 0.1}),
    ],
)
def test_losses_and_their_gradients_are_those_of_the_definition(
    targets: np.ndarray, options: dict, chunk: int | None
) -> None:
    ours, theirs = partial(cross_entropy, **options, chunk=chunk), partial(plain, **options)
    for mine, yours in zip(
        jax.jit(ours)(X_TD, HEAD_DV, targets), theirs(X_TD, HEAD_DV, targets), strict=True
    ):
        np.testing.assert_allclose(mine, yours, rtol=1e-5)
    gradients = [
        jax.jit(jax.value_and_grad(partial(objective, how), argnums=(0, 1)))(X_TD, HEAD_DV, targets)
        for how in (ours, theirs)
    ]
    for mine, yours in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-5, atol=1e-7)


def test_targets_that_are_not_scored_count_nothing_and_move_nothing() -> None:
    losses = cross_entropy(X_TD, HEAD_DV, np.full((B, S), -1), z_loss_weight=0.1)
    assert losses == Losses(0, 0, 0)
    moved = jax.grad(partial(objective_sum, SOME_BS))(X_TD).reshape(B, S, D)
    np.testing.assert_array_equal((moved != 0).any(axis=2), SOME_BS >= 0)


def objective_sum(targets_BS: np.ndarray, x_TD: jax.Array) -> jax.Array:
    losses = cross_entropy(x_TD, HEAD_DV, targets_BS, z_loss_weight=0.1)
    return losses.nats + losses.penalty


def test_halves_of_a_batch_add_up_to_the_whole() -> None:
    whole = cross_entropy(X_TD, HEAD_DV, SOME_BS, z_loss_weight=0.1)
    first = cross_entropy(X_TD[:S], HEAD_DV, SOME_BS[:1], z_loss_weight=0.1)
    rest = cross_entropy(X_TD[S:], HEAD_DV, SOME_BS[1:], z_loss_weight=0.1)
    for parts, one in zip(zip(first, rest, strict=True), whole, strict=True):
        np.testing.assert_allclose(sum(parts), one, rtol=1e-6)


def test_products_are_in_half_precision_where_the_features_are_and_sums_are_not() -> None:
    x_TD, head_DV = X_TD.astype(jnp.bfloat16), HEAD_DV.astype(jnp.bfloat16)
    both = jax.value_and_grad(partial(objective, cross_entropy), argnums=(0, 1))
    value, (dx_TD, dhead_DV) = both(x_TD, head_DV, SOME_BS)
    assert (value.dtype, dx_TD.dtype, dhead_DV.dtype) == (jnp.float32, jnp.bfloat16, jnp.bfloat16)
    wide = (x.astype(np.float32) for x in (x_TD, head_DV))
    expected, wide_gradients = both(*wide, SOME_BS)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)  # rounded inputs, not sums
    for mine, yours in zip((dx_TD, dhead_DV), wide_gradients, strict=True):
        np.testing.assert_allclose(mine.astype(np.float32), yours, rtol=0.02, atol=1e-3)


def test_a_gradient_that_weighs_nats_and_penalty_differently_is_refused_as_nan() -> None:
    def nats_alone(x_TD: jax.Array, z_loss_weight: float) -> jax.Array:
        return cross_entropy(x_TD, HEAD_DV, TARGETS_BS, z_loss_weight=z_loss_weight).nats

    assert np.isnan(jax.grad(nats_alone)(X_TD, 0.1)).all()
    assert np.isfinite(jax.grad(nats_alone)(X_TD, 0.0)).all()


@pytest.mark.parametrize("batch", [1, 8])
def test_no_array_ever_holds_all_logits(batch: int) -> None:
    seq_len, vocab = 64, 512  # all others, the output matrix among them, are smaller than logits
    x = jax.ShapeDtypeStruct((batch * seq_len, D), jnp.float32)
    head = jax.ShapeDtypeStruct((D, vocab), jnp.float32)
    targets = jax.ShapeDtypeStruct((batch, seq_len), jnp.int32)

    def largest(how: Any) -> int:
        train = jax.value_and_grad(partial(objective, how), argnums=(0, 1))
        return max(sizes(jax.make_jaxpr(train)(x, head, targets).jaxpr))

    assert largest(plain) == batch * seq_len * vocab
    assert largest(cross_entropy) == batch * seq_len * vocab / 4


def sizes(jaxpr: Any) -> Iterator[int]:
    """The sizes of all arrays that a program makes, in loops and calls too."""
    for equation in jaxpr.eqns:
        yield from (out.aval.size for out in equation.outvars)
        for inner in jaxprs_in_params(equation.params):
            yield from sizes(inner)


@pytest.mark.parametrize(
    ("platform", "shape", "chunks"),
    [
        ("cpu", (16, 256, 256), 4),
        ("cpu", (8, 256, 4096), 4),
        ("cpu", (8, 256, 50_304), 43),
        ("gpu", (32, 1024, 50_304), 7),
        ("gpu", (16, 4096, 50_304), 13),
        ("tpu", (8, 1024, 256), 4),
    ],
)
def test_chunks_suit_the_platform(
    platform: str, shape: tuple[int, int, int], chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    positions = loss._positions(*shape)
    assert -(-shape[1] // positions) == chunks
