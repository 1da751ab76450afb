"""Of `test_memory.py` what needs a process, a socket or a compilation."""

import os
import subprocess
import sys
from typing import Any

import jax
import pytest

from engine.config import memory
from engine.config.memory import footprint
from engine.config.schema import GUARD_WINDOW, ComputeConfig, ModelConfig, TrainConfig
from engine.model import mesh as model_mesh
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy
from engine.training import step
from tests.unit.engine.test_memory import COMPUTE, MODEL, TRAIN, changed

GUARD = 4 * (2 * GUARD_WINDOW + 2)  # bytes of what a state remembers to tell bad steps


def compiled(model: ModelConfig, train: TrainConfig, compute: ComputeConfig) -> Any:
    """XLA's word on one step on one CPU device."""
    recipe = step.recipe(Decoder(model, compute), train, cross_entropy)
    lowered = step.lower(
        recipe, model_mesh.make(compute.mesh), train.train_batch_size, model.seq_len
    )
    return lowered.compile().memory_analysis()


# ── Against XLA ──────────────────────────────────────────────────────────────────────────────

SHAPES: dict[str, tuple[Any, ...]] = {
    "plain": (MODEL, TRAIN, COMPUTE),
    "remat": (MODEL, TRAIN, changed(COMPUTE, remat="block")),
    "unrolled": (MODEL, TRAIN, changed(COMPUTE, layers="unroll")),
    "unrolled remat": (MODEL, TRAIN, changed(COMPUTE, layers="unroll", remat="block")),
    "accumulated": (MODEL, changed(TRAIN, gradient_accumulation_steps=4), COMPUTE),
    "a window": (
        changed(MODEL, seq_len=512, sliding_window=64),
        changed(TRAIN, train_batch_size=2),
        COMPUTE,
    ),
    "learned norms, plain attention": (
        changed(MODEL, qk_norm="learned"),
        TRAIN,
        changed(COMPUTE, attention="reference"),
    ),
    "a wide vocabulary": (
        changed(MODEL, vocab_size=16384, num_layers=1),
        TRAIN,
        changed(COMPUTE, remat="block"),
    ),
}
EVERYDAY = ("plain", "remat", "a wide vocabulary")


@pytest.mark.parametrize(
    "name",
    [name if name in EVERYDAY else pytest.param(name, marks=pytest.mark.slow) for name in SHAPES],
)
def test_the_memory_estimate_is_within_a_quarter(name: str) -> None:
    model, train, compute = SHAPES[name]
    held, counted = compiled(model, train, compute), footprint(model, train, compute, "cpu")
    state = counted.parameters + counted.moments
    assert held.temp_size_in_bytes == pytest.approx(counted.total - state, rel=0.25)


def test_xla_is_given_parameters_moments_and_the_batch() -> None:
    held, counted = compiled(*SHAPES["plain"]), footprint(MODEL, TRAIN, COMPUTE, "cpu")
    batch, count, rates = 2 * 8 * 128 * 4, 4, 2 * 4
    given = counted.parameters + counted.moments + GUARD + batch + count + rates
    assert held.argument_size_in_bytes == given
    figures = held.output_size_in_bytes - held.alias_size_in_bytes
    assert figures < 1024, "the new state takes the place of the old one"


# ── Out of memory ────────────────────────────────────────────────────────────────────────────


def test_the_requested_bytes_are_parsed_from_xlas_message() -> None:
    # No machine has the 2^47 bytes of this, and CPUs refuse it by the same exception.
    with pytest.raises(jax.errors.JaxRuntimeError) as refused:
        jax.numpy.zeros((2**45,), jax.numpy.float32).block_until_ready()
    assert "RESOURCE_EXHAUSTED" in str(refused.value)
    assert memory.asked_for(str(refused.value)) == 2**47


def test_counting_needs_no_jax() -> None:
    code = "import sys; import engine.config.memory; print('jax' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env=os.environ)
    assert said.strip() == "False"
