"""Trains an encoder to predict a number of each document, by the mean squared error."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from engine.model.decoder import Params
from engine.model.encoder import Encoder

WARMUP = 0.1  # of the steps
MAX_GRAD_NORM = 1.0


class Documents(NamedTuple):
    """Tokenized documents, padded to one length."""

    tokens_NS: np.ndarray  # integers
    lengths_N: np.ndarray


class Recipe(NamedTuple):
    """How an encoder is trained."""

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seed: int


def fit(encoder: Encoder, documents: Documents, targets_N: np.ndarray, recipe: Recipe) -> Params:
    """The parameters after training with AdamW, whose rate rises, then falls to 0 as a cosine. Each
    epoch has all documents, in a new order; what does not fill a batch waits for the next one."""
    count = len(targets_N)
    batch = min(recipe.batch_size, count)
    steps = max(1, recipe.epochs * count // batch)
    optimizer = _optimizer(recipe, steps)
    params = encoder.init(jax.random.key(recipe.seed))
    state = optimizer.init(params)
    random = np.random.default_rng(recipe.seed)
    order = np.concatenate([random.permutation(count) for _ in range(recipe.epochs + 1)])
    for at in range(steps):
        rows = order[at * batch : (at + 1) * batch]
        given = (documents.tokens_NS[rows], documents.lengths_N[rows], targets_N[rows])
        params, state = _step(encoder, optimizer.update, params, state, *given)
    return params


@cache  # equal ones share a compilation
def _optimizer(recipe: Recipe, steps: int) -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(
        0.0, recipe.learning_rate, max(1, round(WARMUP * steps)), steps + 1
    )
    return optax.chain(
        optax.clip_by_global_norm(MAX_GRAD_NORM),
        optax.adamw(rate, b2=0.98, weight_decay=recipe.weight_decay),
    )


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def _step(
    encoder: Encoder,
    update: Any,
    params: Params,
    state: Any,
    tokens_BS: jax.Array,
    lengths_B: jax.Array,
    targets_B: jax.Array,
) -> tuple[Params, Any]:
    def loss(params: Params) -> jax.Array:
        return jnp.mean((encoder.scores(params, tokens_BS, lengths_B) - targets_B) ** 2)

    gradients = jax.grad(loss)(params)
    updates, state = update(gradients, state, params)
    return optax.apply_updates(params, updates), state


@partial(jax.jit, static_argnums=0)
def scores(
    encoder: Encoder, params: Params, tokens_BS: jax.Array, lengths_B: jax.Array
) -> jax.Array:
    """`Encoder.scores`, compiled."""
    return encoder.scores(params, tokens_BS, lengths_B)
