"""Reads the files of a corpus as documents, one at a time and in bounded memory: JSON lines,
Parquet, WARC, and trees of HTML or text.

A file that is damaged or cut off, or that unpacks to far more than it holds, is refused: BadText
names file and line. A single document that cannot be used is given as LeftOut, so that whoever
reads counts it; nothing is dropped without a word."""

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.data.documents import Document
from engine.data.lab_texts import BadText

MAX_DOCUMENT = 16 << 20  # bytes
MAX_EXPANSION = 200  # times the size of a compressed file
EXPANDS_FREELY = 16 << 20  # bytes that any compressed file may unpack to
MAX_ROWS = 1 << 30  # bytes of a Parquet file's row group, which is read as a whole

NO_UTF8, NO_JSON, NO_TEXT = "not UTF-8", "not a JSON object", "without a text"
TOO_LONG, EMPTY, NO_PAGE = f"longer than {MAX_DOCUMENT >> 20} MiB", "empty", "not an HTML page"
NO_FAULT = (EMPTY, NO_PAGE)  # these are what a good corpus has, too

SURROGATE = re.compile("[\ud800-\udfff]")
CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.I)
OLD_NAMES = {"iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252"}  # as browsers do


class LeftOut(NamedTuple):
    """A document that cannot be used."""

    why: str
    where: str  # file and line


Item = Document | LeftOut


class Read(NamedTuple):
    """How files become documents; see `runner.schema.corpora`."""

    format: str
    corpus: str  # the source of a document that names none
    licence: str  # of a document that names none
    fields: Mapping[str, str] = {}  # {key of a document: field of the file}
    starts: str | None = None


def declared(corpus: str, found: Mapping[str, Any]) -> Read:
    """How the corpus name@version is read, from what a plan keeps of it."""
    name, fields = corpus.partition("@")[0], found.get("fields", {})
    return Read(found["format"], name, found["licence"], fields, found.get("starts"))


def read(path: Path, name: str, how: Read) -> Iterator[Item]:
    """The documents of one file, in order, each with `id`, `source`, `licence` and `text`, and with
    whatever else its line or row says. `name` is the file's path within the corpus. Raises
    BadText."""
    try:
        yield from _READERS[how.format](path, name, how)
    except (OSError, EOFError) as error:
        words = f"{name} cannot be read: {error}; it is truncated or damaged"
        raise BadText(f"{words}, so mend it where the corpus is from") from error


# ── Bytes ────────────────────────────────────────────────────────────────────────────────────


