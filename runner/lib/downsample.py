"""Reduces the points of a curve and keeps its spikes: the minimum and maximum of each stretch.

Every n-th point, or a mean over n, would hide a loss that spiked for one step. Pure.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 500  # of a curve in a record


def kept(y: Sequence[float] | NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """The indices of the points to keep, ascending: the first, the last, and the minimum and
    maximum of each of equally long stretches, at most `most` (at least 4). All indices if there are
    no more."""
    values = np.asarray(y, dtype=np.float64)
    n, stretches = len(values), (max(most, 4) - 2) // 2
    if n <= max(most, 4):
        return np.arange(n)
    length = -(-n // stretches)
    # The last stretch is padded with its last point.
    filled = np.pad(values, (0, -n % length), mode="edge").reshape(-1, length)
    begin = np.arange(len(filled)) * length
    ends = np.array([0, n - 1])
    found = np.concatenate([ends, begin + filled.argmin(axis=1), begin + filled.argmax(axis=1)])
    return np.unique(np.minimum(found, n - 1))


def thinned(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """The points of a curve that a record keeps, spikes included."""
    return tuple(points[at] for at in kept([loss for _, loss in points], MOST_POINTS))
