"""The step `extract`: what it writes of pages, and what it does with those that cannot be read."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.data.documents import whole_documents
from engine.data.lab_texts import BadText
from runner.schema.data_report import REPORT
from runner.spec.data_steps import Extract
from runner.store import digests
from runner.worker.texts import extract, page_reader
from runner.worker.texts.page_text import BYTES, read
from runner.worker.texts.shards import shards


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_reader, "read", read)


def pages(folder: Path, **of: list[dict[str, Any]]) -> Path:
    """A text of these shards of pages."""
    folder.mkdir()
    for name, documents in of.items():
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{name.replace('_', '.')}.jsonl").write_text(lines)
    return folder


def extracted(text: Path, **config: Any) -> Path:
    out = text.with_name(f"{text.name}-made")
    out.mkdir()
    extract.extract(Extract(**config).model_dump(), {"text": text}, out)
    return out


def made(text: Path, shard: str = "train", **config: Any) -> list[dict[str, Any]]:
    return list(whole_documents(extracted(text, **config) / f"{shard}.jsonl"))


def test_a_document_keeps_its_keys_and_gets_a_title(tmp_path: Path) -> None:
    page = "<title>Of head</title><p>words"
    text = pages(
        tmp_path / "text",
        train=[
            {"id": "a", "text": page, "licence": "CC0-1.0"},
            {"title": "Its own", "text": page},
            {"text": "words"},
        ],
        validation=[{"text": page}],
    )
    first, second, third = made(text)
    assert first == {"id": "a", "text": "words", "licence": "CC0-1.0", "title": "Of head"}
    assert list(first) == ["id", "text", "licence", "title"]
    assert second["title"] == "Its own"
    assert third == {"text": "words"}


def test_markdown_is_made_if_asked(tmp_path: Path) -> None:
    parts = "".join(f"<p>Part {n} is <b>long</b> enough to be content." for n in range(9))
    one = [{"text": f"<h2>A</h2>{parts}"}]
    text = pages(tmp_path / "text", train=one, validation=one)
    assert made(text, to="markdown")[0]["text"].startswith("Part 0 is **long** enough")


def test_resiliparse_reads_pages_if_asked_and_writes_no_markdown(tmp_path: Path) -> None:
    one = [{"text": "<p>Words <ruby>漢<rt>かん</rt></ruby>."}]
    text = pages(tmp_path / "text", train=one, validation=one)
    assert made(text, extractor="resiliparse")[0]["text"] == "Words 漢."
    with pytest.raises(ValueError, match="resiliparse writes no Markdown"):
        Extract(extractor="resiliparse", to="markdown")


def test_unreadable_pages_are_counted_by_reason_and_kept_aside(tmp_path: Path) -> None:
    large = {"id": "large", "source": "s", "text": "<p>" + "x" * BYTES}
    text = pages(
        tmp_path / "text",
        train=[
            {"text": "<p>a"},
            {"id": "none", "source": "s", "text": "<script>x</script>"},
            large,
        ],
        validation=[{"text": "<p>b"}, {"id": "deep", "text": "<div>" * 1000 + "x"}],
    )
    out = extracted(text)
    aside = list(whole_documents(out / extract.UNREADABLE))
    assert [(one["id"], one["reason"]) for one in aside] == [
        ("none", "no text"),
        ("large", "larger than 8 MiB"),
        ("deep", "no text"),
    ]
    assert aside[1]["text"] == large["text"]
    report = json.loads((out / REPORT).read_bytes())
    assert report["left_out"] == {"unreadable: no text": 2, "unreadable: larger than 8 MiB": 1}
    assert report["sources"]["s"]["kept_documents"] == 0
    assert any("s lost 2 of its 2" in alarm for alarm in report["alarms"])


def test_parts_make_the_same_bytes_as_one_process(tmp_path: Path) -> None:
    def shard(number: int) -> list[dict[str, Any]]:
        found = [{"source": "s", "text": f"<p>own {number} {n}"} for n in range(7)]
        return [*found, {"text": ""}]

    names = {f"train_{n:05d}": shard(n) for n in range(3)} | {"validation": shard(9)}
    text = pages(tmp_path / "text", **names)
    config, parts = Extract().model_dump(), {}
    for number, (name, path) in enumerate(shards(text).items()):
        part = parts[f"{number:06d}"] = tmp_path / f"part{number}"
        part.mkdir()
        extract.extract_shards(config, {"shards": {name: path}}, part)
    joined = tmp_path / "joined"
    joined.mkdir()
    extract.join(config, {"text": text, "parts": parts}, joined)
    assert digests.digests(joined) == digests.digests(extracted(text))
    assert {path.name for path in joined.iterdir()} == {
        *(f"train.0000{n}.jsonl" for n in range(3)),
        *("validation.jsonl", extract.UNREADABLE, REPORT),
    }


def test_a_split_of_which_no_page_can_be_read_is_refused(tmp_path: Path) -> None:
    text = pages(tmp_path / "text", train=[{"text": "<p>words"}], validation=[{"text": "<br>"}])
    with pytest.raises(BadText, match="no document of the validation split can be read"):
        extracted(text)
