"""The step `compare`: rows by arm and metric, with intervals, as JSON, a table and a chart."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.schema.metrics import AUC
from runner.worker.scores import compare
from runner.worker.scores.compare import NothingToCompare
from runner.worker.selection import held_out, paired_auc
from runner.worker.selection.paired_auc import HeldOut


def score(value: float, error: float | None = None, chance: float | None = None) -> dict[str, Any]:
    return {"value": value, "items": 10, "standard_error": error, "chance": chance}


SCORES = {
    "wide,seed=0": {"eval/bpb": score(2.0, 0.1), "task/a/accuracy": score(0.5, 0.2, 0.25)},
    "wide,seed=1": {"eval/bpb": score(2.2, 0.1), "task/a/accuracy": score(0.7, 0.2, 0.25)},
    "deep,seed=0": {"eval/bpb": score(3.0)},
}


def compared(tmp_path: Path, metrics: tuple[str, ...] = (), **inputs: Any) -> Path:
    for name, measured in inputs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "measured.json").write_text(json.dumps(measured))
    (tmp_path / "out").mkdir()
    folders = {name: tmp_path / name for name in inputs}
    compare.compare({"metrics": metrics}, folders, tmp_path / "out")
    return tmp_path / "out"


def test_an_arm_has_its_mean_with_intervals_by_seeds_and_by_items(tmp_path: Path) -> None:
    out = compared(tmp_path, scores=SCORES)
    rows = {(row["metric"], row["model"]): row for row in json.loads(
        (out / "compare.json").read_text())}  # fmt: skip
    wide = rows["eval/bpb", "wide"]
    assert (round(wide["mean"], 6), wide["runs"], wide["better"]) == (2.1, 2, "lower")
    assert wide["by_seeds"] == pytest.approx([2.1 - 1.27062, 2.1 + 1.27062], abs=1e-4)
    assert wide["by_items"] == pytest.approx([2.1 - 0.195996, 2.1 + 0.195996], abs=1e-5)
    deep = rows["eval/bpb", "deep"]
    assert (deep["by_seeds"], deep["by_items"]) == (None, None)
    assert rows["task/a/accuracy", "wide"]["chance"] == 0.25
    assert len(rows) == 3
    lines = (out / "table.md").read_text().splitlines()
    assert len(lines) == 5
    assert "| `eval/bpb` | `deep` | 3.0000 | 1 | – | – | – | lower |" in lines


def test_the_chart_shows_every_model_and_says_which_interval_it_is(tmp_path: Path) -> None:
    drawn = (compared(tmp_path, scores=SCORES) / "chart.svg").read_text()
    shown = set(re.findall(r">([^<>]+)</text>", drawn))
    assert {"wide", "deep", "eval/bpb (lower is better)", "by seeds", "by items"} <= shown


def test_models_of_several_inputs_keep_their_names_apart(tmp_path: Path) -> None:
    one, other = ({"": {"eval/bpb": score(value)}} for value in (1.0, 2.0))
    rows = json.loads((compared(tmp_path, before=one, after=other) / "compare.json").read_text())
    assert {row["model"]: row["mean"] for row in rows} == {"before": 1.0, "after": 2.0}


def test_only_the_metrics_that_are_asked_for_are_compared(tmp_path: Path) -> None:
    out = compared(tmp_path, ("task/a/accuracy",), scores=SCORES)
    assert [row["metric"] for row in json.loads((out / "compare.json").read_text())] == [
        "task/a/accuracy"
    ]


@pytest.mark.parametrize(
    ("measured", "metrics"), [(SCORES, ("task/b/accuracy",)), ({}, ())], ids=["another", "none"]
)
def test_a_metric_that_no_input_has_is_named_with_those_there_are(
    measured: Any, metrics: tuple[str, ...], tmp_path: Path
) -> None:
    known = "eval/bpb, task/a/accuracy" if measured else "none"
    with pytest.raises(NothingToCompare, match=rf"they have {known}; change"):
        compared(tmp_path, metrics, scores=measured)


DECLARED = """\
title: T
resources: {kind: cpu}
steps:
  tokens: {do: tokenize, config: {source: stdlib}}
  own: {do: "own:scores"}
  table: {do: compare, inputs: INPUTS}
"""


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("{}", "there is nothing to compare"),
        ("{a: tokens}", "makes a token store, and `compare` takes scores or scores of tasks"),
        ("{a: own}", "`own` is own code, and only what the lab measures is a score; name an"),
    ],
)
def test_what_has_no_scores_is_refused_in_the_plan(inputs: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(DECLARED.replace("INPUTS", inputs))
    with pytest.raises(BadExperiment, match=words):
        planner.plan_folder(tmp_path)


def a_test(scores: list[float], labels: list[int], name: str = "d") -> HeldOut:
    documents = tuple((f"{name}{n}", float(label)) for n, label in enumerate(labels))
    return HeldOut(documents, np.array(scores), 1.0)


def test_two_classifiers_are_compared_on_the_same_documents() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 300).tolist()
    noise = random.normal(size=300)
    good = a_test((np.array(labels) * 2.0 + noise).tolist(), labels)
    nearly = a_test((np.array(labels) * 1.9 + noise).tolist(), labels)
    (row,) = compare.paired({"good": good, "scores": None, "nearly": nearly})
    assert (row.metric, row.model) == ("labels/auc_difference", "good minus nearly")
    assert row.by_items
    assert row.by_items[0] < row.mean < row.by_items[1]
    one = held_out.measured(good.scores, np.full(300, 0.5), np.array(labels) == 1, 0)
    alone = one[AUC].standard_error
    assert alone
    assert row.by_items[1] - row.by_items[0] < alone, "documents that both find hard cancel out"
    assert compare.paired({"good": good, "same": good})[0].by_items == (0.0, 0.0)
    other = a_test(good.scores.tolist(), labels, "e")
    assert compare.paired({"good": good, "other": other}) == [], (
        "they were tested on other documents"
    )


def test_the_tests_of_classifiers_are_read_from_their_outputs(tmp_path: Path) -> None:
    assert paired_auc.tested(tmp_path) is None
    (tmp_path / "classifier").mkdir()
    (tmp_path / "classifier/classifier.json").write_text('{"positive": 3}')
    (tmp_path / "held_out.jsonl").write_text('{"id": "a", "label": 4, "score": 0.5}\n')
    found = paired_auc.tested(tmp_path)
    assert found
    assert (found.documents, found.scores.tolist(), found.positive) == ((("a", 4.0),), [0.5], 3.0)
