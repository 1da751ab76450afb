"""The pages of data: files and first records of what steps left, and what is wrong with them."""

import hashlib
import json
import os
import shutil

import pytest

from bot.site.base.files import put
from bot.site.base.left_out import drawn
from bot.site.facts.lab import read_lab
from bot.site.pages import step_output
from bot.site.pages.templating import look
from runner.lib import redact
from runner.publish import preview
from runner.schema import record
from runner.store import artifacts
from runner.store.store import Store
from tests import synthetic
from tests.unit.site.test_pages import EVIL, Page

FINGERPRINT = synthetic.sha("a step")
PAGE = f"data/{FINGERPRINT[:16]}.html"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def planned(do, fingerprint, store, **more):
    return record.PlannedStep(
        do=do,
        function="m:f",
        config={"keep": EVIL},
        code={},
        resources=record.Resources(kind="cpu"),
        fingerprint=fingerprint,
        store=store,
        **more,
    )


def made(store, write, fingerprint=FINGERPRINT, name="texts.map"):
    """A step that `write` makes, and how it ended."""
    manifest = artifacts.make(store, name, fingerprint, write, {}, by="x1").manifest
    return record.StepEnd(
        state="made",
        by="x1",
        made_at=manifest.made_at,
        seconds=2.0,
        folder=manifest.folder,
        output_sha256=manifest.output_sha256,
    )


def execute(store, ends, name="1", at=synthetic.START):
    """A finished execution with the steps `text` and `tokens`, which takes that."""
    other = synthetic.sha("tokens")
    steps = {
        "text": planned("map", FINGERPRINT, "texts.map"),
        "tokens": planned(
            "tokenize", other, "texts.tokenize", inputs={"text": {"text": FINGERPRINT}}
        ),
        "train/fast": planned("train", synthetic.sha("train"), "train").model_copy(
            update={
                "config": {"seed": 0},
                "inputs": {"tokens": {"tokens": other}},
                "resources": record.Resources(kind="cpu"),
            }
        ),
    }
    arms = {"fast": synthetic.planned_arm()}
    plan = synthetic.plan(arms=arms, seeds=[0]).model_copy(update={"steps": steps, "data": None})
    execution = synthetic.execution(plan, name, pull=None, at=at)
    folder = f"executions/{execution.id}"
    synthetic.begin(store, execution, "t1.claimed", "t1.started")
    ended = record.Ended(at=at, how="finished", steps=ends)
    record.write(store, f"{folder}/t1.ended", ended)
    run = synthetic.run(plan, "fast", 0, 2.5, execution=execution.id)
    record.write(store, f"runs/{execution.id}.fast.s0", run)
    result = record.Result(at=at, state="done", verdicts=(), seconds=1.0)
    record.write(store, f"{folder}/result", result)
    return execution


def lines(*texts):
    """A maker of one file."""

    def write(folder):
        words = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / "train.jsonl").write_text(words)

    return write


def draw(store, tmp_path):
    """Bring the pages of data up to date, and return those that were drawn."""
    found = step_output.files(read_lab(store), look("Lab"), store)
    return put(found, tmp_path / "site", drawn).drawn


def drawn_page(store, tmp_path):
    draw(store, tmp_path)
    return Page(tmp_path / "site" / PAGE)


@pytest.fixture
def built(store, tmp_path):
    """The page of the step `text`, as it is made."""

    def of(write):
        execute(store, {"text": made(store, write)})
        return drawn_page(store, tmp_path)

    return of


def test_a_page_lists_files_with_sizes_and_digests_and_shows_the_first_records(built, store):
    page = built(lines("first words", "second words"))
    content = b'{"text": "first words"}\n{"text": "second words"}\n'
    assert page.text.index("text first words") < page.text.index("text second words")
    assert f"train.jsonl {len(content)} {hashlib.sha256(content).hexdigest()}" in page.text
    assert "1 file 49 bytes" in page.text
    assert artifacts.said(store, "texts.map", FINGERPRINT).output_sha256 in page.text


def test_words_of_strangers_are_words(built):
    page = built(lines(EVIL, "\x1b[31m\u202etxt"))
    assert EVIL.split(" ", maxsplit=1)[0] in page.text
    assert "\\x1b[31m\\u202etxt" in page.text
    scripts = [tag for tag in page.tags if tag == "script"]
    assert len(scripts) == 2  # the site's own


def test_held_secrets_are_removed_from_data_pages(built):
    redact.hold("hunter2-hunter2")
    page = built(lines("the key is hunter2-hunter2."))
    assert "the key is [secret]." in page.text


