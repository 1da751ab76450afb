"""Of `test_preview.py` what needs a process, a socket or a compilation."""

import gzip
import os

import pyarrow
import pytest

from engine.data.token_store import TokenStore
from runner.isolation import bubblewrap
from runner.lib import paths
from runner.publish import preview
from tests.unit.runner.test_preview import LINES, Output, table, write
from tests.unit.runner.test_preview import output as output  # a fixture


def test_the_first_rows_of_a_parquet_file_are_shown_with_its_columns(output: Output) -> None:
    at = pyarrow.array([1, None], pyarrow.timestamp("ns"))
    shown = table(output, {"text": ["one", "two"], "raw": [b"\0", None], "at": at}).decoded()
    assert shown.records[0][:2] == [("text", "one"), ("raw", "1 bytes: 00")]
    assert shown.records[0][2][1].startswith("1970-01-01 00:00:00")
    assert shown.records[1] == [("text", "two"), ("raw", "null"), ("at", "null")]
    assert shown.about == (
        "2 rows in 1 row groups, with the columns text (string), raw (binary), at (timestamp[ns])."
    )


def test_the_first_tokens_are_decoded_and_a_character_of_several_tokens_is_one(
    output: Output,
) -> None:
    TokenStore.build(output.folder / "train", ["é, 東京", "b"])
    shown = output.decoded()
    assert [words for _, words in shown.tokens] == ["é", ",", " ", "東", "京", "b"]
    assert shown.tokens[0][0] == list("é".encode())
    assert "The first 11 of 11 tokens of 2 documents; 11 bytes" in shown.about


def test_a_damaged_page_of_a_parquet_file_is_said(output: Output) -> None:
    table(output, {"text": ["word " * 9000]}, use_dictionary=False)
    data = bytearray((output.folder / "train.parquet").read_bytes())
    data[20:400] = os.urandom(380)
    shown = write(output, "train.parquet", bytes(data)).decoded()
    assert shown.why
    assert shown.records == []


def test_a_parquet_file_that_decompresses_to_more_than_memory_breaks_its_child_only(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "MEMORY", 320 << 20)
    how = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    table(output, {"text": ["a" * (120 << 20)]}, **how)
    assert output.sizes["train.parquet"] < 1 << 20
    assert "memory" in output.decoded().why


def test_a_child_that_takes_too_long_is_ended(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "MODULE", "tests.runner.stuck_child")
    monkeypatch.setattr(bubblewrap, "probe", lambda: "not here")
    assert (
        write(output, "a.jsonl.gz", gzip.compress(LINES, mtime=0)).decoded(0.5).why
        == "it took longer than 0 s"
    )


@pytest.mark.parametrize("why", ["", "not here"], ids=["in a box", "without one"])
def test_a_child_knows_no_environment(
    output: Output, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if not why and bubblewrap.probe():
        pytest.skip(bubblewrap.probe())
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_hunter2hunter2")
    monkeypatch.setattr(bubblewrap, "probe", lambda: why)
    monkeypatch.setattr(preview, "MODULE", "tests.runner.telling_child")
    monkeypatch.setattr(paths, "SHOWN", (*paths.SHOWN, "tests"))
    bubblewrap._code.cache_clear()
    try:
        shown = write(output, "a.jsonl.gz", gzip.compress(LINES, mtime=0)).decoded()
    finally:
        bubblewrap._code.cache_clear()
    assert shown.about.startswith("environment: ")
    assert "GITHUB" not in shown.about
