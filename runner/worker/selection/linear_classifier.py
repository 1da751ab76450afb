"""The classifier of hashed n-grams: a score is the sum of the weights of a document's n-grams,
divided by the square root of their number. The weights minimise the ordinal logistic loss over all
thresholds between labels (Rennie and Srebro 2005), which for two labels is logistic regression."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.worker.selection.held_out import sigmoid
from runner.worker.selection.ngrams import batches, ngrams

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Texts = Callable[[], Iterable[str]]

WEIGHTS = "weights.npy"
MAX_ITERATIONS = 100


def learn(
    config: Mapping[str, Any],
    _: Mapping[str, Any],
    texts: Texts,
    labels: np.ndarray,
    out: Path,
    __: int,
) -> None:
    """Fit the weights to the labels and write them: float32, one for each bucket."""
    from scipy import sparse

    rows = _matrix(config, texts())
    used, columns = np.unique(rows.indices, return_inverse=True)
    rows = sparse.csr_matrix((rows.data, columns, rows.indptr), (rows.shape[0], len(used)))
    found = np.zeros(config["buckets"], np.float32)
    found[used] = _fit(rows, labels, config["l2"])
    np.save(out / WEIGHTS, found)


def scorer(config: Mapping[str, Any], _: Mapping[str, Any], folder: Path) -> "Linear":
    """The classifier that `learn` wrote."""
    return Linear(config, np.load(folder / WEIGHTS, allow_pickle=False))


class Linear:
    """Scores documents."""

    def __init__(self, config: Mapping[str, Any], weights: np.ndarray) -> None:
        self._words, self._weights = config["words"], weights

    def batches(self, texts: Iterable[str]) -> Iterable[list[str]]:
        """The texts in lists for `scores`."""
        return batches(texts)

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """The score of each text, float64. It does not depend on the other texts."""
        found = ngrams(texts, self._words, len(self._weights))
        sums = np.bincount(found.documents, self._weights[found.buckets], found.size)
        numbers = np.bincount(found.documents, minlength=found.size)
        return sums / np.sqrt(np.maximum(numbers, 1))


def _matrix(config: Mapping[str, Any], texts: Iterable[str]) -> "csr_matrix":
    """A row for each document: how often it has each n-gram, over the square root of all."""
    from scipy import sparse  # slow to import, and scoring needs none of it

    parts = []
    for batch in batches(texts):
        found = ngrams(batch, config["words"], config["buckets"])
        ones = np.ones(len(found.buckets), np.float32)
        counts = sparse.csr_matrix(
            (ones, (found.documents, found.buckets)), (found.size, config["buckets"])
        )
        numbers = np.maximum(np.asarray(counts.sum(1)).ravel(), 1)
        counts.data /= np.repeat(np.sqrt(numbers), np.diff(counts.indptr)).astype(np.float32)
        parts.append(counts)
    return sparse.vstack(parts, "csr")


def _fit(rows: "csr_matrix", labels: np.ndarray, l2: float) -> np.ndarray:
    """The weights of the columns."""
    from scipy.optimize import minimize

    levels = np.unique(labels)
    above = np.where(labels[:, None] > levels[None, :-1], 1.0, -1.0)  # (documents, thresholds)
    across, count, thresholds = rows.T.tocsr(), len(labels), len(levels) - 1

    def loss(at: np.ndarray) -> tuple[float, np.ndarray]:
        weights = at[thresholds:]
        margins = above * ((rows @ weights)[:, None] + at[:thresholds])
        pull = -above * sigmoid(-margins) / count
        value = np.logaddexp(0, -margins).sum() / count + l2 / 2 * (weights @ weights)
        slope = np.concatenate((pull.sum(0), across @ pull.sum(1) + l2 * weights))
        return float(value), slope

    start = np.zeros(thresholds + rows.shape[1])
    options = {"maxiter": MAX_ITERATIONS, "maxcor": 5}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x[thresholds:])
