"""The log-probabilities of given tokens after given tokens.

`score` computes many sequences together and only the logits that are scored. `score_from` asks any
function for logits and computes whole windows; it is for models that are no `Decoder`. Both give
the same numbers up to rounding."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from engine.model.decoder import Decoder, Params, soft_cap
from engine.model.generation import bucket

MAX_ROWS = 64  # sequences that are computed together
MAX_POSITIONS = 2**14  # of these sequences together
MAX_LOGITS = 2**24  # at a time; 64 MB in float32
SHORTEST = 16  # positions; shorter sequences are padded to it


class Continuation(NamedTuple):
    """Tokens of which all from `start` on are scored."""

    tokens: np.ndarray  # (n,)
    start: int  # 1 ≤ start < n


class Scored(NamedTuple):
    logprobs: np.ndarray  # (n − start,) float32: of each scored token after all before it, in nats
    greedy: bool  # whether each of them is the most likely token


def score(decoder: Decoder, params: Params, asked: Sequence[Continuation]) -> list[Scored]:
    """The scores of each, which has at most seq_len + 1 tokens. Sequences of similar length are
    computed together. Shapes are powers of two, so that few programs are compiled."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (tokens, start) in enumerate(asked):
        length = min(max(SHORTEST, bucket(len(tokens) - 1)), decoder.config.seq_len)
        groups[length, min(bucket(len(tokens) - start), length)].append(number)
    found: dict[int, Scored] = {}
    for (length, count), numbers in groups.items():
        of_logits = MAX_LOGITS // (count * decoder.config.vocab_size)
        most = max(1, min(MAX_ROWS, MAX_POSITIONS // length, of_logits))
        most = 1 << (most.bit_length() - 1)
        for first in range(0, len(numbers), most):
            batch = numbers[first : first + most]
            rows = min(most, bucket(len(batch)))
            tokens_BS, targets_BK, positions_BK = _padded(
                [asked[n] for n in batch], rows, length, count
            )
            made = _run(decoder, params, tokens_BS, targets_BK, positions_BK)
            logprobs_BK, greedy_BK = map(np.asarray, made)
            for row, number in enumerate(batch):
                scored = len(asked[number].tokens) - asked[number].start
                greedy = bool(greedy_BK[row, :scored].all())
                found[number] = Scored(logprobs_BK[row, :scored].copy(), greedy)
    return [found[number] for number in range(len(asked))]


def score_from(
    logits: Callable[[np.ndarray], np.ndarray],
    asked: Sequence[Continuation],
    rows: int,
    seq_len: int,
    seen: Callable[[int, np.ndarray], object] = lambda *_: None,
) -> list[Scored]:
    """The same of a model that is known by its logits alone: `logits` gets windows (rows, seq_len),
    padded with 0, and gives (rows, seq_len, V). `seen` is called for each of `asked` with its
    number and the logits of its window (seq_len, V)."""
    found = []
    for first in range(0, len(asked), rows):
        batch = asked[first : first + rows]
        tokens_BS, _, _ = _padded(batch, rows, seq_len, 1)
        logits_BSV = logits(tokens_BS)
        for row, (tokens, start) in enumerate(batch):
            seen(first + row, logits_BSV[row])
            logits_KV = logits_BSV[row, start - 1 : len(tokens) - 1].astype(np.float32)
            found.append(_scored(logits_KV, np.asarray(tokens[start:], np.int64)))
    return found


def _scored(logits_KV: np.ndarray, targets_K: np.ndarray) -> Scored:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        most_K1 = logits_KV.max(axis=1, keepdims=True)
        sums_K = np.exp(logits_KV - most_K1).sum(axis=1)
        chosen_K = np.take_along_axis(logits_KV, targets_K[:, None], axis=1)[:, 0]
        logprobs_K = chosen_K - most_K1[:, 0] - np.log(sums_K)
    return Scored(logprobs_K, bool((logits_KV.argmax(axis=1) == targets_K).all()))


def _padded(
    batch: Sequence[Continuation], rows: int, length: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (rows, length), targets and the positions that predict them (rows, count)."""
    tokens_BS = np.zeros((rows, length), np.int32)
    targets_BK = np.zeros((rows, count), np.int32)
    positions_BK = np.zeros((rows, count), np.int32)
    for row, (tokens, start) in enumerate(batch):
        scored = min(len(tokens) - start, count)
        tokens_BS[row, : len(tokens) - 1] = tokens[:-1]
        targets_BK[row, :scored] = tokens[start : start + scored]
        positions_BK[row, :scored] = np.arange(start - 1, start - 1 + scored)
    return tokens_BS, targets_BK, positions_BK


@partial(jax.jit, static_argnums=0)
def _run(
    decoder: Decoder,
    params: Params,
    tokens_BS: jax.Array,
    targets_BK: jax.Array,
    positions_BK: jax.Array,
) -> tuple[Any, Any]:
    """The log-probability of each target, and whether it is the most likely token; (B, K)."""
    B, S = tokens_BS.shape
    x_BSD = decoder.features(params, tokens_BS).reshape(B, S, -1)
    x_BKD = jnp.take_along_axis(x_BSD, positions_BK[:, :, None], axis=1)
    head_DV = decoder.output_matrix(params)
    logits_BKV = jnp.matmul(x_BKD, head_DV, preferred_element_type=jnp.float32)
    logits_BKV = soft_cap(logits_BKV, decoder.config.logit_soft_cap)
    chosen_BK = jnp.take_along_axis(logits_BKV, targets_BK[:, :, None], axis=2)[:, :, 0]
    logprobs_BK = chosen_BK - jax.nn.logsumexp(logits_BKV, axis=2)
    return logprobs_BK, jnp.argmax(logits_BKV, axis=2) == targets_BK
