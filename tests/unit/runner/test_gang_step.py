"""A `train` step on several devices: as it is declared, and as a real gang trains it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runner.planning import planner
from runner.schema import devices
from runner.schema.record import Resources
from runner.spec import declaration
from runner.worker.host_group import Gang, TpuSlice

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

    two = gang_of(Resources(kind="cpu", count=2))
    assert (two.hosts, two.resources["CPU"]) == (2, 2)
    assert gang_of(Resources(kind="h100", count=4)) == Gang(1, 1, {"CPU": 0, "GPU": 4})
    assert gang_of(Resources(kind="h100", count=16)) == Gang(2, 1, {"CPU": 0, "GPU": 8})
    tpus = gang_of(Resources(kind="v5p", count=64))
    assert (tpus.hosts, tpus.tpu) == (16, TpuSlice("v5p", "4x4x4"))


def test_a_lab_extends_the_table_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hardware.yaml"
    assert devices.extended(devices.KINDS, file) == devices.KINDS
    file.write_text(
        "h100: {price: 2.1}\n"
        "a100: {description: NVIDIA A100, peak_flops: 3.12e+14, platform: gpu, memory_gib: 80,\n"
        "       ray_gpus: 1, devices_per_host: 8}\n"
        "v7: {description: TPU v7, peak_flops: 2e+15, platform: tpu, ray_tpu: v7,\n"
        "     topologies: {4: 2x2x1}}\n"
    )
    table = devices.extended(devices.KINDS, file)
    assert (table["h100"].price, table["h100"].peak_flops) == (2.1, 9.89e14)
    assert (table["a100"].memory, table["a100"].ray_gpus) == (80 * 2**30, 1)
    assert table["v7"].topologies == {4: "2x2x1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h100: {prise: 2.1}", "`h100.prise`: Unexpected keyword argument"),
        ("a100: {description: NVIDIA A100, platform: gpu}", "`a100.peak_flops`: Field required"),
        ("h100: {peak_flops: 0}", "peak_flops is to be above 0"),
        ("h100: {price: much}", "`h100.price`: Input should be a valid number"),
        ("h100: 2", "`h100`: Input should be a valid dictionary"),
        ("- h100", "Input should be a valid dictionary"),
        ("h100: [", "hardware.yaml: "),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_key(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "hardware.yaml").write_text(text)
    with pytest.raises(devices.BadHardware) as refused:
        devices.extended(devices.KINDS, tmp_path / "hardware.yaml")
    assert words in str(refused.value)
