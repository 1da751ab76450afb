"""The step that learns from labels and scores a text: what it counts, what it measures and what it
refuses. A classifier of two words is enough."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.lab_texts import BadText
from runner.cli import execution_view
from runner.lib.problems import BadExperiment
from runner.schema import metrics
from runner.spec import declaration, measured
from runner.spec.selection_steps import Classify
from runner.store import digests
from runner.worker import shard_jobs
from runner.worker.selection import held_out, ngrams
from runner.worker.selection.classify import classify
from runner.worker.texts import shards
from runner.worker.texts.attributes import read_attributes
from tests.decided import KINDS
from tests.unit.runner.test_select import a_job, here

WORDS = ("the cat sat on a mat", "for x in rows: print(x)")


def documents(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Half English, half Python, with words of both; a tenth of the labels is wrong."""
    random = np.random.default_rng(seed)
    found = []
    for n in range(count):
        mine, other = (WORDS[(n + k) % 2].split() for k in range(2))
        words = [*random.choice(mine, 9), *random.choice(other, 3)]
        label = int(1 - n % 2 if random.uniform() < 0.9 else n % 2)
        found.append({"id": f"{seed} {n}", "text": " ".join(words), "label": label})
    return found


def written(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (folder / f"{name}.jsonl").write_text("".join(lines))


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    for n, count in enumerate((40, 0, 57)):
        written(tmp_path / "text", f"train.{n:05d}", documents(count, n + 1))
    written(tmp_path / "text", "validation", documents(9, 9))
    written(tmp_path / "labels", "labels", documents(400))
    return {"text": tmp_path / "text", "labels": tmp_path / "labels"}


def configured(**keys: Any) -> dict[str, Any]:
    return Classify(**{"linear": {"buckets": 2**12}, **keys}).model_dump(mode="json")


def classified(inputs: dict[str, Path], **keys: Any) -> Path:
    out = inputs["text"].parent / "out"
    out.mkdir()
    classify(configured(**keys), inputs, out)
    return out


def scores(out: Path) -> dict[str, dict[str, float]]:
    paths = [path for path in sorted(out.glob("*.jsonl")) if path.name != "held_out.jsonl"]
    return {known: dict(of) for path in paths for known, of in read_attributes(path)}


def test_each_document_has_a_score_and_a_probability(inputs: dict[str, Path]) -> None:
    out = classified(inputs)
    found = scores(out)
    assert len(found) == 40 + 57 + 9
    right = [(of["probability"] > 0.5) == (int(known.split()[1]) % 2 == 0) for known, of in
             found.items()]  # fmt: skip
    assert np.mean(right) > 0.7
    order = sorted(found.values(), key=lambda of: of["score"])
    chances = [of["probability"] for of in order]
    assert chances == sorted(chances), "the order of both is the same"


def test_what_it_measures_follows_from_the_documents_that_were_held_out(
    inputs: dict[str, Path],
) -> None:
    out = classified(inputs)
    rows = [json.loads(line) for line in (out / "held_out.jsonl").read_text().splitlines()]
    about = json.loads((out / "classifier/classifier.json").read_text())
    assert {held_out.part_of(row["id"]) for row in rows} == {"test"}
    assert about["learn"] + about["calibrate"] + about["test"] == 400
    assert len(rows) == about["test"]
    said = json.loads((out / metrics.MEASURED).read_text())[""]
    pairs = [
        (one["score"] > other["score"]) + (one["score"] == other["score"]) / 2
        for one in rows
        for other in rows
        if one["label"] > other["label"]
    ]
    assert said["labels/auc"]["value"] == pytest.approx(np.mean(pairs))
    assert said["labels/auc"]["value"] > 0.8
    assert said["labels/auc"]["chance"] == 0.5
    assert said["labels/auc"]["items"] == said["labels/calibration"]["items"] == len(rows)
    assert 0 < said["labels/auc"]["standard_error"] < 0.1


def test_labels_without_a_pattern_are_at_chance(inputs: dict[str, Path]) -> None:
    rows = documents(400)
    for row in rows:
        row["label"] = hash_of(row["id"])
    written(inputs["labels"], "labels", rows)
    auc = json.loads((classified(inputs) / metrics.MEASURED).read_text())[""]["labels/auc"]
    assert abs(auc["value"] - 0.5) < 3 * auc["standard_error"]


def hash_of(known: str) -> int:
    return sum(known.encode()) * 7919 % 31 % 2


def test_several_labels_are_learned_in_their_order(inputs: dict[str, Path]) -> None:
    random, rows = np.random.default_rng(0), []
    for n in range(600):
        label = int(random.integers(1, 6))
        words = random.choice(["good", "bad"], 40, p=[label / 6, 1 - label / 6])
        rows.append({"id": str(n), "text": " ".join(words), "label": label})
    written(inputs["labels"], "labels", rows)
    written(inputs["text"], "validation", [{"text": text} for text in ("bad bad", "good good")])
    out = classified(inputs)
    low, high = (scores(out)[f"validation:{n}"]["score"] for n in (1, 2))
    assert low < high
    about = json.loads((out / "classifier/classifier.json").read_text())
    assert about["positive"] == 3, "the middle of 1 to 5, or more"


def test_labels_that_could_not_be_read_are_counted_and_left_out(inputs: dict[str, Path]) -> None:
    rows = documents(400)
    for row in rows[:30]:
        row["label"] = -1
    written(inputs["labels"], "labels", rows)
    about = json.loads((classified(inputs) / "classifier/classifier.json").read_text())
    assert about["labels"] == {"-1": 30, "0": 188, "1": 182}
    assert about["learn"] + about["calibrate"] + about["test"] == 370


def test_any_number_of_workers_makes_the_same_bytes(
    inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "TOGETHER", 1)
    given = {key: str(path) for key, path in inputs.items()}
    function, place = "runner.worker.selection.classify:classify", inputs["text"].parent
    alone, many = (
        a_job(function, configured(), given, place / one, KINDS["cpu"]) for one in ("a", "b")
    )
    here(alone)
    shard_jobs.make("classify", many, here, map, map)
    made = [digests.sha256(digests.digests(Path(one.out))) for one in (alone, many)]
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"label": None}, r"labels.jsonl, document 3 has None as its label; write a number, or -1"),
        ({"label": True}, r"document 3 has True as its label"),
        ({"label": float("nan")}, r"document 3 has nan as its label"),
        ({"text": None}, r'line 3 has nothing as its "text"'),
    ],
)
def test_a_label_that_is_no_number_is_refused_with_its_line(
    inputs: dict[str, Path], edit: dict[str, Any], words: str
) -> None:
    rows = documents(400)
    rows[2] |= edit
    written(inputs["labels"], "labels", rows)
    with pytest.raises(BadText, match=words):
        classified(inputs)


