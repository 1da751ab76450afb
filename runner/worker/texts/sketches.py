"""Sketches of a text's documents on disk, as `dedup` and `decontaminate` compare them: what
identifies each, numbers that stand for its words, and its bands. Of a whole text, some 50 bytes per
document are in memory.

Files of a shard `train.00000`, all little-endian:

    .jsonl     the documents, one per line
    .table     ROW for each document
    .words     uint32: for `dedup` the hashes of all words, for `decontaminate` the n-grams that it
               looks for
    .bands     uint64, [documents, BANDS]: all 0 for a document without words; `dedup` only
    .ids       the documents' identities, UTF-8
    .sources   the sources' names, as a JSON list
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.data import shingles
from engine.data.documents import Document, as_line, grouped, whole_documents
from engine.data.shingles import BANDS
from runner.worker.texts import reports
from runner.worker.texts.attributes import identity
from runner.worker.texts.shards import SPLITS, link, of_split

ROW = np.dtype(
    [("digest", "<u8", 2), ("words", "<u8"), ("id", "<u8"), ("bytes", "<u8"), ("source", "<u4")]
)  # `words` and `id` are where they end in their files
TOGETHER = 1 << 20  # characters of documents that are in memory together
MAX_OPEN = 64  # files
ROWS_READ = 1 << 16  # rows of bands in memory at once


# ── Written by the processes for shards ──────────────────────────────────────────────────────


# Of normalised texts: uint32, and how many of these each text has.
Numbers = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]


def sketch(name: str, path: Path, out: Path, numbers: Numbers | None, *, banded: bool) -> None:
    """Write the files of one shard. `banded`: `numbers` are its words, whose bands are written,
    too."""
    sources: dict[str, int] = {}
    ends, first = {"words": 0, "id": 0}, 1
    endings = ("jsonl", "table", "words", "bands", "ids")
    with contextlib.ExitStack() as stack:
        files = {x: stack.enter_context((out / f"{name}.{x}").open("wb")) for x in endings}
        for batch in grouped(whole_documents(path), _size, TOGETHER):
            normals = [shingles.normalised(document["text"]) for document in batch]
            found, counts = (numbers or _none)(normals)
            known = [
                identity(document, name, number).encode(errors="backslashreplace")
                for number, document in enumerate(batch, first)
            ]
            named = (reports.source_of(document) for document in batch)
            table = np.zeros(len(batch), ROW)
            digests = b"".join(map(shingles.digest, normals))
            table["digest"] = np.frombuffer(digests, "<u8").reshape(-1, 2)
            table["words"] = ends["words"] + np.cumsum(counts)
            table["id"] = ends["id"] + np.cumsum([len(one) for one in known])
            table["bytes"] = [reports.size(document) for document in batch]
            table["source"] = [sources.setdefault(source, len(sources)) for source in named]
            ends = {key: int(table[key][-1]) for key in ends}
            first += len(batch)
            files["jsonl"].writelines(map(as_line, batch))
            files["table"].write(table.tobytes())
            files["words"].write(found.astype("<u4").tobytes())
            files["ids"].write(b"".join(known))
            if banded:
                files["bands"].write(_bands(found, counts).astype("<u8").tobytes())
    (out / f"{name}.sources").write_text(json.dumps(list(sources)))


def _none(normals: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    return np.empty(0, np.uint32), np.zeros(len(normals), np.int64)


def _size(document: Document) -> int:
    return 100 + len(document["text"])


def _bands(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    found = np.zeros((len(counts), BANDS), np.uint64)
    values, many = shingles.shingles_of_each(words, counts)
    if there := np.flatnonzero(many).tolist():
        found[there] = shingles.bands(values, many[there])
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
        return Path(f"{self.place}.{ending}")

    def write(self, kept: np.ndarray, out: Path) -> None:
        """Write the documents that are `kept`: bool, [documents]."""
        source, target = self.file("jsonl"), out / f"{self.name}.jsonl"
        if kept.all():
            link(source, target)
            return
        with source.open("rb") as lines, target.open("wb") as file:
            file.writelines(line for line, keep in zip(lines, kept, strict=True) if keep)

    def count_kept(self, kept: np.ndarray, tally: reports.Tally) -> None:
        """Count its documents by source, and which are kept: bool, [documents]."""
        of, sizes = self.table["source"], self.table["bytes"].astype(np.int64)
        for number, source in enumerate(self.sources):
            mine = of == number
            tally.add(
                source,
                documents=int(mine.sum()),
                bytes=int(sizes[mine].sum()),
                kept_documents=int((mine & kept).sum()),
                kept_bytes=int(sizes[mine & kept].sum()),
            )


class Sketches:
    """The sketches of all shards. Documents are numbered from 0: those of the validation split,
    then those of the train split."""

    def __init__(self, names: Iterable[str], parts: Iterable[Path]) -> None:
        """`names` of the shards, whose files are in the folders `parts`."""
        folders = {path.stem: part for part in parts for path in part.glob("*.table")}
        self.shards: list[Shard] = []
        self._open: dict[tuple[int, str], FileIO] = {}
        start = 0
        for name in sorted(names, key=lambda name: (of_split(SPLITS[0], name), name)):
            folder = folders[name]
            table = np.fromfile(folder / f"{name}.table", ROW)
            sources = json.loads((folder / f"{name}.sources").read_bytes())
            self.shards.append(Shard(name, folder / name, start, table, sources))
            start += len(table)
        self.count = start
        self.held = sum(
            len(one.table) for one in self.shards if not of_split(SPLITS[0], one.name)
        )  # documents of the validation split
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
        return np.frombuffer(self._read(shard, "words", 4 * start, 4 * end), "<u4")

    def known(self, document: int) -> str:
        """The identity of a document."""
        shard = self.shard_of(document)
        start, end = _bounds(shard.table["id"], document - shard.start)
        return self._read(shard, "ids", start, end).decode()

    def _read(self, shard: Shard, ending: str, start: int, end: int) -> bytes:
        """A part of a file. Some files stay open."""
        key = shard.start, ending
        if key not in self._open:
            if len(self._open) == MAX_OPEN:
                self._open.pop(next(iter(self._open))).close()
            self._open[key] = shard.file(ending).open("rb", buffering=0)
        return os.pread(self._open[key].fileno(), end - start, start)


def _bounds(ends: np.ndarray, at: int) -> tuple[int, int]:
    return int(ends[at - 1]) if at else 0, int(ends[at])


def _read_bands(path: Path, count: int) -> Iterator[np.ndarray]:
    for start in range(0, count, ROWS_READ):
        rows = min(ROWS_READ, count - start)
        flat = np.fromfile(path, "<u8", rows * BANDS, offset=8 * BANDS * start)
        yield flat.reshape(rows, BANDS)
