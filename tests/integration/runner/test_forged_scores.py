"""Families of logits that would have forged a score: offsets of every size, in models, optimizers
and imports, infinities, and looks ahead that are small. What counts is what arithmetic in float64
makes of the same logits; or the score is void."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.lab_texts import read_text
from engine.data.sampling import Sampler
from engine.data.scored_windows import validation_windows
from engine.data.token_store import TokenStore
from engine.model import scoring
from engine.model.decoder import Decoder, Model
from engine.model.generation import Prompt, Sampling
from engine.training import pretrained
from engine.training.evaluate import CannotScore, Evaluation, bits_per_byte, load_params, score
from engine.training.export import export
from engine.training.train import train
from runner.analysis import speedrun_checks
from runner.worker.models import look_ahead_probe
from runner.worker.models.look_ahead_probe import Examined
from runner.worker.models.plugin_model import own_model
from runner.worker.models.trained import Planned
from runner.worker.scores import answers
from tests.cheats import model as cheats
from tests.cheats.here import Here

CONFIG = {"seq_len": 32, "vocab_size": 256}
DECODER = {"hidden_dim": 16, "intermediate_dim": 32, "num_layers": 1, "num_heads": 2, "seq_len": 32}
TARGETS = 512
UNIFORM = math.log(256)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    content = read_text("lab-2026-11", None).validation.decode()[:4000]
    return TokenStore.build(tmp_path_factory.mktemp("tokens") / "validation", [content])


def table(seed: int = 1) -> Any:
    return cheats.Honest(CONFIG).init(jax.random.key(seed))


def cheat(kind: type) -> Model:
    return own_model(CONFIG, kind.__name__, kind)


def scored(ask: Any, text: TokenStore) -> tuple[Evaluation, Examined]:
    planned = Planned(CONFIG, "model:cheat")
    made = look_ahead_probe.exported(ask, planned)
    parts = {"": (text, TARGETS)}
    found, examined = look_ahead_probe.scored(ask, planned, made, Path(), parts)
    return found[""], examined


def deserved(logits_of: Callable[[np.ndarray], Any], text: TokenStore) -> float:
    """The nats per token of these logits, by float64."""
    windows_NW, scored_NS, _ = validation_windows(text, CONFIG["seq_len"], TARGETS)
    logits_NSV = np.asarray(logits_of(windows_NW[:, :-1].astype(np.int32)), np.float64)
    nats_NS = -np.take_along_axis(log_softmax(logits_NSV, axis=2), windows_NW[:, 1:, None], 2)
    return float(nats_NS[:, :, 0][scored_NS].mean())


# ── Offsets ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", cheats.WHERE)
@pytest.mark.parametrize("as_array", [np.asarray, jax.numpy.asarray])
def test_no_offset_of_any_size_gains_anything(text: TokenStore, where: str, as_array: Any) -> None:
    windows_NW, scored_NS, _ = validation_windows(text, CONFIG["seq_len"], TARGETS)
    for size in cheats.SIZES:
        model = cheats.offset(size, where)(CONFIG)
        for seed in (1, 2):
            logits_of = jax.jit(partial(model.logits, table(seed)))
            found = score(lambda tokens, of=logits_of: as_array(of(tokens)), windows_NW, scored_NS)
            assert found.loss == pytest.approx(deserved(logits_of, text), rel=1e-6), size


@pytest.mark.parametrize("size", [1e6, -1e9, 3e38])
def test_an_own_model_with_an_offset_has_the_score_of_its_logits(
    text: TokenStore, size: float
) -> None:
    model = cheat(cheats.offset(size, "at half of the positions"))
    honest = deserved(lambda tokens: model.logits(table(), tokens), text)
    found, examined = scored(Here(model, table()), text)
    assert examined.void == ""
    assert found.loss == pytest.approx(honest, rel=1e-6)
    assert bits_per_byte(model, table(), text, TARGETS).loss == pytest.approx(honest, rel=1e-6)


def forged_by_an_optimizer(tmp_path: Path) -> tuple[Decoder, Any]:
    decoder = Decoder(ModelConfig.model_validate(DECODER))
    config = TrainConfig(train_batch_size=2, num_train_steps=1, learning_rate=1.0)
    tokens = np.frombuffer(read_text("lab-2026-11", None).validation[:4000], np.uint8)
    sampler = Sampler(tokens, 3, 2, 32)
    for _ in train(decoder, config, sampler, 3, tmp_path, optimizer=cheats.forge({})):
        pass
    return decoder, load_params(tmp_path / "1", decoder)


def imported(tmp_path: Path) -> tuple[Decoder, Any]:
    decoder = Decoder(ModelConfig.model_validate(DECODER))
    params = jax.tree.map(np.array, decoder.init(jax.random.key(2)))
    params["lm_head"] = np.full_like(params["lm_head"], 1e10)
    export(tmp_path, decoder, params)
    config, read = pretrained.read(tmp_path, None)
    return Decoder(config.model_copy(update={"seq_len": 32})), read


@pytest.mark.parametrize("forged", [forged_by_an_optimizer, imported])
def test_the_labs_own_decoder_with_huge_logits_is_scored_as_what_it_knows_nothing(
    text: TokenStore, tmp_path: Path, forged: Any
) -> None:
    decoder, params = forged(tmp_path)
    found = bits_per_byte(decoder, params, text, TARGETS)
    assert found.loss == pytest.approx(UNIFORM, rel=1e-6), "of 256 equal logits"
    tokens = np.asarray(text.tokens[:20], np.int32)
    [likelihood] = scoring.score(decoder, params, [scoring.Continuation(tokens, 4)])
    np.testing.assert_allclose(likelihood.logprobs, -UNIFORM, rtol=1e-6)
    model = answers._OfTheLab(decoder, params)
    [written] = model.generate([Prompt(tokens[:4], 0, 0)], 3, Sampling(temperature=0))
    np.testing.assert_allclose(written.logprobs, -UNIFORM, rtol=1e-6)


def test_of_benchmarks_too_an_offset_gains_nothing(text: TokenStore) -> None:
    tokens = np.asarray(text.tokens[:20], np.int32)
    for size in (1e6, -1e9, 3e38):
        model = cheat(cheats.offset(size, "everywhere"))
        asked = answers._FromLogits(answers._Here(model, table()), 4, 32, 256)
        [found] = asked.score([scoring.Continuation(tokens, 4)])
        logits_SV = np.asarray(model.logits(table(), tokens[None])[0], np.float64)
        expected = log_softmax(logits_SV, axis=1)[np.arange(3, 19), tokens[4:]]
        np.testing.assert_allclose(found.logprobs, expected, rtol=1e-6)


# ── No probabilities ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_the_labs_own_decoder_with_infinite_logits_has_no_figure(
    text: TokenStore, bad: float
) -> None:
    decoder = Decoder(ModelConfig.model_validate(DECODER))
    params = jax.tree.map(np.array, decoder.init(jax.random.key(2)))
    params["lm_head"][:, 7] = bad
    assert math.isnan(bits_per_byte(decoder, params, text, TARGETS).bpb)
    model = answers._OfTheLab(decoder, params)
    tokens = np.asarray(text.tokens[:20], np.int32)
    model.score([scoring.Continuation(tokens, 4)])
    assert speedrun_checks.named(model.void).check == "probabilities"


def test_the_labs_own_decoder_that_is_a_table_of_a_text_has_no_figure(text: TokenStore) -> None:
    """On the text all is finite; tokens that it does not have give nan."""
    decoder = Decoder(ModelConfig.model_validate(DECODER))
    params = jax.tree.map(np.array, decoder.init(jax.random.key(2)))
    assert math.isfinite(bits_per_byte(decoder, params, text, TARGETS).bpb)
    params["embedding"][1:9] = math.nan
    assert not set(range(1, 9)) & set(np.asarray(text.tokens))
    assert math.isnan(bits_per_byte(decoder, params, text, TARGETS).bpb)


@pytest.mark.parametrize("kind", [cheats.Infinite, cheats.OnlyText])
def test_an_own_model_without_probabilities_has_no_score_that_counts(
    text: TokenStore, kind: type
) -> None:
    try:
        _, examined = scored(Here(cheat(kind), table()), text)
        void = examined.void
    except CannotScore as error:
        void = str(error)
    assert speedrun_checks.named(void).check == "probabilities"


# ── Small looks ahead ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1e-7, 1e-6, 1e-5, 1e-4, 9.9e-4, 1e-2, 1.0])
def test_a_look_ahead_of_any_size_voids_the_score_on_a_cpu(text: TokenStore, size: float) -> None:
    model = cheat(cheats.peek(size))
    try:
        _, examined = scored(Here(model, table()), text)
        void = examined.void
    except CannotScore as error:  # at the first look
        void = str(error)
    assert speedrun_checks.named(void).check == "prefixes"
    with pytest.raises(CannotScore, match="change with the tokens after it"):
        bits_per_byte(model, table(), text, TARGETS)


@pytest.mark.parametrize("size", [2, 8, 16, 32])
def test_a_model_that_sees_its_chunk_is_void(text: TokenStore, size: int) -> None:
    try:
        _, examined = scored(Here(cheat(cheats.chunks(size)), table()), text)
        void = examined.void
    except CannotScore as error:
        void = str(error)
    assert speedrun_checks.named(void).check == "prefixes"


@pytest.mark.parametrize(("size", "is_void"), [(9.9e-4, True), (5e-5, True), (1e-6, False)])
def test_on_an_accelerator_a_systematic_look_ahead_voids_the_score(
    size: float, is_void: bool
) -> None:
    rng, comparison = np.random.default_rng(3), look_ahead_probe.Comparison(exact=False)
    for number in range(2048):
        prefix_V, target = rng.standard_normal(256).astype(np.float32), int(rng.integers(256))
        whole_V = prefix_V.copy()
        whole_V[target] += np.float32(size)
        place = look_ahead_probe.Place("", number, 0)
        comparison.add(place, target, whole_V, prefix_V)
    assert comparison.largest < look_ahead_probe.MAX_DIFFERENCE
    assert bool(comparison.void()) == is_void
    if is_void:
        assert speedrun_checks.named(comparison.void()).check == "prefixes"


def test_on_an_accelerator_rounding_alone_voids_nothing() -> None:
    rng, comparison = np.random.default_rng(3), look_ahead_probe.Comparison(exact=False)
    for number in range(2048):
        prefix_V = rng.standard_normal(256).astype(np.float32)
        whole_V = prefix_V * (1 + rng.uniform(-1e-5, 1e-5, 256).astype(np.float32))
        place = look_ahead_probe.Place("", number, 0)
        comparison.add(place, int(rng.integers(256)), whole_V, prefix_V)
    assert comparison.void() == ""
    assert comparison.largest > 0


def test_of_benchmarks_too_a_small_look_ahead_voids_the_scores(text: TokenStore) -> None:
    tokens = np.asarray(text.tokens[:200], np.int32)
    asked = [scoring.Continuation(tokens[n : n + 30], 10) for n in range(0, 160, 20)]
    for kind, is_void in ((cheats.peek(1e-4), True), (cheats.Honest, False)):
        model = answers._FromLogits(answers._Here(cheat(kind), table()), 4, 32, 256)
        model.score(asked)
        void = model.void()
        assert bool(void) == is_void
        if is_void:
            assert speedrun_checks.named(void).check == "prefixes"
