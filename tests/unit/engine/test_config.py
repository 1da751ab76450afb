from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from engine.config.flops import parameters
from engine.config.model_config import SHAPE
from engine.config.schema import (
    ComputeConfig,
    DataConfig,
    EvalConfig,
    MeshConfig,
    ModelConfig,
    TrainConfig,
    span_steps,
)

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


def test_missing_keys_have_the_stated_defaults() -> None:
    model, train = ModelConfig(**MODEL), TrainConfig(**TRAIN)
    assert (model.num_kv_heads, model.vocab_size, model.head_dim) == (4, 256, 32)
    assert train.checkpoint_every == 16
    assert TrainConfig(**{**TRAIN, "num_train_steps": 3}).checkpoint_every == 1
    assert EvalConfig().tokens == 16_384


def test_a_config_survives_json_and_is_a_key() -> None:
    configs: list[BaseModel] = [
        ModelConfig(**MODEL),
        ModelConfig(depth=2, seq_len=8),
        TrainConfig(**TRAIN, lr_schedule="wsd", decay=0.2),
        TrainConfig(**TRAIN, lr_schedule="wsd", decay=3, warmup=1.0 / 3),
        ComputeConfig(mesh=MeshConfig(fsdp=8), dtype="bfloat16"),
    ]
    for config in configs:
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
        ({"head_dim": 5}, "head_dim", "head_dim 5 is odd, and rotary positions turn"),
        ({"sliding_window": 257}, "sliding_window", "longer than seq_len 256"),
        ({"sliding_window": 1}, "sliding_window", "queries and keys change nothing"),
        ({"size": "130M"}, "size", "'130m', '300m', '520m' or '1.2b'"),
        (
            {"size": "130m", "depth": 2, "num_kv_heads": 4},
            "depth",
            "size 130m and depth 2 both name a shape",
        ),
        ({"logit_soft_cap": 0.0}, "logit_soft_cap", "greater than 0"),
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
        ({"warmup": 1.0}, "warmup", "warmup 1.0 is the whole run of 160 steps"),
        ({"warmup": 160}, "warmup", "warmup 160 is the whole run of 160 steps"),
        ({"warmup": 1.5}, "warmup", "neither a fraction of the run"),
        ({"warmup": -1}, "warmup", "write 0 or more"),
        ({"warmup": "soon"}, "warmup", "a number"),
        ({"warmup": True}, "warmup", "a number"),
        ({"optimizer": "sgd"}, "optimizer", "adamw"),
        (
            {"lr_schedule": "cosine", "decay": 0.2},
            "decay",
            "decay 0.2 goes with lr_schedule wsd only, and lr_schedule is cosine",
        ),
        ({"decay": 20}, "decay", "remove decay or write lr_schedule: wsd"),
        (
            {"lr_schedule": "wsd", "warmup": 0.5, "decay": 90},
            "decay",
            "warmup 0.5 and decay 90 are more than the whole run of 160 steps together",
        ),
        ({"lr_schedule": "wsd", "warmup": 80, "decay": 81}, "decay", "make one of them shorter"),
        ({"epsilon": 1e-60}, "epsilon", "greater than or equal to 0.000"),
        ({"beta2": 1 - 1e-12}, "beta2", "less than or equal to 0.999999"),
        ({"adam_learning_rate": 1.0}, "adam_learning_rate", "adamw has one rate for everything"),
        (
            {"gradient_accumulation_steps": 3},
            "gradient_accumulation_steps",
            "3 does not divide train_batch_size 16; choose one of 1, 2, 4, 8, 16",
        ),
        ({"checkpoint_every": 0}, "checkpoint_every", "greater than 0"),
        ({"momentum": 0.9}, "momentum", "optimizer is adamw, which has beta1; remove momentum"),
        ({"newton_schulz": "quintic"}, "newton_schulz", "optimizer is adamw; remove newton_schulz"),
        (
            {"optimizer": "adamh", "weight_decay": 0.1},
            "weight_decay",
            "weight_decay 0.1 does nothing under optimizer adamh",
        ),
        (
            {"num_train_steps": 64, "spike_sigma": 4.0},
            "spike_sigma",
            "compares with the last 64 good steps, and the run has only 64 steps",
        ),
    ],
)
def test_training_that_cannot_work_is_refused(
    changes: dict[str, Any], field: str, sentence: str
) -> None:
    found, message = refused(TrainConfig, {**TRAIN, **changes})
    assert found == field
    assert sentence in message


def test_warmup_and_decay_may_fill_the_run() -> None:
    assert TrainConfig(**TRAIN, lr_schedule="wsd", warmup=0.7, decay=0.3).decay == 0.3
    assert TrainConfig(**TRAIN, lr_schedule="wsd", warmup=100, decay=60).decay == 60


def test_a_span_is_a_fraction_or_a_number_of_steps() -> None:
    assert [span_steps(span, 160) for span in (0.1, 1, 1.0, 0, 100)] == [16, 1, 160, 0, 100]
    assert [span_steps(span, 5) for span in (0.1, 0.3, 0.5)] == [0, 2, 2], "ties to even"


def test_a_dependent_default_follows_its_choice() -> None:
    wsd, muon = (
        TrainConfig(**TRAIN, **choice) for choice in ({"lr_schedule": "wsd"}, {"optimizer": "muon"})
    )
    assert (wsd.decay, TrainConfig(**TRAIN).decay) == (0.2, None)
    assert (muon.adam_learning_rate, wsd.adam_learning_rate) == (0.003, None)
    assert (muon.momentum, wsd.momentum) == (0.95, None)
    assert (TrainConfig(**TRAIN, optimizer="muonh").weight_decay, muon.weight_decay) == (0.0, 0.1)


def test_a_shape_can_be_named_by_its_size() -> None:
    # The public speedrun's table: hidden, intermediate (3.5 ×), layers, heads, key/value heads.
    for size, shape in {
        "130m": (512, 1792, 6, 8, 8),
        "300m": (768, 2688, 12, 12, 12),
        "520m": (1024, 3584, 24, 16, 8),
        "1.2b": (2048, 7168, 16, 16, 8),
    }.items():
        model = ModelConfig(size=size, seq_len=4096)
        assert tuple(getattr(model, name) for name in SHAPE) == shape
        assert model == ModelConfig(**dict(zip(SHAPE, shape, strict=True)), seq_len=4096)


def test_a_key_beside_a_name_wins() -> None:
    model = ModelConfig(size="130m", num_kv_heads=2, seq_len=64)
    assert (model.num_heads, model.num_kv_heads, model.head_dim) == (8, 2, 64)


@pytest.mark.parametrize("depth", [1, 2, 3, 12])
def test_one_dial_makes_a_ladder_by_the_stated_formula(depth: int) -> None:
    model = ModelConfig(depth=depth, seq_len=64, vocab_size=7)
    assert (model.num_layers, model.num_heads, model.head_dim) == (depth, depth, 64)
    beside_matrices = 2 * 7 * model.hidden_dim + (2 * depth + 1) * model.hidden_dim
    assert parameters(model) - beside_matrices == 59_392 * depth**3


def test_without_a_name_the_missing_keys_are_asked_for() -> None:
    with pytest.raises(ValidationError) as raised:
        ModelConfig(seq_len=8, hidden_dim=16)
    missing = {str(error["loc"][0]): error["msg"] for error in raised.value.errors()}
    assert missing.keys() == {"intermediate_dim", "num_layers", "num_heads"}
    assert "write it, or size, or depth" in missing["num_layers"]


def test_data_needs_a_source() -> None:
    assert refused(DataConfig, {"source": ""})[0] == "source"
