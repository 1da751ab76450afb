import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy_decoder
import pytest
from flax import nnx

from engine.config.schema import ComputeConfig, ModelConfig
from engine.model.decoder import Block, Decoder, Params, Role, Sequences
from engine.model.loss import cross_entropy

TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])
SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 0, 0], [1, 2, 2, 2, 2, 2, 2, 3]])

Fresh = Callable[[ModelConfig, int], Params]


def drawn(decoder: Decoder) -> Params:
    """Parameters as large as makes every part matter, with gains that differ from each other, so
    that a misplaced one is noticed. Drawn by NumPy, which has nothing to compile."""
    draw = np.random.default_rng(0)

    def one(role: Role, x: jax.ShapeDtypeStruct) -> np.ndarray:
        noise = draw.standard_normal(x.shape, np.float32)
        return 1 + 0.1 * noise if role == "gain" else 0.2 * noise

    return jax.tree.map(one, decoder.roles(), jax.eval_shape(decoder.init, jax.random.key(0)))


def like(model: ModelConfig, **changes: Any) -> ModelConfig:
    return ModelConfig(**{**model.model_dump(), **changes})


@pytest.mark.parametrize(
    ("changes", "segments"),
    [
        ({}, None),
        ({"tie_word_embeddings": True, "num_kv_heads": 4, "qk_norm": "rms"}, None),
        ({"head_dim": 10, "num_kv_heads": 1, "qk_norm": "learned", "rope_theta": 50.0}, SEGMENTS),
        ({"sliding_window": 3, "logit_soft_cap": 2.0, "norm_epsilon": 0.1}, SEGMENTS),
    ],
)
def test_the_decoder_is_the_one_written_in_numpy(
    tiny: ModelConfig, changes: dict, segments: np.ndarray | None
) -> None:
    model = like(tiny, **changes)
    decoder = Decoder(model)
    params = drawn(decoder)
    ours = jax.jit(decoder.logits)(params, TOKENS, segments)
    assert (ours.shape, ours.dtype) == ((2, 8, 256), jnp.float32)
    for row in range(2):
        documents = None if segments is None else segments[row]
        theirs = numpy_decoder.logits(model, params, TOKENS[row], documents)
        assert theirs.std() > 0.5
        np.testing.assert_allclose(ours[row], theirs, rtol=1e-4, atol=1e-4)


def test_no_position_sees_a_later_one(tiny: ModelConfig) -> None:
    params, changed = drawn(Decoder(tiny)), TOKENS.copy()
    changed[:, 5] += 1
    forward = jax.jit(Decoder(tiny).logits)
    before, after = (np.asarray(forward(params, tokens)) for tokens in (TOKENS, changed))
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).any(axis=2).all()


def test_a_packed_document_is_read_as_if_it_were_alone(tiny: ModelConfig) -> None:
    forward = jax.jit(Decoder(tiny).logits)
    params = drawn(Decoder(tiny))
    packed = np.asarray(forward(params, TOKENS, SEGMENTS))
    alone = np.asarray(forward(params, TOKENS[:1, 3:6]))
    np.testing.assert_allclose(packed[0, 3:6], alone[0], rtol=1e-4, atol=1e-5)
    changed = TOKENS.copy()
    changed[:, 0] += 1
    after = np.asarray(forward(params, changed, SEGMENTS))
    np.testing.assert_array_equal(packed[0, 3:], after[0, 3:])
    np.testing.assert_array_equal(packed[1, 1:], after[1, 1:])


def loss_of(decoder: Decoder, params: Params, tokens: np.ndarray = TOKENS) -> jax.Array:
    x_TD, head_DV = decoder.features(params, tokens[:, :-1]), decoder.output_matrix(params)
    losses = cross_entropy(x_TD, head_DV, tokens[:, 1:])
    return losses.nats / losses.targets


