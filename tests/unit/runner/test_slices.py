"""Slices: declared, planned, and what a run does with fewer of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from runner.planning import mesh_words, planner
from runner.spec import declaration
from runner.worker.host_group import Gang, TpuSlice
from runner.worker.step_process import Job
from tests.decided import KINDS
from tests.unit.runner.test_gang_step import HEAD, declared
from tests.unit.runner.test_mesh_words import LLAMA_8B, planned

DATA = "      compute: {mesh: {data: MESH}}\n"


def sliced(count: int, kind: str, slices: str, mesh: str = "") -> str:
    text = declared(count, kind, f"      compute: {{mesh: {mesh}}}\n" if mesh else "")
    return text.replace(f"count: {count}", f"count: {count}, {slices}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (sliced(4, "cpu", "slices: 3"), "`steps.train.resources.slices`: 4 devices cannot be in 3"),
        (sliced(4, "cpu", "slices: 4, min_slices: 3"), "`steps.train.resources.min_slices`: 3 sl"),
        (sliced(4, "v5p", "slices: 2"), "v5p comes in slices of 4, 8, 16,"),
        (sliced(16, "h100", "slices: 1, min_slices: 0"), "min_slices"),
        (sliced(20, "h100", "slices: 2"), "10 devices are no whole number of hosts, which have 8"),
        (sliced(4, "cpu", "slices: 2", "{fsdp: 4}"), "data 1 cannot be spread over 2 slices"),
        # Only one kind can be named, so slices of two kinds cannot be asked for.
        (HEAD.replace("kind: cpu", "kind: [v5e, v5p], slices: 2"), "`resources.kind`: "),
    ],
)
def test_impossible_slices_are_reported_at_their_line_with_a_remedy(text: str, words: str) -> None:
    with pytest.raises(declaration.BadExperiment) as refused:
        declaration.parse(text, "experiment.yaml")
    assert words in str(refused.value)


def test_a_gang_on_slices_takes_each_whole() -> None:
    from runner.worker.multi_host_step import gang_of

    assert gang_of(KINDS["h100"], 32, 2) == Gang(2, 2, {"CPU": 0, "GPU": 8})
    tpus = gang_of(KINDS["v5p"], 128, 2)
    assert (tpus.hosts_per_slice, tpus.slices, tpus.tpu) == (16, 2, TpuSlice("v5p", "4x4x4"))


def test_a_mesh_for_slices_splits_data_alone_between_them(tmp_path: Path) -> None:
    one = planned(tmp_path / "one", LLAMA_8B, "v5p", 64)
    assert mesh_words.told(one)[0].startswith("Mesh on 64 × TPU v5p: fsdp 64")
    two = planned(tmp_path / "two", LLAMA_8B, "v5p", 128)
    (tmp_path / "two" / "experiment.yaml").write_text(
        (tmp_path / "two" / "experiment.yaml")
        .read_text()
        .replace("count: 128", "count: 128, slices: 2, min_slices: 1")
    )
    two = planner.plan_folder(tmp_path / "two")
    on, *rest = mesh_words.told(two)
    assert on.startswith("Mesh on 128 × TPU v5p in 2 slices: data 64 × fsdp 2 with")
    (fewer,) = [words for words in rest if words.startswith("If slices are lost")]
    assert fewer.startswith(
        "If slices are lost and not replaced within 10 minutes, it continues with at least 1 of 2: "
        "the same batch, in 2 parts one after the other. Each device then holds "
    )
    assert fewer.endswith(
        "GiB of its 95 GiB, which does not fit: leave `min_slices` out, or make it larger"
    )
    resources = two.resources
    assert (resources.count, resources.slices, resources.min_slices) == (128, 2, 1)
    assert two.steps["evaluate"].resources.slices == 1


def test_with_fewer_slices_the_batch_stays_the_same() -> None:
    from runner.worker.multi_host_step import enough, with_slices

    config = {
        "compute": {"mesh": {"data": 8, "fsdp": 2, "tensor": 1}, "remat": "block"},
        "train": {"gradient_accumulation_steps": 3, "train_batch_size": 96},
    }
    job = Job("f", config, {}, "", "", "", KINDS["cpu"], count=16, slices=4, min_slices=1)
    assert enough(job) == [4, 2, 1]
    assert enough(replace(job, min_slices=2)) == [4, 2]
    assert with_slices(job, 4) == job
    half = with_slices(job, 2)
    assert (half.count, half.slices) == (8, 2)
    assert half.config["compute"] == {
        "mesh": {"data": 4, "fsdp": 2, "tensor": 1},
        "remat": "block",
    }
    assert half.config["train"] == {"gradient_accumulation_steps": 6, "train_batch_size": 96}
