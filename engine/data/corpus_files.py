"""Reads the files of a corpus as documents, one at a time and in bounded memory: JSON lines,
Parquet, WARC, and trees of HTML or text.

A file that is damaged or cut off, or that unpacks to far more than it holds, is refused: BadText
names file and line. A single document that cannot be used is given as LeftOut, so that whoever
reads counts it; nothing is dropped without a word."""

import codecs
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from engine.data.documents import Document
from engine.data.lab_texts import BadText
from engine.data.unpacked import PACKED, opened
from engine.data.web_encodings import decoded

MAX_DOCUMENT = 16 << 20  # bytes
MAX_EXPANSION = 200  # times the size of a compressed file
EXPANDS_FREELY = 16 << 20  # bytes that any compressed file may unpack to
MAX_ROWS = 1 << 30  # bytes of a Parquet file's row group, which is read as a whole

NO_UTF8, NO_JSON, NO_TEXT = "not UTF-8", "not a JSON object", "without a text"
NO_ENCODING, NOT_UNPACKED = "in no encoding that reads them", "with a body that cannot be unpacked"
TOO_LONG, EMPTY, NO_PAGE = f"longer than {MAX_DOCUMENT >> 20} MiB", "empty", "not an HTML page"
NO_FAULT = (EMPTY, NO_PAGE)  # these are what a good corpus has, too

SURROGATE = re.compile("[\ud800-\udfff]")


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


class _Bounded(io.RawIOBase):
    """A compressed file's content, as long as it is no bomb."""

    def __init__(self, path: Path, name: str) -> None:
        self._stream, self._name = opened(path), name
        self._most = max(EXPANDS_FREELY, MAX_EXPANSION * path.stat().st_size)
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._at += count
        if self._at > self._most:
            raise BadText(
                f"{self._name} unpacks to more than {MAX_EXPANSION} times its size, which no text "
                "does; leave the file out (`without`)"
            )
        return count

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._stream.close()
        super().close()


def _opened(path: Path, name: str) -> io.BufferedReader:
    if path.suffix in PACKED:
        return io.BufferedReader(_Bounded(path, name), 1 << 20)
    return path.open("rb")


def _lines(file: io.BufferedReader) -> Iterator[bytes | None]:
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
            elif line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and number == 1:
                raise BadText(f"{name} is UTF-16, as its first bytes say; save it as UTF-8")
            elif line.strip():
                try:
                    value = json.loads(line.decode("utf-8-sig"))
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
    from fastwarc.warc import ArchiveIterator

    number = 0
    with _opened(path, name) as file:
        records = iter(ArchiveIterator(file, parse_http=False))
        while True:
            try:
                record = next(records, None)
            except OSError as error:
                raise BadText(
                    f"{name} is damaged, or no WARC file, after record {number}: {error}; copy it "
                    "again"
                ) from error
            if record is None:
                return
            number += 1
            item = _page(record, f"{name}:{number}", f"{name}, record {number}", how)
            while record.reader.read(1 << 20):
                pass
            if record.reader.tell() < record.content_length:
                raise EOFError(f"record {number} is shorter than it says")
            yield item


def _page(record: Any, id: str, where: str, how: Read) -> Item:
    """The page in a record of a web archive."""
    from fastwarc.warc import WarcRecordType

    if record.record_type != WarcRecordType.response or not record.is_http:
        return LeftOut(NO_PAGE, where)
    try:
        record.parse_http("none")
    except OSError:
        return LeftOut(NO_PAGE, where)
    answer = record.http_headers
    kind = answer.get("Content-Type") or ""
    if "html" not in kind.lower() or not 200 <= (answer.status_code or 0) < 300:
        return LeftOut(NO_PAGE, where)
    data = record.reader.read(MAX_DOCUMENT + 1)
    packed = f"{answer.get('Content-Encoding') or ''},{answer.get('Transfer-Encoding') or ''}"
    for way in reversed(packed.lower().split(",")):
        if (unpacked := _body(data, way.strip())) is None:
            return LeftOut(NOT_UNPACKED, where)
        data = unpacked
    url = record.headers.get("WARC-Target-URI")
    id = (record.headers.get("WARC-Record-ID") or id).strip("<>")
    return _decoded(data, id, where, how, kind, **({"url": url.strip("<>")} if url else {}))


def _body(data: bytes, way: str) -> bytes | None:
    """A body without this content or transfer encoding, which many archives have removed and still
    name; None if it cannot be removed."""
    from fastwarc import stream_io

    if way in ("", "identity", "none"):
        return data
    readers = {
        "br": (stream_io.BrotliReader,),
        "zstd": (stream_io.ZstdReader,),
        "chunked": (stream_io.ChunkedReader,),
        "gzip": (_Inflated,),
        "deflate": (_Inflated, partial(_Inflated, form=-15)),  # many servers leave zlib's frame out
    }
    for reader in readers.get(way.removeprefix("x-"), ()):
        with suppress(OSError, zlib.error):
            return bytes(reader(io.BytesIO(data)).read(MAX_DOCUMENT + 1))
    return data if data.lstrip().startswith((b"<", codecs.BOM_UTF8)) else None


class _Inflated:
    """What zlib packed, with the frame of gzip or of zlib, or in another `form`. FastWARC's reader
    takes a truncated body for whole."""

    def __init__(self, file: io.BytesIO, form: int = 47) -> None:
        self._file, self._form = file, form

    def read(self, most: int) -> bytes:
        inflating = zlib.decompressobj(self._form)
        found = inflating.decompress(self._file.read(), most)
        if not inflating.eof and len(found) < most:
            raise OSError("it is truncated")
        return found


# ── Documents ────────────────────────────────────────────────────────────────────────────────

_KEYS = ("text", "id", "url", "source", "licence")


def _of_fields(value: Any, id: str, where: str, how: Read) -> Item:
    """The document in a line or a row."""
    if not isinstance(value, dict):
        return LeftOut(NO_JSON, where)
    names = {key: how.fields.get(key, key) for key in _KEYS}
    try:  # a column of Parquet may be binary
        given = {
            key: of.decode("utf-8-sig") if isinstance(of := value.get(name), bytes) else of
            for key, name in names.items()
        }
    except UnicodeDecodeError:
        return LeftOut(NO_UTF8, where)
    rest = {key: of for key, of in value.items() if key not in names.values()}
    text, own = given["text"], given["id"]
    if not isinstance(text, str):
        return LeftOut(NO_TEXT, where)
    if isinstance(own, str | int) and own != "":
        id = str(own)
    named = {key: of for key in _KEYS[2:] if isinstance(of := given[key], str) and of}
    return _document(text, id, where, how, {**rest, **named})


def _decoded(data: bytes, id: str, where: str, how: Read, kind: str = "", **named: str) -> Item:
    """The document in these bytes. `kind` is a page's Content-Type."""
    if len(data) > MAX_DOCUMENT:
        return LeftOut(TOO_LONG, where)
    if (text := decoded(data, kind, how.format != "text")) is None:
        return LeftOut(NO_UTF8 if how.format == "text" else NO_ENCODING, where)
    return _document(text, id, where, how, named)


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
