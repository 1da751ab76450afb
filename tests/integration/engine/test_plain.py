"""Models and losses that are only functions train as the lab's own do."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.sampling import Sampler
from engine.model.decoder import Decoder, Params
from engine.model.loss import cross_entropy
from engine.model.plain import PlainConfig, PlainModel, loss_of_logits
from engine.training import evaluate
from engine.training.optim import Rates
from engine.training.train import train


@pytest.fixture(scope="module")
def tiny(tiny: ModelConfig) -> ModelConfig:
    return tiny.model_copy(update={"num_layers": 1})


@pytest.fixture(scope="module")
def dozen(dozen: TrainConfig) -> TrainConfig:
    return dozen.model_copy(update={"num_train_steps": 4, "checkpoint_every": 4})


def plain(config: ModelConfig) -> PlainModel:
    """The lab's decoder as two functions and its roles."""
    decoder = Decoder(config)
    shape = PlainConfig(config.vocab_size, config.seq_len)
    return PlainModel(decoder.init, decoder.logits, shape, decoder.roles)


def trained(model: Any, config: TrainConfig, tokens: np.ndarray, at: Path, **own: Any) -> Params:
    sampler = Sampler(tokens, 3, config.train_batch_size, model.config.seq_len)
    for _ in train(model, config, sampler, 3, at, **own):
        pass
    return evaluate.load_params(at / str(config.num_train_steps), model)


def test_the_loss_of_all_logits_is_the_one_of_chunks() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    x_TD, head_DV = jax.random.normal(keys[0], (24, 8)), jax.random.normal(keys[1], (8, 11))
    targets_BS = jax.random.randint(keys[2], (2, 12), -1, 11)
    terms = {"soft_cap": 3.0, "z_loss_weight": 0.01}

    def total(loss: Callable[..., Any], x: jax.Array, head: jax.Array) -> jax.Array:
        losses = loss(x, head, targets_BS, **terms)
        return losses.nats + losses.penalty

    def both(loss: Callable[..., Any]) -> Any:
        return jax.jit(jax.value_and_grad(partial(total, loss), (0, 1)))(x_TD, head_DV)

    for mine, theirs in zip(
        *(jax.tree.leaves(both(loss)) for loss in (loss_of_logits, cross_entropy)), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_an_own_loss_is_what_is_minimised_and_cross_entropy_what_is_told() -> None:
    logits_TV, targets_BS = (
        jax.random.normal(jax.random.key(0), (6, 5)),
        jnp.array([[1, 2, -1]] * 2),
    )

    def each(logits_BSV: jax.Array, targets_BS: jax.Array) -> jax.Array:
        return jnp.sum(logits_BSV**2, axis=2) * (1 + targets_BS)

    def total(logits_TV: jax.Array) -> jax.Array:
        losses = loss_of_logits(logits_TV, None, targets_BS, each=each)
        return losses.nats + losses.penalty

    nats = [
        jax.jit(partial(loss_of_logits, each=one))(logits_TV, None, targets_BS).nats
        for one in (None, each)
    ]
    assert nats[0] == nats[1]
    weights_T1 = np.array([2, 3, 0] * 2)[:, None]
    found, gradient = jax.jit(jax.value_and_grad(total))(logits_TV)
    np.testing.assert_allclose(found, np.sum(weights_T1 * logits_TV**2), rtol=1e-5)
    np.testing.assert_allclose(gradient, 2 * weights_T1 * logits_TV, rtol=1e-5)


def test_two_functions_train_as_the_decoder_that_they_are_of(
    tiny: ModelConfig, dozen: TrainConfig, tokens: np.ndarray, tmp_path: Path
) -> None:
    theirs = trained(Decoder(tiny), dozen, tokens, tmp_path / "theirs")
    mine = trained(plain(tiny), dozen, tokens, tmp_path / "mine", loss=loss_of_logits)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0.02, atol=1e-3), mine, theirs)


def test_an_own_optimizer_moves_by_the_rates_that_are_given(
    tiny: ModelConfig, dozen: TrainConfig, tokens: np.ndarray, tmp_path: Path
) -> None:
    """With rates 0 but for step 2 all is moved once, by that step's gradient."""
    rate = np.float32(0.5)
    params = trained(
        Decoder(tiny),
        dozen,
        tokens,
        tmp_path,
        optimizer=optax.sgd,
        rates=lambda step: Rates(*[rate * (step == 2)] * 2),
    )
    decoder = Decoder(tiny)
    start = jax.jit(decoder.init)(jax.random.key(3))
    batch = Sampler(tokens, 3, dozen.train_batch_size, tiny.seq_len).rows(2, range(2))

    def mean(params: Params) -> jax.Array:
        features = decoder.features(params, jnp.asarray(batch.inputs_BS))
        losses = cross_entropy(
            features, decoder.output_matrix(params), jnp.asarray(batch.targets_BS)
        )
        return losses.nats / losses.targets

    jax.tree.map(
        lambda p, p0, g: np.testing.assert_allclose(p, p0 - rate * g, rtol=1e-4, atol=1e-6),
        params,
        start,
        jax.jit(jax.grad(mean))(start),
    )
