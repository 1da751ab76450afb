"""A norm with a gate of low rank."""

import jax
from flax import nnx

from engine.model.decoder import Decoder, RMSNorm
from engine.model.parameters import weights


class GatedNorm(RMSNorm):
    """n · σ(silu(n · W) · W') of n = RMSNorm(x) · gain, where W and W' have a small rank: each
    dimension can be turned down at a position (arXiv 2601.22966; of rank 128 in Marin's recipe).
    Returns the dtype of x."""

    def __init__(self, decoder: Decoder, rngs: nnx.Rngs) -> None:
        super().__init__(decoder, rngs)
        D, R = decoder.config.hidden_dim, decoder.config.gated_norm
        assert R is not None
        self.down_proj = weights(rngs, "column", (D, R))
        self.up_proj = weights(rngs, "row", (R, D))

    def __call__(self, x_TD: jax.Array) -> jax.Array:
        n_TD = super().__call__(x_TD)
        inner_TR = jax.nn.silu(n_TD @ self.down_proj[...].astype(x_TD.dtype))
        return n_TD * jax.nn.sigmoid(inner_TR @ self.up_proj[...].astype(x_TD.dtype))
