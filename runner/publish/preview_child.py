"""`python -m runner.publish.preview_child`: decodes the first records of one output.

Started by `runner.publish.preview`, in a box if that works, with little memory and time: the file
is untrusted and may be made to break its decoder. It opens nothing itself. It writes `{"read":
[file, start, length]}` as a line to stdout and gets a line with a number and so many bytes on
stdin, or a line `no`. Its last line is `{"shown": …}`, a `runner.publish.preview.Preview`.
"""

import gzip
import io
import json
import os
import resource
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

CPU = 20  # seconds
HEAD = 256 << 10  # bytes of lines that are read; also the limit after decompression
RECORDS, FIELDS = 5, 12  # per preview; per record
VALUE, NAME = 1_200, 120  # characters of a value, and of its name
TOKENS = 200
GROUP = 8  # maximum tokens that are shown as one, because they share a character
SMALL = 64 << 20  # maximum bytes of a tokenizer
Shown = dict[str, Any]


class NotGiven(OSError):
    """More of the file is needed than may be read."""


class Bad(Exception):
    """The file is not what its name says; the message continues "is not shown: "."""


class Given(io.RawIOBase):
    """One file of the output, as far as it may be read: seekable, reads by request."""

    def __init__(self, name: str, size: int, ask: Callable[[str, int, int], bytes]) -> None:
        self.name, self.length, self._ask, self._at = name, size, ask, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (0, self._at, self.length)[whence]
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self.length - self._at)
        size = left if size is None or size < 0 else min(size, left)
        data = self._ask(self.name, self._at, size) if size else b""
        self._at += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def whole(self, most: int) -> bytes:
        """The content of a small file. Raises Bad."""
        if self.length > most:
            raise Bad(f"its {self.name} has {self.length:,} bytes, and {most:,} is the most")
        self.seek(0)
        return self.read()


Files = Mapping[str, Given]


# ── Lines and texts ──────────────────────────────────────────────────────────────────────────


def lines(files: Files) -> Shown:
    """The first records of JSON lines, plain or compressed."""
    ((name, file),) = files.items()
    head = file.read(HEAD)
    content, more = _unpacked(name, head, file.length > len(head))
    whole = content.split(b"\n")
    last = whole.pop()  # the part after the last line break
    found = [_record(line) for line in whole[: 20 * RECORDS] if line.strip()][:RECORDS]
    if last.strip() and len(found) < RECORDS:
        label = f"it is longer than the {len(content):,} bytes that were read, and begins"
        found.append([(label, _words(last)[:VALUE])] if more else _record(last))
    return {"records": found, "about": "" if found or more else "It is empty."}


def _unpacked(name: str, head: bytes, more: bool) -> tuple[bytes, bool]:
    """(content, whether there is more), at most HEAD bytes."""
    if not name.endswith((".gz", ".zst")):
        return head, more
    import zstandard

    file: Any = gzip.GzipFile(fileobj=io.BytesIO(head))
    if name.endswith(".zst"):
        # A window of 128 MiB, the library's own limit for streams.
        library = zstandard.ZstdDecompressor(max_window_size=128 << 20)
        file = library.stream_reader(io.BytesIO(head), read_across_frames=True)
    content = b""
    try:
        while len(content) < HEAD:
            block = file.read(min(64 << 10, HEAD - len(content)))
            if not block:
                return content, more
            content += block
    except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
        if not content:
            raise Bad(f"it is cut off or damaged ({error})") from error
    return content, True


def _record(line: bytes) -> list[tuple[str, str]]:
    words = _words(line)
    try:
        value = json.loads(words)
        if not isinstance(value, dict):
            return [("", _value(value))]
        return _fields(value)
    except RecursionError:
        return [("nested too deeply to be read; it begins", words[:VALUE])]
    except ValueError:
        return [("no JSON", words[:VALUE])]