def test_a_page_is_drawn_once_whoever_uses_the_output(built, store, tmp_path, monkeypatch):
    built(lines("a"))
    monkeypatch.setattr(preview, "look", lambda *_: pytest.fail("it was read again"))
    end = store.read(f"records/executions/{record.execution_id('1')}/t1.ended.json")
    again = record.Ended.model_validate_json(end).steps["text"]
    cached = again.model_copy(update={"state": "cached"})
    execute(store, {"text": cached}, "2", synthetic.START.replace(year=2027))
    assert draw(store, tmp_path) == []


@pytest.mark.parametrize(
    ("gone", "said"),
    [("", "This output was deleted from the store"), ("files", "its files have been removed")],
)
def test_the_page_of_a_removed_output_says_what_it_was(built, store, tmp_path, gone, said):
    built(lines("words that are gone"))
    manifest = artifacts.said(store, "texts.map", FINGERPRINT)
    folder = store.local(manifest.folder)
    shutil.rmtree(folder if gone else folder.parent)
    assert draw(store, tmp_path) == [PAGE]
    page = Page(tmp_path / "site" / PAGE)
    assert said in page.text
    assert "words that are gone" not in page.text
    assert manifest.output_sha256 in page.text
    assert ("train.jsonl" in page.text) == bool(gone)


def test_a_link_in_a_files_place_is_not_followed(store, tmp_path):
    (tmp_path / "secret").write_text('{"text": "words of somebody else"}\n')
    end = made(store, lines("twenty-two characters!"))
    path = store.local(f"{end.folder}/train.jsonl")
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    execute(store, {"text": end})
    page = drawn_page(store, tmp_path)
    assert "which is no regular file" in page.text
    assert "somebody" not in page.text
    assert str(tmp_path) not in page.text


def test_a_manifest_that_cannot_be_read_is_said(store, tmp_path):
    end = made(store, lines("a"))
    store.local(f"{end.folder}").parent.joinpath("manifest.json").write_text("no json")
    execute(store, {"text": end})
    page = drawn_page(store, tmp_path)
    assert "This output cannot be shown" in page.text
    assert str(tmp_path) not in page.text


def test_an_output_of_many_large_and_strange_files_has_a_small_page(built):
    def write(folder):
        for n in range(250):
            (folder / f"{'<' * 90}{n:03}.bin").write_bytes(b"x")
        for n in range(9):
            words = {f"key{m}": "<&\x01" * 900 for m in range(40)}
            (folder / f"part{n}.jsonl").write_text(f"{json.dumps(words)}\n" * 9)

    page = built(write)
    assert "The manifest lists 59 more files with " in page.text
    assert "3 more parts are not shown here" in page.text
    assert page.path.stat().st_size < 300 << 10


def test_a_folder_that_cannot_be_listed_or_read_stops_no_build(store, tmp_path):
    plan = synthetic.plan()
    synthetic.finish(store, synthetic.execution(plan, "2"), synthetic.PLAIN)
    end = made(store, lines("a"))
    execute(store, {"text": end})
    manifest = store.local(end.folder).parent / "manifest.json"
    manifest.unlink()
    os.mkfifo(manifest)
    assert "This output cannot be shown" in drawn_page(store, tmp_path).text


def reporting(report):
    """A maker of a text with this `report.json`."""

    def write(folder):
        lines("kept")(folder)
        (folder / "report.json").write_text(report)

    return write


def test_a_page_shows_what_a_step_kept_by_source_its_reasons_and_its_alarms(built):
    report = {
        "sources": {
            "web": {"documents": 1000, "bytes": 9000, "kept_documents": 812, "kept_bytes": 7000},
            EVIL: {"documents": 1, "bytes": 5},
        },
        "left_out": {"too short": 189},
        "counted": {"lines that were removed": 12},
        "alarms": [f"The source {EVIL} lost everything."],
    }
    text = built(reporting(json.dumps(report))).text
    assert "812 of 1,001 documents kept (81.1 %)" in text
    assert "web 1,000 812 81.2 % 9,000 7,000" in text
    assert "Why the rest was left out Documents too short 189" in text
    assert "Also counted Count lines that were removed 12" in text
    assert "Alarm: The source" in text
    assert '"left_out"' not in text, "not also as the text of a file"


@pytest.mark.parametrize("report", ["{", '{"sources": []}', '{"mine": 1}', "x" * (2 << 20)])
def test_a_report_in_another_form_is_a_file_like_others(built, report):
    text = built(reporting(report)).text
    assert "What was kept" not in text
    assert "report.json" in text
    assert "kept" in text
