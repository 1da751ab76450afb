"""FLOPs of a model without a formula, counted from its trace; computes no array.

Counts products of matrices and convolutions (a multiply and an add are 2), and 3 for each
exponential of a softmax, as `flops.forward_flops_per_token` does; for the lab's own models both
give the same number. Operations whose products the trace does not show are refused, not counted as
0. A loop counts as often as it runs; a loop whose end depends on data is refused. Of two branches
the more expensive one counts. A masked score counts like any other, so a sliding window saves
nothing here unless the model leaves out the products.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from engine.model.decoder import Model

UNCOUNTED = {  # calls of other code, and algorithms whose products a trace does not show
    *("pallas_call", "tpu_custom_call", "custom_call", "ffi_call"),
    *("fft", "cholesky", "lu", "qr", "geqrf", "householder_product", "triangular_solve"),
    *("tridiagonal_solve", "tridiagonal", "eig", "eigh", "svd", "schur", "hessenberg"),
}
# Parts of names of primitives that are refused: products of kinds that are not counted here (of
# sparse or scaled matrices, a fused attention), and callbacks to host code that return a result.
TELLING = ("dot", "matmul", "matmat", "matvec", "pure_callback", "io_callback")


class Uncountable(ValueError):
    """The FLOPs of a model cannot be counted from its trace; the message says where."""


def forward_flops_per_token(model: Model, rows: int = 1) -> int:
    """FLOPs of the forward pass of `rows` windows, logits included, divided by their tokens. Raises
    Uncountable, and whatever the model raises when it is traced."""
    params = jax.eval_shape(model.init, jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((rows, int(model.config.seq_len)), jnp.int32)
    whole = count(jax.make_jaxpr(model.logits)(params, tokens).jaxpr)
    return -(-whole // tokens.size)


def count(jaxpr: core.Jaxpr) -> int:
    """FLOPs of a jaxpr. Raises Uncountable."""
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
        # Each row of the left side meets one matrix: that of its group (the active expert).
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
    if name == "shard_map":  # its trace is one device's share
        return int(given["mesh"].size) * sum(count(found) for found in inside)
    if name in UNCOUNTED or any(part in name for part in TELLING):
        raise Uncountable(f"what `{name}` does cannot be counted; write it in jax.numpy")
    if name in ("custom_jvp_call", "custom_vjp_call"):  # the other jaxprs are derivatives
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