class _Unpacked(io.RawIOBase):
    """A compressed file's content, as long as it is no bomb."""

    def __init__(self, path: Path, name: str) -> None:
        import pyarrow

        # It refuses a truncated file, and reads several that were joined.
        packed = "gzip" if path.suffix in (".gz", ".dz") else "detect"
        self._stream = pyarrow.input_stream(path, compression=packed)
        self._name, self._left = name, max(EXPANDS_FREELY, MAX_EXPANSION * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise BadText(
                f"{self._name} unpacks to more than {MAX_EXPANSION} times its size, which no text "
                "does; leave the file out (`without`)"
            )
        return int(count)


def _opened(path: Path, name: str) -> io.BufferedIOBase:
    if path.suffix in (".gz", ".dz", ".zst", ".bz2"):
        return io.BufferedReader(_Unpacked(path, name), 1 << 20)
    return path.open("rb")


def _lines(file: io.BufferedIOBase) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long."""
    while line := file.readline(MAX_DOCUMENT + 1):
        if len(line) <= MAX_DOCUMENT or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(1 << 20)
        yield None


# ── Formats ──────────────────────────────────────────────────────────────────────────────────


def _json_lines(path: Path, name: str, how: Read) -> Iterator[Item]:
    with _opened(path, name) as file:
        for number, line in enumerate(_lines(file), 1):
            where = f"{name}, line {number}"
            if line is None:
                yield LeftOut(TOO_LONG, where)
            elif line.strip():
                try:
                    value = json.loads(line.decode())
                except UnicodeDecodeError:
                    yield LeftOut(NO_UTF8, where)
                except (ValueError, RecursionError) as error:
                    if not line.endswith(b"\n"):
                        raise BadText(
                            f"{where} ends in the middle of a document: the file is cut off; copy "
                            "it again"
                        ) from error
                    yield LeftOut(NO_JSON, where)
                else:
                    yield _of_fields(value, f"{name}:{number}", where, how)


def _rows(path: Path, name: str, how: Read) -> Iterator[Item]:
    import pyarrow
    from pyarrow import parquet

    number, column = 0, how.fields.get("text", "text")
    try:
        with parquet.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                columns = ", ".join(file.schema_arrow.names)
                words = f"{name} has the columns {columns} and none named {column}"
                raise BadText(f"{words}; write `fields: {{text: COLUMN}}`")
            groups = (file.metadata.row_group(n) for n in range(file.metadata.num_row_groups))
            if any(group.total_byte_size > MAX_ROWS for group in groups):
                words = f"{name} has row groups of more than {MAX_ROWS >> 30} GiB"
                raise BadText(f"{words}; write it again with smaller ones")
            for rows in file.iter_batches(batch_size=64):
                for row in rows.to_pylist():
                    number += 1
                    yield _of_fields(row, f"{name}:{number}", f"{name}, row {number}", how)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        words = f"{name} cannot be read after row {number}: {error}"
        raise BadText(f"{words}; copy it again, or write it again") from error


def _pages(path: Path, name: str, how: Read) -> Iterator[Item]:
    """A file is a document; of a text with `starts`, each part that such a line begins."""
    with _opened(path, name) as file:
        if how.starts is None:
            yield _decoded(file.read(MAX_DOCUMENT + 1), name, name, how)
            return
        begins, part, at, size = re.compile(how.starts), list[bytes](), 1, 0
        for number, line in enumerate(_lines(file), 1):
            if part and line is not None and begins.search(line.decode(errors="replace")):
                yield _decoded(b"".join(part), f"{name}:{at}", f"{name}, line {at}", how)
                part, at, size = [], number, 0
            size += MAX_DOCUMENT + 1 if line is None else len(line)
            if not part or size <= MAX_DOCUMENT:
                part.append(line or b"")
            else:  # one byte too many says that it is too long
                part = [b"\0" * (MAX_DOCUMENT + 1)]
        if part:
            yield _decoded(b"".join(part), f"{name}:{at}", f"{name}, line {at}", how)


def _archive(path: Path, name: str, how: Read) -> Iterator[Item]:
    """The HTML pages of a web archive; what else it holds is counted."""
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    number = 0
    try:
        with _opened(path, name) as file:
            for number, record in enumerate(ArchiveIterator(file), 1):
                where = f"{name}, record {number}"
                headers, answer = record.rec_headers, record.http_headers
                kind = (answer.get_header("Content-Type") if answer else None) or ""
                if record.rec_type != "response" or "html" not in kind.lower():
                    item: Item = LeftOut(NO_PAGE, where)
                elif not (answer.get_statuscode() or "").startswith("2"):
                    item = LeftOut(NO_PAGE, where)
                else:
                    id = (headers.get_header("WARC-Record-ID") or f"{name}:{number}").strip("<>")
                    url = headers.get_header("WARC-Target-URI")
                    data = record.content_stream().read(MAX_DOCUMENT + 1)
                    item = _decoded(data, id, where, how, kind, **({"url": url} if url else {}))
                while record.raw_stream.read(1 << 20):
                    pass
                if getattr(record.raw_stream, "limit", 0):
                    raise EOFError(f"record {number} is shorter than it says")
                yield item
    except ArchiveLoadFailed as error:
        raise BadText(
            f"{name} is no WARC file after record {number}: {error}; copy it again"
        ) from error


# ── Documents ────────────────────────────────────────────────────────────────────────────────

_KEYS = ("text", "id", "url", "source", "licence")


def _of_fields(value: Any, id: str, where: str, how: Read) -> Item:
    """The document in a line or a row."""
    if not isinstance(value, dict):
        return LeftOut(NO_JSON, where)
    names = {key: how.fields.get(key, key) for key in _KEYS}
    given = {key: value.get(name) for key, name in names.items()}
    rest = {key: of for key, of in value.items() if key not in names.values()}
    text, own = given["text"], given["id"]
    if not isinstance(text, str):
        return LeftOut(NO_TEXT, where)
    if isinstance(own, str | int) and own != "":
        id = str(own)
    named = {key: of for key in _KEYS[2:] if isinstance(of := given[key], str) and of}
    return _document(text, id, where, how, {**rest, **named})


def _decoded(data: bytes, id: str, where: str, how: Read, kind: str = "", **named: str) -> Item:
    """The document in these bytes. HTML that is not UTF-8 may name its encoding, as may `kind`, its
    Content-Type."""
    if len(data) > MAX_DOCUMENT:
        return LeftOut(TOO_LONG, where)
    try:
        return _document(data.decode("utf-8-sig"), id, where, how, named)
    except UnicodeDecodeError:
        pass
    if how.format != "text":
        asked = re.search(r"charset=[\"']?([A-Za-z0-9_.:-]{1,40})", kind, re.I)
        found = CHARSET.search(data[:4096])
        encoding = asked[1] if asked else found[1].decode() if found else ""
        try:
            text = data.decode(OLD_NAMES.get(encoding.lower(), encoding or "utf-8"))
            return _document(text, id, where, how, named)
        except (LookupError, ValueError):
            pass
    return LeftOut(NO_UTF8, where)


def _document(text: str, id: str, where: str, how: Read, more: Mapping[str, Any]) -> Item:
    if not text.strip():
        return LeftOut(EMPTY, where)
    if len(text) > MAX_DOCUMENT:
        return LeftOut(TOO_LONG, where)
    if SURROGATE.search(text):
        return LeftOut(NO_UTF8, where)
    own = {"source": how.corpus, "licence": how.licence}
    for key in own:
        if isinstance(of := more.get(key), str):
            own[key] = of.encode(errors="replace").decode()
    id = id.encode(errors="replace").decode()
    return {"id": id, **own} | {**more, **own, "id": id, "text": text}


_READERS: Mapping[str, Callable[[Path, str, Read], Iterator[Item]]] = {
    "jsonl": _json_lines,
    "parquet": _rows,
    "warc": _archive,
    "html": _pages,
    "text": _pages,
}
