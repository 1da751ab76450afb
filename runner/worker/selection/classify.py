"""The step that learns from labelled documents and gives each document of a text a score.

Its output has the attributes of the text: `score`, where higher is better, and `probability`, that
the document's label is `positive` or more. Beside them are `classifier` (what it has learned),
`held_out.jsonl` (the documents of the test with label, score and probability) and `measured.json`.
The test's documents are neither learned from nor used to turn scores into probabilities."""

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from engine.data.documents import whole_documents
from engine.data.lab_texts import BadText
from runner.lib.canonical_json import to_json
from runner.schema import metrics
from runner.worker.selection import held_out, linear_classifier
from runner.worker.selection.held_out import Part
from runner.worker.texts.attributes import identity, write_attributes
from runner.worker.texts.shards import link, shards

LABELS, HELD_OUT = "labels.jsonl", "held_out.jsonl"
CLASSIFIER, ABOUT = "classifier", "classifier.json"
UNREADABLE = -1  # the label of a document whose reply could not be read
DIGITS = 6  # of a score, after the point


class Scorer(Protocol):
    """A classifier that has learned."""

    def batches(self, texts: Iterable[str]) -> Iterable[list[str]]: ...
    def scores(self, texts: Sequence[str]) -> np.ndarray: ...


KINDS = ("linear", "transformer", "ridge")


