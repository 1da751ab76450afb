"""Which texts resemble each other: shingles of three words, their Jaccard similarity, and bands of
MinHashes that propose pairs. Pure; the same on every machine.

With 26 bands of 11 MinHashes, two texts of similarity s share a band with the probability
1 - (1 - s^11)^26, which is 0.90 at s = 0.8 and 0.9999 at s = 0.9 (Broder 1997; Leskovec, Rajaraman
and Ullman, Mining of Massive Datasets, 3.4).
"""

import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain

import numpy as np
import rensa

BANDS, ROWS, SEED = 26, 11, 42
SHINGLE = 3  # words
PIECE = 1 << 18  # characters whose words are in memory at once
# Scripts that do not separate words: each of their letters, with its marks, is a word.
APART = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1980-\u19df\u1a20-\u1aaf\u3005-\u3007\u3040-\u30ff"
    "\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
JOINERS = "\u200c\u200d"
LETTER, ALONE, MARK = 1, 2, 3  # what a code point is, if it is in a word
SPACE = re.compile(r"\s+")
ODD = np.uint64(0x9E3779B97F4A7C15)


def normalised(text: str) -> str:
    """The text in Unicode's form NFC, in lower case, and with one space between words."""
    text = unicodedata.normalize("NFC", text).casefold()
    if len(text) <= PIECE:
        return " ".join(text.split())
    parts = [""]  # a list of all words would take ten times the memory of the text
    for start in range(0, len(text), PIECE):
        part = SPACE.sub(" ", text[start : start + PIECE])
        part = part.removeprefix(" ") if parts[-1].endswith(" ") else part
        if part:
            parts.append(part)
    return "".join(parts).strip()


def digest(normal: str) -> bytes:
    """16 bytes that identify a normalised text."""
    return hashlib.blake2b(normal.encode(errors="surrogatepass"), digest_size=16).digest()


@cache
def _kinds() -> np.ndarray:
    """What each code point is: LETTER, ALONE (a word by itself), MARK (which belongs to the letter
    before it, as in Unicode's UAX 29), or 0, in no word."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    found = np.zeros(len(every), np.uint8)
    letters, apart = r"\w+", rf"(?:(?=\w)[{APART}])+"
    for kind, pattern in ((LETTER, letters), (ALONE, apart), (MARK, f"[{JOINERS}]+")):
        for run in re.finditer(pattern, every):
            found[run.start() : run.end()] = kind
    found[[unicodedata.category(letter).startswith("M") for letter in every]] = MARK
    return found


@cache
def _powers() -> tuple[np.ndarray, np.ndarray]:
    """Powers of ODD modulo 2^64, and their inverses: uint64, [2 * PIECE]."""
    inverse = np.uint64(pow(int(ODD), -1, 1 << 64))
    up, down = (np.cumprod(np.full(2 * PIECE, of, np.uint64)) for of in (ODD, inverse))
    return up, down


Counts = np.ndarray  # int64: how many values of an array belong to each text, in order


def words(normals: Sequence[str]) -> tuple[np.ndarray, Counts]:
    """The words of normalised texts, without punctuation, as 32-bit hashes: uint32, [words of all
    texts]; and how many each text has."""
    ends = np.cumsum([len(normal) + 1 for normal in normals])
    hashes, counts = [np.empty(0, np.uint32)], np.zeros(len(normals), np.int64)
    for start, piece in _pieces("\n".join(normals)):
        starts, found = _hashed(piece)
        owners = np.searchsorted(ends, start + starts, side="right")
        counts += np.bincount(owners, minlength=len(normals))
        hashes.append(found)
    return np.concatenate(hashes), counts


def _hashed(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Where the words of a text begin, and their hashes: polynomials of their code points."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    kinds = np.zeros(len(codes) + 2, np.uint8)  # with nothing before and after
    kinds[1:-1] = _kinds()[codes]
    letters, others = kinds == LETTER, kinds.max() > LETTER
    if others:
        alone, marks = kinds == ALONE, kinds == MARK
        bases = kinds[np.maximum.accumulate(np.where(marks, 0, np.arange(len(kinds))))]
        letters |= marks & (bases == LETTER)
        marks &= bases == ALONE
    firsts, lasts = letters[1:-1] > letters[:-2], letters[1:-1] > letters[2:]
    if others:
        firsts |= alone[1:-1]
        lasts |= (alone | marks)[1:-1] > marks[2:]
    starts, ends = np.flatnonzero(firsts), np.flatnonzero(lasts) + 1
    powers, inverses = _powers()
    sums = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(codes * powers[: len(codes)], out=sums[1:])
    values = (sums[ends] - sums[starts]) * inverses[starts]
    return starts, (mixed(values) >> np.uint64(32)).astype(np.uint32)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The text, cut at spaces into pieces of about PIECE characters, and where each begins."""
    start = 0
    while start < len(text):
        end = text.find(" ", start + PIECE, start + 2 * PIECE)
        end = start + 2 * PIECE if end < 0 else end
        yield start, text[start:end]
        start = end


def shingles(hashes: np.ndarray, count: int = SHINGLE) -> np.ndarray:
    """64 bits for each run of `count` words of a text: uint64, [words - count + 1]. A text with
    fewer words has one shingle of them all, and one without words has none."""
    if 0 < len(hashes) < count:
        hashes = np.pad(hashes, (0, count - len(hashes)))
    long, total = hashes.astype(np.uint64), max(0, len(hashes) - count + 1)
    found = np.zeros(total, np.uint64)
    for at in range(count):  # in place: a text may have millions of words
        found ^= found >> np.uint64(32)
        found *= ODD
        found += long[at : at + total]
    return mixed(found)


def shingles_of_each(
    hashes: np.ndarray, counts: Counts, count: int = SHINGLE
) -> tuple[np.ndarray, Counts]:
    """The same for several texts, whose words `words` gave; and how many each has."""
    if len(counts) == 1:
        alone = shingles(hashes, count)
        return alone, np.array([len(alone)])
    padded = np.zeros(len(hashes) + len(counts) * (count - 1), np.uint64)  # after each text
    padded[np.arange(len(hashes)) + np.repeat(np.arange(len(counts)), counts) * (count - 1)] = (
        hashes
    )
    many = np.where(counts > 0, np.maximum(counts - count + 1, 1), 0)
    first = np.cumsum(counts + count - 1) - counts - count + 1
    at = np.arange(int(many.sum())) + np.repeat(first - np.cumsum(many) + many, many)
    found = np.zeros(len(at), np.uint64)
    for _ in range(count):
        found = (found ^ (found >> np.uint64(32))) * ODD + padded[at]
        at += 1
    return mixed(found), many


def mixed(values: np.ndarray) -> np.ndarray:
    """Other values, in which every bit depends on every bit (SplitMix64's finaliser)."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def bands(values: np.ndarray, counts: Counts) -> np.ndarray:
    """The bands of texts from the shingles of all, and how many each has: uint64, [texts, BANDS].
    Texts that share one are proposed as similar. Each has a shingle at least."""
    ends = np.append(0, np.cumsum(counts)).astype(np.uint64)
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(values, ends, BANDS * ROWS, SEED)
    flat = np.fromiter(chain.from_iterable(matrix.to_rows()), np.uint32)
    rows = flat.reshape(-1, BANDS, ROWS)
    found = np.zeros(rows.shape[:2], np.uint64)
    for row in range(ROWS):
        found = (found ^ (found >> np.uint64(32))) * ODD + rows[:, :, row]
    return mixed(found)


def each_once(values: np.ndarray) -> np.ndarray:
    """The values sorted and without repetition."""
    values = np.sort(values)
    new = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]


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
