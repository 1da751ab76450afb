import math
from collections.abc import Callable
from pathlib import Path

import hugging_face
import jax
import numpy as np
import numpy_decoder
import pytest

from engine.config.schema import ModelConfig
from engine.data.token_store import TokenStore, WrongTokens, validation_windows
from engine.data.tokenize import Text, train_bpe
from engine.model.decoder import Decoder, Params
from engine.training import checkpoint, evaluate
from engine.training.checkpoint import BadCheckpoint
from engine.training.evaluate import CannotScore, bits_per_byte, load_params, score
from engine.training.export import export

WINDOWS = np.random.default_rng(4).integers(0, 40, (5, 9))
ALL = np.ones((5, 8), bool)
BYTES = np.arange(40) % 7  # of each token; some stand for none, as the end of a document does


def unigram(tokens_BS: np.ndarray) -> np.ndarray:
    """Token v has probability ∝ v + 1, whatever came before."""
    return np.broadcast_to(np.log(np.arange(40) + 1.0), (*tokens_BS.shape, 40))


@pytest.fixture(scope="module")
def params(tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params]) -> Params:
    return fresh(tiny, 4)


# ── Any function ─────────────────────────────────────────────────────────────────────────────


def test_who_knows_nothing_needs_log2_of_the_vocabulary_for_each_token() -> None:
    found = score(lambda tokens_BS: np.zeros((*tokens_BS.shape, 40)), WINDOWS, ALL, BYTES)
    num_bytes = int(BYTES[WINDOWS[:, 1:]].sum())
    assert num_bytes != 40
    assert found.targets == 40
    assert found.loss == pytest.approx(math.log(40), rel=1e-7)
    assert found.bpb == pytest.approx(40 * math.log2(40) / num_bytes, rel=1e-7)


@pytest.mark.parametrize("batch_size", [1, 3, 5, 16])
def test_the_batch_size_changes_nothing(batch_size: int) -> None:
    seen = []

    def logits_of(tokens_BS: np.ndarray) -> np.ndarray:
        seen.append(tokens_BS.shape)
        return unigram(tokens_BS)

    found = score(logits_of, WINDOWS, ALL, batch_size=batch_size)
    nats = np.log(40 * 41 / 2) - np.log(WINDOWS[:, 1:] + 1.0)
    assert found.loss == pytest.approx(nats.mean(), rel=1e-6)
    assert found.bpb == pytest.approx(nats.mean() / math.log(2), rel=1e-6)
    assert set(seen) == {(batch_size, 8)}


def test_only_what_the_mask_says_is_scored() -> None:
    scored = np.random.default_rng(5).random((5, 8)) < 0.4
    found = score(unigram, WINDOWS, scored, BYTES)
    targets = WINDOWS[:, 1:][scored]
    nats = (np.log(40 * 41 / 2) - np.log(targets + 1.0)).sum()
    assert found.targets == len(targets) < 40
    assert found.loss == pytest.approx(nats / len(targets), rel=1e-6)
    assert found.bpb == pytest.approx(nats / math.log(2) / BYTES[targets].sum(), rel=1e-6)


def test_scores_are_made_probabilities_here() -> None:
    honest = score(unigram, WINDOWS, ALL)
    boasting = score(lambda tokens_BS: unigram(tokens_BS) + 1000.0, WINDOWS, ALL)
    assert boasting.loss == pytest.approx(honest.loss, rel=1e-4)


def test_who_looks_ahead_is_refused() -> None:
    def peeking(tokens_BS: np.ndarray) -> np.ndarray:
        ahead_BS = np.concatenate((tokens_BS[:, 1:], tokens_BS[:, :1]), axis=1)
        return 9.0 * np.eye(40)[ahead_BS]

    with pytest.raises(CannotScore, match="see only itself and what is before it"):
        score(peeking, WINDOWS, ALL)


def test_a_model_that_broke_down_has_no_figure() -> None:
    found = score(lambda tokens_BS: unigram(tokens_BS) * math.nan, WINDOWS, ALL)
    assert math.isnan(found.bpb)


