"""A model in stages: what each holds is counted as its state is, and the schedule that is expected
to be the fastest is chosen among those that fit."""

import math
from typing import Any

import jax
import pytest

from engine.config import memory, stage_choice, stages
from engine.config.hardware import Hardware
from engine.config.schedules import SCHEDULES, chunks_of
from engine.config.schema import ModelConfig, TrainConfig
from engine.config.stages import Layout, StagedCompute
from engine.model import mesh
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy
from engine.pipeline.programs import Chunk, Stage, programs
from engine.training import step
from engine.training.digest import leaves

MODEL = ModelConfig(depth=8, seq_len=128, vocab_size=512)
TRAIN = TrainConfig(
    train_batch_size=32, num_train_steps=10, learning_rate=0.01, gradient_accumulation_steps=8
)
CPU, PEAK = Hardware("cpu", 4, None, 1), 1e11


def compute(**said: Any) -> StagedCompute:
    inside = {"pipeline": 4} | said.pop("mesh", {})
    return StagedCompute.model_validate({"mesh": inside, **said})


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_layer_is_on_one_stage_and_each_stage_holds_the_bytes_that_are_counted(
    schedule: Any,
) -> None:
    layout = Layout(MODEL, 4, chunks_of(schedule))
    assert sorted(x for n in range(4) for x in layout.rows(n, "blocks")) == list(range(8))
    on, recipe = mesh.make(stages.MeshConfig()), step.recipe(Decoder(MODEL), TRAIN, cross_entropy)
    counted = stage_choice.footprints(MODEL, TRAIN, compute(schedule=schedule), "cpu")
    paths: set[str] = set()
    for number, held in enumerate(counted):
        state = Stage(layout, number, recipe, on, MODEL.seq_len).abstract
        final_norm = 0 if number == 3 else 4 * MODEL.hidden_dim  # counted on every stage
        parameters = sum(4 * x.size for x in jax.tree.leaves(state.params))
        assert held.parameters == parameters + final_norm
        moments = [4 * x.size for x in jax.tree.leaves(state.moments) if x.size > 1]
        assert held.moments == sum(moments) + 2 * final_norm
        paths |= leaves(state.params).keys()
    assert paths == leaves(step.abstract_state(recipe, on).params).keys()


def test_a_stage_keeps_activations_of_the_parts_at_its_peak() -> None:
    one, gpipe = (
        [x.activations for x in stage_choice.footprints(MODEL, TRAIN, compute(schedule=of), "cpu")]
        for of in ("1f1b", "gpipe")
    )
    assert one == sorted(one, reverse=True)
    assert len(set(gpipe)) == 1
    layer = (one[0] - one[1]) / 2  # of two layers, one part more
    assert gpipe[0] - one[0] == pytest.approx(4 * 2 * layer)
    again, late = (
        [
            x.activations
            for x in stage_choice.footprints(
                MODEL, TRAIN, compute(schedule=of, remat="block"), "cpu"
            )
        ]
        for of in ("gpipe", "zero-bubble")
    )
    assert again[0] < gpipe[0] / 4
    assert late == sorted(late), "later stages put off more gradients of weights"
    assert late[3] - late[2] == pytest.approx(2 * layer, rel=0.05)


@pytest.mark.parametrize("remat", ["none", "block"])
def test_what_is_kept_of_a_part_is_what_the_forward_program_leaves(remat: Any) -> None:
    model = MODEL.model_copy(update={"seq_len": 1024, "num_layers": 4})
    counted = [
        stage_choice.footprints(model, TRAIN, compute(schedule=of, remat=remat), "cpu")[0]
        for of in ("gpipe", "1f1b")
    ]
    each = (counted[0].activations - counted[1].activations) / 4
    decoder = Decoder(model, compute(remat=remat, dtype="float32").inside)
    chunk = Chunk(decoder, model.kinds[:1], False, False, model.seq_len, 0.0)
    kept = programs(chunk, mesh.make(stages.MeshConfig()), 4, False).split.kept
    left = sum(x.aval.size * x.aval.dtype.itemsize for x in kept)
    assert left <= each + 1
    assert left == pytest.approx(each, rel=0 if remat == "block" else 0.25)


def test_the_fastest_schedule_that_fits_is_chosen_and_a_declared_one_stays() -> None:
    fast = stage_choice.choose(MODEL, TRAIN, compute(), CPU, PEAK)
    assert fast.compute.schedule == "zero-bubble"
    assert "interleaved" in fast.why
    assert fast.expected.bubble < 0.2
    room = {
        of: stage_choice.held(MODEL, TRAIN, compute(schedule=of), "gpu").total / memory.USABLE
        for of in SCHEDULES
    }
    assert room["1f1b"] <= room["zero-bubble"] < room["gpipe"]
    tight = Hardware("gpu", 4, math.ceil(room["1f1b"]), 8)
    assert stage_choice.choose(MODEL, TRAIN, compute(), tight, PEAK).compute.schedule != "gpipe"
    small = Hardware("gpu", 4, 1000, 8)
    least = stage_choice.choose(MODEL, TRAIN, compute(), small, PEAK)
    assert least.why == "chosen: none fits, and with this one stages hold least"
    declared = stage_choice.choose(MODEL, TRAIN, compute(schedule="gpipe"), CPU, PEAK)
    assert (declared.compute.schedule, declared.why) == ("gpipe", "as declared")
    # Six parts are no multiple of four stages, and a single part has nothing to interleave.
    assert "interleaved" not in stages.possible(
        MODEL, TRAIN.model_copy(update={"gradient_accumulation_steps": 6}), 4
    )


def test_any_configuration_may_be_asked_for_its_pipeline() -> None:
    assert stages.is_staged({"compute": {"mesh": {"pipeline": 2}}})
    for other in ({}, {"compute": "fast"}, {"compute": {"mesh": [1]}}, {"compute": {"mesh": {}}}):
        assert not stages.is_staged(other)
        assert stages.without_stages(other) == other


def test_a_stage_has_the_same_mesh_inside_and_a_pipeline_of_one_is_none() -> None:
    said = compute(mesh={"fsdp": 2}, remat="block", schedule="1f1b")
    assert said.mesh.devices == 8
    assert said.inside.model_dump() == {
        **said.model_dump(exclude={"schedule"}), "mesh": {"data": 1, "fsdp": 2, "tensor": 1}
    }  # fmt: skip
    assert said.with_inside(said.inside) == said
    alone = StagedCompute()
    assert alone.model_dump() == alone.inside.model_dump(), "old records have no new key"
    assert stage_choice.held(MODEL, TRAIN, alone, "cpu") == memory.footprint(
        MODEL, TRAIN, alone.inside, "cpu"
    )
