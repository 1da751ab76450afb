"""Named recipes: what they fill in, from the figures of their sources."""

from typing import Any

import pytest

from engine.config.recipes import RECIPES, filled
from engine.config.schema import ModelConfig, TrainConfig


def given(recipe: str, d: int = 1024, windows: int = 64, steps: int = 9537) -> dict[str, Any]:
    return {
        "model": {"hidden_dim": d, "seq_len": 4096},
        "train": {"recipe": recipe, "train_batch_size": windows, "num_train_steps": steps},
    }


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("d", [32, 100, 512, 2048])
def test_each_recipe_is_a_whole_declaration_at_any_width(recipe: str, d: int) -> None:
    config = filled(given(recipe, d))
    model, train = ModelConfig(**config["model"]), TrainConfig(**config["train"])
    assert model.hidden_dim == d
    assert train.recipe is None, "equal runs are equal configurations"


def test_delphi_has_its_reference_rates_at_its_reference_horizon() -> None:
    config = filled(given("delphi"))  # 64 windows of 4,096 tokens, 2.5 billion of them
    train = config["train"]
    assert (train["optimizer"], train["lr_schedule"]) == ("adamh", "wsd")
    assert (train["learning_rate"], train["adam_learning_rate"]) == (0.0063, 0.000656)
    assert (train["epsilon"], train["beta2"]) == (1.85e-8, 0.9999)
    assert config["model"] == {
        **{"hidden_dim": 1024, "seq_len": 4096, "num_layers": 11, "intermediate_dim": 4096},
        **{"num_heads": 8, "num_kv_heads": 8, "qk_norm": "learned"},
    }
    later = filled(given("delphi", windows=256))["train"]  # 4 times the batch and the tokens
    assert later["learning_rate"] == pytest.approx(0.0063 * 2 * 0.25**0.3, 1e-2)
    assert later["adam_learning_rate"] == 0.000656, "the batch is the same share of the run"


def test_marins_experts_have_its_rates() -> None:
    config = filled(given("marin-moe", d=512, windows=32, steps=4000))
    train, moe = config["train"], config["model"]["moe"]
    adam = 0.06602 * (32 * 4096 * 4000) ** -0.395 * 512**-0.150 * (32 * 4096) ** 0.5
    assert train["adam_learning_rate"] == pytest.approx(adam, 1e-2)
    assert train["learning_rate"] == pytest.approx(13 / 3 * adam, 1e-2)
    assert (moe["num_experts"], moe["top_k"], moe["expert_dim"]) == (256, 4, 256)
    assert (train["min_lr_ratio"], train["beta2"]) == (0.05, 0.999)
    assert (train["optimizer"], train["newton_schulz"]) == ("muonh", "quintic"), "as in Levanter"


def test_what_is_declared_wins_and_takes_what_belongs_to_it_along() -> None:
    config = given("delphi")
    config["train"] |= {"optimizer": "adamw", "lr_schedule": "constant", "learning_rate": 0.5}
    config["model"] |= {"moe": {"num_experts": 4, "top_k": 2, "expert_dim": 64}}
    found = filled(config)
    train = TrainConfig(**found["train"])
    assert (train.optimizer, train.learning_rate, train.lr_schedule) == ("adamw", 0.5, "constant")
    assert ModelConfig(**found["model"]).moe is not None
    dense = given("marin-moe")
    dense["model"]["intermediate_dim"] = 2048
    dense["train"]["optimizer"] = "adamh"
    found = filled(dense)
    assert ModelConfig(**found["model"]).moe is None
    assert TrainConfig(**found["train"]).newton_schulz == "simple"
    named = given("marin-8b")
    named["model"] = {"depth": 4, "seq_len": 64}
    named["train"]["optimizer"] = "muonh"
    found = filled(named)
    assert found["model"] == named["model"]
    assert TrainConfig(**found["train"]).weight_decay == 0


def test_an_own_model_keeps_its_keys() -> None:
    own = {**given("delphi"), "own": {"model": "mine:model"}}
    assert filled(own)["model"] == own["model"]
    assert filled(own)["train"]["optimizer"] == "adamh"


def test_marins_32b_has_its_shape() -> None:
    model = filled(given("marin-32b", d=5120))["model"]
    assert (model["num_layers"], model["intermediate_dim"]) == (64, 27_648)
    assert (model["num_heads"], model["num_kv_heads"]) == (40, 8)


def test_heads_share_keys_as_the_sources_have_it() -> None:
    shared = {d: filled(given("marin-moe", d=d))["model"]["num_kv_heads"] for d in (768, 1280, 640)}
    assert shared == {768: 1, 1280: 2, 640: 1}
    assert filled(given("marin-moe", d=640))["model"]["moe"]["expert_dim"] == 384
    own = given("delphi", d=512)
    own["model"]["num_heads"] = 2
    assert ModelConfig(**filled(own)["model"]).num_kv_heads == 2


def test_rates_are_capped_and_count_all_phases() -> None:
    small = given("delphi", d=512, windows=64, steps=200)
    small["model"]["seq_len"] = 1024
    assert filled(small)["train"]["learning_rate"] == 0.01
    grown = given("delphi", windows=64, steps=100)
    grown["train"]["phases"] = [{"at": 50, "train_batch_size": 128}]
    flat = given("delphi", windows=64, steps=150)
    assert (
        filled(grown)["train"]["adam_learning_rate"] == filled(flat)["train"]["adam_learning_rate"]
    )


@pytest.mark.parametrize(
    "config",
    [{}, {"train": 3, "model": {}}, {"train": {"recipe": "delphie"}}, {"train": {"recipe": ["x"]}}],
)
def test_what_is_no_recipe_changes_nothing(config: dict[str, Any]) -> None:
    assert filled(config) == config