def _fields(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    items = list(record.items())[:FIELDS]
    found = [(_plain(name[:NAME]), _value(value)) for name, value in items]
    more = len(record) - len(found)
    return [*found, ("…", f"and {more:,} more")] if more else found


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _plain(value[:VALUE])
    if isinstance(value, bytes):
        return f"{len(value):,} bytes: {value[:64].hex(' ')}"
    if not isinstance(value, dict | list | int | float | None):  # such as a time
        return _plain(str(value)[:VALUE])
    return _plain(json.dumps(value, ensure_ascii=False, default=str)[:VALUE])


def _plain(words: str) -> str:
    """Surrogates, which UTF-8 cannot encode, as escapes."""
    return words.encode("utf-8", "backslashreplace").decode()


def _words(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def text(files: Files) -> Shown:
    """The beginning of a text."""
    ((_, file),) = files.items()
    head = file.read(HEAD // 16)
    about = f"The first {len(head):,} bytes." if file.length > len(head) else ""
    return {"text": _words(head), "about": about}


# ── Parquet ──────────────────────────────────────────────────────────────────────────────────


def parquet(files: Files) -> Shown:
    """The first rows of the first row group, and the names of the columns."""
    import pyarrow
    from pyarrow import parquet as library

    ((_, file),) = files.items()
    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    try:
        # Buffered, so that only the first pages of each column are read.
        found = library.ParquetFile(
            file,
            buffer_size=64 << 10,
            pre_buffer=False,
            thrift_string_size_limit=16 << 20,
            thrift_container_size_limit=1_000_000,
        )
        told, columns = found.metadata, list(found.schema_arrow)
        shown = [field.name for field in columns[:FIELDS]]
        rows: list[dict[str, Any]] = []
        if shown and told.num_row_groups:
            batches = found.iter_batches(
                batch_size=RECORDS, row_groups=[0], columns=shown, use_threads=False
            )
            first = next(batches, None)
            rows = [] if first is None else _rows(first.slice(0, RECORDS))
    except (NotGiven, MemoryError):  # pyarrow's own is an ArrowException, too
        raise
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise Bad(f"it is no Parquet file, or damaged ({_first(error)})") from error
    names = [f"{field.name[:NAME]} ({str(field.type)[:60]})" for field in columns[:FIELDS]]
    more = f" and {len(columns) - FIELDS:,} more" if len(columns) > FIELDS else ""
    return {
        "records": [_fields(row) for row in rows],
        "about": f"{told.num_rows:,} rows in {told.num_row_groups:,} row groups, with the columns "
        f"{', '.join(names)}{more}.",
    }


def _rows(batch: Any) -> list[dict[str, Any]]:
    names = batch.schema.names
    return [
        {name: _plainly(column[n]) for name, column in zip(names, batch.columns, strict=True)}
        for n in range(batch.num_rows)
    ]


def _plainly(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):  # a time outside Python's range
        return str(scalar.cast("int64").as_py())


# ── Tokens ───────────────────────────────────────────────────────────────────────────────────

PLACE = "memory://tokens"  # the engine opens it like a folder
INDEX = "tokens/c/0"  # the array's first file, with its index at the end


def tokens(files: Files) -> Shown:
    """The first tokens of a token store as text, by its own tokenizer."""
    import tokenizers

    from engine.data.arrays import FILE, PIECE, Folder
    from engine.data.token_store import TokenStore, WrongTokens
    from engine.data.tokenize import BadTokenizer

    place = Folder(PLACE)
    for name in ("manifest.json", "tokens/zarr.json", "offsets/zarr.json"):
        place.write(name, files[name].whole(HEAD))
    place.write("tokenizer.json", files["tokenizer.json"].whole(SMALL))
    place.write(INDEX, _first_piece(files[INDEX], FILE // PIECE, FILE * 4 + PIECE * 4))
    try:
        store = TokenStore.open(PLACE)
        told = store.manifest
        ids = store.read(slice(0, min(TOKENS, told.tokens))).tolist()
        tokenizer = tokenizers.Tokenizer.from_str(store.tokenizer().definition)
    except (WrongTokens, BadTokenizer) as error:
        raise Bad(str(error).replace(PLACE, "this place")) from error
    groups = pieces(ids, lambda some: tokenizer.decode(some, skip_special_tokens=False))
    return {
        "tokens": list(groups),
        "about": f"The first {len(ids):,} of {told.tokens:,} tokens of {told.documents:,} "
        f"{'document' if told.documents == 1 else 'documents'}; {told.bytes:,} bytes of text, "
        f"{told.bytes / told.tokens:.2f} per token; {told.vocab_size:,} kinds of tokens.",
    }


def _first_piece(file: Given, pieces: int, most: int) -> bytes:
    """The array's first file with only its first piece and its index; zeros between."""
    entry, checksum = 16, 4  # bytes: offset and length of a piece; a CRC-32C
    index = pieces * entry + checksum
    if not index <= file.length <= most:
        raise Bad(f"its {file.name} has {file.length:,} bytes, which no file of tokens has")
    content, end = bytearray(file.length), file.length - index
    file.seek(end)
    content[end:] = file.read(index)
    start = int.from_bytes(content[end : end + 8], "little")
    length = int.from_bytes(content[end + 8 : end + 16], "little")
    if start + length <= file.length:  # otherwise it is missing, which the engine reports
        file.seek(start)
        content[start : start + length] = file.read(length)
    return bytes(content)


def pieces(ids: list[int], decode: Callable[[list[int]], str]) -> Iterator[tuple[list[int], str]]:
    """(ids, the text that they add): single tokens, or tokens that share a character. Pure."""
    begun, shown = 0, ""
    for end in range(1, len(ids) + 1):
        words, group = decode(ids[:end]), ids[begun:end]
        broken = words.endswith("\ufffd") and end < len(ids) and len(group) < GROUP
        if broken:  # the next token may complete the character
            continue
        yield group, words.removeprefix(shown) if words.startswith(shown) else decode(group)
        begun, shown = end, words


# ── Asking and answering ─────────────────────────────────────────────────────────────────────

SHOW: Mapping[str, Callable[[Files], Shown]] = {
    "lines": lines,
    "text": text,
    "parquet": parquet,
    "tokens": tokens,
}


def shown(kind: str, files: Files) -> Shown:
    """The preview of these files, or why there is none."""
    try:
        return SHOW[kind](files)
    except MemoryError:
        return {"why": "to decode it takes too much memory"}
    except RecursionError:
        return {"why": "it is nested too deeply"}
    except (NotGiven, Bad) as error:
        return {"why": str(error)[:500]}
    except Exception as error:
        return {"why": f"it cannot be decoded ({type(error).__name__}: {_first(error)})"}


def _first(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200].rstrip(".")


def main() -> None:
    """Answer one request."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    given, said = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps the output of libraries out of the answer
    asked = json.loads(given.readline())
    resource.setrlimit(resource.RLIMIT_AS, (asked["memory"], asked["memory"]))

    def ask(name: str, start: int, length: int) -> bytes:
        return _ask(given, said, [name, start, length])

    files = {name: Given(name, size, ask) for name, size in asked["files"].items()}
    _say(said, {"shown": shown(asked["kind"], files)})


def _ask(given: BinaryIO, said: BinaryIO, wanted: list[Any]) -> bytes:
    _say(said, {"read": wanted})
    count = given.readline().strip()
    if not count.isdigit():
        raise NotGiven("too much of it must be read for its first records")
    data = given.read(int(count))
    if len(data) != int(count):
        raise NotGiven("it was read in part only")
    return data


def _say(said: BinaryIO, word: Mapping[str, Any]) -> None:
    said.write(json.dumps(word).encode() + b"\n")  # in ASCII, which can encode surrogates, too
    said.flush()


if __name__ == "__main__":
    main()