def test_compute_options_change_no_figure(tiny: ModelConfig) -> None:
    params = drawn(Decoder(tiny))

    def figures(**compute: Any) -> list[jax.Array]:
        decoder = Decoder(tiny, ComputeConfig(**compute))
        return jax.tree.leaves(jax.jit(jax.value_and_grad(partial(loss_of, decoder)))(params))

    plain = figures()
    for compute in (
        {"layers": "unroll"},
        {"remat": "block"},
        {"layers": "unroll", "remat": "block", "attention": "reference"},
    ):
        for mine, yours in zip(figures(**compute), plain, strict=True):
            np.testing.assert_allclose(mine, yours, rtol=1e-4, atol=1e-5, err_msg=f"{compute}")


def test_remat_keeps_little_between_the_passes(tiny: ModelConfig) -> None:
    params = drawn(Decoder(tiny))

    def kept(**compute: Any) -> int:
        decoder = Decoder(tiny, ComputeConfig(**compute))
        _, pull = jax.eval_shape(lambda p: jax.vjp(partial(loss_of, decoder), p), params)
        return sum(x.size for x in jax.tree.leaves(pull))

    weights = sum(x.size for x in jax.tree.leaves(params))
    assert kept(remat="block") - weights < 0.3 * (kept() - weights)


def test_half_precision_is_for_what_is_multiplied_and_not_for_what_is_kept(
    tiny: ModelConfig,
) -> None:
    decoder = Decoder(tiny, ComputeConfig(dtype="bfloat16"))
    params = drawn(Decoder(tiny))
    features = jax.eval_shape(decoder.features, params, TOKENS)
    assert (features.shape, features.dtype) == ((16, 16), jnp.bfloat16)
    assert decoder.output_matrix(params).dtype == jnp.bfloat16
    loss, grads = jax.jit(jax.value_and_grad(partial(loss_of, decoder)))(params)
    assert {x.dtype for x in jax.tree.leaves(grads)} == {jnp.dtype("float32")}
    assert float(loss) == pytest.approx(float(loss_of(Decoder(tiny), params)), rel=0.02)


def test_rows_of_the_embedding_gather_their_gradients_in_full_precision(tiny: ModelConfig) -> None:
    """A token that comes often adds up many small gradients, which bfloat16 would swallow."""
    decoder, params = Decoder(tiny, ComputeConfig(dtype="bfloat16")), drawn(Decoder(tiny))

    def total(embedding: jax.Array) -> jax.Array:
        tokens_BS = np.zeros((40, 100), int)
        pull = jax.vjp(lambda e: decoder.features({**params, "embedding": e}, tokens_BS), embedding)
        return pull[1](pull[0] * 0 + 1)[0]

    (scatter,) = [
        equation
        for equation in jax.make_jaxpr(total)(params["embedding"]).eqns
        if equation.primitive.name == "scatter-add"
    ]
    assert scatter.outvars[0].aval.dtype == jnp.float32


