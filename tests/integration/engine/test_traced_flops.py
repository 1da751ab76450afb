"""What is counted from a trace is what the formula counts; what cannot be counted is refused."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import io_callback, sparse
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from engine.config import flops
from engine.config.schema import ComputeConfig, ModelConfig
from engine.model import traced_flops
from engine.model.decoder import Decoder
from engine.model.plain import PlainConfig, PlainModel
from engine.model.traced_flops import Uncountable

SMALL = {
    "hidden_dim": 32,
    "intermediate_dim": 80,
    "num_layers": 3,
    "num_heads": 4,
    "seq_len": 48,
    "vocab_size": 101,
}
BUILT_IN: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped queries": {"num_kv_heads": 2},
    "one key head": {"num_kv_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "wide heads": {"head_dim": 16},
    "normed queries": {"qk_norm": "rms"},
    "learned norms": {"qk_norm": "learned"},
    "capped": {"logit_soft_cap": 30.0},
    "one layer": {"num_layers": 1},
}


@pytest.mark.parametrize("layers", ["unroll", "scan"])
@pytest.mark.parametrize("name", BUILT_IN)
def test_the_trace_of_each_built_in_model_gives_the_formulas_figure(name: str, layers: str) -> None:
    config = ModelConfig.model_validate(SMALL | BUILT_IN[name])
    compute = ComputeConfig.model_validate({"attention": "reference", "layers": layers})
    model = Decoder(config, compute)
    assert traced_flops.forward_flops_per_token(model) == flops.forward_flops_per_token(config)
    assert parameters(model) == flops.parameters(config)


def test_the_public_130m_is_counted_as_the_field_counts_it() -> None:
    config = ModelConfig.model_validate({"size": "130m", "seq_len": 4096, "vocab_size": 128_256})
    model = Decoder(config, ComputeConfig(attention="reference"))
    assert traced_flops.forward_flops_per_token(model) == 227_868_672
    assert parameters(model) == 154_147_328


def parameters(model: Decoder) -> int:
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return sum(math.prod(shape.shape) for shape in jax.tree.leaves(shapes))


def plain(answer: Any) -> PlainModel:
    """A model of one matrix whose logits are `answer` of it and the tokens' one-hots."""
    return PlainModel(
        draw=lambda key: {"w": jax.random.normal(key, (11, 11))},
        answer=lambda params, tokens: answer(params["w"], jax.nn.one_hot(tokens, 11)),
        config=PlainConfig(vocab_size=11, seq_len=8),
    )


def test_a_loop_counts_as_often_as_it_runs() -> None:
    once = traced_flops.forward_flops_per_token(plain(lambda w, x: x @ w))
    assert once == 2 * 11 * 11

    def scanned(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (c @ w, None), x, length=5)[0]

    def turned(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda _, c: c @ w, x)

    for loop in (scanned, turned):
        assert traced_flops.forward_flops_per_token(plain(loop)) == 5 * once
        remade = plain(jax.checkpoint(jax.jit(loop)))
        assert traced_flops.forward_flops_per_token(remade) == 5 * once


def test_a_loop_that_data_end_is_refused() -> None:
    def until(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda c: c.sum() < 100, lambda c: c @ w, x)

    with pytest.raises(Uncountable, match="cannot be told beforehand"):
        traced_flops.forward_flops_per_token(plain(until))


def test_the_more_expensive_of_two_branches_counts() -> None:
    def either(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(x.sum() > 3, lambda: x @ w, lambda: x @ w @ w)

    assert traced_flops.forward_flops_per_token(plain(either)) == 2 * 2 * 11 * 11


def test_a_convolution_counts_its_products() -> None:
    def convolved(w: jax.Array, x: jax.Array) -> jax.Array:
        kernel = jnp.stack([w] * 3)  # width 3, in, out
        return jax.lax.conv_general_dilated(
            x, kernel, (1,), [(2, 0)], dimension_numbers=("NWC", "WIO", "NWC")
        )

    assert traced_flops.forward_flops_per_token(plain(convolved)) == 2 * 3 * 11 * 11


@pytest.mark.parametrize("call", [jax.pure_callback, io_callback])
def test_work_in_a_callback_is_refused(call: Any) -> None:
    def outside(w: jax.Array, x: jax.Array) -> jax.Array:
        return call(lambda y: y, jax.ShapeDtypeStruct(x.shape, x.dtype), x) @ w

    with pytest.raises(Uncountable, match=call.__name__):
        traced_flops.forward_flops_per_token(plain(outside))


def test_products_with_the_matrices_of_experts_are_counted() -> None:
    def experts(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.ragged_dot(x[0], jnp.stack([w] * 4), jnp.array([2, 2, 2, 2]))[None]

    assert traced_flops.forward_flops_per_token(plain(experts)) == 2 * 11 * 11


def test_a_trace_of_one_devices_share_counts_for_all_devices() -> None:
    spec, mesh = PartitionSpec("d"), AbstractMesh((2,), ("d",), axis_types=(AxisType.Auto,))

    def shared(w: jax.Array, x: jax.Array) -> jax.Array:
        of = jax.shard_map(
            lambda w, x: x @ w, mesh=mesh, in_specs=(PartitionSpec(), spec), out_specs=spec
        )
        return of(w, x[0])[None]

    assert traced_flops.forward_flops_per_token(plain(shared)) == 2 * 11 * 11


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("fft", lambda w, x: jnp.fft.fft(x).real @ w),
        ("eigh", lambda w, x: x @ jnp.linalg.eigh(w)[1]),
        ("triangular_solve", lambda w, x: jax.scipy.linalg.solve_triangular(w, x[0].T).T[None]),
        ("bcoo_dot_general", lambda w, x: sparse.BCOO.fromdense(x[0], nse=8) @ w + 0 * x),
    ],
)
def test_work_of_which_the_trace_shows_no_product_is_refused(name: str, hidden: Any) -> None:
    with pytest.raises(Uncountable, match=name):
        traced_flops.forward_flops_per_token(plain(hidden))
