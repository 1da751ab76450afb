"""FLOPs of a model that the lab has no formula for, counted from its trace: no array is computed.

Counted are the products of matrices and convolutions, a multiply and an add as 2, and 3 for each
exponential of a softmax, as `flops.forward_flops_per_token` counts them; of the lab's own models
the trace gives the same figure. Work of which a trace shows no product is refused, not taken as
none. A loop counts as often as it runs; one whose end depends on data
is refused, and of two branches the dearer one counts. A masked score counts like any other, so a
sliding window saves nothing here unless the model leaves the products out.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from engine.model.decoder import Model

UNCOUNTED = {  # calls of other code, and algorithms whose products no trace shows
    *("pallas_call", "tpu_custom_call", "custom_call", "ffi_call"),
    *("fft", "cholesky", "lu", "qr", "geqrf", "householder_product", "triangular_solve"),
    *("tridiagonal_solve", "tridiagonal", "eig", "eigh", "svd", "schur", "hessenberg"),
}
# Of a primitive's name: products of another kind than the ones that are known here (of sparse or
# scaled matrices, a fused attention), and host code whose answer is gone on with.
TELLING = ("dot", "matmul", "matmat", "matvec", "pure_callback", "io_callback")


class Uncountable(ValueError):
    """A model's FLOPs cannot be told from its trace; the message says where."""


def forward_flops_per_token(model: Model, rows: int = 1) -> int:
    """FLOPs of the forward pass of so many windows, logits included, divided by their tokens.
    Raises Uncountable, and whatever the model raises when it is traced."""
    params = jax.eval_shape(model.init, jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((rows, int(model.config.seq_len)), jnp.int32)
    whole = count(jax.make_jaxpr(model.logits)(params, tokens).jaxpr)
    return -(-whole // tokens.size)


def count(jaxpr: core.Jaxpr) -> int:
    """FLOPs of all that a jaxpr does. Raises Uncountable."""
    return sum(_of(equation) for equation in jaxpr.eqns)


def _of(equation: core.JaxprEqn) -> int:
    name, given = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = given["dimension_numbers"]
        left = _shape(equation.invars[0])
        return 2 * _size(equation.outvars[0]) * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel, numbers = _shape(equation.invars[1]), given["dimension_numbers"]
        outputs = kernel[numbers.rhs_spec[0]]
        return 2 * _size(equation.outvars[0]) * (math.prod(kernel) // outputs)
    if name == "ragged_dot_general":
        # Each row of the left side meets the one matrix of its group: of experts, the active one.
        contracted, _ = given["ragged_dot_dimension_numbers"].dot_dimension_numbers[0]
        left = _shape(equation.invars[0])
        return 2 * _size(equation.outvars[0]) * math.prod(left[axis] for axis in contracted)
    if name in ("exp", "exp2"):
        return 3 * _size(equation.outvars[0])
    if name == "scan":
        return int(given["length"]) * count(given["jaxpr"].jaxpr)
    if name == "while":
        if inner := count(given["body_jaxpr"].jaxpr) + count(given["cond_jaxpr"].jaxpr):
            raise Uncountable(
                f"a loop of {inner:,} FLOPs a turn ends when its data say so, and how often it "
                "turns cannot be told beforehand; use jax.lax.scan, or fori_loop with fixed ends"
            )
        return 0
    if name == "cond":
        return max(count(branch.jaxpr) for branch in given["branches"])
    inside = [found for value in given.values() for found in _jaxprs(value)]
    if name == "shard_map":  # its trace is that of one device's share
        return int(given["mesh"].size) * sum(count(found) for found in inside)
    if name in UNCOUNTED or any(part in name for part in TELLING):
        raise Uncountable(f"what `{name}` does cannot be counted; write it in jax.numpy")
    if name in ("custom_jvp_call", "custom_vjp_call"):  # the others are its derivatives
        inside = inside[:1]
    return sum(count(found) for found in inside)


def _size(variable: Any) -> int:
    return math.prod(_shape(variable))


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(variable.aval.shape)


def _jaxprs(value: Any) -> list[core.Jaxpr]:
    if isinstance(value, core.ClosedJaxpr):
        return [value.jaxpr]
    if isinstance(value, core.Jaxpr):
        return [value]
    if isinstance(value, tuple | list):
        return [found for one in value for found in _jaxprs(one)]
    return []
