"""Reads documents from files of any size, one at a time: text, JSON lines (plain or compressed) and
Parquet. Imports the library of a format only when it is needed. Errors name file and line.

A document is an object with a "text" and whatever else its file says of it; a corpus gives it at
least `id`, `source` and `licence`. Steps pass on what they do not know."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from engine.data.lab_texts import BadText
from engine.data.unpacked import opened

Document = dict[str, Any]  # "text" is a string
_Item = TypeVar("_Item")
SHARD = 64 << 20  # bytes of a file; many processes work on a text of many files


def documents(*paths: Path) -> Iterator[str]:
    """The texts of the documents of these files, in order and unchanged, one at a time. Of Parquet
    it reads no other column. Raises BadText, which names file and line."""
    return (document["text"] for document in _read(paths, ["text"]))


def whole_documents(*paths: Path) -> Iterator[Document]:
    """The documents of these files, in order and unchanged, one at a time, with all their keys.

    `.jsonl`, `.jsonl.gz` and `.jsonl.zst` have one document per line, under the key "text"; empty
    lines are skipped. `.parquet` has one per row of the column "text". Any other file is UTF-8 text
    and one document. Raises BadText, which names file and line.
    """
    return _read(paths, None)


def _read(paths: Iterable[Path], columns: list[str] | None) -> Iterator[Document]:
    for path in paths:
        if path.suffix == ".parquet":
            found = _parquet_rows(path, columns)
        elif path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
            found = _json_lines(path)
        else:
            found = _whole_file(path)
        for where, document in found:
            if not isinstance(text := document["text"], str):
                kind = "nothing" if text is None else type(text).__name__
                raise BadText(f'{where} has {kind} as its "text"; make it a string')
            if not _is_encodable(text):
                raise BadText(
                    f"{where} has half of a surrogate pair, which UTF-8 cannot hold; repair the "
                    "escapes or leave the document out"
                )
            yield document


def grouped(
    items: Iterable[_Item], size_of: Callable[[_Item], int], enough: int
) -> Iterator[list[_Item]]:
    """Consecutive items in lists, each ended by the item with which its size is `enough`."""
    group, size = list[_Item](), 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= enough:
            yield group
            group, size = [], 0
    if group:
        yield group


def split_files(text: Path, split: str) -> list[Path]:
    """The files of one split of the text in this folder, in order. Raises BadText."""
    found = [path for path in sorted(text.iterdir()) if path.name.split(".")[0] == split]
    if not found:
        names = ", ".join(path.name for path in sorted(text.iterdir())) or "nothing"
        raise BadText(
            f"a text has a file {split}.jsonl (or .jsonl.gz, .jsonl.zst, .parquet), and the step "
            f"that made this one left {names}"
        )
    return found


def read_documents(text: Path, split: str) -> Iterator[Document]:
    """The documents of one split (`train` or `validation`) of the text in this folder, in order and
    with all their keys, one at a time. Raises BadText."""
    return whole_documents(*split_files(text, split))


def write_documents(
    out: Path, split: str, documents: Iterable[Document], shard_bytes: int = SHARD
) -> int:
    """Write one split of a text into the folder `out`, a document at a time, in files of about
    `shard_bytes`. Returns the number of documents. Raises BadText for one without a text."""
    rest, count = iter(documents), 0
    for number in itertools.count():
        first = list(itertools.islice(rest, 1))
        if number and not first:
            break
        with (out / f"{split}.{number:05d}.jsonl").open("wb") as file:
            for document in itertools.chain(first, rest):
                count += 1
                if not isinstance(document.get("text"), str):
                    raise BadText(f"document {count:,} of {split} has no key `text` with a string")
                file.write(as_line(document))
                if file.tell() >= shard_bytes:
                    break
    return count


def as_line(document: Document) -> bytes:
    """The document as a line of a `.jsonl` file."""
    try:
        return json.dumps(document, ensure_ascii=False, default=str).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair outside of its text
        return json.dumps(document, default=str).encode() + b"\n"


def _whole_file(path: Path) -> Iterator[tuple[str, Document]]:
    try:
        yield str(path), {"text": path.read_bytes().decode()}
    except OSError as error:
        raise BadText(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise BadText(
            f"{path} is not UTF-8 text (byte {error.start:,}); save it as UTF-8, or give it the "
            "ending of its format: .jsonl, .jsonl.gz, .jsonl.zst or .parquet"
        ) from error


def _json_lines(path: Path) -> Iterator[tuple[str, Document]]:
    number = 0
    try:
        with opened(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    document = json.loads(line)
                    document["text"]  # raises where there is none
                    yield f"{path}, line {number}", document
    except (OSError, EOFError) as error:
        raise BadText(
            f"{path} cannot be read after line {number}: {error}; it is truncated or damaged, so "
            "copy it again"
        ) from error
    except UnicodeDecodeError as error:
        raise BadText(f"{path}, line {number} is not UTF-8; save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise BadText(f"{path}, line {number} is not JSON: {error}; repair the line") from error
    except (KeyError, TypeError, IndexError) as error:
        raise BadText(
            f'{path}, line {number} is no object with the key "text"; write each document as '
            '{"text": "…"}'
        ) from error


def _parquet_rows(path: Path, columns: list[str] | None) -> Iterator[tuple[str, Document]]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            if "text" not in file.schema_arrow.names:
                raise BadText(
                    f"{path} has the columns {', '.join(file.schema_arrow.names)} and none named "
                    "text; rename the one with the documents"
                )
            for rows in file.iter_batches(batch_size=1024, columns=columns):
                for document in rows.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", document
    except (OSError, pyarrow.ArrowException) as error:
        raise BadText(
            f"{path} cannot be read after row {number}: {error}; copy it again, or write it again"
        ) from error
    except UnicodeDecodeError as error:
        raise BadText(f"{path}, after row {number}: not UTF-8; write it again as UTF-8") from error


def rows_as_lines(path: Path, columns: tuple[str, ...] = ("messages", "tools")) -> bytes:
    """These columns of a Parquet file, of which it must have the first, as JSON lines, without
    what is null. Raises BadText."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if columns[0] not in names:
                raise BadText(
                    f"{path.name} has the columns {', '.join(names)} and none named {columns[0]}; "
                    "rename the one with the conversations"
                )
            kept = [name for name in columns if name in names]
            rows = file.read(columns=kept).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise BadText(f"{path.name} cannot be read: {error}; write it again") from error
    return b"".join(json.dumps(_without_nulls(row), default=str).encode() + b"\n" for row in rows)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(of) for key, of in value.items() if of is not None}
    return [_without_nulls(of) for of in value] if isinstance(value, list) else value


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
