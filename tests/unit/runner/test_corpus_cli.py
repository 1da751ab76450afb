"""`regatta corpus add | fetch | ls | show | check`, as an operator types them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.cli import corpus as cli
from runner.cli.main import app
from runner.lib import yaml_lines
from runner.schema import lab_config
from runner.schema.lab_config import CORPORA

ADD = "corpus add web@1 raw --format jsonl --licence mit --share 0.5 --field text=content"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGATTA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "raw").mkdir()
    lines = ('{"content": "one", "source": "a"}', '{"content": "two"}', "{}")
    (tmp_path / "raw/a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / CORPORA).parent.mkdir(parents=True)
    (tmp_path / CORPORA).write_text("# our texts\n")
    return tmp_path


def typed(words: str, code: int = 0) -> str:
    told = CliRunner().invoke(app, words.split())
    assert told.exit_code == code, told.output
    return told.output


def test_a_corpus_is_added_fetched_shown_and_checked(lab: Path) -> None:
    typed(ADD)
    typed("corpus fetch web@1")
    text = (lab / CORPORA).read_text()
    assert text.startswith("# our texts\n"), "comments stay"
    entry = lab_config.find(lab).corpora["web@1"]
    assert entry.fetched
    assert (entry.fetched.files, entry.licence) == (1, "MIT")
    shown = json.loads(typed("corpus show web@1 --json --records 1"))
    assert [of["source"] for of in shown["sources"]] == ["a", "web"]
    why, said = next(iter(shown["left_out"].items()))
    assert (why, said["documents"]) == ("without a text", 1)
    assert said["first"][0].startswith("a.jsonl, line ")
    assert f"(first: {said['first'][0]})" in typed("corpus show web@1")
    assert shown["records"][0]["text"] == "one"
    assert "SHA-256" in typed("corpus show web@1")
    listed = json.loads(typed("corpus ls --json"))
    assert {of["name"]: of["in_store"] for of in listed}["web@1"] is True
    assert typed("corpus check") == "web@1: 1 file as fetched\n"
    assert "is in" in typed("corpus fetch web@1")
    missing = typed("corpus show wordnet@3.0-37", 2)
    assert "fetch it with `regatta corpus fetch wordnet@3.0-37`" in missing
    (file,) = (lab / "store/corpora").glob("*/files/a.jsonl")
    file.write_text("other")
    assert "a.jsonl is not the file that was fetched; remove" in typed("corpus check web@1", 1)


def test_what_cannot_be_added_is_said_and_changes_nothing(lab: Path) -> None:
    before = (lab / CORPORA).read_text()
    assert "`frob` is no SPDX expression" in typed(ADD.replace("mit", "frob"), 2)
    assert "write name@version" in typed(ADD.replace("web@1", "web"), 2)
    assert (lab / CORPORA).read_text() == before
    typed(ADD)
    assert "a changed corpus is another version" in typed(ADD, 2)
    assert "did you mean `web@1`" in typed("corpus fetch web@2", 2)
    (lab / "raw/a.jsonl").unlink()
    assert "no file there is one of its `files`" in typed("corpus fetch web@1", 1)


def test_a_digest_is_written_into_an_entry_and_its_comments_stay() -> None:
    text = "# all\na@1:  # one\n  # why\n  where: x\nb@1: {where: y}\n"
    with_a = cli.with_fetched(text, "a@1", "fetched: {files: 1}")
    assert (
        with_a
        == "# all\na@1:  # one\n  # why\n  fetched: {files: 1}\n  where: x\nb@1: {where: y}\n"
    )
    assert yaml_lines.read(with_a).value["a@1"] == {"fetched": {"files": 1}, "where": "x"}
    assert cli.with_fetched(text, "b@1", "fetched: {}") is None
