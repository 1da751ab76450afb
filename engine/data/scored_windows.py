"""What is scored of a validation split: windows of its tokens, and the bytes of text of each
target."""

from typing import NamedTuple

import numpy as np

from engine.data.lab_texts import shortest_validation
from engine.data.token_store import TokenStore, WrongTokens


class ScoredWindows(NamedTuple):
    """What is scored of a split: N windows of S targets."""

    tokens_NW: np.ndarray  # int32, W = S + 1
    scored_NS: np.ndarray  # bool: which targets count
    bytes_NS: np.ndarray  # int32: how many bytes of text each target represents


def validation_windows(
    tokens: TokenStore | np.ndarray, seq_len: int, num_targets: int
) -> ScoredWindows:
    """Windows with exactly `num_targets` targets, spread evenly from the split's first token to its
    last. No two windows share a target. Each starts without context. Surplus targets of the last
    window do not count. An array holds bytes. Raises WrongTokens if the split is too small, or its
    tokens do not give its text back.

    Of conversations each window is one, from its beginning, and only their scored tokens are
    targets; if there are fewer than `num_targets`, all of them.
    """
    if isinstance(tokens, TokenStore) and tokens.scored is not None:
        return _conversation_windows(tokens, tokens.scored, seq_len, num_targets)
    length = len(tokens) if isinstance(tokens, np.ndarray) else tokens.manifest.tokens
    if length < shortest_validation(seq_len, num_targets):
        raise WrongTokens(
            f"the validation split has {length:,} tokens and {num_targets:,} targets in "
            f"windows of {seq_len} need {shortest_validation(seq_len, num_targets):,}; use a "
            "longer text or evaluate fewer tokens"
        )
    starts_N = window_starts(length, seq_len, num_targets)
    count = len(starts_N)
    places_NW = starts_N[:, None] + np.arange(seq_len + 1)
    found_NW = tokens[places_NW] if isinstance(tokens, np.ndarray) else tokens.read(places_NW)
    windows_NW = found_NW.astype(np.int32)
    scored_NS = (np.arange(count * seq_len) < num_targets).reshape(count, seq_len)
    if isinstance(tokens, np.ndarray):
        return ScoredWindows(windows_NW, scored_NS, np.ones_like(windows_NW[:, 1:]))
    bytes_NS = tokens.text_bytes(windows_NW[:, 1:], places_NW[:, 1:])
    return ScoredWindows(windows_NW, scored_NS, bytes_NS)


def _conversation_windows(
    store: TokenStore, scored: np.ndarray, seq_len: int, num_targets: int
) -> ScoredWindows:
    """The first conversations of a split that have `num_targets` scored targets together."""
    windows, masks, left = list[np.ndarray](), list[np.ndarray](), num_targets
    offsets = np.concatenate(list(store.offsets_in_parts())).astype(np.int64)
    for start, end in zip(
        offsets[:-1], np.minimum(offsets[1:], offsets[:-1] + seq_len + 1), strict=True
    ):
        targets_S = scored[start + 1 : end]
        if left and targets_S.any():
            fill = seq_len + 1 - (end - start)
            windows.append(np.pad(store.read(slice(start, end)).astype(np.int32), (0, fill)))
            masks.append(np.pad(targets_S & (np.cumsum(targets_S) <= left), (0, fill)))
            left -= int(masks[-1].sum())
    if not windows:
        raise WrongTokens(f"{store.name} has no token to score; evaluate other conversations")
    windows_NW = np.stack(windows)
    return ScoredWindows(windows_NW, np.stack(masks), store.token_bytes[windows_NW[:, 1:]])


def window_starts(length: int, seq_len: int, num_targets: int) -> np.ndarray:
    """Where the windows of `num_targets` targets begin in a split of `length` tokens."""
    count = -(-num_targets // seq_len)
    return np.arange(count) * (length - seq_len - 1) // max(count - 1, 1)
