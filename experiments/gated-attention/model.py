"""Gated attention: each head's output times 2σ(x · W_g), so that a head can fall silent or speak up
at a position. W_g is zero at the start, where the gate is 1: the model begins as the plain one.

    from engine.api import Decoder

    decoder = Decoder(config, attention=GatedAttention)

and everything that takes a Decoder trains it. In a declaration it
is the model `gated`: see experiment.yaml."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from engine.api import Attention, Decoder, ModelConfig, Sequences


def gated(config: dict[str, Any]) -> Decoder:
    """The lab's decoder of this shape, with gates."""
    return Decoder(ModelConfig.model_validate(config), attention=GatedAttention)


class GatedAttention(Attention):
    """Attention whose heads are weighed by what they attend for. One more parameter, "gate", of
    hidden_dim × num_heads in each layer, which the lab's FLOPs do not count."""

    def __init__(self, decoder: Decoder, rngs: nnx.Rngs) -> None:
        super().__init__(decoder, rngs)
        # It scales like a gain, and what begins at zero has no norm for Hyperball to keep.
        shape = decoder.config.hidden_dim, decoder.config.num_heads
        self.gate = nnx.Param(jnp.zeros(shape), role="gain")

    def heads(self, x_TD: jax.Array, sequences: Sequences) -> jax.Array:
        o_BSHh = super().heads(x_TD, sequences)
        gate_TH = 2 * jax.nn.sigmoid(x_TD @ self.gate[...].astype(x_TD.dtype))
        return o_BSHh * gate_TH.reshape(*o_BSHh.shape[:3], 1)
