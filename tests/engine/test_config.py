from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from engine.config import DataConfig, EvalConfig, ModelConfig, TrainConfig

MODEL = {
    "hidden_dim": 128,
    "intermediate_dim": 352,
    "num_layers": 4,
    "num_heads": 4,
    "seq_len": 256,
}
TRAIN = {"train_batch_size": 16, "num_train_steps": 160, "learning_rate": 0.003}


def refused(schema: type[BaseModel], values: dict[str, Any]) -> tuple[str, str]:
    """Field and message of the only complaint."""
    with pytest.raises(ValidationError) as raised:
        schema(**values)
    (error,) = raised.value.errors()
    return str(error["loc"][0]), error["msg"]


def test_what_is_left_out_has_the_stated_defaults() -> None:
    model, train = ModelConfig(**MODEL), TrainConfig(**TRAIN)
    assert (model.num_kv_heads, model.vocab_size, model.head_dim) == (4, 256, 32)
    assert train.checkpoint_every == 16
    assert TrainConfig(**{**TRAIN, "num_train_steps": 3}).checkpoint_every == 1
    assert EvalConfig().tokens == 16_384


def test_a_config_survives_json_and_is_a_key() -> None:
    for config in (ModelConfig(**MODEL), TrainConfig(**TRAIN, decay=0.2)):
        again = type(config).model_validate_json(config.model_dump_json())
        assert {config: "same"}[again] == "same"


@pytest.mark.parametrize("value", ["128", 128.0, True, 0, -1, 2**31])
def test_only_a_positive_integer_is_a_width(value: Any) -> None:
    field, _ = refused(ModelConfig, {**MODEL, "hidden_dim": value})
    assert field == "hidden_dim"


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        (
            {"num_heads": 3},
            "num_heads",
            "num_heads 3 does not divide hidden_dim 128; choose one of 1, 2, 4, 8, 16, 32, 64",
        ),
        (
            {"num_heads": 128},
            "num_heads",
            "num_heads 128 splits hidden_dim 128 into heads of an odd size, which rotary "
            "positions cannot turn in pairs; choose one of 1, 2, 4, 8, 16, 32, 64",
        ),
        ({"hidden_dim": 33, "num_heads": 3}, "num_heads", "make hidden_dim even"),
        (
            {"num_kv_heads": 3},
            "num_kv_heads",
            "num_kv_heads 3 does not divide num_heads 4; choose one of 1, 2, 4",
        ),
        ({"n_heads": 4}, "n_heads", "not permitted"),
    ],
)
def test_a_shape_that_cannot_work_is_refused_in_a_sentence(
    changes: dict[str, Any], field: str, sentence: str
) -> None:
    found, message = refused(ModelConfig, {**MODEL, **changes})
    assert found == field
    assert sentence in message


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"learning_rate": float("inf")}, "learning_rate", "finite"),
        ({"learning_rate": float("nan")}, "learning_rate", "finite"),
        ({"learning_rate": 0.0}, "learning_rate", "greater than 0"),
        ({"warmup": 1.0}, "warmup", "less than 1"),
        ({"optimizer": "sgd"}, "optimizer", "adamw"),
        (
            {"lr_schedule": "cosine", "decay": 0.2},
            "decay",
            "decay 0.2 goes with lr_schedule linear",
        ),
        ({"warmup": 0.5, "decay": 0.6}, "decay", "make their sum at most 1"),
        ({"checkpoint_every": 0}, "checkpoint_every", "greater than 0"),
    ],
)
def test_training_that_cannot_work_is_refused(
    changes: dict[str, Any], field: str, sentence: str
) -> None:
    found, message = refused(TrainConfig, {**TRAIN, **changes})
    assert found == field
    assert sentence in message


def test_warmup_and_decay_may_fill_the_run() -> None:
    assert TrainConfig(**TRAIN, warmup=0.7, decay=0.3).decay == 0.3


def test_data_needs_a_source() -> None:
    assert refused(DataConfig, {"source": ""})[0] == "source"
