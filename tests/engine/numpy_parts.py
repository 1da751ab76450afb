"""The parts that a declaration adds to a block, each in a few lines of float64 NumPy for one
sequence, from its formula."""

from collections.abc import Callable

import numpy as np

Weights = Callable[[str], np.ndarray]  # a parameter of the layer by its name


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def gated_norm(n: np.ndarray, down: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Of what is normed already."""
    return n * sigmoid(silu(n @ down) @ up)


def exclusive(o: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Of one head, (S, h)."""
    return np.array([y - (y @ u) / (u @ u + 1e-6) * u for y, u in zip(o, v, strict=True)])


def convolved(x: np.ndarray, taps: np.ndarray, documents: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for t in range(len(x)):
        for j in range(min(len(taps), t + 1)):
            if documents[t - j] == documents[t]:
                y[t] += taps[j] * x[t - j]
    return y


def delta_rule(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, rate: np.ndarray, decay: np.ndarray,
    documents: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Of one head, (S, h): the recurrence as it is written. `decay` is α."""
    state, out = np.zeros((q.shape[1], v.shape[1])), []
    for t in range(len(q)):
        if t and documents[t] != documents[t - 1]:
            state = np.zeros_like(state)
        erase = np.eye(len(k[t])) - rate[t] * np.outer(k[t], k[t])
        state = decay[t] * erase @ state + rate[t] * np.outer(k[t], v[t])
        out.append(state.T @ q[t] / np.sqrt(q.shape[1]))
    return np.array(out)


def linear_layer(
    n: np.ndarray, weights: Weights, heads: int, epsilon: float, documents: np.ndarray
) -> np.ndarray:
    """All heads of Gated DeltaNet before o_proj, (S, H · h)."""
    q, k, v = (
        silu(convolved(n @ weights(f"{x}_proj"), weights(f"{x}_conv"), documents)) for x in "qkv"
    )
    rate = sigmoid(n @ weights("rate"))
    steps = np.log1p(np.exp(n @ weights("decay") + weights("decay_bias")))
    decay = np.exp(-np.exp(weights("decay_log")) * steps)
    out = []
    for i, of in enumerate(np.split(np.arange(q.shape[1]), heads)):
        unit = [
            x[:, of] / np.sqrt((x[:, of] ** 2).sum(axis=1, keepdims=True) + 1e-6) for x in (q, k)
        ]
        o = delta_rule(*unit, v[:, of], rate[:, i], decay[:, i], documents)
        out.append(o / np.sqrt((o**2).mean(axis=1, keepdims=True) + epsilon) * weights("norm"))
    return np.concatenate(out, axis=1) * silu(n @ weights("gate_proj"))
