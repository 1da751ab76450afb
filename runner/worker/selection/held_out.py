"""How well scores rank labels that a classifier has not seen, and how right its probabilities are.
Labelled documents are split 80/10/10 by a hash of their identity: to learn from, to turn scores
into probabilities, and to test."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from runner.schema import metrics

BINS = 10
RESAMPLES = 1000  # of the bootstrap
_AT_ONCE = 1 << 22  # weights of resamples

Part = Literal["learn", "calibrate", "test"]


def part_of(identity: str) -> Part:
    """The part of a labelled document."""
    words = identity.encode(errors="surrogatepass")
    digit = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little") % 10
    return "test" if digit == 9 else "calibrate" if digit == 8 else "learn"


def auc(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The area under the ROC curve: the probability that a positive document has a higher score
    than a negative one; equal scores count half. With `weights` (resamples, documents) one for
    each resample; NaN where one of the two is missing."""
    order = np.argsort(scores, kind="stable")
    scores, positive = scores[order], positive[order]
    weights = np.ones((1, len(scores))) if weights is None else weights[:, order]
    first = np.flatnonzero(np.r_[True, scores[1:] != scores[:-1]])  # of each group of equal ones
    up = np.add.reduceat(weights * positive, first, axis=1)
    down = np.add.reduceat(weights * ~positive, first, axis=1)
    below = np.cumsum(down, axis=1) - down / 2
    pairs = up.sum(1) * down.sum(1)
    found = np.full(len(weights), np.nan)
    np.divide((up * below).sum(1), pairs, out=found, where=pairs > 0)
    return found


def calibration(
    probabilities: np.ndarray, positive: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """The expected calibration error (Naeini et al. 2015): the mean over documents of the distance
    between the mean probability and the share of positives, in bins of equally many documents."""
    order = np.argsort(probabilities, kind="stable")
    p, y = probabilities[order], positive[order]
    weights = np.ones((1, len(p))) if weights is None else weights[:, order]
    first = np.unique(np.arange(BINS) * len(p) // BINS)
    gaps = np.abs(np.add.reduceat(weights * (p - y), first, axis=1))
    return np.asarray(gaps.sum(1) / weights.sum(1))


def measured(
    scores: np.ndarray, probabilities: np.ndarray, positive: np.ndarray, seed: int
) -> metrics.Measured:
    """`labels/auc` and `labels/calibration`, with standard errors by the bootstrap over
    documents."""
    found = {
        metrics.AUC: _score(lambda w: auc(scores, positive, w), len(scores), seed, 0.5),
        metrics.CALIBRATION: _score(
            lambda w: calibration(probabilities, positive, w), len(scores), seed
        ),
    }
    return {metric: one for metric, one in found.items() if one}


def resamples(count: int, seed: int) -> Iterator[np.ndarray]:
    """Weights of so many documents in the resamples of the bootstrap, some resamples at a time:
    (resamples, documents) float64."""
    random, each = np.random.default_rng(seed), max(1, _AT_ONCE // count)
    for start in range(0, RESAMPLES, each):
        size = min(each, RESAMPLES - start)
        yield random.multinomial(count, np.full(count, 1 / count), size).astype(np.float64)


def _score(
    of: Callable[[np.ndarray | None], np.ndarray],
    count: int,
    seed: int,
    chance: float | None = None,
) -> metrics.Score | None:
    found = [of(weights) for weights in resamples(count, seed)]
    error = float(np.nanstd(np.concatenate(found), ddof=1))
    return metrics.score(float(of(None)[0]), count, error, chance)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^(−x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def platt(scores: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """(slope, offset) of the probability sigmoid(slope · score + offset), after Platt (1999):
    fitted to targets (n + 1) / (n + 2), which keep it off 0 and 1. The slope is never negative, so
    that probabilities have the order of the scores."""
    from scipy.optimize import minimize  # slow to import, and scoring needs none of it

    up, down = int(positive.sum()), int((~positive).sum())
    target = np.where(positive, (up + 1) / (up + 2), 1 / (down + 2))
    wide = float(np.std(scores)) or 1.0
    scaled = scores / wide

    def loss(at: np.ndarray) -> tuple[float, np.ndarray]:
        z = at[0] * scaled + at[1]
        rest = sigmoid(z) - target
        return float(np.mean(np.logaddexp(0, z) - target * z)), np.array(
            [np.mean(rest * scaled), np.mean(rest)]
        )

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, bounds=[(0, None), (None, None)])
    return float(found.x[0] / wide), float(found.x[1])
