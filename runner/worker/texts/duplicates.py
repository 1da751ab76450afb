"""Finds the documents of a text that others have already.

Bands only propose a pair. The shingles of both documents decide, and a document is compared only
with documents that are kept. So of a chain in which A resembles B and B resembles C, but A does not
resemble C, both A and C are kept: nothing is left out because of a document that is left out.

The first in order is kept. Besides the sketches, this needs some 300 bytes of memory per document;
what would need more is in files below `aside`.
"""

import enum
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from engine.data import shingles
from engine.data.shingles import BANDS
from runner.worker.texts.sketches import Sketches

MAX_KEPT = 64  # kept documents with the same band that are remembered
MAX_COMPARED = 32  # kept documents that one is compared with, most bands in common first
MAX_CACHED = 4 << 20  # shingles of documents compared before


class Why(enum.IntEnum):
    """Why a document is left out."""

    SAME = 1  # the same text
    NEAR = 2  # similar shingles
    INSIDE = 3  # all its shingles are in the kept one
    AROUND = 4  # it has all shingles of the kept one


class Found:
    """For each document why it is left out and which kept one has it already."""

    def __init__(self, count: int) -> None:
        self.why = np.zeros(count, np.uint8)  # 0: it is kept
        self.kept = np.full(count, -1, np.int64)
        self.similarity = np.zeros(count)  # Jaccard, of the shingles of both
        self.compared = 0  # pairs whose shingles were compared
        self.crowded = 0  # times that a kept document was not remembered under a band

    def drop(self, document: int, kept: int, why: Why, similarity: float) -> None:
        """Leave out a document."""
        self.why[document], self.kept[document] = why, kept
        self.similarity[document] = similarity


def find(sketches: Sketches, similarity: float | None, aside: Path) -> Found:
    """The documents to leave out. A training document also goes if it has all shingles of a
    validation document (AROUND)."""
    first, every = same_as(sketches.digests()), np.arange(sketches.count)
    found, alone = Found(sketches.count), np.flatnonzero(first == every)
    if similarity is not None and len(alone):
        _near(sketches, alone, _Slots(sketches, alone, aside), similarity, found)
    again = np.flatnonzero(first != every)
    # Where the first one has itself a kept near-duplicate, that is the kept one of all.
    nearer = found.why[first[again]] > 0
    found.why[again] = np.where(nearer, found.why[first[again]], Why.SAME)
    found.kept[again] = np.where(nearer, found.kept[first[again]], first[again])
    found.similarity[again] = np.where(nearer, found.similarity[first[again]], 1.0)
    return found


