"""Named initialisations: how large the drawn weights of each role are. The default is where modules
declare them (`parameters.weights`, `parameters.into_stream`)."""

import math

import jax
from flax import nnx

from engine.config.schema import ModelConfig


def sized(config: ModelConfig, drawn: nnx.Param) -> jax.Array:
    """A parameter as it was drawn, as large as the configuration's initialisation has it."""
    x, metadata = drawn[...], drawn.get_metadata()
    if config.init == "gpt2" or "std" not in metadata:
        return x
    return x * (standard_deviation(config, metadata["role"], x.shape) / metadata["std"])


def standard_deviation(config: ModelConfig, role: str, shape: tuple[int, ...]) -> float:
    """Of the weights of a role and a shape (…, in, out), before they are cut at twice as much.

    - marin: 0.5/√hidden_dim for all, as Marin's mixtures of experts have it (its issue 8435).
    - mup: what the maximal update parametrisation asks of the start (Yang et al., arXiv 2203.03466,
      table 8): 1 for the embedding, 1/in for the output matrix, 1/√in for all others. Their
      outputs are then as large at every width, so that a rate which is relative to a matrix's
      norm (Muon, Hyperball) carries over from a small model to a large one.
    """
    if config.init == "marin":
        return 0.5 / math.sqrt(config.hidden_dim)
    if role == "embedding":
        return 1.0
    return 1 / shape[-2] if role == "head" else 1 / math.sqrt(shape[-2])
