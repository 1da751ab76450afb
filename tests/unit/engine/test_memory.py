"""The formula is held against XLA's own count of what a compiled step needs."""

import json
import math
from typing import Any

import jax
import pytest

from engine.config import flops, memory
from engine.config.memory import footprint, misfits, size, what_fits
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from engine.model import mesh as model_mesh
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy
from engine.training import step
from tests.bench.memory import MODELS, RESULTS, configured

MODEL = ModelConfig(
    hidden_dim=64,
    intermediate_dim=224,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    seq_len=128,
    vocab_size=512,
)
TRAIN = TrainConfig(train_batch_size=8, num_train_steps=10, learning_rate=0.001)
COMPUTE = ComputeConfig(layers="scan")

# Llama 3 8B on eight H100s.
LARGE = ModelConfig(
    hidden_dim=4096,
    intermediate_dim=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    seq_len=4096,
    vocab_size=128256,
)
SEQUENCES = TrainConfig(train_batch_size=64, num_train_steps=10, learning_rate=0.001)
EIGHT = ComputeConfig(mesh=MeshConfig(fsdp=8))
GIB = 2**30


def changed(config: Any, **changes: object) -> Any:
    return type(config).model_validate({**config.model_dump(exclude_unset=True), **changes})


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("qk_norm", ["none", "rms", "learned"])
@pytest.mark.parametrize("optimizer", ["adamw", "nadamw", "lion", "soap", "muon", "adamh", "muonh"])
def test_parameters_and_moments_are_counted_to_the_byte(
    optimizer: str, qk_norm: str, tied: bool
) -> None:
    model = changed(MODEL, qk_norm=qk_norm, tie_word_embeddings=tied, head_dim=8)
    train = changed(TRAIN, optimizer=optimizer, ema_decay=0.9 if tied else None)
    recipe = step.recipe(Decoder(model), train, cross_entropy)
    state = step.abstract_state(recipe, model_mesh.make(MeshConfig()))
    counted = footprint(model, train, COMPUTE, "cpu")

    assert counted.parameters == nbytes(state.params) == 4 * flops.parameters(model)
    # Optimizers also keep a count of steps or two.
    small = sum(4 * x.size for x in jax.tree.leaves(state.moments) if x.size <= 3)
    assert small == {"muon": 4, "muonh": 4, "soap": 8}.get(optimizer, 4)
    assert counted.moments == nbytes(state.moments) - small + nbytes(state.average)


def nbytes(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


# ── Over a mesh ──────────────────────────────────────────────────────────────────────────────


def test_data_copies_what_fsdp_and_tensor_cut() -> None:
    whole = footprint(LARGE, SEQUENCES, changed(EIGHT, mesh=MeshConfig(data=8)), "gpu")
    assert whole.parameters == 4 * flops.parameters(LARGE)
    for sizes in (MeshConfig(fsdp=8), MeshConfig(tensor=8), MeshConfig(fsdp=4, tensor=2)):
        cut = footprint(LARGE, SEQUENCES, changed(EIGHT, mesh=sizes), "gpu")
        gains = 4 * LARGE.hidden_dim * 65
        assert cut.parameters == (whole.parameters - gains) / 8 + gains
        assert cut.moments == 2 * cut.parameters


def test_half_the_rows_on_a_device_are_half_the_activations() -> None:
    each = [
        footprint(LARGE, SEQUENCES, changed(EIGHT, mesh=MeshConfig(data=n)), "gpu").activations
        for n in (1, 2, 4)
    ]
    assert each[0] - each[1] == pytest.approx(2 * (each[1] - each[2]))
    assert each[1] == pytest.approx(each[0] / 2, rel=0.05)


def test_a_flash_kernel_keeps_no_probabilities() -> None:
    longer = changed(LARGE, seq_len=2 * LARGE.seq_len)
    half = changed(SEQUENCES, train_batch_size=32)
    gpu, cpu = (
        [
            footprint(*each, EIGHT, platform).activations
            for each in ((LARGE, SEQUENCES), (longer, half))
        ]
        for platform in ("gpu", "cpu")
    )
    assert gpu[1] == gpu[0], "as many tokens"
    assert cpu[1] > 1.3 * cpu[0]


BENCH = json.loads((RESULTS / "memory.json").read_text())


@pytest.mark.parametrize("row", BENCH["rows"], ids=lambda row: f"{row['model']} {row['mesh']}")
def test_the_formula_agrees_with_xla_within_a_tenth_on_ten_shapes_and_meshes(
    row: dict[str, Any],
) -> None:
    """What XLA said of a TPU v5p when `tests.bench.memory` last ran."""
    keys = ("batch", "mesh", "remat", "parts")
    asked = configured(MODELS[row["model"]], *(row[key] for key in keys))
    assert footprint(*asked, "tpu").total == pytest.approx(row["xla"], rel=0.1)


# ── What a mesh divides ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mesh", "field", "remedy"),
    [
        (MeshConfig(fsdp=24), "model.hidden_dim", "fsdp 24 does not divide hidden_dim 64; write "
         "fsdp: 2 or 4 or 8 or 16, or make hidden_dim a multiple of 24"),
        (MeshConfig(tensor=64), "model.intermediate_dim", "write tensor: 16 or 28 or 32 or 56"),
        (MeshConfig(tensor=8), "model.num_heads", "make num_heads a multiple of 8"),
        (MeshConfig(tensor=4), "model.num_kv_heads", "write tensor: 1 or 2, or make num_kv_heads"),
        (MeshConfig(tensor=3), "model.vocab_size", "write tensor: 1 or 2, or make vocab_size a "
         "multiple of 3"),
        (MeshConfig(data=2, fsdp=8), "train.train_batch_size", "train_batch_size 8 cannot be "
         "spread evenly over data 2 × fsdp 8 = 16 groups of devices; make it a multiple of 16"),
    ],
)  # fmt: skip
def test_a_misfit_of_the_mesh_is_named_with_a_remedy(
    mesh: MeshConfig, field: str, remedy: str
) -> None:
    found = dict(misfits(mesh, model=MODEL, train=TRAIN))
    assert remedy in found[field]


