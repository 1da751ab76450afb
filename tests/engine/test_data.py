from pathlib import Path

import numpy as np
import pytest

from engine import data
from engine.data import TokenStore, WrongTokens, batch, validation_windows
from engine.tokenize import Text


def test_a_store_gives_back_what_was_built(
    tmp_path: Path, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "CHUNK", 100)  # several chunks, the last one not full
    TokenStore.build(text, tmp_path)
    store = TokenStore.open(tmp_path, text.train_sha256, text.validation_sha256)
    assert store.train.tobytes() == text.train
    assert store.validation.tobytes() == text.validation


def test_other_tokens_than_asked_for_are_refused(tmp_path: Path, text: Text) -> None:
    TokenStore.build(text, tmp_path)
    with pytest.raises(WrongTokens, match=f"{text.validation_sha256} and not {'0' * 64}"):
        TokenStore.open(tmp_path, text.train_sha256, "0" * 64)


def test_a_changed_chunk_is_noticed(tmp_path: Path, text: Text) -> None:
    TokenStore.build(text, tmp_path)
    TokenStore.build(Text("x", text.train.replace(b"your", b"mine"), text.validation), tmp_path)
    with pytest.raises(WrongTokens, match="SHA-256"):
        TokenStore.open(tmp_path, text.train_sha256, text.validation_sha256)


def test_a_missing_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongTokens, match="no tokens can be read"):
        TokenStore.open(tmp_path / "nowhere", "0" * 64, "0" * 64)


def test_a_batch_depends_on_seed_and_step_only() -> None:
    tokens = np.arange(200, dtype=np.uint8)
    first = batch(tokens, seed=1, step=5, batch_size=4, seq_len=8)
    assert first.shape == (4, 9)
    assert first.dtype == np.int32
    assert (np.diff(first, axis=1) == 1).all()  # windows are cut whole
    batch(tokens, seed=9, step=9, batch_size=4, seq_len=8)
    np.testing.assert_array_equal(first, batch(tokens, 1, 5, 4, 8))
    assert (first != batch(tokens, 1, 6, 4, 8)).any()
    assert (first != batch(tokens, 2, 5, 4, 8)).any()


def test_batches_reach_the_first_and_the_last_token() -> None:
    drawn = batch(np.arange(12, dtype=np.uint8), seed=0, step=1, batch_size=200, seq_len=8)
    assert set(drawn[:, 0]) == {0, 1, 2, 3}


def test_a_text_shorter_than_a_window_is_refused() -> None:
    assert batch(np.zeros(9, np.uint8), 0, 1, 2, 8).shape == (2, 9)
    with pytest.raises(WrongTokens, match="8 tokens and a window of seq_len 8 needs 9"):
        batch(np.zeros(8, np.uint8), 0, 1, 2, 8)


def test_validation_windows_spread_over_the_split_and_share_no_target() -> None:
    tokens = np.arange(100, dtype=np.uint8)
    windows, mask = validation_windows(tokens, seq_len=8, num_targets=36)
    assert windows.shape == (5, 9)
    assert mask.sum() == 36
    assert mask[:4].all()
    assert (windows[0, 0], windows[-1, -1]) == (0, 99)
    assert len(np.unique(windows[:, 1:])) == 40
    gaps = np.diff(windows[:, 0])
    assert gaps.max() - gaps.min() <= 1


def test_validation_may_use_up_the_split_but_no_more() -> None:
    windows, _ = validation_windows(np.arange(41, dtype=np.uint8), 8, 40)
    np.testing.assert_array_equal(np.unique(windows[:, 1:]), np.arange(1, 41))
    with pytest.raises(WrongTokens, match="has 40 tokens and 40 targets in windows of 8 need 41"):
        validation_windows(np.arange(40, dtype=np.uint8), 8, 40)
