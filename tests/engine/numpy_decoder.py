"""The decoder once more, in plain float64 NumPy, from the definitions: what the engine's is
compared with."""

from typing import Any

import jax
import numpy as np
import numpy_parts as parts

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
    documents = np.zeros(len(tokens)) if segments is None else segments

    def normed(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + model.norm_epsilon)

    def norm(x: np.ndarray, of: Any) -> np.ndarray:
        n = normed(x) * of["gain"]
        return parts.gated_norm(n, of["down_proj"], of["up_proj"]) if model.gated_norm else n

    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    x = wide["embedding"][tokens]
    if model.gated_norm:
        x = norm(x, wide["embedding_norm"])
    used = {"blocks": 0, "linear_blocks": 0}
    for kind in model.kinds:
        stack = "linear_blocks" if kind == "linear" else "blocks"
        layer = jax.tree.map(lambda x, i=used[stack]: x[i], wide[stack])
        used[stack] += 1
        attention = layer["attention"]
        after = model.norm_position == "after"
        n = x if after else norm(x, layer["attention_norm"])
        if kind == "linear":
            heads = parts.linear_layer(
                n, attention.__getitem__, model.num_heads, model.norm_epsilon, documents
            )
        else:
            heads = attended(model, kind, n, attention, normed, documents)
        y = heads @ attention["o_proj"]
        if kind != "linear" and model.attention_bias == "all":
            y = y + attention["o_bias"]
        if model.short_convolution:
            y = parts.convolved(y, layer["attention_conv"], documents)
        x = x + (norm(y, layer["attention_norm"]) if after else y)
        n, mlp = x if after else norm(x, layer["mlp_norm"]), layer["mlp"]
        y = parts.silu(n @ mlp["gate_proj"]) * (n @ mlp["up_proj"]) @ mlp["down_proj"]
        if model.short_convolution:
            y = parts.convolved(y, layer["mlp_conv"], documents)
        x = x + (norm(y, layer["mlp_norm"]) if after else y)
    head = wide["embedding"].T if model.tie_word_embeddings else wide["lm_head"]
    out = norm(x, wide["final_norm"]) @ head
    cap = model.logit_soft_cap
    return out if cap is None else cap * np.tanh(out / cap)


def attended(
    model: ModelConfig, kind: str, n: np.ndarray, of: Any, normed: Any, documents: np.ndarray
) -> np.ndarray:
    """All heads of one layer of attention before o_proj, (S, H · h)."""
    sees = visible(len(n), model.sliding_window if kind == "window" else None, documents)
    turned = 0 if kind == "nope" else round(model.rope_fraction * model.head_dim)

    def ready(x: np.ndarray, name: str) -> np.ndarray:
        if model.qk_norm in ("rms", "learned"):
            x = normed(x) * (of[name] if model.qk_norm == "learned" else 1)
        return np.concatenate(
            (turn(x[:, :turned], model.rope_theta, model.rope_scaling), x[:, turned:]), axis=1
        )

    q, k, v = n @ of["q_proj"], n @ of["k_proj"], n @ of["v_proj"]
    if model.attention_bias != "none":
        q, k, v = q + of["q_bias"], k + of["k_bias"], v + of["v_bias"]
    if model.short_convolution:
        k = parts.convolved(k, of["k_conv"], documents)
    if model.qk_norm == "whole":
        q, k = normed(q) * of["q_norm"], normed(k) * of["k_norm"]
    heads = []
    for head in range(model.num_heads):
        shared = head // (model.num_heads // model.num_kv_heads)
        mine, theirs = columns(head, model.head_dim), columns(shared, model.head_dim)
        query, key = ready(q[:, mine], "q_norm"), ready(k[:, theirs], "k_norm")
        o = attend(query, key, v[:, theirs], sees)
        if model.exclusive_attention:
            o = parts.exclusive(o, v[:, theirs])
        if model.attention_gate:
            o = o * 2 * parts.sigmoid(n @ of["gate"][:, head])[:, None]
        heads.append(o)
    return np.concatenate(heads, axis=1)


def turn(x: np.ndarray, theta: float, scaling: Any = None) -> np.ndarray:
    """Rotary positions as complex numbers: dimension i is real, i + h/2 imaginary."""
    half = x.shape[1] // 2
    frequency = theta ** (-2 * np.arange(half) / x.shape[1])
    if scaling is not None:  # by wavelengths, as Llama's authors wrote it
        length, length_before = 2 * np.pi / frequency, scaling.original_seq_len
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        smooth = (length_before / length - low) / (high - low)
        between = (1 - smooth) * frequency / scaling.factor + smooth * frequency
        frequency = np.where(
            length < length_before / high,
            frequency,
            np.where(length > length_before / low, frequency / scaling.factor, between),
        )
    angle = np.arange(len(x))[:, None] * frequency
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
