"""Generates text: tokens that follow a prompt, each drawn from the model's logits.

`generate` keeps what layers need of earlier positions, such as keys and values, and computes one
position per token. `generate_from` asks any function for logits and computes whole windows; it is
for models that are no `Decoder`. Both draw the same tokens from the same logits."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engine.config.shapes import stack
from engine.model import layers
from engine.model.decoder import Attention, Block, Decoder, Params, Sequences, soft_cap
from engine.model.linear_attention import delta_rule
from engine.model.log_likelihood import MAX_SUM_ERROR, log_probabilities

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


class Memory:
    """What the parts of one layer keep of earlier positions. They ask for it in the same order at
    each call of the layer, so it is a list. A call computes S more positions of each row, of which
    the first `new_B` count; what is behind them is padding."""

    def __init__(self, size: int, new_B: jax.Array) -> None:
        """Before the first position, with room for `size` positions."""
        self.size, self.new_B = size, new_B
        self.positions_BS: jax.Array | None = None  # None: from 0
        self.kept: list[Any] | None = None
        self.keeping: list[Any] = []

    @classmethod
    def at(cls, positions_B: jax.Array, kept: list[Any]) -> "Memory":
        """Before one more position in each row, with what was kept until then."""
        memory = cls(0, jnp.ones_like(positions_B))
        memory.positions_BS, memory.kept = positions_B[:, None], kept
        return memory

    def attend(
        self, attention: Attention, q_BSHh: jax.Array, k_BSKh: jax.Array, v_BSKh: jax.Array
    ) -> jax.Array:
        """Attention to the earlier positions, too. Heads come before positions in the cache: a
        step reads all positions of a head. Returns B, S, H, h."""
        if self.positions_BS is None:
            room = ((0, 0), (0, 0), (0, self.size - q_BSHh.shape[1]), (0, 0))
            heads_first = (jnp.swapaxes(x, 1, 2) for x in (k_BSKh, v_BSKh))
            self.keeping.append([jnp.pad(x, room) for x in heads_first])
            return attention.attend(q_BSHh, k_BSKh, v_BSKh)
        rows, positions_B = jnp.arange(len(q_BSHh)), self.positions_BS[:, 0]
        k_BKSh, v_BKSh = (
            cache.at[rows, :, positions_B].set(new[:, 0])
            for cache, new in zip(self._next(), (k_BSKh, v_BSKh), strict=True)
        )
        self.keeping.append([k_BKSh, v_BKSh])
        window = attention.config.sliding_window
        return _attend(q_BSHh[:, 0], k_BKSh, v_BKSh, positions_B, window)[:, None]

    def with_earlier(self, x_BSC: jax.Array, count: int) -> jax.Array:
        """x with the `count` positions before it, 0 where there are none. Returns B, count + S,
        C."""
        earlier_BNC = self._next()
        if earlier_BNC is None:
            earlier_BNC = jnp.zeros((len(x_BSC), count, x_BSC.shape[2]), x_BSC.dtype)
        longer = jnp.concatenate((earlier_BNC, x_BSC), axis=1)
        last_BN = self.new_B[:, None] + jnp.arange(count)
        self.keeping.append(jnp.take_along_axis(longer, last_BN[:, :, None], axis=1))
        return longer

    def recurrent(
        self,
        q_BSHh: jax.Array,
        k_BSHh: jax.Array,
        v_BSHh: jax.Array,
        rate_BSH: jax.Array,
        log_decay_BSH: jax.Array,
    ) -> jax.Array:
        """The outputs of `linear_attention.delta_rule` from the state that was kept."""
        counts_BS1 = (jnp.arange(q_BSHh.shape[1]) < self.new_B[:, None])[:, :, None]
        rate_BSH, log_decay_BSH = (jnp.where(counts_BS1, x, 0) for x in (rate_BSH, log_decay_BSH))
        o_BSHh, state = delta_rule(
            q_BSHh, k_BSHh, v_BSHh, rate_BSH, log_decay_BSH, state_BHio=self._next()
        )
        self.keeping.append(state)
        return o_BSHh

    def _next(self) -> Any:
        return None if self.kept is None else self.kept[len(self.keeping)]


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
    """The token of each row with this number, and its log-probability under the logits; nan if the
    probabilities of the first row do not sum to 1."""
    logprobs_BV = log_probabilities(logits_BV)
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
    is_sound = jnp.abs(jnp.sum(jnp.exp(logprobs_BV[0])) - 1) <= MAX_SUM_ERROR  # of nan: no
    return tokens_B.astype(jnp.int32), jnp.where(is_sound, found_B, jnp.nan)


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
    size = tokens_BP.shape[1] + count
    memories = [Memory(size, lengths_B) for _ in range(decoder.config.num_layers)]
    x_BPD = _through(decoder, params, tokens_BP, memories)
    last_BD = x_BPD[jnp.arange(len(x_BPD)), lengths_B - 1]

    def step(carry: Any, number: jax.Array) -> Any:
        logits_BV, kept = carry
        tokens_B, logprobs_B = _draw(logits_BV, keys_B, number, sampling)
        memories = [Memory.at(lengths_B + number, of) for of in kept]
        x_B1D = _through(decoder, params, tokens_B[:, None], memories)
        kept = [memory.keeping for memory in memories]
        return (_logits(decoder, params, x_B1D[:, 0]), kept), (tokens_B, logprobs_B)

    first = _logits(decoder, params, last_BD), [memory.keeping for memory in memories]
    _, (tokens_NB, logprobs_NB) = jax.lax.scan(step, first, jnp.arange(count))
    return tokens_NB.T, logprobs_NB.T


def _through(
    decoder: Decoder, params: Params, tokens_BS: jax.Array, memories: Sequence[Memory]
) -> jax.Array:
    """The features of S more positions in each row, (B, S, D). The layers run one by one: each has
    a memory of its own, which is changed in place."""
    stacks = decoder.cast(params)
    waiting = {name: iter(layers.each(one)) for name, one in stacks.items()}
    x_TD = decoder.embed(params, tokens_BS)
    for kind, memory in zip(decoder.config.kinds, memories, strict=True):
        of = decoder.of(kind)
        definition, _ = of.declared(of.block)
        block = nnx.merge(definition, next(waiting[stack(kind)]))
        x_TD = block(x_TD, Sequences(tokens_BS.shape[1], None, memory))
    return decoder.final(params, x_TD).reshape(*tokens_BS.shape, -1)


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
