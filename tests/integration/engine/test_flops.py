"""Of `test_flops.py` what needs a process, a socket or a compilation."""

import jax
import pytest

from engine.config.flops import parameters
from engine.config.schema import ModelConfig
from engine.config.shapes import shapes
from engine.model.decoder import Decoder
from engine.training.digest import leaves


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_kv_heads": 4, "head_dim": 6},
        {"qk_norm": "learned"},
        {"qk_norm": "rms"},
    ],
)
def test_the_count_is_the_size_of_the_real_model(tiny: ModelConfig, changes: dict) -> None:
    model = ModelConfig(**{**tiny.model_dump(), **changes})
    drawn = leaves(jax.eval_shape(Decoder(model).init, jax.random.key(0)))
    assert parameters(model) == sum(leaf.size for leaf in drawn.values())
    assert shapes(model) == {path: leaf.shape for path, leaf in drawn.items()}