def test_answers_of_another_form_are_refused() -> None:
    with pytest.raises(CannotScore, match=r"logits have shape \(16, 40\); make them \(batch"):
        score(lambda tokens_BS: unigram(tokens_BS)[:, -1], WINDOWS, ALL)
    with pytest.raises(CannotScore, match="vocabulary of 30; score it with the tokenizer"):
        score(lambda tokens_BS: unigram(tokens_BS)[:, :, :30], WINDOWS, ALL)
    with pytest.raises(CannotScore, match="token_bytes_V ends at 29"):
        score(unigram, WINDOWS, ALL, BYTES[:30])
    with pytest.raises(CannotScore, match="no byte of text is scored"):
        score(unigram, WINDOWS, ~ALL)
    with pytest.raises(CannotScore, match="no byte of text is scored"):
        score(unigram, WINDOWS, ALL, np.zeros(40, int))


# ── Our models ───────────────────────────────────────────────────────────────────────────────


def test_the_score_is_the_one_computed_in_numpy(
    tiny: ModelConfig, params: Params, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = np.frombuffer(text.validation, np.uint8)
    monkeypatch.setattr(evaluate, "MOST_LOGITS", 3 * 16 * 256)  # batches of 3, the last one of 1
    found = bits_per_byte(Decoder(tiny), params, split, num_targets=100)

    windows, _ = validation_windows(split, tiny.seq_len, 100)
    nats = numpy_decoder.losses(tiny, params, windows).reshape(-1)[:100]
    assert abs(nats.mean() - math.log(256)) > 0.1  # not what any model would score
    assert found.loss == pytest.approx(nats.mean(), rel=1e-5)
    assert found.bpb == pytest.approx(nats.mean() / math.log(2), rel=1e-5)
    assert found.targets == 100


def test_the_same_model_scores_the_same_in_transformers(
    tiny: ModelConfig, params: Params, text: Text, tmp_path: Path
) -> None:
    split = np.frombuffer(text.validation, np.uint8)
    ours = bits_per_byte(Decoder(tiny), params, split, 100)
    export(tmp_path, Decoder(tiny), params)
    theirs = score(
        hugging_face.logits_of(hugging_face.load(tmp_path)),
        *validation_windows(split, tiny.seq_len, 100),
    )
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_longer_tokens_are_counted_by_their_bytes(tiny: ModelConfig, tmp_path: Path) -> None:
    lines = ["gently down the stream\n", "merrily, merrily\n", "life is but a dream ⛵\n"]
    store = TokenStore.build(tmp_path, lines, train_bpe(lines, 270))
    count = store.manifest.tokens - 1  # the first token is no target
    decoder = Decoder(tiny.model_copy(update={"vocab_size": 270, "seq_len": count}))
    like = jax.eval_shape(decoder.init, jax.random.key(0))
    knows_nothing = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like)
    found = bits_per_byte(decoder, knows_nothing, store, count)

    first = store.tokenizer().token_bytes[np.asarray(store.tokens)[0]]
    num_bytes = sum(len(line.encode()) for line in lines) - int(first)
    assert count < num_bytes
    assert found.loss == pytest.approx(math.log(270))
    assert found.bpb == pytest.approx(count * math.log2(270) / num_bytes)


def test_a_store_of_bytes_scores_as_its_bytes(
    tiny: ModelConfig, params: Params, text: Text, tmp_path: Path
) -> None:
    store = TokenStore.build(tmp_path, [text.validation.decode()])
    split = np.frombuffer(text.validation, np.uint8)
    assert bits_per_byte(Decoder(tiny), params, store, 100) == bits_per_byte(
        Decoder(tiny), params, split, 100
    )


def test_a_split_too_small_to_score_is_refused(tiny: ModelConfig, params: Params) -> None:
    with pytest.raises(WrongTokens, match="evaluate fewer tokens"):
        bits_per_byte(Decoder(tiny), params, np.zeros(100, np.uint8), num_targets=100)


def test_parameters_load_into_their_own_model_only(
    tiny: ModelConfig, params: Params, tmp_path: Path
) -> None:
    with checkpoint.manager(tmp_path) as saver:
        checkpoint.save(saver, 5, params, {"count": np.array(1)})
    loaded = load_params(tmp_path / "5", Decoder(tiny))
    assert checkpoint.difference(loaded, params) is None
    assert checkpoint.tree_sha256(loaded) == checkpoint.tree_sha256(params)
    tied = ModelConfig(**{**tiny.model_dump(), "tie_word_embeddings": True})
    with pytest.raises(BadCheckpoint, match="lm_head is not expected"):
        load_params(tmp_path / "5", Decoder(tied))
