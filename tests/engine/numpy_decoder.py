"""The decoder once more, in plain float64 NumPy, from the definitions: what the engine's is
compared with."""

from typing import Any

import numpy as np

from engine.config import ModelConfig


def losses(model: ModelConfig, params: Any, windows: np.ndarray) -> np.ndarray:
    """Nats of each target in windows (N, S + 1). Returns (N, S)."""
    rows = []
    for window in windows:
        x = logits(model, params, window[:-1])
        x = x - x.max(axis=1, keepdims=True)
        rows.append(np.log(np.exp(x).sum(axis=1)) - x[np.arange(len(x)), window[1:]])
    return np.array(rows)


def logits(model: ModelConfig, params: Any, tokens: np.ndarray) -> np.ndarray:
    """Logits (S, V) for one sequence of tokens (S,)."""

    def weights(name: str, layer: int | None = None) -> np.ndarray:
        x = params[name] if layer is None else params["blocks"][name][layer]
        return np.asarray(x, np.float64)

    x = weights("embedding")[tokens]
    for i in range(model.num_layers):
        n = norm(x, weights("attention_norm", i))
        q, k, v = (n @ weights(name, i) for name in ("q_proj", "k_proj", "v_proj"))
        heads = []
        for head in range(model.num_heads):
            shared = head // (model.num_heads // model.num_kv_heads)
            mine, theirs = columns(head, model.head_dim), columns(shared, model.head_dim)
            heads.append(attend(turn(q[:, mine]), turn(k[:, theirs]), v[:, theirs]))
        x = x + np.concatenate(heads, axis=1) @ weights("o_proj", i)
        n = norm(x, weights("mlp_norm", i))
        gate = n @ weights("gate_proj", i)
        up = n @ weights("up_proj", i)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights("down_proj", i)
    head = weights("embedding").T if model.tie_word_embeddings else weights("lm_head")
    return norm(x, weights("final_norm")) @ head


def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * gain


def turn(x: np.ndarray) -> np.ndarray:
    """Rotary positions as complex numbers: dimension i is real, i + h/2 imaginary."""
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] * 10_000.0 ** (-2 * np.arange(half) / x.shape[1])
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angle)
    return np.concatenate((turned.real, turned.imag), axis=1)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q @ k.T / np.sqrt(q.shape[1])
    scores[np.triu_indices(len(q), 1)] = -np.inf
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True) @ v


def columns(head: int, size: int) -> slice:
    return slice(head * size, (head + 1) * size)
