"""The parameters that the parts of a model declare: what each is for, and how it is drawn."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from engine.config.schema import ModelConfig

INIT_STD = 0.02

# What a parameter is for. Optimizers and shardings use the role, never the number of dimensions:
# stacked gains look like matrices. The two kinds of matrices differ in the dimension that may be
# split between devices: the output (column) or the input (row); those of experts have an axis of
# experts before them. "gain" is everything that is not a matrix. A "state" is not learned: what
# stands for its gradient is the change that a step makes to it (`experts.remember`).
Role = Literal[
    "embedding", "column", "row", "head", "gain", "expert column", "expert row", "router", "state"
]
IN_FLOAT32 = ("gain", "router", "state")  # whatever the compute dtype is


def gain(size: int) -> nnx.Param:
    """A norm's factors, all 1."""
    return nnx.Param(jnp.ones(size, jnp.float32), role="gain")


def bias(size: int) -> nnx.Param:
    """What is added to a matrix's output, all 0."""
    return nnx.Param(jnp.zeros(size, jnp.float32), role="gain")


def weights(rngs: nnx.Rngs, role: Role, shape: tuple[int, ...], std: float = INIT_STD) -> nnx.Param:
    """Draw a matrix, or one for each expert, as `Decoder.init` describes."""
    # JAX cuts truncated_normal at ±2 but does not rescale it: its standard deviation is 0.88.
    drawn = jax.random.truncated_normal(rngs.params(), -2, 2, shape, jnp.float32)
    return nnx.Param(std * drawn, role=role, std=std)


def into_stream(config: ModelConfig) -> float:
    """The standard deviation of weights that write to the residual stream."""
    return INIT_STD / (2 * config.num_layers) ** 0.5
