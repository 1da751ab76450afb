"""Of `test_compile_check.py` what needs a process, a socket or a compilation."""

import importlib.util
import json
from pathlib import Path

import pytest

from engine.config import memory
from engine.config.schema import GUARD_WINDOW, ComputeConfig, MeshConfig
from runner.cli import main
from runner.planning.compile_check import Check, check, llama_8b
from runner.schema.devices import Slice
from tests.decided import KINDS
from tests.unit.runner.test_compile_check import ask
from tests.unit.runner.test_compile_check import folder as folder  # a fixture

GUARD = 4 * (2 * GUARD_WINDOW + 2)  # bytes of what a state remembers to tell bad steps


# ── The compiler itself ──────────────────────────────────────────────────────────────────────


def test_a_step_is_compiled_for_64_devices_and_measured(folder: Path) -> None:
    sizes = "data=2,fsdp=8,tensor=4"
    answer = ask(folder, "--arm", "adam", "--slice", "h100x64", "--mesh", sizes, "--json")
    assert answer.exit_code == 0, answer.output
    found = Check(**json.loads(answer.stdout))
    assert found.simulated
    arm = main.planner.plan_folder(folder).arms["adam"]
    compute = ComputeConfig(mesh=MeshConfig(data=2, fsdp=8, tensor=4), remat="block")
    held = memory.footprint(arm.model, arm.train, compute, "gpu")
    batch, count, rates = 2 * 4 * 2 * 64, 4, 2 * 4  # two rows of 64 tokens and of targets
    assert found.arguments == held.parameters + held.moments + GUARD + batch + count + rates
    assert found.temporaries > held.gradients
    assert found.collectives["all-gather"] > 0, "weights are gathered over fsdp"
    assert found.collectives["all-reduce"] > 0, "gradients are summed over rows"
    # The embedding's rows come by an exchange, and so do their gradients go. Any more would mean
    # that XLA moves activations about, because something is cut across its devices' parts.
    moved = [found.collectives.get(name, 0) for name in ("all-to-all", "collective-permute")]
    assert sum(moved) <= 3


@pytest.mark.slow
def test_an_8b_llama_is_compiled_for_64_devices_without_being_allocated() -> None:
    answer = ask("--slice", "h100x64", "--mesh", "fsdp=64", "--json")
    assert answer.exit_code == 0, answer.output
    found = Check(**json.loads(answer.stdout))
    model, train = llama_8b(MeshConfig(fsdp=64))
    compute = ComputeConfig(mesh=MeshConfig(fsdp=64), remat="block", dtype="bfloat16")
    held = memory.footprint(model, train, compute, "cpu")
    assert found.arguments - held.parameters - held.moments == GUARD + 2 * 4 * 4096 + 4 + 8
    # A CPU multiplies bfloat16 as float32, so it needs more than the formula says.
    counted = held.total - held.parameters - held.moments
    assert counted / 2 < found.temporaries < 2 * counted


# Half of the width, the layers and the experts' width of a mixture of 129 billion parameters.
EIGHTH = """\
title: An eighth of 129B-A16B
data: {source: stdlib, tokenizer: byte}
model: {hidden_dim: 2560, num_layers: 24, num_heads: 20, num_kv_heads: 5, seq_len: 4096,
        vocab_size: 128256, qk_norm: rms,
        moe: {num_experts: 128, top_k: 8, expert_dim: 640, shared_dim: 2560}}
train: {train_batch_size: 64, num_train_steps: 10, learning_rate: 0.01, optimizer: muonh}
resources: {kind: cpu}
"""


@pytest.mark.slow
def test_a_mixture_of_17_billion_parameters_is_compiled_for_64_devices(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(EIGHTH)
    answer = ask(tmp_path, "--slice", "v5px64", "--mesh", "fsdp=4,expert=16", "--json")
    assert answer.exit_code == 0, answer.output
    found = Check(**json.loads(answer.stdout))
    (arm,) = main.planner.plan_folder(tmp_path).arms.values()
    assert arm.parameters == pytest.approx(16.6e9, rel=1e-2)
    compute = ComputeConfig(mesh=MeshConfig(fsdp=4, expert=16), remat="block", dtype="bfloat16")
    held = memory.footprint(arm.model, arm.train, compute, "tpu")
    assert found.arguments == pytest.approx(held.parameters + held.moments, rel=1e-3)
    assert found.collectives["all-to-all"] > 0, "tokens go to their experts' devices"


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="not run: libtpu is not installed"
)
def test_an_8b_llama_is_compiled_for_a_tpu_by_its_own_compiler() -> None:
    model, train = llama_8b(MeshConfig(fsdp=64))
    compute = ComputeConfig(mesh=MeshConfig(fsdp=64), remat="block", dtype="bfloat16")
    found = check(model, train, compute, Slice("v5p", 64, KINDS["v5p"]))
    held = memory.footprint(model, train, compute, "tpu")
    assert not found.simulated
    assert found.arguments == pytest.approx(held.parameters + held.moments, rel=1e-3)
    counted = held.total - held.parameters - held.moments
    assert counted / 2 < found.temporaries < 1.25 * counted
