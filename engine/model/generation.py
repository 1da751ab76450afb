"""Generates text: tokens that follow a prompt, each drawn from the model's logits.

`generate` keeps the keys and values of all positions in a cache, and computes one position per
token. `generate_from` asks any function for logits and computes whole windows; it is for models
that are no `Decoder`. Both draw the same tokens from the same logits."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engine.model.decoder import Attention, Block, Decoder, Params, soft_cap

MAX_BATCH = 8  # prompts that are computed together

Logits = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (tokens (B, S), positions (B,)) -> (B, V)


class Sampling(NamedTuple):
    """How a token is drawn from logits."""

    temperature: float = 1.0  # 0: the most likely token
    top_k: int | None = None  # only among the k most likely tokens
    top_p: float = 1.0  # only among the fewest most likely tokens with this probability together


class Prompt(NamedTuple):
    """What a completion follows from, beside the model and the sampling."""

    tokens: np.ndarray  # (n,), n ≥ 1
    seed: int
    number: int  # prompts with the same seed draw differently


class Completion(NamedTuple):
    tokens: np.ndarray  # (count,) int32
    logprobs: np.ndarray  # (count,) of each token under the model, in nats; sampling aside


class _Cache(NamedTuple):
    """Keys and values of one layer's earlier positions. Heads come before positions: a step reads
    all positions of a head."""

    k_BKSh: jax.Array
    v_BKSh: jax.Array


def generate(
    decoder: Decoder, params: Params, prompts: Sequence[Prompt], count: int, sampling: Sampling
) -> list[Completion]:
    """`count` tokens after each prompt. Prompts of unequal length are computed together, a few at a
    time. Shapes are rounded up to powers of two, so that few programs are compiled."""
    if decoder.block is not Block or decoder.attention is not Attention:
        raise TypeError("only the lab's own block and attention have a cache")
    found = []
    for start in range(0, len(prompts), MAX_BATCH):
        batch = list(prompts[start : start + MAX_BATCH])
        rows, longest = bucket(len(batch)), bucket(max(len(one.tokens) for one in batch))
        padded = batch + [batch[0]] * (rows - len(batch))
        tokens_BP = np.stack([np.pad(p.tokens, (0, longest - len(p.tokens))) for p in padded])
        lengths_B = np.array([len(one.tokens) for one in padded], np.int32)
        tokens_BN, logprobs_BN = _run(
            decoder, bucket(count), sampling, params, tokens_BP.astype(np.int32), lengths_B,
            _keys(padded),
        )  # fmt: skip
        both = zip(np.asarray(tokens_BN), np.asarray(logprobs_BN), strict=True)
        made = [Completion(tokens[:count], logprobs[:count]) for tokens, logprobs in both]
        found += made[: len(batch)]
    return found


def generate_from(
    logits: Logits,
    prompts: Sequence[Prompt],
    count: int,
    sampling: Sampling,
    rows: int,
    seq_len: int,
) -> list[Completion]:
    """The same of a model that is known by its logits alone: `logits` gets windows (rows, seq_len),
    padded with 0, and the position in each whose next token is drawn."""
    found = []
    for start in range(0, len(prompts), rows):
        batch = list(prompts[start : start + rows])
        padded = batch + [batch[0]] * (rows - len(batch))
        window_BS = np.zeros((rows, seq_len), np.int32)
        for row, prompt in enumerate(padded):
            window_BS[row, : len(prompt.tokens)] = prompt.tokens
        last_B = np.array([len(one.tokens) - 1 for one in padded], np.int32)
        keys_B, drawn = _keys(padded), []
        for n in range(count):
            drawn.append(_draw(jnp.asarray(logits(window_BS, last_B + n)), keys_B, n, sampling))
            if n + 1 < count:
                window_BS[np.arange(rows), last_B + n + 1] = drawn[-1][0]
        tokens_BN, logprobs_BN = (np.stack(x, axis=1) for x in zip(*drawn, strict=True))
        found += [Completion(*of) for of in zip(tokens_BN, logprobs_BN, strict=True)][: len(batch)]
    return found


def bucket(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def _keys(prompts: Sequence[Prompt]) -> jax.Array:
    keys = [jax.random.fold_in(jax.random.key(one.seed), one.number) for one in prompts]
    return jnp.stack(keys)


@partial(jax.jit, static_argnums=3)
def _draw(
    logits_BV: jax.Array, keys_B: jax.Array, number: jax.Array | int, sampling: Sampling
) -> tuple[jax.Array, jax.Array]:
    """The token of each row with this number, and its log-probability under the logits."""
    logprobs_BV = jax.nn.log_softmax(logits_BV.astype(jnp.float32))
    if sampling.temperature == 0:
        tokens_B = jnp.argmax(logprobs_BV, axis=-1)
    else:
        order_BV = jnp.argsort(-logprobs_BV, axis=-1)
        sorted_BV = jnp.take_along_axis(logprobs_BV, order_BV, axis=-1) / sampling.temperature
        p_BV = jax.nn.softmax(sorted_BV)
        before_BV = jnp.cumsum(p_BV, axis=-1) - p_BV
        kept_BV = before_BV < sampling.top_p  # the first one always is
        if sampling.top_k is not None:
            kept_BV &= jnp.arange(p_BV.shape[-1]) < sampling.top_k
        keys_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, number)
        rank_B = jax.vmap(jax.random.categorical)(keys_B, jnp.where(kept_BV, sorted_BV, -jnp.inf))
        tokens_B = jnp.take_along_axis(order_BV, rank_B[:, None], axis=-1)[:, 0]
    found_B = jnp.take_along_axis(logprobs_BV, tokens_B[:, None], axis=-1)[:, 0]
    return tokens_B.astype(jnp.int32), found_B


@partial(jax.jit, static_argnums=(0, 1, 2))
def _run(
    decoder: Decoder,
    count: int,
    sampling: Sampling,
    params: Params,
    tokens_BP: jax.Array,
    lengths_B: jax.Array,
    keys_B: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Tokens and their log-probabilities, (B, count). Rows are padded at their end: a position is
    written to the cache before any later one reads it."""
    x_BPD, caches = _prefill(decoder, params, tokens_BP, tokens_BP.shape[1] + count)
    last_BD = x_BPD[jnp.arange(len(x_BPD)), lengths_B - 1]

    def step(carry: Any, number: jax.Array) -> Any:
        logits_BV, caches = carry
        tokens_B, logprobs_B = _draw(logits_BV, keys_B, number, sampling)
        x_BD, caches = _next(decoder, params, tokens_B, lengths_B + number, caches)
        return (_logits(decoder, params, x_BD), caches), (tokens_B, logprobs_B)

    first = _logits(decoder, params, last_BD), caches
    _, (tokens_NB, logprobs_NB) = jax.lax.scan(step, first, jnp.arange(count))
    return tokens_NB.T, logprobs_NB.T