@pytest.mark.parametrize(("count", "positive"), [(400, 7.0), (400, -3.0), (3, None), (0, None)])
def test_too_few_labels_of_either_kind_are_refused(
    inputs: dict[str, Path], count: int, positive: float | None
) -> None:
    written(inputs["labels"], "labels", documents(count))
    with pytest.raises(BadText, match=r"label more documents, or change `positive`"):
        classified(inputs, positive=positive)


def test_labels_must_be_there(inputs: dict[str, Path]) -> None:
    (inputs["labels"] / "labels.jsonl").rename(inputs["labels"] / "train.jsonl")
    with pytest.raises(BadText, match=r"has no labels.jsonl; write a document with a `label` per"):
        classified(inputs)


def test_a_plan_knows_what_a_classifier_measures() -> None:
    declared = (
        "title: T\nresources: {kind: cpu}\nsteps:\n  t: {do: m:f}\n  l: {do: m:f}\n"
        "  judge: {do: classify, inputs: {text: t, labels: l}}\n"
        "  table: {do: compare, inputs: {judge: judge}}\n"
    )
    nodes = declaration.parse(declared, "experiment.yaml").nodes
    assert measured.of_graph(nodes) == {"judge": (metrics.AUC, metrics.CALIBRATION)}
    said = "`labels/auc` (of judge), `labels/calibration` (of judge)"
    assert measured.told(nodes) == said, "which counts as no model"
    assert metrics.better(metrics.AUC) == "higher"
    assert metrics.better(metrics.CALIBRATION) == "lower"
    assert "is measured of a classifier, and a prediction is about" in metrics.never(metrics.AUC)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("linear: {buckets: 1000}", "1000 is not a power of two from 256 to 16777216"),
        ("linear: {}, transformer: {}", "a step has one classifier; write `linear`, `tran"),
        ("transformer: {num_heads: 5}", "hidden_dim 128 / num_heads 5 is not an even whole number"),
        ("transformer: {vocab_size: 9}", "greater than or equal to 257"),
        ("ridge: {}", "`ridge` and the inputs `model` and `tokens` go together; write all"),
    ],
)
def test_what_no_classifier_can_be_is_refused(config: str, words: str) -> None:
    declared = (
        "title: T\nresources: {kind: cpu}\nsteps:\n  t: {do: m:f}\n  l: {do: m:f}\n"
        f"  judge: {{do: classify, inputs: {{text: t, labels: l}}, config: {{{config}}}}}\n"
    )
    with pytest.raises(BadExperiment) as it:
        declaration.parse(declared, "experiment.yaml")
    assert words in str(it.value)
    assert str(it.value).count("line 6") == 1


