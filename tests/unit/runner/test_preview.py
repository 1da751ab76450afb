"""First records: of good files, and of files that were made to break who reads them."""

import gzip
import io
import json
import os
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from engine.data.token_store import TokenStore
from engine.data.tokenize import train_bpe
from runner.lib import redact
from runner.publish import preview, preview_child
from runner.publish.preview import Preview

DEEP = b"[" * 200_000


class Output:
    """Files, and how much of them was read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.read = folder, 0
        folder.mkdir(exist_ok=True)

    @property
    def sizes(self) -> dict[str, int]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in found}

    def give(self, path: str, start: int, length: int) -> bytes:
        self.read += length
        with (self.folder / path).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def decoded(self, seconds: float = preview.SECONDS) -> Preview:
        """Of its only part, by a child."""
        (part,) = preview.parts(self.sizes)
        return preview.look(part, self.sizes, self.give, seconds)

    def here(self) -> Preview:
        """The same in this process, which is quicker."""
        (part,) = preview.parts(self.sizes)
        files = {
            name: preview_child.Given(
                name,
                self.sizes[path],
                lambda _, start, length, path=path: self.give(path, start, length),
            )
            for name, path in part.files.items()
        }
        said = json.dumps(preview_child.shown(part.kind, files))
        return preview.printable(Preview.model_validate_json(said))


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "out")


def write(output: Output, name: str, data: bytes) -> Output:
    (output.folder / name).write_bytes(data)
    return output


def table(output: Output, columns: dict[str, list[object]], **how: object) -> Output:
    parquet.write_table(pyarrow.table(columns), output.folder / "train.parquet", **how)
    return output


LINES = b"".join(json.dumps({"text": f"page {n}", "n": [n]}).encode() + b"\n" for n in range(9))
FIRST = [("text", "page 0"), ("n", "[0]")]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("train.jsonl", LINES),
        ("train.jsonl.zst", zstandard.compress(LINES)),
        ("train.jsonl.gz", gzip.compress(LINES, mtime=0)),
    ],
)
def test_the_first_lines_are_shown_field_by_field(output: Output, name: str, data: bytes) -> None:
    shown = write(output, name, data).here()
    assert shown.records[0] == FIRST
    assert len(shown.records) == preview_child.RECORDS


def test_only_the_first_pages_of_a_large_parquet_file_are_read(output: Output) -> None:
    noise = [os.urandom(1000).hex() for _ in range(20_000)]
    table(output, {"id": list(range(20_000)), "text": noise}, use_dictionary=False)
    assert output.sizes["train.parquet"] > 20 << 20
    assert len(output.here().records) == preview_child.RECORDS
    assert output.read < 4 << 20


def test_tokens_of_a_bpe_join_to_the_text_with_the_end_of_a_document(output: Output) -> None:
    texts = ["the cat and the hat and the dog", "another"]
    TokenStore.build(output.folder / "train", texts, train_bpe(texts, 280))
    words = [words for _, words in output.here().tokens]
    assert "".join(words) == "the cat and the hat and the dog<|endoftext|>another<|endoftext|>"
    assert " the" in words


def test_only_the_first_piece_of_a_large_token_store_is_read(output: Output) -> None:
    TokenStore.build(output.folder / "train", ["0123456789" * 500_000])
    assert "of 5,000,000 tokens" in output.here().about
    assert output.read < 64 << 10


# ── Files that were made to break who reads them ─────────────────────────────────────────────


def test_only_the_beginning_of_a_line_of_a_gigabyte_is_read(output: Output) -> None:
    with (output.folder / "train.jsonl").open("wb") as file:
        file.write(b'{"text": "' + b"a" * 1000)
        file.truncate(1 << 30)
    shown = output.here()
    assert shown.records[0][0][0].startswith("it is longer than the 262,144 bytes")
    assert output.read == preview_child.HEAD


def test_a_bomb_is_decompressed_to_as_much_as_is_shown(output: Output) -> None:
    compressor, packed = zstandard.ZstdCompressor(level=1).compressobj(), io.BytesIO()
    for _ in range(256):
        packed.write(compressor.compress(b"\0" * (1 << 20)))
    packed.write(compressor.flush())
    shown = write(output, "train.jsonl.zst", packed.getvalue()).here()
    assert len(packed.getvalue()) < 1 << 20
    assert shown.records[0][0][0].startswith("it is longer than the 262,144 bytes")
    assert shown.records[0][0][1].startswith("\\x00\\x00")


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.jsonl.zst", b"no zstd at all", "it is cut off or damaged"),
        ("a.jsonl.gz", b"no gzip at all", "it is cut off or damaged"),
        ("a.parquet", b"PAR1 no parquet PAR1", "it is no Parquet file, or damaged"),
        ("a.parquet", b"", "it is no Parquet file, or damaged"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_reported(
    output: Output, name: str, data: bytes, why: str
) -> None:
    assert write(output, name, data).here().why.startswith(why)


def test_a_file_that_is_cut_off_shows_what_can_be_read(output: Output) -> None:
    shown = write(output, "a.jsonl.gz", gzip.compress(LINES * 999, mtime=0)[:-500]).here()
    assert shown.records[0] == FIRST


def test_lines_that_are_no_json_too_deep_or_strange_are_shown_as_they_are(output: Output) -> None:
    lines = [b"not json", DEEP, b'{"\xff": 1}', b'{"text": "\\ud800"}', b"9" * 5000]
    found = write(output, "a.jsonl", b"\n".join(lines) + b"\n").here().records
    assert found[0] == [("no JSON", "not json")]
    assert found[1][0][0] == "nested too deeply to be read; it begins"
    assert found[2] == [("�", "1")]
    assert found[3] == [("text", "\\ud800")]
    assert found[4][0][0] == "no JSON"


def test_the_first_columns_of_a_huge_schema_are_shown(output: Output) -> None:
    shown = table(output, {f"c{n}": [n] for n in range(3000)}).here()
    assert "c11 (int64) and 2,988 more." in shown.about
    assert len(shown.records[0]) == preview_child.FIELDS


def test_tokens_whose_manifest_lies_are_refused_in_words(output: Output) -> None:
    TokenStore.build(output.folder / "train", ["some text"])
    manifest = output.folder / "train/manifest.json"
    manifest.write_text(manifest.read_text().replace('"tokens": 9', '"tokens": 10'))
    why = output.here().why
    assert "its manifest says 10 of uint8" in why
    assert "memory://" not in why


def test_a_child_gets_nothing_but_the_files_that_were_asked_for_and_so_many_bytes() -> None:
    part = preview.Part("a.jsonl", "lines", {"a.jsonl": "a.jsonl"})
    asked = [["../secret", 0, 9], ["a.jsonl", -1, 9], ["a.jsonl", 0, 2 << 20], ["a.jsonl", 3, 4]]
    words = [*({"read": one} for one in asked), {"shown": {"about": "so"}}]
    out = io.BytesIO(b"".join(json.dumps(word).encode() + b"\n" for word in words))
    into, given = io.BytesIO(), []

    def read(*one: object) -> bytes:
        given.append(one)
        return b"abcdefgh"

    said = preview._serve(into, out, {}, part, read)
    assert said == Preview(about="so")
    assert given == []  # the third one was beyond the budget, and what follows too
    assert into.getvalue().splitlines()[1:] == [b"no"] * 4


@pytest.mark.parametrize("said", [b"{", b'{"shown": {"html": "<b>"}}\n', b'{"read": ["a", "b"]}\n'])
def test_a_childs_answer_of_another_form_is_rejected(said: bytes) -> None:
    part = preview.Part("a.jsonl", "lines", {"a.jsonl": "a.jsonl"})
    assert preview._serve(io.BytesIO(), io.BytesIO(said), {}, part, lambda *_: b"") is None


# ── What is shown ────────────────────────────────────────────────────────────────────────────


def test_unprintable_characters_are_made_visible() -> None:
    words = "a\x1b[31m\u202eb\x7f\u200b\xa0\t\n\U000e0041é東"
    assert preview.visible(words) == "a\\x1b[31m\\u202eb\\x7f\\u200b\xa0\t\n\\U000e0041é東"


@pytest.fixture
def secret() -> str:
    redact.hold("hunter2-hunter2")
    return "hunter2-hunter2"


def test_a_held_secret_is_taken_out_of_records_and_of_tokens_it_is_cut_into(secret: str) -> None:
    said = Preview(
        records=[[("text", f"key {secret}")]],
        text=secret,
        tokens=[([ord(x)], x) for x in f"a {secret} b"],
    )
    shown = preview.printable(said)
    assert shown.records == [[("text", "key [secret]")]]
    assert shown.text == "[secret]"
    assert shown.tokens == [([], "a [secret] b")]


def test_a_preview_is_cut_to_what_a_page_holds() -> None:
    many = [[(f"n{n}", "\n" * 900 + "x" * 5000) for n in range(50)] for _ in range(50)]
    shown = preview.printable(Preview(records=many, text="y" * 99_999, why="z" * 9999))
    assert len(shown.model_dump_json()) < 3 * preview.ROOM
    assert shown.records[0][0][1].count("\n") < preview.LINES_SHOWN


def test_the_first_shard_is_previewed_and_no_file_of_a_token_store() -> None:
    names = ["train.00000.jsonl", "train.00001.jsonl", "validation.jsonl.zst", "scores.json"]
    names += [f"web/train/{name}" for name in preview.STORE] + ["model/zarr.json", "x.bin"]
    found = [(part.kind, part.name) for part in preview.parts(dict.fromkeys(names, 9))]
    assert found == [
        ("tokens", "web/train"),
        ("lines", "train.00000.jsonl"),
        ("lines", "validation.jsonl.zst"),
        ("text", "scores.json"),
    ]
