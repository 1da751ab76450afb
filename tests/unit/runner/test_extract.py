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
from runner.worker.texts.page_text import read
from runner.worker.texts.page_tree import BYTES
from runner.worker.texts.shards import shards

MENU = "<p>Our site</p>"
LAST = "<p>Updated in May</p>"


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
    one = [{"text": "<h2>A</h2><p><b>b</b>"}]
    text = pages(tmp_path / "text", train=one, validation=one)
    assert made(text, to="markdown")[0]["text"] == "## A\n\n**b**"


def test_unreadable_pages_are_counted_by_reason_and_kept_aside(tmp_path: Path) -> None:
    large = {"id": "large", "source": "s", "text": "<p>" + "x" * BYTES}
    text = pages(
        tmp_path / "text",
        train=[
            {"text": "<p>a"},
            {"id": "none", "source": "s", "text": "<script>x</script>"},
            large,
        ],
        validation=[{"text": "<p>b"}, {"id": "deep", "text": "<div>" * 1000}],
    )
    out = extracted(text)
    aside = list(whole_documents(out / extract.UNREADABLE))
    assert [(one["id"], one["reason"]) for one in aside] == [
        ("none", "no text"),
        ("large", "larger than 8 MiB"),
        ("deep", "nested deeper than 200 elements"),
    ]
    assert aside[1]["text"] == large["text"]
    report = json.loads((out / REPORT).read_bytes())
    assert report["left_out"] == {f"unreadable: {one['reason']}": 1 for one in aside}
    assert report["sources"]["s"]["kept_documents"] == 0
    assert any("s lost 2 of its 2" in alarm for alarm in report["alarms"])


def test_what_most_pages_of_a_source_have_at_an_edge_is_left_out(tmp_path: Path) -> None:
    middle = "".join(f"<p>paragraph {n}" for n in range(12))

    def page(number: int) -> str:
        return f"<h1>Names</h1>{MENU}<p>own {number}{middle}<p>Our site{middle}{LAST}"

    source = [{"source": "site", "text": page(number)} for number in range(6)]
    other = {"source": "other", "text": page(7)}
    text = pages(tmp_path / "text", train=[*source, other], validation=[other])
    out = extracted(text)
    *of_site, of_other = (one["text"] for one in whole_documents(out / "train.jsonl"))
    assert all(one.startswith("Names\n\nown") for one in of_site), "a heading stays"
    assert all(one.count("Our site") == 1 for one in of_site), "inside of a page it stays"
    assert all("Updated" not in one for one in of_site)
    assert of_other.count("Our site") == 2, "one page says nothing of its source"
    assert json.loads((out / REPORT).read_bytes())["counted"] == {extract.REMOVED: 6 * 8}


def test_boilerplate_may_stay(tmp_path: Path) -> None:
    same = [{"source": "site", "text": f"{MENU}<p>own {n}"} for n in range(6)]
    text = pages(tmp_path / "text", train=same, validation=same)
    assert made(text, boilerplate=None)[0]["text"] == "Our site\n\nown 0"


def test_a_page_of_nothing_else_is_unreadable(tmp_path: Path) -> None:
    same = [{"source": "site", "text": f"{MENU}<p>own {n}"} for n in range(6)]
    same.append({"source": "site", "text": MENU})
    text = pages(tmp_path / "text", train=same, validation=same)
    out = extracted(text)
    assert len(list(whole_documents(out / "train.jsonl"))) == 6
    reasons = [one["reason"] for one in whole_documents(out / extract.UNREADABLE)]
    assert reasons == ["only boilerplate"] * 2


def test_parts_make_the_same_bytes_as_one_process(tmp_path: Path) -> None:
    def shard(number: int) -> list[dict[str, Any]]:
        found = [{"source": "s", "text": f"{MENU}<p>own {number} {n}"} for n in range(7)]
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