def same_as(digests: np.ndarray) -> np.ndarray:
    """For each document the first one with its digest: int64. `digests`: uint64, [documents, 2]."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable
    ordered = digests[order]
    new = np.ones(len(order), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    found = np.empty(len(order), np.int64)
    found[order] = order[np.flatnonzero(new)[np.cumsum(new) - 1]]
    return found


# ── Near-duplicates ──────────────────────────────────────────────────────────────────────────


class _Slots:
    """The kept documents of each band. Documents that share a band share a region of `flat`: how
    many fit, then the kept ones, plus 1. `at` has the regions of each document; 0: nobody shares
    its band."""

    def __init__(self, sketches: Sketches, alone: np.ndarray, aside: Path) -> None:
        shape = (len(alone), BANDS)
        self.at = _on_disk(aside / "regions", np.uint32, shape)
        end, most = 1, 1 + len(alone) * BANDS  # a region has no more places than documents
        assert most < 1 << 32, "100 million documents fit"
        self.flat = _on_disk(aside / "slots", np.int32, (most,))
        wordless = sketches.band(0)[alone] == 0
        for band in range(BANDS):
            values = sketches.band(band)[alone]
            order = np.argsort(values, kind="stable")
            new = np.ones(len(order), bool)
            new[1:] = values[order][1:] != values[order][:-1]
            starts = np.flatnonzero(new)
            counts = np.diff(np.append(starts, len(order)))
            fit = np.minimum(counts - 1, MAX_KEPT)
            fit[wordless[order[starts]]] = 0
            lengths = np.where(fit > 0, fit + 1, 0)
            places = np.where(fit > 0, end + np.cumsum(lengths) - lengths, 0)
            self.at[order, band] = np.repeat(places, counts)
            self.flat[places[fit > 0]] = fit[fit > 0]
            end += int(lengths.sum())

    def regions(self, row: int) -> list[int]:
        """Where the bands of a document are that others share."""
        at = self.at[row]
        return at[at > 0].tolist()

    def kept(self, regions: list[int]) -> list[int]:
        """The rows of kept documents in these regions, with most of them in common first."""
        found: dict[int, int] = {}
        for at in regions:
            for row in self.flat[at + 1 : at + 1 + int(self.flat[at])].tolist():
                found[row] = found.get(row, 0) + 1
        found.pop(0, None)  # places that are free
        return [row - 1 for row in sorted(found, key=lambda row: (-found[row], row))]

    def keep(self, row: int, regions: list[int]) -> int:
        """Remember a kept document. Returns in how many regions it found no place."""
        crowded = 0
        for at in regions:
            region = self.flat[at + 1 : at + 1 + int(self.flat[at])]
            free = int(np.count_nonzero(region))
            if free < len(region):
                region[free] = row + 1
            else:
                crowded += len(region) == MAX_KEPT
        return crowded


def _on_disk(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros in a file. A plain array, whose items are read faster than those of a memmap."""
    return np.memmap(path, dtype, "w+", shape=shape).view(np.ndarray)


def _near(
    sketches: Sketches,
    alone: np.ndarray,
    slots: _Slots,
    similarity: float,
    found: Found,
) -> None:
    sets = _Sets(sketches)
    for row in _shared(slots.at):
        document, regions = int(alone[row]), slots.regions(row)
        for other in slots.kept(regions)[:MAX_COMPARED]:
            kept = int(alone[other])
            why, jaccard = compare(sets.of(document), sets.of(kept), similarity)
            found.compared += 1
            if why is Why.AROUND and not kept < sketches.held <= document:
                continue  # it has more than the kept one
            if why is not None:
                found.drop(document, kept, why, jaccard)
                break
        else:
            found.crowded += slots.keep(row, regions)


def _shared(at: np.ndarray, together: int = 1 << 16) -> Iterator[int]:
    """The rows of the documents that share a band, in order."""
    for start in range(0, len(at), together):
        yield from (start + np.flatnonzero(at[start : start + together].any(axis=1))).tolist()


def compare(one: np.ndarray, kept: np.ndarray, similarity: float) -> tuple[Why | None, float]:
    """How a document resembles a kept one, and their Jaccard similarity. Both are given by their
    shingles, sorted and without repetition; neither is empty."""
    both = shingles.common(one, kept)
    jaccard = both / (len(one) + len(kept) - both)
    if jaccard >= similarity:
        return Why.NEAR, jaccard
    if both == len(one):
        return Why.INSIDE, jaccard
    return (Why.AROUND if both == len(kept) else None), jaccard


class _Sets:
    """The shingles of documents, sorted and without repetition; the last ones stay in memory."""

    def __init__(self, sketches: Sketches) -> None:
        self._sketches = sketches
        self._known: OrderedDict[int, np.ndarray] = OrderedDict()
        self._size = 0

    def of(self, document: int) -> np.ndarray:
        """uint64, [shingles]."""
        if document in self._known:
            self._known.move_to_end(document)
            return self._known[document]
        found = shingles.each_once(shingles.shingles(self._sketches.words(document)))
        self._known[document] = found
        self._size += len(found)
        while self._size > MAX_CACHED and len(self._known) > 2:
            self._size -= len(self._known.popitem(last=False)[1])
        return found