# ── N-grams ──────────────────────────────────────────────────────────────────────────────────


def split(text: str) -> list[bytes]:
    """The words of a document, one character at a time."""
    words, last = [], ""
    for x in text.encode():
        kind = " wo"[int(ngrams._CLASS[x])]
        if kind == "o" or (kind == "w" and last != "w"):
            words.append(b"")
        if kind != " ":
            words[-1] += bytes([x])
        last = kind
    return words


@given(st.lists(st.text("ab_ .é\n\0", max_size=12), min_size=1, max_size=6))
def test_ngrams_are_those_of_the_words_wherever_they_are(texts: list[str]) -> None:
    found = ngrams.ngrams(texts, 3, 2**24)
    buckets = [Counter(found.buckets[found.documents == n].tolist()) for n in range(len(texts))]
    for text, mine in zip(texts, buckets, strict=True):
        words = split(text)
        grams = Counter(
            tuple(words[k : k + n]) for n in (1, 2, 3) for k in range(len(words) - n + 1)
        )
        assert sorted(mine.values()) == sorted(grams.values())
        alone = ngrams.ngrams([text], 3, 2**24)
        assert Counter(alone.buckets.tolist()) == mine, "whatever is before and after it"


# ── What is measured ─────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=12))
def test_the_area_is_the_share_of_pairs_in_order(rows: list[tuple[int, bool]]) -> None:
    ups = [score for score, positive in rows if positive]
    downs = [score for score, positive in rows if not positive]
    scores, positive = (np.array(column) for column in zip(*rows, strict=True))
    (found,) = held_out.auc(scores, positive)
    if not ups or not downs:
        assert np.isnan(found)
    else:
        pairs = [(up > down) + (up == down) / 2 for up in ups for down in downs]
        assert found == pytest.approx(np.mean(pairs))
    twice = held_out.auc(scores, positive, np.full((1, len(rows)), 2.0))
    assert twice == pytest.approx(found, nan_ok=True)


def test_calibration_is_the_distance_between_probability_and_share() -> None:
    random = np.random.default_rng(0)
    chances = random.uniform(size=20_000)
    right = random.uniform(size=20_000) < chances
    assert held_out.calibration(chances, right)[0] < 0.02
    assert held_out.calibration(chances / 2, right)[0] == pytest.approx(0.25, abs=0.02)


def test_the_bootstrap_error_of_the_area_is_that_of_many_draws() -> None:
    random = np.random.default_rng(1)

    def drawn() -> tuple[np.ndarray, np.ndarray]:
        positive = random.uniform(size=300) < 0.5
        return random.normal(positive * 1.0), positive

    spread = np.std([held_out.auc(*drawn())[0] for _ in range(500)])
    scores, positive = drawn()
    said = held_out.measured(scores, np.full(300, 0.5), positive, 0)[metrics.AUC].standard_error
    assert said == pytest.approx(spread, rel=0.25)


def test_probabilities_never_turn_the_order_around() -> None:
    scores = np.array([0.0, 1, 2, 3])
    assert held_out.platt(scores, np.array([False, False, True, True]))[0] > 0
    assert held_out.platt(scores, np.array([True, True, False, False]))[0] == 0


def test_a_step_shows_what_it_measured_of_itself() -> None:
    scores = {"labels/auc": metrics.Score(value=0.9, items=639, standard_error=0.01, chance=0.5)}
    account: Any = SimpleNamespace(measured={"judge": {"judge": scores}})
    assert list(execution_view._measured(account, "judge")) == [
        ("labels/auc", "0.9000 (95 % 0.8804 to 0.9196, 639 documents)")
    ]
    assert list(execution_view._measured(account, "train")) == []


def test_an_own_model_has_no_embeddings_that_the_lab_knows() -> None:
    declared = (
        "title: T\nresources: {kind: cpu}\nsteps:\n  t: {do: m:f}\n  l: {do: m:f}\n"
        "  tokens: {do: tokenize, inputs: {text: t}}\n"
        "  train: {do: train, inputs: {tokens: tokens}, config: {own: {model: 'm:Net'}, "
        "model: {vocab_size: 256, seq_len: 8}, "
        "train: {train_batch_size: 2, num_train_steps: 4, learning_rate: 0.01}}}\n"
        "  judge: {do: classify, config: {ridge: {}}, "
        "inputs: {text: t, labels: l, model: train, tokens: tokens}}\n"
    )
    with pytest.raises(BadExperiment, match=r"line 8.*`train` trains the own model `m:Net`, whose"):
        declaration.parse(declared, "experiment.yaml")
