"""Shingles, and the bands that propose pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data import shingles
from engine.data.shingles import BANDS, ROWS, WORD, normalised, separated, words


@given(st.text(st.characters(max_codepoint=127)))
def test_the_fast_way_to_words_of_ascii_finds_the_same(text: str) -> None:
    normal = normalised(text)
    assert separated(normal) == WORD.findall(normal)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Don't  STOP,\n\t3.5 x_1", ["don", "t", "stop", "3", "5", "x_1"]),
        ("Straße e\u0301t\u00e9", ["strasse", "été"]),
        ("機械学習 is ML", ["機", "械", "学", "習", "is", "ml"]),
        ("… !", []),
    ],
)
def test_the_words_of_a_text(text: str, found: list[str]) -> None:
    assert separated(normalised(text)) == found


def test_a_long_text_has_the_same_words_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "  one two,\nthree  four five\tsix seven "
    whole, normal = words(normalised(text)), normalised(text)
    monkeypatch.setattr(shingles, "PIECE", 5)
    assert normalised(text) == normal
    assert words(normal).tolist() == whole.tolist()


def test_hashes_do_not_depend_on_what_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shingles, "MAX_KNOWN", 2)
    one = words("a b c d a b")
    assert one.tolist() == words("a b c d a b").tolist()
    assert one[0] == one[4] != one[1]


def test_a_text_of_few_words_has_one_shingle_of_them_all() -> None:
    assert len(shingles.shingles(words(""))) == 0
    assert len(shingles.shingles(words("one"))) == 1
    assert len(shingles.shingles(words("one two"))) == 1
    assert shingles.shingles(words("one two")) != shingles.shingles(words("two one"))
    assert len(shingles.shingles(words("one two three four"))) == 2


def test_common_values_and_their_share() -> None:
    one, other = np.array([1, 3, 5, 9], np.uint64), np.array([3, 4, 9], np.uint64)
    none = np.empty(0, np.uint64)
    assert shingles.common(one, other) == shingles.common(other, one) == 2
    assert shingles.jaccard(one, other) == 2 / 5
    assert shingles.common(one, none) == 0
    assert shingles.jaccard(none, none) == 0


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.75, 0.8, 0.9])
def test_pairs_share_a_band_as_often_as_the_formula_says(similarity: float) -> None:
    pairs, size = 600, 300
    both = round(2 * size * similarity / (1 + similarity))
    random = np.random.default_rng(0)
    values = random.integers(0, 1 << 64, (pairs, 2 * size - both), np.uint64)
    one = shingles.bands(list(values[:, :size]))
    other = shingles.bands(list(values[:, size - both :]))
    shared = (one == other).any(axis=1).mean()
    real = both / (2 * size - both)
    expected = 1 - (1 - real**ROWS) ** BANDS
    assert shared == pytest.approx(expected, abs=4 * (expected * (1 - expected) / pairs) ** 0.5)
