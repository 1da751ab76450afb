"""Sketches of a text's documents on disk, as `runner.worker.builtin.dedup` compares them: what
identifies each, its words as hashes, and its bands. No document's text is in memory twice, and of a
whole text some 50 bytes per document are.

Files of a shard `train.00000`, all little-endian:

    .jsonl     the documents, one per line
    .table     ROW for each document
    .words     uint32: the hashes of all words
    .bands     uint64, [documents, BANDS]: all 0 for a document without words
    .ids       the documents' identities, UTF-8
    .sources   the sources' names, as a JSON list
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from engine.data import shingles
from engine.data.documents import Document, as_line, whole_documents
from engine.data.shingles import BANDS
from runner.worker.builtin import reports
from runner.worker.builtin.attributes import identity

ROW = np.dtype(
    [("digest", "<u8", 2), ("words", "<u8"), ("id", "<u8"), ("bytes", "<u8"), ("source", "<u4")]
)  # `words` and `id` are where they end in their files
TOGETHER = 1 << 20  # words of documents whose bands are computed together
ROWS_READ = 1 << 16  # rows of bands in memory at once


# ── Written by the processes for shards ──────────────────────────────────────────────────────


def sketch(name: str, path: Path, out: Path, *, near: bool) -> None:
    """Write the files of one shard; without `near`, words and bands are empty."""
    sources: dict[str, int] = {}
    ends = {"words": 0, "id": 0}
    with (
        (out / f"{name}.jsonl").open("wb") as lines,
        (out / f"{name}.table").open("wb") as table,
        (out / f"{name}.words").open("wb") as words,
        (out / f"{name}.bands").open("wb") as bands,
        (out / f"{name}.ids").open("wb") as ids,
    ):
        for batch in _batches(whole_documents(path), near=near):
            for number, document, normal, hashes in batch:
                lines.write(as_line(document))
                words.write(hashes.astype("<u4").tobytes())
                known = identity(document, name, number).encode(errors="backslashreplace")
                ids.write(known)
                ends = {"words": ends["words"] + len(hashes), "id": ends["id"] + len(known)}
                source = sources.setdefault(reports.source_of(document), len(sources))
                digest = np.frombuffer(shingles.digest(normal), "<u8")
                row = (digest, ends["words"], ends["id"], reports.size(document), source)
                table.write(np.array([row], ROW).tobytes())
            if near:
                bands.write(_bands([hashes for *_, hashes in batch]).astype("<u8").tobytes())
    (out / f"{name}.sources").write_text(json.dumps(list(sources)))


Read = tuple[int, Document, str, np.ndarray]  # number from 1, document, normalised, its words


def _batches(documents: Iterator[Document], *, near: bool) -> Iterator[list[Read]]:
    batch, size = list[Read](), 0
    for number, document in enumerate(documents, 1):
        normal = shingles.normalised(document["text"])
        hashes = shingles.words(normal) if near else np.empty(0, np.uint32)
        batch.append((number, document, normal, hashes))
        size += 100 + len(normal) // 4
        if size >= TOGETHER:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _bands(of: Sequence[np.ndarray]) -> np.ndarray:
    found = np.zeros((len(of), BANDS), np.uint64)
    if there := [at for at, hashes in enumerate(of) if len(hashes)]:
        found[there] = shingles.bands([shingles.shingles(of[at]) for at in there])
    return found


# ── Read by the one that compares ────────────────────────────────────────────────────────────


class Shard(NamedTuple):
    """The sketches of one shard."""

    name: str
    place: Path  # without the ending of its files
    start: int  # the number of its first document, in all shards
    table: np.ndarray
    sources: list[str]

    def file(self, ending: str) -> Path:
        """One of its files."""
        return self.place.with_name(f"{self.name}.{ending}")


class Sketches:
    """The sketches of all shards. Documents are numbered from 0, in the order of the shards."""

    def __init__(self, places: Mapping[str, Path]) -> None:
        """`places`: {shard: the folder with its files}, in order."""
        self.shards: list[Shard] = []
        start = 0
        for name, folder in places.items():
            table = np.fromfile(folder / f"{name}.table", ROW)
            sources = json.loads((folder / f"{name}.sources").read_bytes())
            self.shards.append(Shard(name, folder / name, start, table, sources))
            start += len(table)
        self.count = start
        self._starts = np.array([shard.start for shard in self.shards])

    def shard_of(self, document: int) -> Shard:
        """The shard of a document."""
        return self.shards[int(np.searchsorted(self._starts, document, side="right")) - 1]

    def digests(self) -> np.ndarray:
        """uint64, [documents, 2]."""
        return np.concatenate([shard.table["digest"] for shard in self.shards])

    def band(self, number: int) -> np.ndarray:
        """One band of all documents: uint64, [documents]."""
        found = [np.empty(0, np.uint64)]
        for shard in self.shards:
            for rows in _read_bands(shard.file("bands"), len(shard.table)):
                found.append(rows[:, number].copy())
        return np.concatenate(found)

    def words(self, document: int) -> np.ndarray:
        """The words of a document: uint32, [words]."""
        shard = self.shard_of(document)
        start, end = _bounds(shard.table["words"], document - shard.start)
        return np.fromfile(shard.file("words"), "<u4", end - start, offset=4 * start)

    def known(self, document: int) -> str:
        """The identity of a document."""
        shard = self.shard_of(document)
        start, end = _bounds(shard.table["id"], document - shard.start)
        with shard.file("ids").open("rb") as file:
            return _read_at(file, start, end - start).decode()


def _bounds(ends: np.ndarray, at: int) -> tuple[int, int]:
    return int(ends[at - 1]) if at else 0, int(ends[at])


def _read_at(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


def _read_bands(path: Path, count: int) -> Iterator[np.ndarray]:
    for start in range(0, count, ROWS_READ):
        rows = min(ROWS_READ, count - start)
        flat = np.fromfile(path, "<u8", rows * BANDS, offset=8 * BANDS * start)
        yield flat.reshape(rows, BANDS)
