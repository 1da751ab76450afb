"""A model's forward pass as a program in StableHLO: exported where own code runs, and computed by
the lab where no own code runs.

A program is a function of parameters and tokens alone. It keeps nothing between calls and cannot
tell which call it is in: `checked` refuses everything that is not arithmetic. So calling it with a
window, and then with the same window and another ending, shows what it looked at.

This module imports only what a program needs, not the lab's models."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend.mlir import deserialize_portable_artifact, ir
from jax.interpreters.mlir import make_ir_context

from engine.training.digest import path_of

if TYPE_CHECKING:
    from engine.model.decoder import Model

MAX_PROGRAM = 64 << 20  # bytes, constants included
MAX_WORDS = 300  # characters of a library's error message

# The operations that a program may have. Calls of other code are excluded: unknown ones, and
# LAPACK, cuDNN and others, read and return memory that nobody wrote.
ARITHMETIC = re.compile(
    r"builtin\.module|func\.(func|call|return)|chlo\.\w+|stablehlo\.("
    # elementwise
    r"abs|add|and|atan2|bitcast_convert|cbrt|ceil|clamp|compare|complex|convert|cosine|"
    r"count_leading_zeros|divide|exponential|exponential_minus_one|floor|imag|is_finite|log|"
    r"log_plus_one|logistic|map|maximum|minimum|multiply|negate|not|or|popcnt|power|real|"
    r"reduce_precision|remainder|round_nearest_afz|round_nearest_even|rsqrt|select|shift_left|"
    r"shift_right_arithmetic|shift_right_logical|sign|sine|sqrt|subtract|tan|tanh|xor|"
    # shapes and indexing
    r"broadcast|broadcast_in_dim|concatenate|constant|dynamic_slice|dynamic_update_slice|gather|"
    r"get_tuple_element|iota|pad|reshape|reverse|scatter|slice|transpose|tuple|"
    # sums, products, sorting
    r"batch_norm_inference|batch_norm_training|convolution|dot|dot_general|einsum|fft|"
    r"reduce|reduce_window|rng_bit_generator|select_and_scatter|sort|"
    # control flow
    r"case|composite|if|optimization_barrier|return|while)"
)
REMEDY = (
    "write it in jax.numpy, without callbacks (debug.print is one), kernels, linear algebra of "
    "LAPACK's (cholesky, qr, solve) and constraints on sharding"
)


class NotExported(Exception):
    """A model cannot be exported as a program; the message says why."""


def exported(model: "Model", rows: int) -> bytes:
    """The program for the model's logits (rows, S, V), for the kind of device on this machine.
    Raises NotExported, and what the model raises when it is traced."""
    from engine.model.decoder import Decoder  # computing a program needs no Flax

    if isinstance(model, Decoder):  # a platform's fast attention is a call of other code
        model = replace(model, compute=model.compute.model_copy(update={"attention": "reference"}))
    like = jax.eval_shape(model.init, jax.random.key(0))
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [path_of(path) for path, _ in leaves]

    def logits(params: Mapping[str, jax.Array], tokens_BS: jax.Array) -> jax.Array:
        tree = jax.tree.unflatten(structure, [params[name] for name in names])
        return model.logits(tree, tokens_BS).astype(jnp.float32)

    shapes = {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}
    given = shapes, jax.ShapeDtypeStruct((rows, model.config.seq_len), jnp.int32)
    # Without this, the program would drop unused arguments.
    traced = jax.jit(logits, keep_unused=True)
    traced.eval_shape(*given)  # what the model raises is no failure of the export
    try:
        program = jax.export.export(traced)(*given).mlir_module_serialized
    except (NotImplementedError, ValueError) as error:
        raise NotExported(
            f"it cannot be exported for the lab to compute ({_short(error)}); {REMEDY}"
        ) from error
    checked(program)
    return bytes(program)


def loaded(
    program: bytes, params: Mapping[str, np.ndarray], tokens: tuple[int, int], vocab_size: int
) -> Callable[[np.ndarray], jax.Array]:
    """The function from tokens (rows, S) to logits (rows, S, V) of an untrusted program with these
    parameters. Only its arithmetic is used. Raises NotExported."""
    checked(program)

    def blank(params: Mapping[str, jax.Array], tokens_BS: jax.Array) -> jax.Array:  # noqa: ARG001
        return jnp.zeros((*tokens, vocab_size), jnp.float32)

    # Its argument and result types are set here, not by the program.
    like = jax.ShapeDtypeStruct(tokens, jnp.int32)
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in params.items()}
    ours = jax.export.export(jax.jit(blank, keep_unused=True))(shapes, like)
    whole = replace(ours, mlir_module_serialized=program)
    given = jax.device_put(dict(params))
    try:
        run = jax.jit(whole.call).lower(given, like).compile()
    except Exception as error:  # of MLIR and XLA, of many types
        raise NotExported(f"its program does not fit its parameters ({_short(error)})") from error
    return lambda tokens_BS: run(given, jnp.asarray(tokens_BS, jnp.int32))


def checked(program: bytes) -> None:
    """Raises NotExported unless every operation of the program is arithmetic."""
    if len(program) > MAX_PROGRAM:
        raise NotExported(f"its program has {len(program):,} bytes, and {MAX_PROGRAM:,} at most")
    found: dict[str, None] = {}

    def see(operation: Any) -> Any:
        name = operation.name
        if name == "stablehlo.custom_call":
            target = ir.StringAttr(operation.attributes["call_target_name"]).value
            found[f"calls {target[:MAX_WORDS]}"] = None
        elif not ARITHMETIC.fullmatch(name):
            found[f"has the operation {name}"] = None
        elif name == "stablehlo.sort" and not _is_stable(operation):
            found["sorts without `stable`"] = None
        return ir.WalkResult.ADVANCE

    with make_ir_context() as context:
        try:
            module = deserialize_portable_artifact(program, context)
        except Exception as error:
            raise NotExported(f"its program cannot be read ({_short(error)})") from error
        module.operation.walk(see)
    if found:
        raise NotExported(
            f"its program {', '.join([*found][:5])}, which is no arithmetic that the lab computes; "
            + REMEDY
        )


def _is_stable(sort: Any) -> bool:
    """An inconsistent comparison lets an unstable sort read outside its array."""
    attributes = sort.attributes
    return "is_stable" in attributes and ir.BoolAttr(attributes["is_stable"]).value


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_WORDS]
