"""What a mixture of experts costs, and which one cannot be."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from engine.config import flops, memory
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from engine.config.shapes import shapes

SMALL = {"hidden_dim": 32, "num_layers": 3, "num_heads": 4, "seq_len": 48, "vocab_size": 101}
MOE = {"num_experts": 8, "top_k": 2, "expert_dim": 24, "shared_dim": 40}


def model(moe: dict[str, Any] | None = None, **changes: Any) -> ModelConfig:
    return ModelConfig.model_validate(SMALL | {"moe": MOE | (moe or {})} | changes)


def refusal(moe: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        model(moe, **changes)
    return "; ".join(error["msg"] for error in refused.value.errors())


# ── What cannot be ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("moe", "words"),
    [
        ({"top_k": 9}, "top_k 9 is more than num_experts 8; make it at most 8"),
        ({"top_k": 8, "balance": "quantile"}, "each token goes through all 8 experts; remove it"),
        ({"balance_rate": 0.1}, "goes with balance bias and auxiliary, and balance is quantile"),
        ({"capacity_factor": 0.0}, "greater than 0"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused_with_a_remedy(moe: dict[str, Any], words: str) -> None:
    assert words in refusal(moe)


def test_a_width_beside_experts_must_be_what_a_token_goes_through() -> None:
    assert "the model has experts in its place" in refusal({}, intermediate_dim=96)
    assert model(intermediate_dim=88) == model()
    assert model().intermediate_dim == 2 * 24 + 40


def test_experts_replace_the_width_that_a_name_of_a_shape_gives() -> None:
    named = ModelConfig.model_validate({"depth": 2, "seq_len": 32, "moe": MOE})
    assert named.intermediate_dim == 88
    assert ModelConfig.model_validate(named.model_dump()) == named


def test_what_is_left_out_is_filled_in() -> None:
    filled = [model(of).moe for of in ({}, {"top_k": 8}, {"balance": "bias"})]
    assert [of and (of.balance, of.balance_rate) for of in filled] == [
        ("quantile", None), ("none", None), ("bias", 0.001),
    ]  # fmt: skip


def test_a_configuration_without_experts_is_written_as_ever() -> None:
    dense = ModelConfig.model_validate(SMALL | {"intermediate_dim": 88})
    assert "moe" not in dense.model_dump()
    assert "experts" not in ComputeConfig().model_dump()
    assert MeshConfig().model_dump() == {"data": 1, "fsdp": 1, "tensor": 1}


@pytest.mark.parametrize(
    ("mesh", "field", "words"),
    [
        (MeshConfig(expert=3), "model.moe.num_experts", "expert 3 does not divide num_experts 8; "
         "write expert: 1 or 2, or make num_experts a multiple of 3"),
        (MeshConfig(tensor=16), "model.moe.expert_dim", "write tensor: 4 or 6 or 8 or 12"),
        (MeshConfig(expert=4), "train.train_batch_size", "data 1 × fsdp 1 × expert 4 = 4 groups of "
         "devices; make it a multiple of 4, or data × fsdp × expert smaller"),
    ],
)  # fmt: skip
def test_a_mesh_that_does_not_divide_experts_is_refused(
    mesh: MeshConfig, field: str, words: str
) -> None:
    train = TrainConfig(train_batch_size=2, num_train_steps=3, learning_rate=0.1)
    assert words in dict(memory.misfits(mesh, model=model(), train=train))[field]


def test_an_axis_of_experts_wants_experts() -> None:
    dense = ModelConfig.model_validate(SMALL | {"intermediate_dim": 88})
    [wrong] = memory.misfits(MeshConfig(expert=2, fsdp=2), model=dense)
    assert "the model has none; write fsdp: 4 in its place, or give the model moe" in wrong.words


# ── What it costs ────────────────────────────────────────────────────────────────────────────


def test_parameters_and_flops_are_counted_of_all_experts_and_of_a_tokens() -> None:
    dense = ModelConfig.model_validate(SMALL | {"intermediate_dim": 88})
    router, others = 3 * 32 * 8, 3 * 6 * (3 * 32 * 24)
    assert flops.parameters(model(), active=True) == flops.parameters(dense) + router
    assert flops.parameters(model()) == flops.parameters(dense) + router + others
    forward = flops.forward_flops_per_token
    assert forward(model()) == forward(dense) + 2 * router
    assert forward(model(), active=False) == forward(model()) + 2 * others


def test_what_balances_is_a_parameter_that_does_not_count() -> None:
    sizes = shapes(model())
    held = sum(math.prod(of) for of in sizes.values())
    assert held == flops.parameters(model()) + 3 * (8 + 8 + 1)
    assert sizes["blocks/mlp/gate_proj"] == (3, 8, 32, 24)
    assert "blocks/mlp/shared/gate_proj" not in shapes(model({"shared_dim": 0}))


# Of the size of Marin's 129B-A16B: four query heads share keys, and an MLP of the model's width is
# shared.
LARGE = ModelConfig.model_validate(
    {
        "hidden_dim": 5120,
        "num_layers": 48,
        "num_heads": 40,
        "num_kv_heads": 10,
        "seq_len": 4096,
        "vocab_size": 128_256,
        "moe": {"num_experts": 128, "top_k": 8, "expert_dim": 1280, "shared_dim": 5120},
    }
)


def test_a_shape_of_129_billion_of_which_16_are_active_is_counted_and_cut() -> None:
    assert flops.parameters(LARGE) == pytest.approx(129.06e9, rel=1e-3)
    assert flops.parameters(LARGE, active=True) == pytest.approx(15.82e9, rel=1e-3)
    forward = flops.forward_flops_per_token(LARGE)
    embedding, scores = 5120 * 128_256, 48 * 4096 * 40 * (4 * 128 + 3)
    matrices = flops.parameters(LARGE, active=True) - embedding - 5120 * (2 * 48 + 1)
    assert forward == 2 * matrices + scores
    train = TrainConfig(train_batch_size=64, num_train_steps=10, learning_rate=0.001)

    def held(**mesh: int) -> memory.Footprint:
        return memory.footprint(LARGE, train, ComputeConfig(mesh=MeshConfig(**mesh)), "tpu")

    whole, cut = held(), held(fsdp=4, expert=16)
    of_experts = 4 * 48 * 3 * 5120 * 1280 * 128
    rest = whole.parameters - of_experts
    small = 4 * (5120 * 97 + 48 * (128 * (5120 + 2) + 1))
    assert cut.parameters == pytest.approx(of_experts / 64 + (rest - small) / 4 + small)
    # A sixteenth of the experts have room for the rows of 16 groups.
    assert whole.activations / 5 < cut.activations < whole.activations / 4
