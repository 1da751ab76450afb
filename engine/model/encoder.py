"""The encoder: the decoder's parts with attention in both directions, a mean over the positions of
a document, and one number for it. As in BERT (Devlin et al. 2019), but with rotary positions,
SwiGLU and RMS norms, and without pretraining."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from engine.config.schema import ModelConfig
from engine.model.decoder import Attention, Decoder, Params


class BothWays(Attention):
    """Self-attention in which a position sees all of its own segment."""

    def attend(
        self,
        q_BSHh: jax.Array,
        k_BSKh: jax.Array,
        v_BSKh: jax.Array,
        segments_BS: jax.Array | None = None,
    ) -> jax.Array:
        """softmax(q kᵀ / √h) v. Returns B, S, H, h."""
        mask = None
        if segments_BS is not None:
            mask = (segments_BS[:, :, None] == segments_BS[:, None, :])[:, None]
        return jax.nn.dot_product_attention(q_BSHh, k_BSKh, v_BSKh, mask=mask)


@dataclass(frozen=True)
class Encoder:
    """Documents of up to `seq_len` tokens to one number each."""

    config: ModelConfig

    @property
    def decoder(self) -> Decoder:
        """What makes the features."""
        return replace(Decoder(self.config), attention=BothWays)

    def init(self, key: jax.Array) -> Params:
        """The decoder's parameters, and `score` (D,), which is 0."""
        return {**self.decoder.init(key), "score": jnp.zeros(self.config.hidden_dim)}

    def scores(self, params: Params, tokens_BS: jax.Array, lengths_B: jax.Array) -> jax.Array:
        """The mean of each document's features times `score`, (B,) float32."""
        rest = {name: of for name, of in params.items() if name != "score"}
        return mean_features(self.decoder, rest, tokens_BS, lengths_B) @ params["score"]


def mean_features(
    decoder: Decoder, params: Params, tokens_BS: jax.Array, lengths_B: jax.Array
) -> jax.Array:
    """The mean of a decoder's features over the positions of each document, (B, D) float32. What is
    behind a document's length is padding and counts for nothing."""
    B, S = tokens_BS.shape
    inside_BS = jnp.arange(S) < lengths_B[:, None]
    features_TD = decoder.features(params, tokens_BS, inside_BS.astype(jnp.int32))
    features_BSD = features_TD.reshape(B, S, -1).astype(jnp.float32)
    sums_BD = jnp.einsum("bsd,bs->bd", features_BSD, inside_BS.astype(jnp.float32))
    return sums_BD / jnp.maximum(lengths_B, 1)[:, None]