def test_a_batch_is_spread_after_it_is_parted() -> None:
    parted = changed(TRAIN, gradient_accumulation_steps=4)
    assert misfits(MeshConfig(data=2), model=MODEL, train=parted) == []
    [found] = misfits(MeshConfig(data=4), model=MODEL, train=parted)
    assert "in each of 4 gradient_accumulation_steps; make it a multiple of 16" in found.words


def test_a_mesh_that_divides_all_is_let_through() -> None:
    fitting = MeshConfig(data=2, fsdp=4, tensor=2)
    assert misfits(fitting, devices=16, model=MODEL, train=TRAIN) == []
    [found] = misfits(fitting, devices=8)
    assert found.field == "compute.mesh"
    assert "a mesh of 16 and there are 8 devices; make the product 8" in found.words


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.", 2**36),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 1,024 bytes.", 1024),
        ("RESOURCE_EXHAUSTED: Failed to allocate request for 1.50GiB (1610612736B) on device "
         "ordinal 0", 3 * 2**29),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 118.39G of 95.74G hbm. "
         "Exceeded hbm capacity by 22.65G.", round(118.39 * GIB)),
        ("RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
         "temporaries (82.00G) exceeds available HBM (15.75G).", 82 * GIB),
        ("RESOURCE_EXHAUSTED: something else", None),
    ],
)  # fmt: skip
def test_the_sizes_of_other_platforms_are_read_too(error: str, asked: int | None) -> None:
    assert memory.asked_for(error) == asked


def test_out_of_memory_says_what_was_asked_for_and_what_would_fit() -> None:
    error = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 107374182400 bytes."
    words = what_fits(LARGE, SEQUENCES, EIGHT, error, 80 * GIB, "gpu")
    assert "100 GiB were asked for on a device with 80 GiB" in words
    counted = footprint(LARGE, SEQUENCES, EIGHT, "gpu")
    assert f"{size(counted.activations)} of activations" in words
    assert f"{size(counted.total)} in all" in words
    assert "what fits: gradient_accumulation_steps: 8" in words
    assert "remat: block" in words
    assert "fsdp: 64 on 8 times the devices" in words
    assert "train_batch_size: 8, which is another run" in words


@pytest.mark.parametrize("available", [20 * GIB, 40 * GIB, 80 * GIB, 300 * GIB])
def test_suggested_changes_really_fit(available: int) -> None:
    for choice in memory.choices(LARGE, SEQUENCES, EIGHT, "gpu", available):
        assert choice.total <= available
        train, compute = SEQUENCES, EIGHT
        for words in choice.words.replace(" with ", " on ").split(" on "):
            key, _, value = words.partition(": ")
            number = value.split(",")[0]
            if key in TrainConfig.model_fields:
                train = changed(train, **{key: int(number)})
            elif key == "fsdp":
                compute = changed(compute, mesh=MeshConfig(fsdp=int(number)))
            elif key == "remat":
                compute = changed(compute, remat="block")
        assert (train, compute) != (SEQUENCES, EIGHT)
        assert footprint(LARGE, train, compute, "gpu").total == choice.total


def test_the_message_says_when_no_change_fits() -> None:
    error = "RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes."
    tiny_device = what_fits(
        changed(LARGE, hidden_dim=4096 * 251), SEQUENCES, EIGHT, error, GIB, "gpu"
    )
    assert tiny_device.endswith("remat and fsdp would: make the model smaller")


def test_a_device_that_does_not_say_what_it_has_is_advised_all_the_same() -> None:
    words = what_fits(MODEL, TRAIN, COMPUTE, "RESOURCE_EXHAUSTED: no more", None, "cpu")
    assert "what was asked for is not said" in words
    assert "what takes half: gradient_accumulation_steps: " in words


def test_sizes_are_written_for_people() -> None:
    written = [size(n) for n in (0, 12, 1536, 1000 * 2**20, 1.5 * 2**30, 2**50)]
    assert written == ["0 bytes", "12 bytes", "1.5 KiB", "1,000 MiB", "1.5 GiB", "1,024 TiB"]


def test_a_choice_is_found_at_once_for_a_batch_of_any_size() -> None:
    vast = changed(SEQUENCES, train_batch_size=2**31 - 1)
    assert math.isfinite(sum(x.total for x in memory.choices(LARGE, vast, EIGHT, "gpu", GIB)))