def classify(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Learn, and score every document. Raises BadText."""
    learn(config, inputs, out)
    score_shards(config, {**inputs, "first": out, "shards": shards(inputs["text"])}, out)


def join(_: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """Join the results of `score_shards`, in the folders of the input `parts`, and those of
    `learn`, in the input `first`."""
    (out / CLASSIFIER).mkdir()
    for folder in (inputs["first"], *inputs["parts"].values()):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                link(path, out / path.relative_to(folder))


# ── Learn ────────────────────────────────────────────────────────────────────────────────────


def learn(config: Mapping[str, Any], inputs: Mapping[str, Path], out: Path) -> None:
    """Learn from the input `labels`, and test. Raises BadText."""
    path = inputs["labels"] / LABELS
    parts, counts, by = _labels(path)
    positive = _positive(config, path, parts)
    name, kind, keys = _kind(config)
    (folder := out / CLASSIFIER).mkdir()
    labels = np.array([one.label for one in parts["learn"]], np.float64)
    texts = partial(_texts, config, path, "learn")
    kind.learn(keys, inputs, texts, labels, folder, config["seed"])
    scorer = kind.scorer(keys, inputs, folder)

    def scored(part: Part) -> tuple[np.ndarray, np.ndarray]:
        found = [scorer.scores(batch) for batch in scorer.batches(_texts(config, path, part))]
        return np.concatenate(found), np.array([one.label >= positive for one in parts[part]])

    slope, offset = held_out.platt(*scored("calibrate"))
    about = {"kind": name, "positive": positive, "slope": slope, "offset": offset}
    about |= {"labels": counts, "labelled_by": by}
    about |= {str(part): len(of) for part, of in parts.items()}
    (folder / ABOUT).write_bytes(to_json(about))
    scores, is_positive = scored("test")
    chances = held_out.sigmoid(slope * scores + offset)
    _write_held_out(out / HELD_OUT, parts["test"], scores, chances)
    found = held_out.measured(scores, chances, is_positive, config["seed"])
    (out / metrics.MEASURED).write_bytes(metrics.written({"": found}))


def _kind(config: Mapping[str, Any]) -> tuple[str, Any, Mapping[str, Any]]:
    """The kind of classifier: its name, its module, and its keys."""
    (name,) = (name for name in KINDS if config.get(name) is not None)
    if name == "linear":
        return name, linear_classifier, config[name]
    if name == "ridge":
        from runner.worker.selection import ridge_classifier  # imports JAX

        return name, ridge_classifier, config[name]
    from runner.worker.selection import transformer_classifier

    return name, transformer_classifier, config[name]


class Labelled(NamedTuple):
    """A document with a label that can be read."""

    identity: str
    label: float


Parts = dict[Part, list[Labelled]]  # in the order of the file


def _labels(path: Path) -> tuple[Parts, dict[str, int], dict[str, int]]:
    """The labels of each part, how many documents have each label, and how many each labeller
    labelled. Raises BadText."""
    parts: Parts = {"learn": [], "calibrate": [], "test": []}
    counts, by = Counter[float](), Counter[str]()
    if not path.is_file():
        raise BadText(f"{path.parent} has no {LABELS}; write a document with a `label` per line")
    for number, document in enumerate(whole_documents(path), 1):
        label = document.get("label")
        if isinstance(label, bool) or not isinstance(label, int | float) or not isfinite(label):
            raise BadText(
                f"{path}, document {number} has {label!r} as its label; write a number, or "
                f"{UNREADABLE} for a document without one"
            )
        counts[label] += 1
        by[str(document.get("labelled_by", "nobody named"))] += 1
        if label != UNREADABLE:
            known = identity(document, "labels", number)
            parts[held_out.part_of(known)].append(Labelled(known, label))
    return parts, {f"{label:g}": of for label, of in sorted(counts.items())}, dict(by)


def _texts(config: Mapping[str, Any], path: Path, part: Part) -> Iterator[str]:
    """The beginnings of the documents of a part that have a label, in order."""
    for number, document in enumerate(whole_documents(path), 1):
        known = identity(document, "labels", number)
        if document["label"] != UNREADABLE and held_out.part_of(known) == part:
            yield document["text"][: config["characters"]]


def _positive(config: Mapping[str, Any], path: Path, parts: Parts) -> float:
    """The least label that counts as positive. Raises BadText unless each part has documents with
    a positive and with another label."""
    levels = sorted({one.label for of in parts.values() for one in of})
    least: float | None = config["positive"]
    if least is None and levels:
        least = min(label for label in levels if label >= (levels[0] + levels[-1]) / 2)
    for part, of in parts.items():
        positive = sum(one.label >= least for one in of) if least is not None else 0
        if positive in (0, len(of)):
            listed = ", ".join(f"{label:g}" for label in levels[:10]) or "none"
            raise BadText(
                f"{path}: of the {len(of)} documents to {part}, {positive} have a positive label "
                f"({'none known' if least is None else f'{least:g} or more'}), and it needs both "
                f"kinds; the labels are {listed}; label more documents, or change `positive`"
            )
    assert least is not None
    return least


def _write_held_out(
    path: Path, labels: Sequence[Labelled], scores: np.ndarray, chances: np.ndarray
) -> None:
    with path.open("wb") as file:
        for one, score, chance in zip(labels, scores.tolist(), chances.tolist(), strict=True):
            line = {"id": one.identity, "label": one.label, **_attributes(score, chance)}
            file.write(json.dumps(line).encode() + b"\n")


# ── Score ────────────────────────────────────────────────────────────────────────────────────


def score_shards(config: Mapping[str, Any], inputs: Mapping[str, Any], out: Path) -> None:
    """The attributes of the input `shards`, {name: file}, with the classifier of `learn` in the
    input `first`."""
    folder = inputs["first"] / CLASSIFIER
    about = json.loads((folder / ABOUT).read_bytes())
    _, kind, keys = _kind(config)
    scorer = kind.scorer(keys, inputs, folder)
    for name, path in inputs["shards"].items():
        write_attributes(out, name, _scored(config, about, scorer, name, path))


def _scored(
    config: Mapping[str, Any], about: Mapping[str, Any], scorer: Scorer, name: str, path: Path
) -> Iterator[tuple[str, dict[str, float]]]:
    waiting: deque[str] = deque()  # the identities of documents that are not scored yet

    def texts() -> Iterator[str]:
        for number, document in enumerate(whole_documents(path), 1):
            waiting.append(identity(document, name, number))
            yield document["text"][: config["characters"]]

    for batch in scorer.batches(texts()):
        scores = scorer.scores(batch)
        chances = held_out.sigmoid(about["slope"] * scores + about["offset"])
        for score, chance in zip(scores.tolist(), chances.tolist(), strict=True):
            yield waiting.popleft(), _attributes(score, chance)


def _attributes(score: float, chance: float) -> dict[str, float]:
    return {"score": round(score, DIGITS), "probability": round(chance, DIGITS)}