def _layers(decoder: Decoder, params: Params) -> list[Block]:
    """The blocks with their parameters, one by one: each has a cache of its own, which is changed
    in place."""
    definition, _ = decoder.declared(decoder.block)
    blocks = decoder.cast(params["blocks"])
    one = [jax.tree.map(lambda x, n=n: x[n], blocks) for n in range(decoder.config.num_layers)]
    return [nnx.merge(definition, layer) for layer in one]


def _prefill(
    decoder: Decoder, params: Params, tokens_BP: jax.Array, size: int
) -> tuple[jax.Array, list[_Cache]]:
    """The features of all positions of the prompts (B, P, D), and the caches with room for `size`
    positions."""
    B, P = tokens_BP.shape
    x_TD = params["embedding"][tokens_BP.reshape(-1)].astype(decoder.dtype)
    caches = []
    for block in _layers(decoder, params):
        attention = block.attention
        q_BPHh, k_BPKh, v_BPKh = attention.qkv(block.attention_norm(x_TD), P)
        o_BPHh = attention.attend(q_BPHh, k_BPKh, v_BPKh)
        x_TD = x_TD + o_BPHh.reshape(B * P, -1) @ attention.o_proj[...]
        x_TD = x_TD + block.mlp(block.mlp_norm(x_TD))
        room = ((0, 0), (0, 0), (0, size - P), (0, 0))
        heads_first = (jnp.swapaxes(x, 1, 2) for x in (k_BPKh, v_BPKh))
        caches.append(_Cache(*(jnp.pad(x, room) for x in heads_first)))
    return decoder.final(params, x_TD).reshape(B, P, -1), caches


def _next(
    decoder: Decoder,
    params: Params,
    tokens_B: jax.Array,
    positions_B: jax.Array,
    caches: Sequence[_Cache],
) -> tuple[jax.Array, list[_Cache]]:
    """The features of one more position in each row, (B, D), and the caches with it."""
    rows = jnp.arange(len(tokens_B))
    x_BD = params["embedding"][tokens_B].astype(decoder.dtype)
    grown = []
    for block, cache in zip(_layers(decoder, params), caches, strict=True):
        attention = block.attention
        q_B1Hh, k_B1Kh, v_B1Kh = attention.qkv(block.attention_norm(x_BD), 1, positions_B[:, None])
        k_BKSh = cache.k_BKSh.at[rows, :, positions_B].set(k_B1Kh[:, 0])
        v_BKSh = cache.v_BKSh.at[rows, :, positions_B].set(v_B1Kh[:, 0])
        o_BHh = _attend(q_B1Hh[:, 0], k_BKSh, v_BKSh, positions_B, decoder.config.sliding_window)
        x_BD = x_BD + o_BHh.reshape(len(x_BD), -1) @ attention.o_proj[...]
        x_BD = x_BD + block.mlp(block.mlp_norm(x_BD))
        grown.append(_Cache(k_BKSh, v_BKSh))
    return decoder.final(params, x_BD), grown


def _attend(
    q_BHh: jax.Array,
    k_BKSh: jax.Array,
    v_BKSh: jax.Array,
    positions_B: jax.Array,
    window: int | None,
) -> jax.Array:
    """As `attention.attend` for one query in each row, at its position. Returns B, H, h."""
    B, K, S, h = k_BKSh.shape
    q_BKGh = q_BHh.reshape(B, K, -1, h).astype(jnp.float32)
    scores_BKGS = jnp.einsum("bkgh,bksh->bkgs", q_BKGh, k_BKSh.astype(jnp.float32)) / h**0.5
    seen_BS = jnp.arange(S) <= positions_B[:, None]
    if window is not None:
        seen_BS &= jnp.arange(S) > positions_B[:, None] - window
    p_BKGS = jax.nn.softmax(jnp.where(seen_BS[:, None, None], scores_BKGS, -jnp.inf))
    o_BKGh = jnp.einsum("bkgs,bksh->bkgh", p_BKGS, v_BKSh.astype(jnp.float32))
    return o_BKGh.reshape(q_BHh.shape).astype(q_BHh.dtype)


def _logits(decoder: Decoder, params: Params, x_BD: jax.Array) -> jax.Array:
    head_DV = decoder.output_matrix(params)
    logits_BV = jnp.matmul(x_BD, head_DV, preferred_element_type=jnp.float32)
    return soft_cap(logits_BV, decoder.config.logit_soft_cap)
