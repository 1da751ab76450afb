"""The one formula of losses and scores, against arithmetic of 50 digits."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.model import scoring
from engine.model.log_likelihood import log_probabilities, nats_of_targets, sum_to_one
from engine.model.loss import cross_entropy
from engine.model.plain import loss_of_logits
from engine.training.evaluate import score

FLOAT32_MAX = float(np.finfo(np.float32).max)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
NEAR = st.floats(-30, 30, width=32)


@st.composite
def finite_logits(draw: st.DrawFn, sizes: tuple[int, ...]) -> np.ndarray:
    """(V,) float32: a few numbers of any size over and over, or drawn around an offset."""
    vocab, seed = draw(st.sampled_from(sizes)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    values = np.array(draw(st.lists(st.one_of(FINITE, NEAR), min_size=1, max_size=8)), np.float32)
    logits_V = rng.choice(values, vocab)
    if draw(st.booleans()):
        with np.errstate(over="ignore"):
            noisy_V = (logits_V + 3 * rng.standard_normal(vocab)).astype(np.float32)
        logits_V = np.where(np.isfinite(noisy_V), noisy_V, logits_V)
    return logits_V


def exact_nats(logits_V: np.ndarray) -> np.ndarray:
    """−log softmax in 50 digits, rounded to float64 at the end."""
    values, number_V, counts = np.unique(logits_V, return_inverse=True, return_counts=True)
    with mpmath.workdps(50):
        shifted = [mpmath.mpf(float(x)) - mpmath.mpf(float(values[-1])) for x in values]
        sums = mpmath.fsum(int(n) * mpmath.exp(d) for n, d in zip(counts, shifted, strict=True))
        nats = np.array([float(mpmath.log(sums) - d) for d in shifted])
    return nats[number_V]


def assert_exact(nats_V: Any, logits_V: np.ndarray, *, largest: float = math.inf) -> None:
    """Within 1e-5 or 1e-6 of the value; infinite where the value is beyond `largest`."""
    nats_V, exact_V = np.asarray(nats_V, np.float64), exact_nats(logits_V)
    beyond_V = exact_V > 0.999999 * largest
    assert (nats_V >= 0).all()
    assert (nats_V[beyond_V] > 0.999 * largest).all()
    error_V = np.abs(nats_V - exact_V)[~beyond_V]
    assert (error_V <= np.maximum(1e-5, 1e-6 * exact_V[~beyond_V])).all()
    assert abs(np.exp(-nats_V).sum() - 1) <= 1e-6


EXAMPLES = [
    np.full(8, 1e9, np.float32),
    np.full(4096, -3e38, np.float32),
    np.array([3e38, -3e38], np.float32),
    np.array([1e-45, 0, -1e-45], np.float32),
    np.array([1e4, 1e4], np.float32),  # pytorch#11752, mlx#4169
    np.array([1e4 + 2, 1e4 - 1], np.float32),  # mlx#4188
    np.array([17, 0], np.float32),  # pytorch#113708
]


@settings(deadline=None, max_examples=80)
@given(finite_logits((1, 2, 3, 31, 257, 1000, 3001)))
@example(EXAMPLES[0])
@example(EXAMPLES[1])
@example(EXAMPLES[2])
@example(EXAMPLES[3])
@example(EXAMPLES[4])
@example(EXAMPLES[5])
@example(EXAMPLES[6])
def test_scores_of_any_finite_logits_are_exact_and_their_probabilities_sum_to_1(
    logits_V: np.ndarray,
) -> None:
    every = np.arange(len(logits_V))
    assert_exact(nats_of_targets(logits_V, every), logits_V)
    in_jax = jnp.asarray(logits_V)
    assert_exact(nats_of_targets(in_jax, every), logits_V, largest=FLOAT32_MAX)
    assert_exact(-jax.jit(log_probabilities)(in_jax), logits_V, largest=FLOAT32_MAX)
    assert sum_to_one(logits_V)
    assert sum_to_one(in_jax)

    # Every token once as the target: of evaluation, in both kinds of arrays, and of benchmarks.
    tokens_NW = np.stack((np.zeros_like(every), every), axis=1)
    for logits in (logits_V, in_jax):
        nats = []
        for window in tokens_NW[:: max(1, len(every) // 5)]:
            found = score(
                lambda _, z=logits: z[None, None], window[None], np.ones((1, 1), bool), batch_size=1
            )
            nats.append((int(window[1]), found.loss))
        of, values = map(np.array, zip(*nats, strict=True))
        exact = exact_nats(logits_V)[of]
        near = np.abs(values - exact) <= np.maximum(1e-5, 1e-6 * exact)
        assert (near | (np.isinf(values) & (exact > 0.999999 * FLOAT32_MAX))).all()
    asked = [scoring.Continuation(np.array([0, token]), 1) for token in every]
    answers = scoring.score_from(
        lambda tokens_BS: np.broadcast_to(logits_V, (*tokens_BS.shape, len(logits_V))), asked, 64, 1
    )
    assert_exact([-float(answer.logprobs[0]) for answer in answers], logits_V)


@settings(deadline=None, max_examples=40)
@given(finite_logits((1, 2, 31, 257)))
@example(EXAMPLES[0])
@example(EXAMPLES[2])
@example(EXAMPLES[4])
def test_the_training_losses_of_any_finite_logits_are_as_exact(logits_V: np.ndarray) -> None:
    every = jnp.arange(len(logits_V))
    one = jnp.ones((1, 1))  # 1 · z is z
    for nats_of in (_of_chunks, _of_all_logits):
        nats_V = nats_of(one, jnp.asarray(logits_V)[None], every)
        assert_exact(nats_V, logits_V, largest=FLOAT32_MAX)


@jax.jit
def _of_chunks(one: jax.Array, head_DV: jax.Array, every: jax.Array) -> jax.Array:
    return jax.vmap(lambda target: cross_entropy(one, head_DV, target[None, None]).nats)(every)


@jax.jit
def _of_all_logits(_: jax.Array, head_DV: jax.Array, every: jax.Array) -> jax.Array:
    return jax.vmap(lambda target: loss_of_logits(head_DV, None, target[None, None]).nats)(every)


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
@pytest.mark.parametrize(
    ("logits", "nats"),
    [
        ([math.inf, 0, 0], [math.nan] * 3),
        ([math.inf, math.inf, 0], [math.nan] * 3),
        ([math.nan, 0, 0], [math.nan] * 3),
        ([-math.inf] * 3, [math.nan] * 3),  # jax#6811
        ([math.inf, -math.inf, 0], [math.nan] * 3),
        ([-math.inf, 0, 0], [math.inf, math.log(2), math.log(2)]),
        ([-math.inf, -math.inf, -3e38], [math.inf, math.inf, 0]),
    ],
)
def test_infinities_are_infinite_or_no_number_and_never_a_good_score(
    array: Any, logits: list[float], nats: list[float]
) -> None:
    logits_V = array(np.array(logits, np.float32))
    np.testing.assert_allclose(nats_of_targets(logits_V, np.arange(3)), nats, rtol=1e-6)
    assert sum_to_one(logits_V) == (not math.isnan(nats[0]))


def test_what_is_beyond_float32_is_infinite_in_jax_and_finite_in_numpy() -> None:
    logits_V = np.array([3e38, -3e38], np.float32)
    np.testing.assert_allclose(nats_of_targets(logits_V, np.arange(2)), [0, 6e38], rtol=1e-6)
    assert list(nats_of_targets(jnp.asarray(logits_V), np.arange(2))) == [0, math.inf]


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e9, -1e9])
def test_gradients_are_those_of_the_softmax_at_any_offset(offset: float) -> None:
    logits_V = jnp.full(16, offset) + jnp.where(jnp.arange(16) < 8, 0, -64)
    gradients = [
        jax.grad(lambda z: loss_of_logits(z[None], None, jnp.array([[3]])).nats)(logits_V),
        jax.grad(lambda z: cross_entropy(jnp.ones((1, 1)), z[None], jnp.array([[3]])).nats)(
            logits_V
        ),
    ]
    for gradient_V in gradients:
        expected_V = np.where(np.arange(16) < 8, 1 / 8, 0) - (np.arange(16) == 3)
        np.testing.assert_allclose(gradient_V, expected_V, atol=1e-6)
