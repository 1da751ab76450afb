"""The report of a step that changes a text: what came in, what was kept, and why not the rest."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.data.lab_texts import BadText
from runner.cli import execution_view
from runner.schema import data_report
from runner.schema.data_report import DataReport
from runner.spec.data_steps import Filter
from runner.store.store import Store
from runner.worker.texts import filter_and_join, mapping, reports
from tests.unit.site.test_data import FINGERPRINT, made, planned

FILTER: dict[str, Any] = {"least_characters": 3, "most_characters": 9, "matching": "[a-z]"}


def text(folder: Path, *documents: dict[str, Any]) -> Path:
    folder.mkdir()
    for split in ("train", "validation"):
        lines = (json.dumps(document) + "\n" for document in documents)
        (folder / f"{split}.jsonl").write_text("".join(lines))
    return folder


def read(out: Path) -> DataReport:
    return DataReport.model_validate_json((out / "report.json").read_bytes())


def test_filter_reports_each_source_and_the_first_reason_of_each_document(tmp_path: Path) -> None:
    documents = [
        {"text": "kept é", "source": "a"},
        {"text": "x", "source": "a"},
        {"text": "12", "source": "a"},  # too short, too; the first reason counts
        {"text": "much too long", "source": "b"},
        {"text": "12345"},
        {"text": "kept", "source": 7},
    ]
    (tmp_path / "out").mkdir()
    inputs = {"text": text(tmp_path / "text", *documents)}
    filter_and_join.filter_documents(FILTER, inputs, out := tmp_path / "out")
    found = read(out)
    assert found.left_out == {
        "shorter than least_characters, 3": 4,
        "longer than most_characters, 9": 2,
        "matching is not found in it": 2,
    }
    assert found.sources["a"].model_dump() == {
        **{"documents": 6, "bytes": 2 * 10, "kept_documents": 2, "kept_bytes": 2 * 7},
    }
    assert found.sources["b"].kept_documents == 0
    assert found.sources["no source named"].documents == 4
    assert found.total.documents - found.total.kept_documents == sum(found.left_out.values())
    assert data_report.kept(found.total) == "4 of 12 documents kept (33.3 %)"
    (alarm,) = found.alarms
    assert alarm.startswith("The source b lost 2 of its 2 documents (100 %).")
    assert sorted(path.name for path in out.iterdir()) == [
        *("report.json", "train.jsonl", "validation.jsonl")
    ]


def test_filter_counts_each_rule_of_the_field_and_the_lines_it_removes(tmp_path: Path) -> None:
    prose = "This is the first line of the page. It has one more sentence. And this is the third."
    documents = [
        {"text": f"{prose}\nHome | About", "id": "page"},
        {"text": "int main() {}"},
        {"text": "The one sentence of this page."},
    ]
    (tmp_path / "out").mkdir()
    config = {"least_characters": None, "most_characters": None, "matching": None}
    filter_and_join.filter_documents(
        config | {"rules": ("c4", "gopher/stop_words")},
        {"text": text(tmp_path / "text", *documents)},
        out := tmp_path / "out",
    )
    assert read(out).left_out == {
        "c4/curly_bracket: it has a curly bracket": 2,
        "c4/sentences: it has fewer than 3 sentences": 2,
    }
    assert read(out).counted == {filter_and_join.LINES_REMOVED: 2}
    assert json.loads((out / "train.jsonl").read_text()) == {"text": prose, "id": "page"}


def test_a_rule_that_is_not_known_is_refused_with_all_names() -> None:
    with pytest.raises(ValueError, match="`goper` is not a rule; write gopher, repetition or c4"):
        Filter.model_validate({"rules": ["goper"]})


def test_map_reports_what_its_function_left_out_and_the_new_sizes(tmp_path: Path) -> None:
    inputs = {"text": text(tmp_path / "text", {"text": "one"}, {"text": "none"})}
    (tmp_path / "out").mkdir()

    def doubled(text: str) -> str | None:
        return text * 2 if text == "one" else None

    functions = {"own:doubled": doubled}
    mapping.map_documents({"function": "own:doubled"}, inputs, out := tmp_path / "out", functions)
    found = read(out)
    assert found.left_out == {"own:doubled gave None": 2}
    assert found.total.bytes == 2 * 7
    assert found.total.kept_bytes == 2 * 6


def test_a_report_of_many_sources_names_the_largest_and_counts_every_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_report, "MAX_SOURCES", 2)
    tally = reports.Tally()
    for number, source in enumerate(("a", "b", "c", "d\ud800")):
        tally.keep({"text": "x" * number, "source": source})
    found = tally.report()
    assert list(found.sources) == ["c", "d?", "all other sources"]
    assert found.total.documents == 4
    assert found.sources["all other sources"].bytes == 1


def test_an_alarm_names_a_source_that_lost_more_than_a_share() -> None:
    tally = reports.Tally()
    for number in range(100):
        tally.keep({"text": "x", "source": "a"})
        if number < 49:
            tally.leave_out({"text": "x", "source": "b"}, "why")
        else:
            tally.keep({"text": "x", "source": "b"})
    tally.alarm_at_losses(0.49)
    assert tally.alarms == []
    tally.leave_out({"text": "x", "source": "b"}, "why")
    tally.alarm_at_losses(0.49)
    (alarm,) = tally.alarms
    assert "The source b lost 50 of its 101 documents (49.5 %)" in alarm


def shown(store: Store, write: Callable[[Path], None]) -> list[tuple[str, str]]:
    """What the terminal shows of a step that `write` made."""
    made(store, write)
    step = planned("filter", FINGERPRINT, "texts.map")
    files = {path.name: 1 for path in Path(str(store.root)).glob("steps/*/*/*/*.json")}
    plan = SimpleNamespace(steps={"filter": step})
    account: Any = SimpleNamespace(files={"filter": files}, execution=SimpleNamespace(plan=plan))
    return list(execution_view._report(store, account, "filter"))


def test_the_terminal_shows_what_a_step_kept_and_its_alarms(tmp_path: Path) -> None:
    tally = reports.Tally()
    tally.keep({"text": "x", "source": "a"})
    tally.leave_out({"text": "x", "source": "b\x1b[2J"}, "too short")
    tally.alarm_at_losses()
    assert shown(Store(tmp_path / "store"), tally.write) == [
        ("kept", "1 of 2 documents kept (50 %)"),
        ("left out", "1 document: too short"),
        (
            "alarm",
            "The source b[2J lost 1 of its 1 documents (100 %). "
            "Check why before you use this text.",
        ),
    ]


def test_the_terminal_shows_no_report_in_another_form(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "report.json").write_text('{"mine": 1}')

    assert shown(Store(tmp_path / "store"), write) == []


def test_a_split_that_was_empty_before_may_stay_empty(tmp_path: Path) -> None:
    (folder := tmp_path / "text").mkdir()
    (folder / "train.jsonl").write_text('{"text": "kept"}\n')
    (folder / "validation.jsonl").write_text("")
    (out := tmp_path / "out").mkdir()
    filter_and_join.filter_documents(FILTER, {"text": folder}, out)
    assert (out / "validation.jsonl").read_text() == ""
    (folder / "validation.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(BadText, match=r"no document of the validation split passes; loosen"):
        filter_and_join.filter_documents(FILTER, {"text": folder}, out)
