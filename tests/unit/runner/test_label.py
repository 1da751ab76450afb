"""The step that labels a sample: by a regular expression or by an own function."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.lib import bounds
from runner.lib.own_code_errors import BadOwnCode
from runner.lib.problems import BadExperiment
from runner.schema import replies
from runner.schema.data_report import REPORT, DataReport
from runner.schema.metrics import MEASURED
from runner.spec import declaration
from runner.spec.selection_steps import Ask, Classify, Label
from runner.worker.selection.classify import classify
from runner.worker.selection.label import label, sample


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """300 documents to train on, of which every third is code."""
    folder = tmp_path / "text"
    folder.mkdir()
    for name, count in {"train.00000": 100, "train.00001": 200, "validation": 9}.items():
        rows = (
            {"source": "ab"[n % 2], "text": f"def f{n}(x): return x" if n % 3 == 0 else f"A {n}."}
            for n in range(count)
        )
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def labelled(text: Path, functions: Any = None, **keys: Any) -> list[dict[str, Any]]:
    out = text.parent / f"out {len(list(text.parent.iterdir()))}"
    out.mkdir()
    config = Label(**{"documents": 120, **keys}).model_dump(mode="json")
    label(config, {"text": text}, out, functions or {})
    return [json.loads(line) for line in (out / "labels.jsonl").read_text().splitlines()]


def test_a_rule_labels_what_it_finds_and_is_called_a_rule(text: Path) -> None:
    found = labelled(text, rule=r"^def ")
    assert len(found) == 120
    assert {row["label"] for row in found if row["text"].startswith("def")} == {1}
    assert {row["label"] for row in found if not row["text"].startswith("def")} == {0}
    assert {row["labelled_by"] for row in found} == {"rule"}
    (path,) = text.parent.glob(f"*/{REPORT}")
    report = bounds.parse(DataReport, path.read_bytes())
    ones = sum(row["label"] for row in found)
    assert report.counted == {"label 0, by rule": 120 - ones, "label 1, by rule": ones}
    assert report.total.documents == 120


def test_a_report_has_room_for_any_number_of_labels(text: Path) -> None:
    numbers = iter(range(1000))
    labelled(text, {"own:next": lambda _: next(numbers)}, function="own:next", documents=300)
    (path,) = text.parent.glob(f"*/{REPORT}")
    counted = bounds.parse(DataReport, path.read_bytes()).counted
    assert counted["another label, by rule own:next"] == 200
    assert (len(counted), sum(counted.values())) == (101, 300)


def test_a_sample_is_drawn_by_its_seed_and_keeps_the_order(text: Path) -> None:
    one, same, other = ([known for known, _ in sample(text, 50, seed)] for seed in (0, 0, 1))
    assert one == same != other
    assert len({*one}) == 50
    order = [known for known, _ in sample(text, 1000, 3)]
    assert order == [f"train.{n:05d}:{k + 1}" for n in (0, 1) for k in range(100 * (n + 1))]
    assert one == [known for known in order if known in one]
    assert {known for known, _ in sample(text, 10, 0)} <= {*one}, "a larger one has the smaller"


def test_an_own_function_sees_the_whole_document(text: Path) -> None:
    functions = {"own:by": lambda document: {"a": 4, "b": None}[document["source"]]}
    found = labelled(text, functions, function="own:by")
    assert {(row["source"], row["label"]) for row in found} == {("a", 4), ("b", -1)}
    assert {row["labelled_by"] for row in found} == {"rule own:by"}
    (path,) = text.parent.glob(f"*/{REPORT}")
    report = bounds.parse(DataReport, path.read_bytes())
    assert report.left_out == {"it has no label": sum(row["source"] == "b" for row in found)}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda _: "4", r"own:by, document train.*: it gave '4'; it gives a number, or None"),
        (lambda _: True, r"it gave True; it gives a number"),
        (lambda _: float("inf"), r"it gave inf"),
        (lambda of: of["no"], r"own:by, document train.*: KeyError: 'no'"),
    ],
)
def test_what_is_no_label_is_refused_with_the_function(
    text: Path, function: Callable[[Any], Any], words: str
) -> None:
    with pytest.raises(BadOwnCode, match=words):
        labelled(text, {"own:by": function}, function="own:by")


def test_labels_by_a_rule_teach_a_classifier(text: Path) -> None:
    labelled(text, rule=r"^def ")
    (labels,) = (path.parent for path in text.parent.glob("*/labels.jsonl"))
    (out := text.parent / "judged").mkdir()
    config = Classify(linear={"buckets": 2**10}).model_dump(mode="json")
    classify(config, {"text": text, "labels": labels}, out)
    assert json.loads((out / MEASURED).read_text())[""]["labels/auc"]["value"] == 1
    about = json.loads((out / "classifier/classifier.json").read_text())
    assert about["labelled_by"] == {"rule": 120}


@pytest.mark.parametrize(
    ("reply", "words", "digits"),
    [
        ("Fine text.\nFinal Score: Great", 5, -1),
        ("final score: **good**.", 4, -1),
        ("FINAL SCORE:okay", 3, -1),
        ("Final Score: Poor", 2, -1),
        ("Final Score: Useless!", 1, -1),
        ("Final Score: Greatest", -1, -1),
        ("Final score: 0", -1, 0),
        ("Final score: 5.", -1, 5),
        ("Final score: 5\n", -1, 5),
        ("Final score: 4.5", -1, -1),
        ("Final score: 42", -1, -1),
        ("Final score: 6", -1, -1),
        ("Final score: 2. On reflection, Final score: 3", -1, 3),
        ("Final Score: Poor? No. Final Score: Good", 4, -1),
        ("Great", -1, -1),
        ("", -1, -1),
    ],
)
def test_a_reply_is_read_by_the_format_that_was_asked_for(
    reply: str, words: int, digits: int
) -> None:
    assert replies.label_in(reply, "words") == words
    assert replies.label_in(reply, "digits") == digits


def test_a_request_is_named_by_all_that_is_sent() -> None:
    ask = Ask(prompt="Is {example} good?", model="m", max_tokens=9, max_dollars=0, characters=3)
    config = ask.model_dump(mode="json")
    request = replies.request(config, "abcdef")
    assert request["messages"] == [{"role": "user", "content": "Is abc good?"}]
    assert replies.request(config, "abc{example}") == request
    name = replies.sha256(request)
    for key, value in {
        "model": "n",
        "temperature": 0.2,
        "reply_tokens": 9,
        "prompt": "{example}",
    }.items():
        assert replies.sha256(replies.request({**config, key: value}, "abcdef")) != name
    for key, value in {"max_tokens": 10, "max_dollars": 1.0}.items():
        same = replies.request({**config, key: value}, "abcdef")
        assert replies.sha256(same) == name, "more budget asks nothing again"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{documents: 10}", "`label` needs a `rule`, a `function` or `ask`; write one of them"),
        ("{documents: 10, rule: x, function: 'm:f'}", "`label` needs a `rule`, a `function` or"),
        (
            "{documents: 9, ask: {prompt: x, model: m, max_tokens: 9, max_dollars: 0}}",
            "a prompt has `{example}` once, where the document is",
        ),
        ("{documents: 9, ask: {prompt: '{example}', model: m}}", "max_tokens"),
        ("{documents: 10, rule: '('}", "it is not a regular expression: missing )"),
        ("{documents: 100001, rule: x}", "less than or equal to 100000"),
    ],
)
def test_what_cannot_be_labelled_is_refused_before_anything_runs(config: str, said: str) -> None:
    declared = (
        "title: T\nresources: {kind: cpu}\nsteps:\n  t: {do: m:f}\n"
        f"  l: {{do: label, inputs: {{text: t}}, config: {config}}}\n"
    )
    with pytest.raises(BadExperiment) as it:
        declaration.parse(declared, "experiment.yaml")
    assert said in str(it.value)