def test_every_parameter_has_the_role_of_its_use(tiny: ModelConfig) -> None:
    decoder = Decoder(like(tiny, qk_norm="learned"))
    declared = decoder.roles()
    params = jax.eval_shape(decoder.init, jax.random.key(0))
    assert jax.tree.structure(declared) == jax.tree.structure(params)
    by_role: dict[Role, set[str]] = {}
    for path, role in jax.tree_util.tree_leaves_with_path(declared):
        by_role.setdefault(role, set()).add(path[-1].key)
    assert by_role == {
        "embedding": {"embedding"},
        "column": {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"},
        "row": {"o_proj", "down_proj"},
        "head": {"lm_head"},
        "gain": {"gain", "q_norm", "k_norm"},
    }


def test_weights_begin_as_stated(tiny: ModelConfig, fresh: Fresh) -> None:
    params = jax.tree.map(lambda x: x / 8, fresh(tiny, 0))
    attention, mlp = params["blocks"]["attention"], params["blocks"]["mlp"]
    cut = 0.02 * 0.8796  # a normal cut at two deviations is this much narrower
    assert np.std(params["embedding"]) == pytest.approx(cut, rel=0.05)
    assert np.abs(params["embedding"]).max() <= 0.04
    assert np.std(mlp["gate_proj"]) == pytest.approx(cut, rel=0.1)
    for weights in (attention["o_proj"], mlp["down_proj"]):
        assert np.std(weights) == pytest.approx(cut / 2, rel=0.1)  # 1/√(2 · 2 layers)
    assert (params["blocks"]["attention_norm"]["gain"] == 1).all()
    assert (attention["q_proj"][0] != attention["q_proj"][1]).all()


# ── Variants ─────────────────────────────────────────────────────────────────────────────────


def variant(name: str) -> ModuleType:
    path = Path(__file__).parents[3] / "experiments" / name / "model.py"
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gated(model: ModelConfig) -> Decoder:
    return Decoder(model, attention=variant("gated-attention").GatedAttention)


def parallel(model: ModelConfig) -> Decoder:
    return Decoder(model, block=variant("parallel-block").ParallelBlock)


@pytest.mark.parametrize("make", [gated, parallel])
def test_a_variant_learns_without_a_change_in_the_engine(
    tiny: ModelConfig, make: Callable[[ModelConfig], Decoder]
) -> None:
    decoder = make(tiny)
    step = jax.jit(jax.value_and_grad(partial(loss_of, decoder)))
    params = begun = jax.jit(decoder.init)(jax.random.key(0))
    assert jax.tree.structure(decoder.roles()) == jax.tree.structure(params)
    losses = []
    for _ in range(10):
        loss, grads = step(params)
        losses.append(float(loss))
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)
    assert losses[-1] < losses[0] - 0.2
    moved = jax.tree.map(lambda p, q: bool((p != q).any()), params, begun)
    assert all(jax.tree.leaves(moved)), moved


def test_gated_attention_begins_as_the_plain_model(tiny: ModelConfig) -> None:
    params = drawn(Decoder(tiny))
    plain = jax.jit(Decoder(tiny).logits)(params, TOKENS)
    decoder = gated(tiny)
    gate = jax.jit(decoder.init)(jax.random.key(0))["blocks"]["attention"]["gate"]
    assert gate.shape == (2, 16, 4)
    attention = {**params["blocks"]["attention"], "gate": gate}

    def logits(attention: Params) -> np.ndarray:
        blocks = {**params["blocks"], "attention": attention}
        return np.asarray(jax.jit(decoder.logits)({**params, "blocks": blocks}, TOKENS))

    np.testing.assert_allclose(logits(attention), plain, rtol=1e-6)
    shut = {**attention, "gate": gate - 1e9 * np.sign(params["embedding"][3])[:, None]}
    assert np.abs(logits(shut) - plain).max() > 0.1


def test_in_a_parallel_block_neither_part_hears_the_other(tiny: ModelConfig) -> None:
    """What a block adds to the stream is the sum of what its parts add each by itself, where the
    other is silent; in a plain block it is not."""
    sequences = Sequences(seq_len=8, segments_BS=None)
    x_TD = jax.random.normal(jax.random.key(1), (16, 16))

    def added(make: type[nnx.Module], *silent: str) -> np.ndarray:
        block = make(Decoder(tiny), nnx.Rngs(params=0))
        for matrix in (block.attention.o_proj, block.mlp.down_proj):
            matrix[...] *= 50  # loud enough to be heard
        if "attention" in silent:
            block.attention.o_proj[...] *= 0
        if "mlp" in silent:
            block.mlp.down_proj[...] *= 0
        return np.asarray(block(x_TD, sequences) - x_TD)

    def whole_and_sum(make: type[nnx.Module]) -> tuple[np.ndarray, np.ndarray]:
        return added(make), added(make, "attention") + added(make, "mlp")

    whole, parts = whole_and_sum(parallel(tiny).block)
    np.testing.assert_allclose(whole, parts, atol=1e-5)
    np.testing.assert_array_equal(added(parallel(tiny).block, "mlp"), added(Block, "mlp"))
    whole, parts = whole_and_sum(Block)
    assert np.abs(whole - parts).max() > 1e-3
