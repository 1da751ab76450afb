"""Hashed n-grams of words, for many documents at a time in NumPy.

A word is a run of letters, digits, `_` and bytes above 127, or one other character that is not
white space. The hash of a word at bytes s to e of a batch is (H[e] − H[s]) · P^(−s) mod 2^64 with
the prefix sums H[i] = Σ byte[j] · P^j, so it does not depend on where the word is."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from engine.data.documents import grouped

MAX_CHARACTERS = 1 << 18  # of a document; the rest is not read
BATCH = 1 << 18  # bytes of documents that are hashed at a time, except for a single one

_P = 0x9E3779B97F4A7C15  # odd, so that it has an inverse mod 2^64
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_NEXT = np.uint64(0xC2B2AE3D27D4EB4F)
_SPACE, _WORD, _OTHER = 0, 1, 2
_CLASS = np.full(256, _OTHER, np.uint8)
_CLASS[[*b" \t\n\r\v\f\0"]] = _SPACE
_CLASS[[*b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *range(128, 256)]] = (
    _WORD
)


class Ngrams(NamedTuple):
    """The n-grams of some documents, all of one document together only within each n."""

    buckets: np.ndarray  # int64
    documents: np.ndarray  # int64: whose each n-gram is, from 0
    size: int  # documents


@cache
def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """P^i and P^(−i) mod 2^64 for i below `size`."""
    both = []
    for factor in (_P, pow(_P, -1, 1 << 64)):
        powers = np.full(size, factor, np.uint64)
        powers[0] = 1
        both.append(np.cumprod(powers))
    return both[0], both[1]


def ngrams(texts: Sequence[str], most: int, buckets: int) -> Ngrams:
    """The n-grams of up to `most` words of each document, hashed to `buckets`, a power of two."""
    encoded = [text[:MAX_CHARACTERS].encode() for text in texts]
    data = np.frombuffer(b"\n".join(encoded) + b"\n", np.uint8)
    ends = np.cumsum([len(one) + 1 for one in encoded])
    kind = _CLASS[data]
    inside = kind == _WORD
    starts_here = kind == _OTHER
    starts_here[0] |= inside[0]
    starts_here[1:] |= inside[1:] & ~inside[:-1]
    starts = np.flatnonzero(starts_here)
    stops = starts + 1
    is_word = inside[starts]
    stops[is_word] = np.flatnonzero(inside[:-1] & ~inside[1:]) + 1  # the last byte is a space
    size = 1 << max(len(data) - 1, BATCH).bit_length()
    forth, back = _powers(size)
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum((data + np.uint64(1)) * forth[: len(data)], out=sums[1:])
    words = (sums[stops] - sums[starts]) * back[starts]
    words ^= words >> np.uint64(29)
    words *= _MIX
    documents = np.searchsorted(ends, starts, side="right")
    shift = np.uint64(64 - buckets.bit_length() + 1)
    found, owners, grams = [], [], words
    for n in range(1, most + 1):
        if n > 1:
            grams = grams[:-1] * _NEXT + words[n - 1 :]
            whole = documents[: len(grams)] == documents[n - 1 :]
        mixed = (grams ^ (grams >> np.uint64(32))) * _MIX
        mixed = (mixed >> shift).astype(np.int64)
        found.append(mixed if n == 1 else mixed[whole])
        owners.append(documents if n == 1 else documents[: len(grams)][whole])
    return Ngrams(np.concatenate(found), np.concatenate(owners), len(texts))


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of some BATCH bytes."""
    return grouped(texts, len, BATCH)
