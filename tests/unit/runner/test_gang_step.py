"""A `train` step on several devices: as it is declared, and as a real gang trains it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.planning import planner
from runner.spec import declaration
from runner.worker.host_group import Gang, TpuSlice
from tests.decided import KINDS

HEAD = (
    "title: T\nresources: {kind: cpu}\nsteps:\n  tokens: {do: tokenize, config: {source: stdlib}}"
)
DECLARED = (
    HEAD
    + """
  train:
    do: train
    inputs: {tokens: tokens}
    resources: {kind: KIND, count: COUNT}
    config:
      model: {hidden_dim: 16, intermediate_dim: 32, num_layers: 1, num_heads: 2, seq_len: 32}
      train: {train_batch_size: 64, num_train_steps: 60, learning_rate: 0.01, checkpoint_every: 5}
"""
)
MESH = "      compute: {mesh: {fsdp: 2}, remat: block}\n"


def declared(count: int, kind: str = "cpu", more: str = "") -> str:
    return DECLARED.replace("COUNT", str(count)).replace("KIND", kind) + more


def node(text: str) -> Mapping[str, Any]:
    """The configuration of the train step."""
    return declaration.parse(text, "experiment.yaml").nodes["train"].config


# ── Declaring ────────────────────────────────────────────────────────────────────────────────


def test_devices_have_a_part_of_the_batch_each_unless_the_mesh_says_otherwise() -> None:
    assert node(declared(1))["compute"]["mesh"] == {"data": 1, "fsdp": 1, "tensor": 1}
    assert node(declared(4))["compute"]["mesh"] == {"data": 4, "fsdp": 1, "tensor": 1}
    compute = node(declared(2, more=MESH))["compute"]
    assert (compute["mesh"], compute["remat"]) == ({"data": 1, "fsdp": 2, "tensor": 1}, "block")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (declared(4, more=MESH), "line 12, `steps.train.config.compute.mesh`: data 1 × fsdp 2"),
        (declared(3), "`steps.train.config.train.train_batch_size`: train_batch_size 64 cannot"),
        (declared(12, "h100"), "`steps.train.resources.count`: 12 devices are no whole number of"),
        (declared(65, "v5p"), "`steps.train.resources.count`: v5p comes in slices of 4, 8, 16,"),
        (declared(1, "v6"), "the lab has no devices of kind `v6`; it has `cpu`, `h100`, `v4`"),
        (declared(1, more="      compute: {mesh: {rows: 2}}\n"), "line 12, `steps.train.config"),
        (
            HEAD.replace("}}", "}, resources: {kind: cpu, count: 2}}"),
            "`steps.tokens.resources.count`: only a `train` step may have more than one device",
        ),
        (
            HEAD.replace("{kind: cpu}", "{kind: v5p, count: 4}"),
            "`resources.kind`: slices of v5p are for `train` steps; write one of `cpu`, `h100`",
        ),
    ],
)
def test_impossible_devices_are_reported_at_their_line(text: str, words: str) -> None:
    with pytest.raises(declaration.BadExperiment) as refused:
        declaration.parse(text, "experiment.yaml")
    assert words in str(refused.value)


def test_only_dtype_of_the_compute_options_is_in_the_fingerprint(tmp_path: Path) -> None:
    def fingerprint(text: str) -> str:
        (tmp_path / "experiment.yaml").write_text(text)
        return planner.plan_folder(tmp_path).steps["train"].fingerprint

    one = fingerprint(declared(1))
    assert fingerprint(declared(2, more=MESH)) == one
    assert fingerprint(declared(64, "v5p")) == one
    assert fingerprint(declared(1, more="      compute: {dtype: bfloat16}\n")) != one


# ── Devices ──────────────────────────────────────────────────────────────────────────────────


def test_a_gang_has_a_process_a_host_and_slices_are_taken_whole() -> None:
    from runner.worker.multi_host_step import gang_of

    two = gang_of(KINDS["cpu"], 2)
    assert (two.hosts, two.resources["CPU"]) == (2, 2)
    assert gang_of(KINDS["h100"], 4) == Gang(1, 1, {"CPU": 0, "GPU": 4})
    assert gang_of(KINDS["h100"], 16) == Gang(2, 1, {"CPU": 0, "GPU": 8})
    tpus = gang_of(KINDS["v5p"], 64)
    assert (tpus.hosts, tpus.tpu) == (16, TpuSlice("v5p", "4x4x4"))
