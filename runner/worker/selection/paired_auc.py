"""How much better one classifier ranks than another: the difference of their areas under the ROC
curve on the documents that both were tested on. The interval is by a paired bootstrap: each
resample has the same documents for both."""

import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner.lib import untrusted_files
from runner.worker.selection import held_out

HELD_OUT, ABOUT = "held_out.jsonl", "classifier/classifier.json"  # in the output of `classify`
MAX_BYTES = 64 << 20
LEVEL = (2.5, 97.5)  # percentiles


class HeldOut(NamedTuple):
    """The test of one classifier: documents in order, with the least label that is positive."""

    documents: tuple[tuple[str, float], ...]  # identity and label
    scores: np.ndarray
    positive: float


class Difference(NamedTuple):
    """Of two classifiers, the area of the first minus that of the second."""

    names: tuple[str, str]
    value: float
    interval: tuple[float, float]


def tested(folder: Path) -> HeldOut | None:
    """The test of a classifier; None for the output of another step. Raises Refused, ValueError and
    KeyError."""
    lines = untrusted_files.read(folder.resolve() / HELD_OUT, MAX_BYTES)
    about = untrusted_files.read(folder.resolve() / ABOUT, MAX_BYTES)
    if lines is None or about is None:
        return None
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines.splitlines()]
    return HeldOut(
        tuple((str(row["id"]), float(row["label"])) for row in rows),
        np.array([float(row["score"]) for row in rows]),
        float(json.loads(about)["positive"]),
    )


def differences(tests: Mapping[str, HeldOut]) -> Iterator[Difference]:
    """Of each two classifiers that were tested on the same documents with the same labels."""
    for (name, one), (other, two) in combinations(tests.items(), 2):
        if (one.documents, one.positive) == (two.documents, two.positive):
            positive = np.array([label >= one.positive for _, label in one.documents])
            value = held_out.auc(one.scores, positive) - held_out.auc(two.scores, positive)
            drawn = np.concatenate(
                [
                    held_out.auc(one.scores, positive, weights)
                    - held_out.auc(two.scores, positive, weights)
                    for weights in held_out.resamples(len(positive), seed=0)
                ]
            )
            low, high = np.nanpercentile(drawn, LEVEL).tolist()
            yield Difference((name, other), float(value[0]), (low, high))
