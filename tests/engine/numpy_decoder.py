"""The decoder once more, in plain float64 NumPy, from the definitions: what the engine's is
compared with."""

from typing import Any

import numpy as np

from engine.config.schema import ModelConfig


def losses(model: ModelConfig, params: Any, windows: np.ndarray) -> np.ndarray:
    """Nats of each target in windows (N, S + 1). Returns (N, S)."""
    rows = []
    for window in windows:
        x = logits(model, params, window[:-1])
        x = x - x.max(axis=1, keepdims=True)
        rows.append(np.log(np.exp(x).sum(axis=1)) - x[np.arange(len(x)), window[1:]])
    return np.array(rows)


def logits(
    model: ModelConfig, params: Any, tokens: np.ndarray, segments: np.ndarray | None = None
) -> np.ndarray:
    """Logits (S, V) for one sequence of tokens (S,), of documents numbered by `segments` (S,)."""

    def weights(*names: str, layer: int | None = None) -> np.ndarray:
        x = params
        for name in names:
            x = x[name]
        return np.asarray(x if layer is None else x[layer], np.float64)

    def norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + model.norm_epsilon)

    sees = visible(len(tokens), model.sliding_window, segments)
    x = weights("embedding")[tokens]
    for i in range(model.num_layers):
        n = norm(x) * weights("blocks", "attention_norm", "gain", layer=i)

        def project(name: str, n: np.ndarray = n, i: int = i) -> np.ndarray:
            return n @ weights("blocks", "attention", name, layer=i)

        def head_norm(x: np.ndarray, name: str, i: int = i) -> np.ndarray:
            if model.qk_norm == "none":
                return x
            learned = model.qk_norm == "learned"
            return norm(x) * (weights("blocks", "attention", name, layer=i) if learned else 1)

        q, k, v = project("q_proj"), project("k_proj"), project("v_proj")
        heads = []
        for head in range(model.num_heads):
            shared = head // (model.num_heads // model.num_kv_heads)
            mine, theirs = columns(head, model.head_dim), columns(shared, model.head_dim)
            query = turn(head_norm(q[:, mine], "q_norm"), model.rope_theta)
            key = turn(head_norm(k[:, theirs], "k_norm"), model.rope_theta)
            heads.append(attend(query, key, v[:, theirs], sees))
        x = x + np.concatenate(heads, axis=1) @ weights("blocks", "attention", "o_proj", layer=i)
        n = norm(x) * weights("blocks", "mlp_norm", "gain", layer=i)
        gate = n @ weights("blocks", "mlp", "gate_proj", layer=i)
        up = n @ weights("blocks", "mlp", "up_proj", layer=i)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights("blocks", "mlp", "down_proj", layer=i)
    head = weights("embedding").T if model.tie_word_embeddings else weights("lm_head")
    out = norm(x) * weights("final_norm", "gain") @ head
    cap = model.logit_soft_cap
    return out if cap is None else cap * np.tanh(out / cap)


def turn(x: np.ndarray, theta: float) -> np.ndarray:
    """Rotary positions as complex numbers: dimension i is real, i + h/2 imaginary."""
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] * theta ** (-2 * np.arange(half) / x.shape[1])
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angle)
    return np.concatenate((turned.real, turned.imag), axis=1)


def visible(length: int, window: int | None, segments: np.ndarray | None) -> np.ndarray:
    """Which positions (columns) each position (row) sees."""
    sees = np.zeros((length, length), bool)
    for i in range(length):
        first = 0 if window is None else max(0, i + 1 - window)
        for j in range(first, i + 1):
            sees[i, j] = segments is None or segments[i] == segments[j]
    return sees


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, sees: np.ndarray) -> np.ndarray:
    scores = np.where(sees, q @ k.T / np.sqrt(q.shape[1]), -np.inf)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True) @ v


def columns(head: int, size: int) -> slice:
    return slice(head * size, (head + 1) * size)
