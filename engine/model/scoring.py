"""The log-probabilities of given tokens after given tokens.

`score` computes many sequences together and only the logits that are scored. `score_from` asks any
function for logits and computes whole windows; it is for models that are no `Decoder`. Both give
the same numbers up to rounding."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from engine.model.decoder import Decoder, Params, soft_cap
from engine.model.generation import bucket
from engine.model.log_likelihood import nats_of_targets, sum_to_one

MAX_ROWS = 64  # sequences that are computed together
MAX_POSITIONS = 2**14  # of these sequences together
MAX_LOGITS = 2**24  # at a time; 64 MB in float32
SHORTEST = 16  # positions; shorter sequences are padded to it


class Continuation(NamedTuple):
    """Tokens of which all from `start` on are scored."""

    tokens: np.ndarray  # (n,)
    start: int  # 1 ≤ start < n


class Scored(NamedTuple):
    # (n − start,) of each scored token after all before it, in nats; nan where the probabilities do
    # not sum to 1 at its place or at a sampled one
    logprobs: np.ndarray
    greedy: bool  # whether each of them is the most likely token


def score(decoder: Decoder, params: Params, asked: Sequence[Continuation]) -> list[Scored]:
    """The scores of each, which has at most seq_len + 1 tokens. Sequences of similar length are
    computed together. Shapes are powers of two, so that few programs are compiled."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (tokens, start) in enumerate(asked):
        length = min(max(SHORTEST, bucket(len(tokens) - 1)), decoder.config.seq_len)
        groups[length, min(bucket(len(tokens) - start), length)].append(number)
    found: dict[int, Scored] = {}
    rng = np.random.default_rng()
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
            logits_BKV = _logits(decoder, params, tokens_BS, positions_BK)
            sound_B = sum_to_one(logits_BKV[:, 0])
            if not found:  # once on random tokens, too
                random_BS = rng.integers(0, decoder.config.vocab_size, tokens_BS.shape, np.int32)
                sound_B &= sum_to_one(_logits(decoder, params, random_BS, positions_BK)[:, 0])
            nats_BK = np.asarray(nats_of_targets(logits_BKV, targets_BK[:, :, None]))[:, :, 0]
            logprobs_BK = np.where(sound_B[:, None], -nats_BK, np.nan)
            greedy_BK = np.asarray(jnp.argmax(logits_BKV, axis=2)) == targets_BK
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
            logits_KV = np.asarray(logits_BSV[row, start - 1 : len(tokens) - 1])
            targets_K = np.asarray(tokens[start:], np.int64)
            nats_K = nats_of_targets(logits_KV, targets_K[:, None])[:, 0]
            logprobs_K = -nats_K if sum_to_one(logits_KV[0]) else np.full(len(nats_K), np.nan)
            greedy = bool((logits_KV.argmax(axis=1) == targets_K).all())
            found.append(Scored(logprobs_K, greedy))
    return found


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
def _logits(
    decoder: Decoder, params: Params, tokens_BS: jax.Array, positions_BK: jax.Array
) -> jax.Array:
    """The logits (B, K, V) at these positions."""
    B, S = tokens_BS.shape
    x_BSD = decoder.features(params, tokens_BS).reshape(B, S, -1)
    x_BKD = jnp.take_along_axis(x_BSD, positions_BK[:, :, None], axis=1)
    head_DV = decoder.output_matrix(params)
    logits_BKV = jnp.matmul(x_BKD, head_DV, preferred_element_type=jnp.float32)
    return soft_cap(logits_BKV, decoder.config.logit_soft_cap)
