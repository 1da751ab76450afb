"""What the engine is compared with is the same model, trained in the same way."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.packing import PackedRows
from engine.data.sampling import Sampler
from engine.data.token_store import TokenStore
from engine.model.decoder import Decoder
from engine.model.loss import cross_entropy
from engine.training import optim
from engine.training.train import train
from tests.bench import charts, sides, torch_model, tuning

pytestmark = pytest.mark.slow

MODEL = ModelConfig(
    hidden_dim=16,
    intermediate_dim=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    seq_len=16,
    vocab_size=256,
)
CONFIG = TrainConfig(
    train_batch_size=2, num_train_steps=4, learning_rate=0.01, warmup=2, max_grad_norm=0.5
)


@pytest.fixture(scope="module")
def params() -> Any:
    """Larger than they begin, so that every part of the model matters."""
    drawn = jax.jit(Decoder(MODEL).init)(jax.random.key(0))
    return jax.tree.map(lambda x: np.asarray(x * 4), drawn)


@pytest.fixture
def torch_decoder(params: Any) -> torch_model.Decoder:
    decoder = torch_model.Decoder(MODEL)
    torch_model.load(decoder, params)
    return decoder


def test_the_torch_model_has_the_engines_logits(
    params: Any, torch_decoder: torch_model.Decoder
) -> None:
    tokens_BS = np.random.default_rng(0).integers(0, 256, (2, 16)).astype(np.int32)
    ours = Decoder(MODEL).logits(params, tokens_BS)
    theirs = torch_decoder.logits(torch.from_numpy(tokens_BS).long()).detach()
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_engine_and_torch_make_the_same_steps(
    params: Any, torch_decoder: torch_model.Decoder, tmp_path: Path
) -> None:
    text = np.random.default_rng(1).integers(0, 256, 500).astype(np.uint8)
    sampler = Sampler(text, 0, CONFIG.train_batch_size, MODEL.seq_len)
    ours = [
        metrics.loss
        for metrics in train(Decoder(MODEL), CONFIG, sampler, 0, tmp_path, start_from=params)
    ]

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for step in range(1, 5):
            inputs_BS, targets_BS, _ = sampler.rows(step, range(2))
            yield torch.from_numpy(inputs_BS).long(), torch.from_numpy(targets_BS).long()

    theirs = list(torch_model.train(torch_decoder, torch_decoder, CONFIG, batches()))
    # From the second on a loss depends on the update before it: clipping, AdamW and its rate.
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)
    assert abs(ours[0] - ours[-1]) > 0.1


def test_torch_has_the_engines_loss_of_conversations_packed_and_alone(
    params: Any, torch_decoder: torch_model.Decoder
) -> None:
    tokens_N = np.random.default_rng(2).integers(0, 256, 90).astype(np.uint8)
    store = TokenStore.of(tokens_N, offsets=np.array([0, 9, 13, 27, 44, 60, 65, 73, 90]))
    store = replace(store, scored=tokens_N > 99)
    batch = PackedRows(store, MODEL.seq_len).read(np.arange(4))
    assert batch.segments_BS is not None
    model = Decoder(MODEL)
    features = model.features(params, batch.inputs_BS, batch.segments_BS)
    ours = cross_entropy(features, model.output_matrix(params), batch.targets_BS)
    for parts in (tuning.masked(*batch), tuning.in_rows(*batch)):
        inputs, targets, *mask = map(torch.from_numpy, parts)
        theirs = torch_decoder(inputs.long(), targets.long(), *mask).item()
        assert theirs == pytest.approx(float(ours.nats / ours.targets), rel=2e-5)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_engine_and_torch_have_the_same_learning_rates(schedule: str) -> None:
    config = CONFIG.model_copy(update={"lr_schedule": schedule, "num_train_steps": 9})
    ours = [float(optim.rates(config)(step).matrix) for step in range(1, 10)]
    theirs = [torch_model.learning_rate(config, step) for step in range(1, 10)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_fresh_torch_weights_are_spread_as_the_engines() -> None:
    model = ModelConfig(
        hidden_dim=64, intermediate_dim=96, num_layers=2, num_heads=4, seq_len=8, vocab_size=256
    )
    ours = jax.jit(Decoder(model).init)(jax.random.key(0))
    torch.manual_seed(0)
    theirs = torch_model.Decoder(model)
    mlp = ours["blocks"]["mlp"]
    for mine, other in (
        (ours["embedding"], theirs.embedding.weight),
        (mlp["gate_proj"], theirs.blocks[0].gate_up_proj.weight),
        (mlp["down_proj"], theirs.blocks[0].down_proj.weight),
    ):
        assert float(other.detach().std()) == pytest.approx(float(mine.std()), rel=0.05)
        assert float(other.detach().abs().max()) == pytest.approx(float(abs(mine).max()), rel=0.02)


def test_parameters_survive_the_way_between_processes(params: Any, tmp_path: Path) -> None:
    sides.write_params(params, tmp_path / "params.npz")
    read = sides.read_params(tmp_path / "params.npz")
    assert jax.tree.structure(read) == jax.tree.structure(params)
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, read, params)))


def test_a_picture_shows_every_side() -> None:
    side = {"tokens_per_second": [100.0, 120.0], "losses": [5.0, 4.0, 3.5]}
    found = {
        "model": MODEL.model_dump(),
        "train": CONFIG.model_dump(),
        "sides": dict(zip(("engine", "eager", "compile"), repeat(side))),
    }
    drawing = charts.svg(charts.losses("1M", found))
    assert all(label in drawing for label in charts.LABELS.values())
