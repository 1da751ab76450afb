"""A mesh that is not named is chosen, and the plan says why, with memory, time, price and MFU."""

from pathlib import Path

import pytest

from bot.messages import plan_comment
from runner.planning import mesh_words, planner
from runner.schema.record import Plan, PlanRecord
from tests.decided import KINDS
from tests.unit.runner.test_cli import ask

LLAMA_8B = """hidden_dim: 4096, intermediate_dim: 14336, num_layers: 32, num_heads: 32,
  num_kv_heads: 8"""
QWEN_32B = """hidden_dim: 5120, intermediate_dim: 27648, num_layers: 64, num_heads: 40,
  num_kv_heads: 8, qk_norm: learned"""
MIXTURE_129B = """hidden_dim: 5120, num_layers: 48, num_heads: 40, num_kv_heads: 10,
  moe: {num_experts: 128, top_k: 8, expert_dim: 1280, shared_dim: 5120}"""
DECLARED = """\
title: Large
data: {source: stdlib, tokenizer: byte}
model: {MODEL, seq_len: 4096, vocab_size: 128256}
train: {train_batch_size: 1024, num_train_steps: 1000, learning_rate: 3e-4}
resources: {kind: KIND, count: COUNT}
"""


def declared(at: Path, model: str, kind: str, count: int, more: str = "") -> Path:
    at.mkdir(parents=True, exist_ok=True)
    text = DECLARED.replace("MODEL", model).replace("KIND", kind).replace("COUNT", str(count))
    (at / "experiment.yaml").write_text(text + more)
    return at


def planned(at: Path, model: str, kind: str, count: int, more: str = "") -> Plan:
    return planner.plan_folder(declared(at, model, kind, count, more))


@pytest.mark.parametrize(
    ("model", "kind", "count", "mesh", "mfu"),
    [
        (LLAMA_8B, "h100", 64, "fsdp 64 with `remat: block`", "MFU is 48.6 %"),
        # Google calls it a v5p-512: 256 chips with two cores each.
        (QWEN_32B, "v5p", 256, "fsdp 128 × tensor 2 with `remat: block`", "MFU is 41.1 %"),
        (MIXTURE_129B, "v5p", 1024, "fsdp 128 × tensor 2 × expert 4 with `remat: block`",
         "MFU is 18.3 %; a larger batch, or fewer devices, would send less for each token"),
    ],
)  # fmt: skip
def test_a_large_plan_says_mesh_memory_time_price_mfu_and_why(
    tmp_path: Path, model: str, kind: str, count: int, mesh: str, mfu: str
) -> None:
    (tmp_path / ".github/regatta").mkdir(parents=True)
    (tmp_path / ".github/regatta/devices.yml").write_text(f"{kind}: {{price: 3}}\n")
    plan = planned(tmp_path / "large", model, kind, count)
    on, memory, use = mesh_words.told(plan)
    assert on.startswith(f"Mesh on {count} × {KINDS[kind].description}: {mesh}, chosen: a copy ")
    assert "meshes that fit, it sends the least: " in on
    assert "GiB on each device, " in memory
    assert "does not fit" not in memory
    assert use.startswith("MFU assumed: 50 % (as good public runs) to 20 % (a poor run). ")
    assert mfu in use
    low, high = plan.cost.seconds
    assert plan.cost.price == pytest.approx((3 * count * low / 3600, 3 * count * high / 3600))
    # Each of the three is in the comment and in the terminal, where a table has the memory.
    at = "2026-11-24T00:00:00Z"
    record = PlanRecord(repository=1, pull=2, n=1, commit="0" * 40, at=at, plan=plan)
    comment = plan_comment.plan(record)
    assert all(words.partition(":")[0] in comment for words in (on, memory, use))
    terminal = " ".join(ask("plan", tmp_path / "large").stdout.split())
    assert on.replace("`", "") in terminal
    assert use in terminal


def test_what_is_declared_stays_and_a_price_that_is_missing_is_said(tmp_path: Path) -> None:
    compute = "compute: {mesh: {data: 2, fsdp: 32}, remat: block}\n"
    plan = planned(tmp_path, LLAMA_8B, "h100", 64, compute)
    on, *_, price = mesh_words.told(plan)
    assert on.endswith("data 2 × fsdp 32 with `remat: block`, as declared")
    assert price == (
        "The price is unknown, because the lab has none for `h100`; write `price` (US$ an hour and "
        "device) below `h100` in `.github/regatta/devices.yml`"
    )
    kept = planned(tmp_path, LLAMA_8B, "h100", 64, "compute: {remat: none}\n")
    said = mesh_words.told(kept)
    assert "none of " in said[0]
    assert "That does not fit; what fits: gradient_accumulation_steps: " in said[1]


def test_one_core_needs_no_words(tmp_path: Path) -> None:
    small = "hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2"
    plan = planned(tmp_path, small, "cpu", 1)
    assert mesh_words.told(plan) == []
    two = planned(tmp_path, small, "cpu", 2)
    assert mesh_words.told(two) == [
        "Mesh on 2 × CPU, 2 cores: data 2, chosen: each device has a copy of the model, which fits"
    ]
