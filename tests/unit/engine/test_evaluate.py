import math

import numpy as np
import pytest

from engine.training.evaluate import CannotScore, score, together

WINDOWS = np.random.default_rng(4).integers(0, 40, (5, 9))
ALL = np.ones((5, 8), bool)
BYTES = np.arange(40) % 7  # of each token; some stand for none, as the end of a document does


def unigram(tokens_BS: np.ndarray) -> np.ndarray:
    """Token v has probability ∝ v + 1, whatever came before."""
    return np.broadcast_to(np.log(np.arange(40) + 1.0), (*tokens_BS.shape, 40))


# ── Any function ─────────────────────────────────────────────────────────────────────────────


def test_a_uniform_model_scores_log2_of_the_vocabulary_per_token() -> None:
    found = score(
        lambda tokens_BS: np.zeros((*tokens_BS.shape, 40)), WINDOWS, ALL, BYTES[WINDOWS[:, 1:]]
    )
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
    found = score(unigram, WINDOWS, scored, BYTES[WINDOWS[:, 1:]])
    targets = WINDOWS[:, 1:][scored]
    nats = (np.log(40 * 41 / 2) - np.log(targets + 1.0)).sum()
    assert found.targets == len(targets) < 40
    assert found.loss == pytest.approx(nats / len(targets), rel=1e-6)
    assert found.bpb == pytest.approx(nats / math.log(2) / BYTES[targets].sum(), rel=1e-6)


def test_scores_are_made_probabilities_here() -> None:
    honest = score(unigram, WINDOWS, ALL)
    boasting = score(lambda tokens_BS: unigram(tokens_BS) + 1000.0, WINDOWS, ALL)
    assert boasting.loss == pytest.approx(honest.loss, rel=1e-4)


def test_a_model_that_looks_ahead_is_refused() -> None:
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
    with pytest.raises(CannotScore, match="no byte of text is scored"):
        score(unigram, WINDOWS, ~ALL)
    with pytest.raises(CannotScore, match="no byte of text is scored"):
        score(unigram, WINDOWS, ALL, np.zeros(ALL.shape, int))


# ── The standard error ───────────────────────────────────────────────────────────────────────


def test_the_standard_error_is_how_much_the_score_varies_between_samples_of_windows() -> None:
    rng = np.random.default_rng(6)
    every = rng.integers(0, 40, (20_000, 9))
    mask = np.ones((100, 8), bool)
    samples = [every[i : i + 100] for i in range(0, 20_000, 100)]
    found = [score(unigram, sample, mask, BYTES[sample[:, 1:]]) for sample in samples]
    errors = [one.standard_error for one in found]
    assert all(one.windows == 100 for one in found)
    spread = np.std([one.bpb for one in found], ddof=1)
    assert np.mean([error for error in errors if error]) == pytest.approx(spread, rel=0.15)


def test_of_several_texts_the_variances_add_by_their_share_of_the_bytes() -> None:
    one, other = score(unigram, WINDOWS, ALL), score(unigram, WINDOWS[:3, ::-1], ALL[:3])
    both = together([one, other])
    assert one.standard_error
    assert other.standard_error
    expected = math.hypot(one.standard_error * 40, other.standard_error * 24) / 64
    assert both.standard_error == pytest.approx(expected)
    assert both.windows == 8


def test_one_window_has_no_standard_error() -> None:
    found = score(unigram, WINDOWS[:1], ALL[:1])
    assert found.standard_error is None
    assert together([found, score(unigram, WINDOWS, ALL)]).standard_error is None
