"""A model in stages trains as it does in one process, whatever the schedule: gradients, figures and
checkpoints. Of several processes it is shown by children (`in_stages.py`)."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from in_stages import CONFIG, LAST, MODEL, ask
from jax.extend import core
from on_devices import sampler

from engine.config.schedules import SCHEDULES, Schedule, Times, chunks_of, simulate, table
from engine.config.schema import MeshConfig, ModelConfig, TrainConfig
from engine.data.token_store import Batch
from engine.model import mesh
from engine.model.decoder import Decoder, Params
from engine.model.loss import cross_entropy
from engine.pipeline.pipeline import Pipeline
from engine.pipeline.programs import Chunk, programs
from engine.pipeline.train import read_batch
from engine.training import checkpoint, step
from engine.training.digest import leaves, tree_sha256
from engine.training.train import train
from tests.integration.engine.test_mesh import FIFTIETH, FIRST

# With every parameter that the ends may have.
DEEP = ModelConfig.model_validate(
    MODEL.model_dump()
    | {"hidden_dim": 16, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8}
    | {"qk_norm": "learned", "gated_norm": 4, "logit_soft_cap": 20.0}
)
ITEMS = ("params", "rest")
PARTS = TrainConfig.model_validate(
    CONFIG.model_dump(exclude_unset=True) | {"gradient_accumulation_steps": 8}
    | {"z_loss_weight": 1e-3}
)  # fmt: skip


@cache
def alone(layers: int) -> tuple[Decoder, Params, float, Params]:
    """A model with its parameters, and of the first batch the loss and the gradient of one
    process."""
    decoder = Decoder(DEEP.model_copy(update={"num_layers": layers}))
    rows = range(PARTS.train_batch_size)
    recipe = step.recipe(decoder, PARTS, cross_entropy)
    params = jax.jit(decoder.init)(jax.random.key(3))
    batch: Batch = jax.tree.map(np.asarray, sampler().rows(1, np.array(rows)))
    loss, grads = jax.jit(step._gradients, static_argnums=0)(recipe, params, batch)
    return decoder, params, float(loss), grads


# ── What one process would have done ─────────────────────────────────────────────────────────


# Four stages each night for the two schedules that have one chunk a stage and one backward pass.
NIGHTLY = "gpipe", "1f1b"


@pytest.mark.parametrize(
    ("schedule", "stages"),
    [
        pytest.param(
            *(schedule, stages),
            marks=pytest.mark.slow if stages == 4 and schedule in NIGHTLY else (),
            id=f"{schedule}-{stages}",
        )
        for schedule in SCHEDULES
        for stages in (2, 4)
    ],
)
def test_every_schedule_agrees_with_one_process_and_keeps_what_is_counted(
    schedule: Schedule, stages: int
) -> None:
    decoder, params, loss, grads = alone(stages * chunks_of(schedule) if stages == 4 else 4)
    devices = jax.devices()[:1] * stages  # one after the other
    pipeline = Pipeline(decoder, PARTS, stages, schedule, DEEP.seq_len, devices)
    states = {number: stage.begin(stage.cut(params)) for number, stage in pipeline.here.items()}
    through = pipeline.gradients(states, read_batch(pipeline, PARTS, sampler(), 1))

    assert sum(map(float, through.losses[stages - 1])) == pytest.approx(loss, rel=1e-5)
    seen: set[str] = set()
    for number, stage in pipeline.here.items():
        mine, wanted = leaves(stage.joined(through.sums[number])), leaves(stage.cut(grads))
        assert mine.keys() == wanted.keys()
        seen |= mine.keys()
        for path, x in mine.items():
            assert far(x, wanted[path]) < 1e-5, path
    assert seen == leaves(grads).keys()

    chunks = stages * chunks_of(schedule)
    counted = simulate(
        table(schedule, stages, PARTS.gradient_accumulation_steps),
        Times.alike(chunks, forward=1.0, inputs=1.0, weights=1.0),
    )
    assert [through.peaks[stage] for stage in range(stages)] == list(counted.peaks)


def far(x: Any, wanted: Any) -> float:
    """Their distance, as a fraction of the norm."""
    return float(np.linalg.norm(np.asarray(x) - wanted) / np.linalg.norm(wanted))


# ── The two parts of the backward pass ───────────────────────────────────────────────────────


def test_the_part_for_weights_multiplies_for_weights_alone_and_nothing_is_done_twice() -> None:
    chunk = Chunk(Decoder(DEEP), DEEP.kinds[:2], False, False, DEEP.seq_len, 0.0)
    cut = programs(chunk, mesh.make(MeshConfig()), 4, False).split
    parts = cut.forward, cut.inputs, cut.weights
    T, h, D, F = 4 * DEEP.seq_len, DEEP.head_dim, DEEP.hidden_dim, DEEP.intermediate_dim
    heads, kv = DEEP.num_heads, DEEP.num_kv_heads
    matrices = D * (2 * heads + 2 * kv) * h + 3 * D * F + 2 * 2 * D * (DEEP.gated_norm or 0)
    of_matrices = 2 * 2 * T * matrices  # two layers, a multiply and an add each
    forward, inputs, weights = map(products, parts)
    assert weights == of_matrices
    # Attention multiplies two pairs of matrices forward, and four backward.
    assert forward - of_matrices > 0
    assert inputs - of_matrices == 2 * (forward - of_matrices)
    # No equation is in two parts, and no input's gradient depends on one of the weights' part.
    made = [{id(one) for one in part} for part in parts]
    assert sum(map(len, made)) == len(set.union(*made))
    for_inputs = {id(x) for one in (*cut.forward, *cut.inputs) for x in one.invars}
    assert not for_inputs & {id(x) for one in cut.weights for x in one.outvars}


def products(equations: list[Any]) -> int:
    """FLOPs of the matrix products."""
    total = 0
    for one in equations:
        for inner in core.jaxprs_in_params(one.params):
            total += one.params.get("length", 1) * products(inner.eqns)
        if one.primitive.name == "dot_general":
            (contracted, _), _ = one.params["dimension_numbers"]
            shape = one.invars[0].aval.shape
            total += 2 * one.outvars[0].aval.size * int(np.prod([shape[x] for x in contracted]))
    return total


# ── Several processes ────────────────────────────────────────────────────────────────────────

LEGS = [  # folder, stages, schedule, the mesh inside of each, last step
    ("legs", 2, "zero-bubble", (1, 2, 1), 4),
    ("legs", 2, "zero-bubble", (1, 2, 1), 7),
    ("whole", 2, "zero-bubble", (1, 2, 1), 7),
    ("legs", 4, "1f1b", (1, 1, 1), 10),
    ("legs", 2, "interleaved", (1, 1, 2), LAST),
]


class Story(NamedTuple):
    """What came of it."""

    at: Path
    answers: list[list[dict[str, Any]]]  # of two processes with two devices each


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    at = tmp_path_factory.mktemp("stages")
    return Story(at, ask(2, 2, [(str(at / folder), *how) for folder, *how in LEGS]))


def test_stages_in_several_processes_learn_what_one_learns_and_each_goes_on_from_the_others(
    story: Story, tmp_path: Path
) -> None:
    assert story.answers[0] == story.answers[1], "every process knows the same figures"
    steps = [list(map(int, leg["losses"])) for leg in story.answers[0]]
    assert [of[-1] for of in steps] == [last for *_, last in LEGS]
    assert [of[0] for of in steps] == [1, 5, 1, 8, 11]
    alone = [x.loss for x in train(Decoder(MODEL), CONFIG, sampler(), 3, tmp_path / "alone")]
    for leg in story.answers[0]:
        for number, loss in leg["losses"].items():
            close = FIRST if number == "1" else FIFTIETH
            assert loss == pytest.approx(alone[int(number) - 1], rel=close), number
        assert "is expected to have a bubble of" in leg["words"][0]
    rest = train(Decoder(MODEL), CONFIG, sampler(), 3, tmp_path / "rest", [story.at / "whole"])
    after = {metrics.step: metrics.loss for metrics in rest}
    assert list(after) == list(range(8, LAST + 1))
    assert list(after.values()) == pytest.approx(alone[7:], rel=FIFTIETH)


def test_a_run_in_stages_that_was_stopped_goes_on_to_the_same_bytes(story: Story) -> None:
    one, other = (
        [tree_sha256(checkpoint.restore(story.at / folder / "7", item)) for item in ITEMS]
        for folder in ("legs", "whole")
    )
    assert one == other
