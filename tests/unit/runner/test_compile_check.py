"""Compiling ahead of time for devices that are not here. The compiler is the real one; of devices
there are 64 simulated ones, and real TPU topologies where libtpu is installed."""

import importlib.util
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result
from typer.testing import CliRunner

from engine.config.schema import ComputeConfig, MeshConfig
from runner.cli import main
from runner.planning import compile_check
from runner.planning.compile_check import DoesNotCompile, check, llama_8b
from runner.schema.devices import Slice
from runner.worker.compile_child import collectives
from tests.decided import KINDS

SMALL = """
title: A model that 64 devices can share
data: {source: stdlib, tokenizer: byte}
model: {hidden_dim: 64, intermediate_dim: 96, num_layers: 2, num_heads: 8, num_kv_heads: 4,
        seq_len: 64, vocab_size: 512}
train: {train_batch_size: 32, num_train_steps: 10, learning_rate: 0.001}
resources: {kind: cpu, count: 1}
arms:
  adam: {}
  muon: {train: {optimizer: muon}}
"""

HLO = """
  %all-gather.1 = f32[64,32]{1,0} all-gather(%param), channel_id=1, dimensions={0}
  %ar = (f32[4]{0}, f32[4]{0}) all-reduce-start(%a, %b), to_apply=%add
  %done = (f32[4]{0}, f32[4]{0}) all-reduce-done(%ar)
  %fusion = f32[4]{0} fusion(%all-gather.1), calls=%all-gather-fusion
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "experiment.yaml").write_text(SMALL)
    return tmp_path


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, ["compile-check", *map(str, words)])


def answered(monkeypatch: pytest.MonkeyPatch, **done: object) -> None:
    """Let the child process have ended with this."""
    ended = SimpleNamespace(**{"returncode": 0, "stdout": "", "stderr": "", **done})
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)


def test_collectives_are_counted_once_each() -> None:
    assert collectives(HLO) == {"all-gather": 1, "all-reduce": 1}


# ── What is said ─────────────────────────────────────────────────────────────────────────────

DONE = {
    "arguments": 3 * 2**29,
    "temporaries": 5 * 2**30,
    "trace_seconds": 1.0,
    "compile_seconds": 99.0,
    "collectives": {"all-gather": 10, "all-reduce": 4},
}


def test_the_answer_puts_the_formula_beside_xlas_word(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, stdout=json.dumps(DONE))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    answer = ask()
    assert answer.exit_code == 0
    words = " ".join(answer.stdout.split())
    assert "memory of one device of 64 × TPU v5p (fsdp 64)" in words
    assert "parameters and moments │ 1.5 GiB │ 1.41 GiB" in words
    assert "8,030,261,248 parameters, sequence 4,096, batch 64" in words
    assert "compiled in 1 min 39 s" in words
    assert "10 all-gather, 4 all-reduce" in words
    assert "simulated on 64 CPU devices" in words
    assert "95 GiB" not in words, "a CPU's temporaries say nothing of the device's memory"


def test_a_tpu_is_compiled_for_as_it_is_where_its_compiler_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, object]] = []

    def run(*_: object, input: str, **__: object) -> SimpleNamespace:
        asked.append(json.loads(input))
        return SimpleNamespace(returncode=0, stdout=json.dumps(DONE), stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: SimpleNamespace())
    answer = ask()
    assert asked[0]["topology"] == "v5p:4x4x4"
    assert "simulated" not in answer.stdout
    assert "6.84 % of 95 GiB" in answer.stdout
    ask("--slice", "h100x64")
    assert asked[1]["topology"] is None, "libtpu compiles for no GPU"


@pytest.mark.parametrize(
    ("kind", "count", "topology"),
    [
        ("v5p", 64, "v5p:4x4x4"),
        ("v5p", 4, "v5p:2x2x1"),
        ("v5p", 16, "v5p:4x2x2"),
        ("v5p", 1, "v5p:1x1x1"),
        ("v5e", 8, "v5e:4x2"),
        ("v5e", 256, "v5e:16x16"),
        ("v4", 128, "v4:8x4x4"),
        ("v4", 24, "v4:4x3x2"),
        ("v5p", 22, "v5p:11x2x1"),
    ],
)
def test_chips_are_as_compact_a_torus_as_can_be(kind: str, count: int, topology: str) -> None:
    assert compile_check._topology(Slice(kind, count, KINDS[kind])) == topology


def test_a_misfit_names_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    error = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (190.00G) exceeds available HBM (15.75G)."
    )
    answered(monkeypatch, stdout=json.dumps({"error": error}))
    answer = ask("--slice", "v5ex32", "--remat", "none")
    assert answer.exit_code == 1
    assert "190 GiB were asked for on a device with 16 GiB" in answer.stderr
    assert "what fits: remat: block" in answer.stderr


@pytest.mark.parametrize(
    ("done", "why"),
    [
        (
            {"stdout": json.dumps({"error": "INVALID_ARGUMENT: no such topology"})},
            "no such topology",
        ),
        ({"returncode": 1, "stderr": "Traceback\n  …\nKeyError: 'x'\n"}, "KeyError: 'x'"),
        ({"returncode": -9}, "the compiler was ended by signal 9"),
    ],
)
def test_a_compiler_that_fails_is_quoted(
    monkeypatch: pytest.MonkeyPatch, done: dict[str, object], why: str
) -> None:
    answered(monkeypatch, **done)
    compute = ComputeConfig(mesh=MeshConfig(fsdp=64))
    with pytest.raises(DoesNotCompile, match=why):
        check(*llama_8b(compute.mesh), compute, Slice("v5p", 64, KINDS["v5p"]))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--mesh", "fsdp=32", "--slice", "h100x64"], "a mesh of 32 and there are 64 devices"),
        (["--mesh", "tensor=64"], "tensor 64 does not divide num_heads 32"),
        (["--slice", "h100"], "`h100` names no slice; write a kind (`cpu`, `h100`, `h200`"),
        (["--slice", "gpux8"], "no kind of device `gpu` is known, only `cpu`, `h100`, `h200`"),
        (["--mesh", "tensr=8"], "write sizes of data, fsdp, tensor"),
        (["--mesh", "fsdp=0"], "`fsdp=0` is not a part of a mesh"),
        (["nowhere"], "nowhere does not exist"),
    ],
)  # fmt: skip
def test_bad_input_is_answered_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    answer = ask(*words)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert why in " ".join(answer.stderr.split())


def test_one_of_several_arms_must_be_named(folder: Path) -> None:
    assert "--arm says which one: adam, muon" in ask(folder).stderr
    assert "did you mean `muon`?" in ask(folder, "--arm", "muom").stderr
