"""Generated tokens are those that the model's logits give, with a cache and without one."""

from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest

from engine.config.schema import ModelConfig
from engine.model.decoder import Decoder
from engine.model.generation import Completion, Prompt, Sampling, generate, generate_from

CONFIG: dict[str, Any] = {
    "vocab_size": 19,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "num_layers": 2,
    "num_heads": 4,
    "seq_len": 32,
}
GREEDY = Sampling(temperature=0)


def model(**changes: object) -> tuple[Decoder, Any]:
    decoder = Decoder(ModelConfig.model_validate(CONFIG | changes))
    params = decoder.init(jax.random.key(3))
    # Larger weights, so that tokens are not nearly equally likely.
    return decoder, jax.tree.map(lambda x: x * 8 if x.ndim > 1 else x, params)


def prompts(*lengths: int, seed: int = 0) -> list[Prompt]:
    rng = np.random.default_rng(1)
    return [Prompt(rng.integers(0, 19, n), seed, i) for i, n in enumerate(lengths)]


def uncached(decoder: Decoder, params: Any, given: list[Prompt], n: int, how: Sampling) -> Any:
    @jax.jit
    def all_logits(tokens_BS: jax.Array) -> jax.Array:
        return decoder.logits(params, tokens_BS)

    def logits(tokens_BS: np.ndarray, positions_B: np.ndarray) -> np.ndarray:
        return np.asarray(all_logits(tokens_BS))[np.arange(len(tokens_BS)), positions_B]

    return generate_from(logits, given, n, how, rows=4, seq_len=32)


def same(one: list[Completion], other: list[Completion]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a.tokens.tolist() == b.tokens.tolist()
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_kv_heads": 2, "qk_norm": "learned"},
        {"sliding_window": 4, "qk_norm": "rms"},
        {"logit_soft_cap": 2.0, "tie_word_embeddings": True},
    ],
    ids=["plain", "groups", "window", "soft cap"],
)
@pytest.mark.parametrize(
    "how", [GREEDY, Sampling(0.9, top_k=7, top_p=0.95)], ids=["greedy", "drawn"]
)
def test_with_a_cache_and_without_one_the_tokens_are_the_same(
    changes: dict[str, object], how: Sampling
) -> None:
    decoder, params = model(**changes)
    given = prompts(1, 5, 9, 2, 8)  # of unequal length, more than one batch of 4
    same(generate(decoder, params, given, 13, how), uncached(decoder, params, given, 13, how))


def test_a_completion_does_not_depend_on_who_is_in_its_batch() -> None:
    decoder, params = model()
    given, how = prompts(3, 6, 1, 4, 2, 7, 5, 3, 2), Sampling(1.0)
    together = generate(decoder, params, given, 6, how)
    same(together, [generate(decoder, params, [one], 6, how)[0] for one in given])
    assert len({tuple(one.tokens) for one in generate(decoder, params, [
        given[0]._replace(number=n) for n in range(4)], 6, how)}) > 1  # fmt: skip


@pytest.mark.parametrize("how", [Sampling(1.5, top_k=1), Sampling(1.5, top_p=1e-6)])
def test_the_most_likely_token_alone_is_greedy(how: Sampling) -> None:
    decoder, params = model()
    same(
        generate(decoder, params, prompts(2, 4), 9, how),
        generate(decoder, params, prompts(2, 4), 9, GREEDY),
    )


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    decoder, params = model()
    [one] = prompts(4)
    logits_V = np.asarray(decoder.logits(params, one.tokens[None].astype(np.int32)))[0, -1]
    how = Sampling(temperature=2.0, top_k=3)
    p_V = np.exp(logits_V / how.temperature)
    p_V[np.argsort(-logits_V)[3:]] = 0
    p_V /= p_V.sum()
    n = 400
    made = generate(decoder, params, [one._replace(seed=seed) for seed in range(n)], 1, how)
    counts = Counter(int(of.tokens[0]) for of in made)
    for token, p in enumerate(p_V):
        assert abs(counts[token] - n * p) <= 4 * (n * p * (1 - p)) ** 0.5, (token, p)
