"""A model so tiny that it compiles in seconds, with grouped queries, and a text it can learn."""

from collections.abc import Callable

import jax
import numpy as np
import pytest

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.lab_texts import Text
from engine.model.decoder import Decoder, Params


@pytest.fixture(scope="session")
def tiny() -> ModelConfig:
    return ModelConfig(
        hidden_dim=16, intermediate_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, seq_len=16
    )


@pytest.fixture(scope="session")
def dozen() -> TrainConfig:
    """A dozen steps, with a checkpoint after every second one."""
    return TrainConfig(
        train_batch_size=2, num_train_steps=12, learning_rate=0.01, warmup=0.1, checkpoint_every=2
    )


@pytest.fixture(scope="session")
def fresh() -> Callable[[ModelConfig, int], Params]:
    """Parameters for (model, seed), larger than they begin, so that every part of it matters."""
    draw = jax.jit(Decoder.init, static_argnums=0)
    return lambda model, seed: jax.tree.map(
        lambda x: np.array(x * 8), draw(Decoder(model), jax.random.key(seed))
    )


@pytest.fixture(scope="session")
def text() -> Text:
    return Text("rowing.txt", b"row, row, row your boat\n" * 40, b"gently down the stream\n" * 20)


@pytest.fixture(scope="session")
def tokens(text: Text) -> np.ndarray:
    return np.frombuffer(text.train, np.uint8)
