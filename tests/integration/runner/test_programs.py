"""A model's program: what is arithmetic is computed by the lab, and nothing else is."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir, serialize_portable_artifact
from jax.interpreters.mlir import make_ir_context

from engine.config.schema import ComputeConfig, ModelConfig
from engine.model.decoder import Decoder
from engine.model.plain import PlainConfig, PlainModel
from engine.training.digest import path_of
from runner.worker.models import programs
from runner.worker.models.programs import NotExported

ROWS, LENGTH, VOCAB = 2, 8, 16
PARAMS = {"w": np.eye(VOCAB, dtype=np.float32), "unused": np.ones(3, np.float32)}


def plain(logits, params=PARAMS) -> PlainModel:
    return PlainModel(lambda _: params, logits, PlainConfig(VOCAB, LENGTH))


def exported(function) -> bytes:
    """What somebody's own exporter might leave, whatever the lab's would say of it."""
    everything = jax.export.DisabledSafetyCheck
    checks = [everything.custom_call(x) for x in ("anything", "xla_ffi_python_cpu_callback")]
    shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in PARAMS.items()}
    tokens = jax.ShapeDtypeStruct((ROWS, LENGTH), jnp.int32)
    whole = jax.export.export(jax.jit(function, keep_unused=True), disabled_checks=checks)
    return whole(shapes, tokens).mlir_module_serialized


def test_a_program_returns_what_the_model_returns() -> None:
    decoder = Decoder(
        ModelConfig(
            hidden_dim=16,
            intermediate_dim=32,
            num_layers=2,
            num_heads=2,
            seq_len=LENGTH,
            vocab_size=VOCAB,
        ),
        ComputeConfig(),
    )
    params = decoder.init(jax.random.key(0))
    named = {
        path_of(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(params)
    }
    run = programs.loaded(programs.exported(decoder, ROWS), named, (ROWS, LENGTH), VOCAB)
    tokens = np.arange(ROWS * LENGTH, dtype=np.int32).reshape(ROWS, LENGTH) % VOCAB
    wanted = decoder.logits(params, tokens)
    np.testing.assert_allclose(run(tokens), wanted, atol=1e-5)


def test_scans_conditions_draws_and_sorts_are_arithmetic() -> None:
    def logits(params, tokens):
        x = params["w"][tokens]
        x, _ = jax.lax.scan(lambda c, _: (jax.nn.gelu(c), None), x, None, length=3)
        x = jnp.where(x > 0, jnp.sort(x), jax.lax.erf(x)) + jax.random.normal(jax.random.key(1))
        x = jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)
        return x + jax.lax.top_k(x, 2)[0].sum() + jnp.fft.rfft(x).real.sum() + jnp.cumsum(x, 1)

    run = programs.loaded(programs.exported(plain(logits), ROWS), PARAMS, (ROWS, LENGTH), VOCAB)
    tokens = np.zeros((ROWS, LENGTH), np.int32)
    np.testing.assert_allclose(run(tokens), logits(PARAMS, tokens), rtol=1e-5)


def test_a_callback_is_no_program() -> None:
    def logits(params, tokens):
        shape = jax.ShapeDtypeStruct(tokens.shape, jnp.int32)
        return params["w"][jax.pure_callback(lambda x: x, shape, tokens)]

    with pytest.raises(NotExported, match="cannot be exported"):
        programs.exported(plain(logits), ROWS)


def test_an_error_of_the_model_is_raised_unchanged() -> None:
    def logits(params, tokens):
        raise ValueError(f"{len(params)} heads do not divide {tokens.shape}")

    with pytest.raises(ValueError, match="heads do not divide"):
        programs.exported(plain(logits), ROWS)


@pytest.mark.parametrize(
    ("call", "words"),
    [("anything", "calls anything"), ("xla_ffi_python_cpu_callback", "calls xla_ffi_python")],
)
def test_a_program_that_calls_other_code_is_not_computed(call: str, words: str) -> None:
    def logits(params, tokens):
        shape = jax.ShapeDtypeStruct((ROWS, LENGTH, VOCAB), jnp.float32)
        return jax.ffi.ffi_call(call, shape)(params["w"][tokens])

    with pytest.raises(NotExported, match=words):
        programs.loaded(exported(logits), PARAMS, (ROWS, LENGTH), VOCAB)


def test_a_draw_that_keeps_a_state_of_its_own_is_no_arithmetic() -> None:
    assert not programs.ARITHMETIC.fullmatch("stablehlo.rng")
    for name in ("infeed", "outfeed", "send", "recv", "custom_call", "all_reduce", "replica_id"):
        assert not programs.ARITHMETIC.fullmatch(f"stablehlo.{name}"), name


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"", "does not fit"),
        (b"ML\xefR" + b"\0" * 50, "cannot be read"),
        (b"\0" * (programs.MAX_PROGRAM + 1), "at most"),
    ],
)
def test_an_invalid_program_is_refused_with_a_reason(program: bytes, words: str) -> None:
    with pytest.raises(NotExported, match=words):
        programs.loaded(program, PARAMS, (ROWS, LENGTH), VOCAB)


def test_a_program_of_other_shapes_does_not_fit() -> None:
    program = exported(lambda params, tokens: params["w"][tokens][:, :, :4])
    with pytest.raises(NotExported, match="does not fit"):
        programs.loaded(program, PARAMS, (ROWS, LENGTH), VOCAB)
    whole = programs.exported(plain(lambda params, tokens: params["w"][tokens]), ROWS)
    for other in ({"w": PARAMS["w"]}, PARAMS | {"w": np.eye(5, dtype=np.float32)}):
        with pytest.raises(NotExported, match="does not fit"):
            programs.loaded(whole, other, (ROWS, LENGTH), VOCAB)


SORT = """
module {{ func.func public @main(%w: tensor<16x16xf32>, %t: tensor<2x8xi32>)
  -> tensor<2x8x16xf32> {{
  %z = stablehlo.constant dense<0.0> : tensor<2x8x16xf32>
  %s = "stablehlo.sort"(%z) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare LE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }}) {{dimension = 2 : i64, is_stable = {stable}}} : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  return %s : tensor<2x8x16xf32> }} }}
"""


@pytest.mark.parametrize("stable", [True, False])
def test_a_sort_that_a_wrong_order_takes_out_of_its_array_is_not_computed(stable: bool) -> None:
    with make_ir_context():
        module = ir.Module.parse(SORT.format(stable=str(stable).lower()))
        program = serialize_portable_artifact(module, "1.0.0")
    if stable:
        programs.checked(program)
    else:
        with pytest.raises(NotExported, match="sorts without"):
            programs.checked(program)


def test_linear_algebra_is_refused_with_words_that_help() -> None:
    def logits(params, tokens):
        return params["w"][tokens] + jnp.linalg.cholesky(params["w"]).sum()

    with pytest.raises(NotExported, match=r"lapack.*cholesky, qr, solve"):
        programs.exported(plain(logits), ROWS)
