"""The files of corpora, as documents: what is read, counted, and refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from engine.data import corpus_files
from engine.data.corpus_files import LeftOut, Read
from engine.data.lab_texts import BadText


def lines(*texts: str, **more: Any) -> bytes:
    return b"".join(json.dumps({"text": text, **more}).encode() + b"\n" for text in texts)


def record(body: bytes, *headers: str) -> bytes:
    """A record of a web archive, with an answer and these headers."""
    answer = "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode() + body
    head = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\n"
    head += "WARC-Target-URI: https://e/a\r\nContent-Type: application/http; msgtype=response\r\n"
    return f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer + b"\r\n\r\n"


JSONL = Read("jsonl", "web", "MIT")
HTML = Read("html", "docs", "PSF-2.0")


def read(folder: Path, name: str, data: bytes, how: Read = JSONL) -> list[corpus_files.Item]:
    path = folder / name
    path.write_bytes(data)
    return list(corpus_files.read(path, name, how))


def test_a_document_has_id_source_licence_and_keeps_its_other_keys(tmp_path: Path) -> None:
    how = JSONL._replace(fields={"text": "content", "id": "uuid"})
    data = b'{"content": "one", "uuid": 7, "stars": 3, "source": "hub", "licence": "MPL-2.0"}\n'
    named, plain = read(
        tmp_path, "a.jsonl", data + b'{"content": "two", "url": "https://e"}\n', how
    )
    assert named == {
        **{"id": "7", "source": "hub", "licence": "MPL-2.0"},
        **{"stars": 3, "text": "one"},
    }
    assert plain == {
        **{"id": "a.jsonl:2", "source": "web", "licence": "MIT"},
        **{"url": "https://e", "text": "two"},
    }


def test_a_document_may_have_any_other_keys(tmp_path: Path) -> None:
    how = JSONL._replace(fields={"text": "content", "id": "uuid", "licence": "license"})
    stray = {"where": 1, "how": 2, "text": "old", "id": "x", "licence": 3, "value": 4, "more": 5}
    line = {**stray, "content": "one", "uuid": "\ud800", "license": "MPL\ud800"}
    (document,) = read(tmp_path, "a.jsonl", json.dumps(line).encode() + b"\n", how)
    assert document == {
        **{"id": "?", "source": "web", "licence": "MPL?", "text": "one"},
        **{"where": 1, "how": 2, "value": 4, "more": 5},
    }


def test_a_document_that_cannot_be_used_is_counted_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_files, "MAX_DOCUMENT", 100)
    bad = b'\xff\n{}\n[1]\n{bad\n{"text": " "}\n' + lines("x" * 300) + b'{"text": "\\ud800"}\n'
    found = read(tmp_path, "a.jsonl", lines("one") + bad + lines("two"))
    assert [item["text"] for item in found if not isinstance(item, LeftOut)] == ["one", "two"]
    assert [tuple(item) for item in found if isinstance(item, LeftOut)] == [
        ("not UTF-8", "a.jsonl, line 2"),
        ("without a text", "a.jsonl, line 3"),
        ("not a JSON object", "a.jsonl, line 4"),
        ("not a JSON object", "a.jsonl, line 5"),
        ("empty", "a.jsonl, line 6"),
        ("longer than 16 MiB", "a.jsonl, line 7"),
        ("not UTF-8", "a.jsonl, line 8"),
    ]


def test_a_damaged_or_half_file_is_refused_with_its_name_and_line(tmp_path: Path) -> None:
    whole = lines("one", "two", "three")
    for name, data, words in (
        ("half.jsonl", whole[:-9], "half.jsonl, line 3 ends in the middle of a document"),
        ("a.jsonl.gz", gzip.compress(whole, mtime=0)[:-4], "a.jsonl.gz cannot be read: Comp"),
        ("b.jsonl.gz", whole, "b.jsonl.gz cannot be read"),
        ("c.jsonl.zst", b"\x28\xb5\x2f\xfd" + whole, "c.jsonl.zst cannot be read"),
    ):
        with pytest.raises(BadText, match=words):
            read(tmp_path, name, data)
    with pytest.raises(BadText, match="after row 0"):
        read(tmp_path, "a.parquet", b"PAR1" + whole, Read("parquet", "p", "MIT"))


def test_a_file_that_unpacks_to_far_more_than_it_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_files, "EXPANDS_FREELY", 1 << 16)
    bomb = gzip.compress(b'{"text": "' + b" " * 3_000_000, mtime=0)
    with pytest.raises(BadText, match=r"bomb.jsonl.gz unpacks to more than 200 times its size"):
        read(tmp_path, "bomb.jsonl.gz", bomb)


def test_a_tree_gives_a_document_for_each_file_and_its_own_encoding_counts(tmp_path: Path) -> None:
    (page,) = read(tmp_path, "a.html", "<p>é".encode(), HTML)
    assert page == {"id": "a.html", "source": "docs", "licence": "PSF-2.0", "text": "<p>é"}
    old = "<meta charset='iso-8859-1'><p>é".encode("latin-1")
    (page,) = read(tmp_path, "b.html", old, HTML)
    assert not isinstance(page, LeftOut)
    assert page["text"].endswith("é")
    (page,) = read(tmp_path, "c.html", "<p>é".encode("latin-1"), HTML)
    assert not isinstance(page, LeftOut)
    assert page["text"] == "<p>é"
    noise = [LeftOut("in no encoding that reads them", "d.html")]
    assert read(tmp_path, "d.html", bytes(range(128, 256)) * 3, HTML) == noise


def test_a_text_may_say_where_its_documents_start(tmp_path: Path) -> None:
    how = Read("text", "words", "MIT", starts=r"^\S")
    found = read(tmp_path, "a.txt", b" head\nA\n  one\nB\n  two\n", how)
    ids = {item["id"]: item["text"] for item in found if not isinstance(item, LeftOut)}
    assert ids == {"a.txt:1": " head\n", "a.txt:2": "A\n  one\n", "a.txt:4": "B\n  two\n"}


def test_a_web_archive_gives_its_pages_and_counts_the_rest(tmp_path: Path) -> None:
    plain = b"".join(
        record("<p>é".encode("latin-1"), f"Content-Type: {kind}")
        for kind in ("text/html; charset=latin-1", "image/png")
    )
    how = Read("warc", "crawl", "CC0-1.0")
    page, other = read(tmp_path, "a.warc.gz", gzip.compress(plain), how)
    assert not isinstance(page, LeftOut)
    assert (page["url"], page["text"]) == ("https://e/a", "<p>é")
    assert page["id"].startswith("urn:uuid:")
    assert other == LeftOut("not an HTML page", "a.warc.gz, record 2")
    with pytest.raises(BadText, match=r"a.warc cannot be read: record 2 is shorter than it says"):
        read(tmp_path, "a.warc", plain[:-6], how)
