"""Shingles, and the bands that propose pairs."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data import shingles
from engine.data.shingles import BANDS, ROWS, normalised, words


def hashed(*texts: str) -> list[list[int]]:
    """The hashes of the words of each text."""
    flat, counts = words([normalised(text) for text in texts])
    return [part.tolist() for part in np.split(flat, np.cumsum(counts)[:-1])]


def by_hand(normal: str) -> list[str]:
    """The words of a text, letter by letter."""
    found, open_ = list[str](), ""
    for letter in normal:
        if letter in shingles.JOINERS or unicodedata.category(letter)[0] == "M":
            kind = open_
        elif not re.match(r"\w", letter):
            kind = ""
        else:
            kind = "alone" if re.match(f"[{shingles.APART}]", letter) else "letter"
            if kind == "alone" or kind != open_:
                found.append("")
        if kind:
            found[-1] += letter
        open_ = kind
    return found


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_words_are_runs_of_letters_and_digits_whatever_is_around_them(texts: list[str]) -> None:
    separated = [by_hand(normalised(text)) for text in texts]
    assert hashed(*texts) == [[h for word in found for h in hashed(word)[0]] for found in separated]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Don't  STOP,\n\t3.5 x_1", ["don", "t", "stop", "3", "5", "x_1"]),
        ("Straße e\u0301t\u00e9", ["strasse", "été"]),
        ("機械学習 is ML", ["機", "械", "学", "習", "is", "ml"]),
        ("… !", []),
        ("जाता है, जाती थी", ["जाता", "है", "जाती", "थी"]),  # Devanagari
        ("আমি যাচ্ছি", ["আমি", "যাচ্ছি"]),  # Bengali
        ("நான் போகிறேன்", ["நான்", "போகிறேன்"]),  # Tamil
        ("నేను వెళ్తున్నాను", ["నేను", "వెళ్తున్నాను"]),  # Telugu
        ("මම යනවා", ["මම", "යනවා"]),  # Sinhala
        ("كَتَبَ الوَلَدُ", ["كَتَبَ", "الوَلَدُ"]),  # Arabic with vowels
        ("می‌خواهم بروم", ["می‌خواهم", "بروم"]),  # Persian, with a joiner
        ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),  # Hebrew with points
        ("བོད་སྐད", ["བོད", "སྐད"]),  # Tibetan
        ("ที่นี่", ["ที่", "นี่"]),  # Thai: a letter with its marks
        ("ខ្ញុំ", ["ខ្", "ញុំ"]),  # Khmer
        ("がか ﾊﾟ", ["が", "か", "ﾊ", "ﾟ"]),  # Japanese
        ("𠮷野家", ["𠮷", "野", "家"]),
        ("❤️👩‍💻 x", ["x"]),  # marks of what is no letter
    ],
)
def test_the_words_of_a_text(text: str, found: list[str]) -> None:
    assert hashed(text) == hashed(" ".join(found))
    assert len(hashed(text)[0]) == len(set(hashed(text)[0])) == len(found)


def test_a_long_text_has_the_same_words_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = "  one two,\nthree  \t \n  four five\tsix seven ", "", "eight nine", "ten"
    whole, normal = hashed(*texts), normalised(texts[0])
    for size in range(1, 9):
        monkeypatch.setattr(shingles, "PIECE", size)
        assert normalised(texts[0]) == normal
    monkeypatch.setattr(shingles, "PIECE", 5)
    assert hashed(*texts) == whole
    assert [len(found) for found in whole] == [7, 0, 2, 1]


def test_a_text_of_few_words_has_one_shingle_of_them_all() -> None:
    texts = ["", "one", "one two", "two one", "", "one two three four", "two three four five", ""]
    flat, counts = shingles.shingles_of_each(*words(texts))
    assert counts.tolist() == [0, 1, 1, 1, 0, 2, 2, 0]
    assert flat[4] == flat[5], "of two three four"
    assert len(set(flat.tolist())) == 6
    alone = [shingles.shingles(words([text])[0]) for text in texts]
    assert np.concatenate(alone).tolist() == flat.tolist()


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
    each = np.full(pairs, size)
    one = shingles.bands(values[:, :size].ravel(), each)
    other = shingles.bands(values[:, size - both :].ravel(), each)
    shared = (one == other).any(axis=1).mean()
    real = both / (2 * size - both)
    expected = 1 - (1 - real**ROWS) ** BANDS
    assert shared == pytest.approx(expected, abs=4 * (expected * (1 - expected) / pairs) ** 0.5)
