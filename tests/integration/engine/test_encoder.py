"""The encoder: both directions, no influence of padding, and what it can learn that no count of
words can."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.config.schema import ModelConfig
from engine.model.encoder import Encoder
from engine.training.regression import Documents, Recipe, fit, scores
from runner.worker.selection import ridge_classifier

SHAPE = ModelConfig(
    hidden_dim=16,
    intermediate_dim=32,
    num_layers=1,
    num_heads=2,
    seq_len=8,
    vocab_size=12,
    tie_word_embeddings=True,
)
ENCODER = Encoder(SHAPE)


@pytest.fixture(scope="module")
def params() -> dict[str, jax.Array]:
    drawn = jax.random.normal(jax.random.key(1), (SHAPE.hidden_dim,))
    return {**ENCODER.init(jax.random.key(0)), "score": drawn}


def test_each_position_counts_and_padding_does_not(params: dict[str, jax.Array]) -> None:
    tokens = np.arange(8, dtype=np.int32)[None].repeat(4, 0)
    tokens[1, 0] = tokens[2, 4] = tokens[3, 6] = 11
    found = np.asarray(scores(ENCODER, params, tokens, np.full(4, 5, np.int32)))
    assert found[0] != pytest.approx(found[1], abs=1e-7)
    assert found[0] != pytest.approx(found[2], abs=1e-7)
    assert found[0] == pytest.approx(found[3], abs=1e-7)
    assert np.isfinite(scores(ENCODER, params, tokens, np.zeros(4, np.int32))).all()


def test_the_first_position_sees_the_last(params: dict[str, jax.Array]) -> None:
    tokens = jnp.arange(8, dtype=jnp.int32)[None]
    rest = {name: of for name, of in params.items() if name != "score"}
    inside = jnp.ones((1, 8), jnp.int32)
    one = ENCODER.decoder.features(rest, tokens, inside)
    other = ENCODER.decoder.features(rest, tokens.at[0, 7].set(11), inside)
    assert float(jnp.abs(one[0] - other[0]).max()) > 1e-5


def test_it_learns_the_order_of_words() -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(3, 12, (256, 8)).astype(np.int32)
    at = np.array([random.choice(8, 2, replace=False) for _ in tokens])
    targets = np.where(at[:, 0] < at[:, 1], 1.0, -1.0).astype(np.float32)  # 1 before 2
    rows = np.arange(256)
    tokens[rows, at[:, 0]], tokens[rows, at[:, 1]] = 1, 2
    documents = Documents(tokens, np.full(256, 8, np.int32))
    recipe = Recipe(epochs=30, batch_size=32, learning_rate=1e-2, weight_decay=0.0, seed=0)
    learned = fit(
        ENCODER, Documents(tokens[:192], documents.lengths_N[:192]), targets[:192], recipe
    )
    found = np.asarray(scores(ENCODER, learned, tokens[192:], documents.lengths_N[192:]))
    assert np.mean((found > 0) == (targets[192:] > 0)) > 0.85
    again = fit(ENCODER, Documents(tokens[:192], documents.lengths_N[:192]), targets[:192], recipe)
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), learned, again))


def test_ridge_is_least_squares_with_a_penalty_on_what_varies() -> None:
    random = np.random.default_rng(0)
    features = random.normal(3, [1, 10, 0], (200, 3))
    labels = features @ [2, -0.1, 5] + 7
    weights = ridge_classifier.fit(features, labels, 1e-9)
    assert features @ weights[:-1] + weights[-1] == pytest.approx(labels, abs=1e-5)
    heavy = ridge_classifier.fit(features, labels, 1e9)
    assert features @ heavy[:-1] + heavy[-1] == pytest.approx(labels.mean(), abs=1e-5)
    x = (features - features.mean(0)) / np.where(features.std(0) > 0, features.std(0), 1)
    stacked = np.vstack([x, np.sqrt(0.5 * 200) * np.eye(3)])
    wanted, *_ = np.linalg.lstsq(stacked, np.append(labels - labels.mean(), np.zeros(3)))
    found = ridge_classifier.fit(features, labels, 0.5)
    assert features @ found[:-1] + found[-1] == pytest.approx(x @ wanted + labels.mean())
