"""Of `test_evaluate.py` what needs a process, a socket or a compilation."""

import math
from collections.abc import Callable
from pathlib import Path

import hugging_face
import jax
import numpy as np
import numpy_decoder
import pytest

from engine.config.schema import ModelConfig
from engine.data.lab_texts import Text
from engine.data.scored_windows import validation_windows
from engine.data.token_store import TokenStore, WrongTokens
from engine.data.tokenize import train_bpe
from engine.model.decoder import Decoder, Params
from engine.training import checkpoint, evaluate
from engine.training.checkpoint import BadCheckpoint
from engine.training.evaluate import bits_per_byte, load_params, score
from engine.training.export import export


@pytest.fixture(scope="module")
def params(tiny: ModelConfig, fresh: Callable[[ModelConfig, int], Params]) -> Params:
    return fresh(tiny, 4)


# ── Our models ───────────────────────────────────────────────────────────────────────────────


def test_the_score_is_the_one_computed_in_numpy(
    tiny: ModelConfig, params: Params, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = np.frombuffer(text.validation, np.uint8)
    monkeypatch.setattr(evaluate, "MOST_LOGITS", 3 * 16 * 256)  # batches of 3, the last one of 1
    found = bits_per_byte(Decoder(tiny), params, split, num_targets=100)

    windows = validation_windows(split, tiny.seq_len, 100).tokens_NW
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
