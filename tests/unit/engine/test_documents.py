import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from engine.data.documents import (
    as_line,
    documents,
    read_documents,
    split_files,
    whole_documents,
    write_documents,
)
from engine.data.lab_texts import BadText

TEXTS = ["one\ntwo\r\n", "", "Ärger \u2028 日本 🚣", "x" * 300_000]
LINES = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)).encode()


def write_parquet(path: Path, texts: list[str | None]) -> None:
    pq.write_table(pa.table({"id": list(range(len(texts))), "text": texts}), path, row_group_size=2)


def write_frames(path: Path, content: bytes) -> None:
    """Two frames, the border in the middle of a line; the first does not tell its length."""
    first, second = content[:1000], content[1000:]
    writer = zstandard.ZstdCompressor().compressobj()
    path.write_bytes(
        writer.compress(first) + writer.flush() + zstandard.ZstdCompressor().compress(second)
    )


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.jsonl", lambda path: path.write_bytes(LINES)),
        ("x.jsonl.gz", lambda path: path.write_bytes(gzip.compress(LINES, mtime=0))),
        ("x.jsonl.zst", lambda path: path.write_bytes(zstandard.compress(LINES))),
        ("frames.jsonl.zst", lambda path: write_frames(path, LINES)),
        ("x.parquet", lambda path: write_parquet(path, TEXTS)),
    ],
)
def test_every_format_gives_the_same_documents(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    assert list(documents(tmp_path / name)) == TEXTS


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_whole_document_has_all_keys_and_survives_being_written(
    tmp_path: Path, name: str
) -> None:
    if name == "x.jsonl":
        (tmp_path / name).write_bytes(LINES)
    else:
        write_parquet(tmp_path / name, TEXTS)
    found = list(whole_documents(tmp_path / name))
    assert found == [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
    (tmp_path / "again.jsonl").write_bytes(b"".join(map(as_line, found)))
    assert list(whole_documents(tmp_path / "again.jsonl")) == found


def test_what_utf8_cannot_hold_outside_of_a_text_is_written_as_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "é", "url": "\\ud800"}\n')
    (document,) = whole_documents(tmp_path / "x.jsonl")
    assert json.loads(as_line(document)) == {"text": "é", "url": "\ud800"}


def test_a_text_file_is_one_document_as_it_is_and_files_follow_each_other(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"first\r\n\n")
    (tmp_path / "a.md").write_bytes("zweitens, spät".encode())
    assert list(documents(tmp_path / "b.txt", tmp_path / "a.md")) == [
        "first\r\n\n",
        "zweitens, spät",
    ]


def test_empty_lines_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('\n{"text": "a"}\n  \n{"text": "b"}')
    assert list(documents(tmp_path / "x.jsonl")) == ["a", "b"]


def test_documents_come_before_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\nno JSON\n')
    found = documents(tmp_path / "x.jsonl", tmp_path / "missing.jsonl")
    assert next(found) == "a"
    with pytest.raises(BadText, match=r"x\.jsonl, line 2 is not JSON"):
        next(found)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', 'line 2 is no object with the key "text"'),
        ("x.jsonl", b'["text"]\n', 'line 1 is no object with the key "text"'),
        ("x.jsonl", b'{"text": "a"}\n\n{"text": 5}\n', 'line 3 has int as its "text"'),
        ("x.jsonl", b'{"text": null}\n', 'line 1 has nothing as its "text"'),
        ("x.jsonl", b'{"text": "\\ud800"}\n', "line 1 has half of a surrogate pair"),
        ("x.jsonl", b'{"text": "\xff"}\n', "line 1 is not UTF-8"),
        ("x.jsonl.gz", gzip.compress(LINES, mtime=0)[:-300], "truncated or damaged"),
        ("x.jsonl.gz", LINES, "truncated or damaged"),
        ("x.jsonl.zst", zstandard.compress(LINES)[:-5], "its last frame has no end"),
        ("x.jsonl.zst", LINES, "truncated or damaged"),
        ("x.parquet", LINES, "cannot be read after row 0"),
        ("x.txt", b"caf\xe9", r"not UTF-8 text \(byte 3\)"),
        ("missing.txt", None, "cannot be read"),
        ("missing.jsonl", None, "cannot be read"),
        ("missing.parquet", None, "cannot be read"),
    ],
)
def test_an_unreadable_document_is_refused_with_file_and_line(
    tmp_path: Path, name: str, content: bytes | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadText, match=f"{re.escape(str(tmp_path / name))}.*{sentence}"):
        list(documents(tmp_path / name))


def test_parquet_without_texts_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "x.parquet", ["a", "b", None])
    with pytest.raises(BadText, match=r"x\.parquet, row 3 has nothing"):
        list(documents(tmp_path / "x.parquet"))
    pq.write_table(pa.table({"content": ["a"], "id": [1]}), tmp_path / "y.parquet")
    with pytest.raises(BadText, match="has the columns content, id and none named text"):
        list(documents(tmp_path / "y.parquet"))


# ── A text of many files ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shard_bytes", [1, 60, 120, 10_000])
def test_what_an_own_step_writes_is_what_the_next_one_reads(
    tmp_path: Path, shard_bytes: int
) -> None:
    pages = [{"id": str(n), "text": "row " * n} for n in range(9)]
    assert write_documents(tmp_path, "train", iter(pages), shard_bytes) == 9
    assert write_documents(tmp_path, "validation", []) == 0
    assert list(read_documents(tmp_path, "train")) == pages
    assert list(read_documents(tmp_path, "validation")) == []
    sizes = [path.stat().st_size for path in split_files(tmp_path, "train")]
    assert all(size >= shard_bytes for size in sizes[:-1])
    assert all(sizes), "no file is empty"


def test_documents_are_read_and_written_one_at_a_time(tmp_path: Path) -> None:
    write_documents(tmp_path, "train", ({"text": str(n)} for n in range(3)), shard_bytes=1)
    reading = read_documents(tmp_path, "train")
    split_files(tmp_path, "train")[2].write_text("{")  # not read yet
    assert next(reading) == {"text": "0"}
    assert next(reading) == {"text": "1"}
    with pytest.raises(BadText, match=r"train\.00002\.jsonl"):
        next(reading)


def test_a_document_without_a_text_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BadText, match="document 2 of train has no key `text`"):
        write_documents(tmp_path, "train", [{"text": ""}, {"txt": "row"}])
