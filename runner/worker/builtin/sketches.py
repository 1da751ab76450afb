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

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from engine.data import shingles
from engine.data.documents import Document, as_line, whole_documents
from engine.data.shingles import BANDS
from runner.worker.builtin import reports
from runner.worker.builtin.attributes import identity
from runner.worker.builtin.shards import SPLITS, link, of_split

ROW = np.dtype(
    [("digest", "<u8", 2), ("words", "<u8"), ("id", "<u8"), ("bytes", "<u8"), ("source", "<u4")]
)  # `words` and `id` are where they end in their files
TOGETHER = 1 << 20  # words of documents whose bands are computed together
ROWS_READ = 1 << 16  # rows of bands in memory at once


# ── Written by the processes for shards ──────────────────────────────────────────────────────


Numbers = Callable[[str], np.ndarray]  # of a normalised text: uint32


def sketch(name: str, path: Path, out: Path, numbers: Numbers | None, *, banded: bool) -> None:
    """Write the files of one shard. `banded`: `numbers` are its words, whose bands are written,
    too."""
    sources: dict[str, int] = {}
    ends = {"words": 0, "id": 0}
    with (
        (out / f"{name}.jsonl").open("wb") as lines,
        (out / f"{name}.table").open("wb") as table,
        (out / f"{name}.words").open("wb") as words,
        (out / f"{name}.bands").open("wb") as bands,
        (out / f"{name}.ids").open("wb") as ids,
    ):
        for batch in _batches(whole_documents(path), numbers or _none):
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
            if banded:
                bands.write(_bands([hashes for *_, hashes in batch]).astype("<u8").tobytes())
    (out / f"{name}.sources").write_text(json.dumps(list(sources)))


def _none(_: str) -> np.ndarray:
    return np.empty(0, np.uint32)


Read = tuple[int, Document, str, np.ndarray]  # number from 1, document, normalised, its numbers


def _batches(documents: Iterator[Document], numbers: Numbers) -> Iterator[list[Read]]:
    batch, size = list[Read](), 0
    for number, document in enumerate(documents, 1):
        normal = shingles.normalised(document["text"])
        batch.append((number, document, normal, numbers(normal)))
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
