import pytest

from engine.config.flops import forward_flops_per_token, model_flops, parameters
from engine.config.schema import ModelConfig

# The public worked example of Marin's speedrun.
MARIN = ModelConfig(
    hidden_dim=512,
    intermediate_dim=1792,
    num_layers=6,
    num_heads=8,
    seq_len=4096,
    vocab_size=128_256,
)


def test_the_count_agrees_with_the_public_example() -> None:
    assert parameters(MARIN) == 154_147_328
    assert forward_flops_per_token(MARIN) == 227_868_672
    assert model_flops(MARIN, 3_114_270_720) == 2_128_934_199_644_651_520


def test_fewer_key_value_heads_cost_less() -> None:
    grouped = ModelConfig(**{**MARIN.model_dump(), "num_kv_heads": 2})
    saved = 6 * 2 * 512 * 2 * (8 - 2) * 64
    assert forward_flops_per_token(MARIN) - forward_flops_per_token(grouped) == saved


def test_a_window_costs_its_width_and_not_the_context() -> None:
    windowed = ModelConfig(**{**MARIN.model_dump(), "sliding_window": 1024})
    saved = 6 * (4096 - 1024) * 8 * (2 * 64 + 3 + 2 * 64)
    assert forward_flops_per_token(MARIN) - forward_flops_per_token(windowed) == saved


@pytest.mark.parametrize(
    "changes", [{"tie_word_embeddings": True}, {"qk_norm": "learned"}, {"logit_soft_cap": 30.0}]
)
def test_tying_norms_and_caps_cost_no_flops(changes: dict) -> None:
    changed = ModelConfig(**{**MARIN.model_dump(), **changes})
    assert forward_flops_per_token(changed) == forward_flops_per_token(MARIN)
