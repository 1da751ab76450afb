"""Which texts resemble each other: shingles of three words, their Jaccard similarity, and bands of
MinHashes that propose pairs. Pure; the same on every machine.

With 26 bands of 11 MinHashes, two texts of similarity s share a band with the probability
1 - (1 - s^11)^26, which is 0.90 at s = 0.8 and 0.9999 at s = 0.9 (Broder 1997; Leskovec, Rajaraman
and Ullman, Mining of Massive Datasets, 3.4).
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import rensa

BANDS, ROWS, SEED = 26, 11, 42
SHINGLE = 3  # words
MAX_KNOWN = 500_000  # words whose hashes are remembered, about 60 MB
PIECE = 1 << 20  # characters whose words are in memory at once
# Scripts that do not separate words: each of their characters is a word.
APART = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
WORD = re.compile(rf"[{APART}]|[^\W{APART}]+")
SPACE = re.compile(r"\s+")
# The same for ASCII, which `str.translate` and `str.split` do faster.
NO_WORD = {code: " " for code in range(128) if not WORD.match(chr(code))}
ODD = np.uint64(0x9E3779B97F4A7C15)


def normalised(text: str) -> str:
    """The text in Unicode's form NFC, in lower case, and with one space between words."""
    text = unicodedata.normalize("NFC", text).casefold()
    if len(text) > PIECE:  # a list of all its words would take ten times its memory
        return SPACE.sub(" ", text).strip()
    return " ".join(text.split())


def digest(normal: str) -> bytes:
    """16 bytes that identify a normalised text."""
    return hashlib.blake2b(normal.encode(errors="surrogatepass"), digest_size=16).digest()


class _Hashes(dict[str, int]):
    """32 bits for each word."""

    def __missing__(self, word: str) -> int:
        if len(self) >= MAX_KNOWN:
            self.clear()
        data = hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=4).digest()
        found = self[word] = int.from_bytes(data, "little")
        return found


_hashes = _Hashes()


def words(normal: str) -> np.ndarray:
    """The words of a normalised text, without punctuation, as 32-bit hashes: uint32, [words]."""
    found = [
        np.fromiter(map(_hashes.__getitem__, separated(piece)), np.uint32)
        for piece in _pieces(normal)
    ]
    return np.concatenate(found) if found else np.empty(0, np.uint32)


def separated(normal: str) -> list[str]:
    """The words of a normalised text."""
    return normal.translate(NO_WORD).split() if normal.isascii() else WORD.findall(normal)


def _pieces(normal: str) -> Iterator[str]:
    """The text, cut at spaces into pieces of about PIECE characters."""
    start = 0
    while start < len(normal):
        end = normal.find(" ", start + PIECE)
        end = len(normal) if end < 0 else end
        yield normal[start:end]
        start = end


def shingles(hashes: np.ndarray, count: int = SHINGLE) -> np.ndarray:
    """64 bits for each run of `count` words: uint64, [words - count + 1]. A text with fewer words
    has one shingle of them all, and one without words has none."""
    if 0 < len(hashes) < count:
        hashes = np.pad(hashes, (0, count - len(hashes)))
    long = hashes.astype(np.uint64)
    total = max(0, len(long) - count + 1)
    found = np.zeros(total, np.uint64)
    for at in range(count):
        found = (found ^ (found >> np.uint64(32))) * ODD + long[at : at + total]
    return mixed(found)


def mixed(values: np.ndarray) -> np.ndarray:
    """Other values, in which every bit depends on every bit (SplitMix64's finaliser)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def bands(of: Sequence[np.ndarray]) -> np.ndarray:
    """The bands of texts from the shingles of each: uint64, [texts, BANDS]. Texts that share one
    are proposed as similar. Each has a shingle at least."""
    ends = np.cumsum([0, *map(len, of)]).astype(np.uint64)
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
        np.concatenate(of), ends, BANDS * ROWS, SEED
    )
    rows = np.array(matrix.to_rows(), np.uint64).reshape(len(of), BANDS, ROWS)
    found = np.zeros((len(of), BANDS), np.uint64)
    for row in range(ROWS):
        found = (found ^ (found >> np.uint64(32))) * ODD + rows[:, :, row]
    return mixed(found)


def common(one: np.ndarray, other: np.ndarray) -> int:
    """How many values two sorted arrays without repetition have in common."""
    if len(one) > len(other):
        one, other = other, one
    if not len(one):
        return 0
    at = np.searchsorted(other, one)
    at[at == len(other)] = 0
    return int(np.count_nonzero(other[at] == one))


def jaccard(one: np.ndarray, other: np.ndarray) -> float:
    """The Jaccard similarity of two sorted arrays without repetition; 0 if both are empty."""
    both = common(one, other)
    either = len(one) + len(other) - both
    return both / either if either else 0.0
