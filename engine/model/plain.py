"""Makes models and losses from plain functions. A model here draws its parameters and turns tokens
into logits; a loss turns logits and targets into a loss per position. All logits of a batch are in
memory at once, which costs more than the built-in loss."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from engine.config.schema import ComputeConfig
from engine.model.decoder import Params, soft_cap
from engine.model.log_likelihood import normalized
from engine.model.loss import Losses

EachLoss = Callable[[jax.Array, jax.Array], jax.Array]  # logits_BSV, targets_BS → losses_BS


class PlainConfig(NamedTuple):
    """The fields that training needs of any model."""

    vocab_size: int
    seq_len: int
    logit_soft_cap: None = None


@dataclass(frozen=True, eq=False)
class PlainModel:
    """An `engine.model.decoder.Model` of two functions, trained with `loss_of_logits`.

    `draw` maps a key to parameters: nested dictionaries of float32 arrays. `answer` maps parameters
    and tokens (B, S) to logits (B, S, V). `roles_of` gives each parameter's role
    (`engine.model.decoder.Role`) in the same tree; without it AdamW decays all of them alike.
    """

    draw: Callable[[jax.Array], Params]
    answer: Callable[[Params, jax.Array], jax.Array]
    config: PlainConfig
    roles_of: Callable[[], Params] | None = None
    compute: ComputeConfig = field(default_factory=ComputeConfig)

    def init(self, key: jax.Array) -> Params:
        """Draw parameters."""
        return self.draw(key)

    def roles(self) -> Params:
        """The role of each parameter."""
        if self.roles_of:
            return self.roles_of()
        return jax.tree.map(lambda _: "embedding", jax.eval_shape(self.draw, jax.random.key(0)))

    def features(
        self, params: Params, tokens_BS: jax.Array, segments_BS: jax.Array | None = None
    ) -> jax.Array:
        """The logits, (B·S, V) in float32."""
        return self.logits(params, tokens_BS, segments_BS).reshape(-1, self.config.vocab_size)

    def output_matrix(self, params: Params) -> None:
        """None: features are already logits."""

    def logits(
        self, params: Params, tokens_BS: jax.Array, segments_BS: jax.Array | None = None
    ) -> jax.Array:
        """Logits of each position's next token, (B, S, V) in float32."""
        assert segments_BS is None, "rows of several documents are for the lab's own model"
        return self.answer(params, tokens_BS).astype(jnp.float32)


def loss_of_logits(
    x_TD: jax.Array,
    head_DV: jax.Array | None,
    targets_BS: jax.Array,
    *,
    soft_cap: float | None = None,
    z_loss_weight: float = 0.0,
    each: EachLoss | None = None,
) -> Losses:
    """Like `engine.model.loss.cross_entropy`, from all logits at once; `x_TD` are logits if
    `head_DV` is None.

    With `each`, training minimises the sum of its values over the scored targets (and the z-loss);
    it gets 0 for a target that is not scored. The reported `nats` stay the cross-entropy, so that
    the curves of two losses are comparable.
    """
    logits_TV = x_TD if head_DV is None else _product(x_TD, head_DV, soft_cap)
    logits_BSV = logits_TV.reshape(*targets_BS.shape, -1)
    scored_BS, chosen_BS = targets_BS >= 0, jnp.maximum(targets_BS, 0)
    softmax = normalized(logits_BSV)
    of_chosen_BS1 = jnp.take_along_axis(softmax.logits, chosen_BS[:, :, None], axis=2)

    def over_scored(x_BS: Any) -> jax.Array:
        return jnp.sum(jnp.where(scored_BS, x_BS, 0), dtype=jnp.float32)

    nats = over_scored(softmax.nats(of_chosen_BS1)[:, :, 0])
    penalty = z_loss_weight * over_scored(softmax.log_partition()[:, :, 0] ** 2)
    if each:
        nats = jax.lax.stop_gradient(nats)  # training minimises nats + penalty
        penalty += over_scored(each(logits_BSV, chosen_BS)) - nats
    return Losses(nats, penalty, jnp.sum(scored_BS).astype(jnp.float32))


def _product(x_TD: jax.Array, head_DV: jax.Array, cap: float | None) -> jax.Array:
    return soft_cap(jnp.matmul(x_TD, head_DV, preferred_element_type=jnp.float32), cap)
