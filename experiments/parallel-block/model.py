"""Parallel attention and MLP (GPT-J, PaLM): both read the same normed stream and both write to it,

    x + attention(norm(x)) + mlp(norm(x)),

which spares a norm in each layer, and on a mesh one of the two exchanges over `tensor`.

    from engine.api import Decoder

    decoder = Decoder(config, block=ParallelBlock)

and everything that takes a Decoder trains it."""

import jax
from flax import nnx

from engine.api import Decoder, Sequences


class ParallelBlock(nnx.Module):
    """A block with one norm. The lab counts its parameters with the plain block's two."""

    def __init__(self, decoder: Decoder, rngs: nnx.Rngs) -> None:
        self.norm = decoder.norm(decoder, rngs)
        self.attention = decoder.attention(decoder, rngs)
        self.mlp = decoder.mlp(decoder, rngs)

    def __call__(self, x_TD: jax.Array, sequences: Sequences) -> jax.Array:
        n_TD = self.norm(x_TD)
        return x_TD + self.attention(n_TD, sequences) + self.mlp(n_TD)
