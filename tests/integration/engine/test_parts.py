"""Each part of a block computes what its formula says, alone and together, however it is run."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy_decoder
import numpy_parts
import on_devices
import pytest
from jax.test_util import check_grads

from engine.config import flops, memory
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from engine.config.shapes import shapes
from engine.model import generation, linear_attention, parts, scoring, traced_flops
from engine.model import mesh as model_mesh
from engine.model.decoder import Decoder, Params, Role
from engine.model.loss import cross_entropy
from engine.training import step
from engine.training.digest import leaves

SHAPE = {
    "hidden_dim": 16, "intermediate_dim": 24, "num_layers": 3, "num_heads": 4, "num_kv_heads": 2,
    "seq_len": 16, "vocab_size": 19,
}  # fmt: skip
PARTS: dict[str, dict[str, Any]] = {
    "gated norm": {"gated_norm": 3},
    "gates": {"attention_gate": True},
    "exclusive attention": {"exclusive_attention": True},
    "half rotary": {"rope_fraction": 0.5, "qk_norm": "rms"},
    "no rotary": {"layer_pattern": ["full", "nope"]},
    "windows": {"layer_pattern": ["window", "nope"], "sliding_window": 3, "last_layer": "full"},
    "short convolutions": {"short_convolution": 3, "qk_norm": "learned"},
    "biases of queries, keys and values": {"attention_bias": "qkv"},
    "biases of all": {"attention_bias": "all", "short_convolution": 3},
    "norms after": {"norm_position": "after", "qk_norm": "whole", "norm_epsilon": 0.01},
    "scaled rotary": {"rope_scaling": {"factor": 4.0, "original_seq_len": 6}, "rope_theta": 50.0},
    "linear": {"layer_pattern": ["linear"]},
    "two linear, one full": {"layer_pattern": ["linear", "linear", "full"]},
}
EVERY: dict[str, Any] = {
    "num_layers": 5,
    "layer_pattern": ["window", "linear"],
    "last_layer": "nope",
    "sliding_window": 5,
    "gated_norm": 8,
    "attention_gate": True,
    "exclusive_attention": True,
    "rope_fraction": 0.5,
    "rope_scaling": {"factor": 3.0, "original_seq_len": 8, "high_freq_factor": 2.0},
    "attention_bias": "all",
    "norm_position": "after",
    "short_convolution": 4,
    "qk_norm": "whole",
    "norm_epsilon": 0.01,
}
PARTS["every part"] = EVERY
TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])
SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 2, 0], [1, 2, 2, 2, 2, 2, 2, 3]])


def shaped(**changes: Any) -> ModelConfig:
    return ModelConfig.model_validate(SHAPE | changes)


def drawn(decoder: Decoder, seed: int = 0) -> Params:
    """Parameters as large as makes every part matter; a state forgets slowly."""
    draw = np.random.default_rng(seed)

    def one(path: Any, role: Role, x: jax.ShapeDtypeStruct) -> np.ndarray:
        noise = draw.standard_normal(x.shape, np.float32)
        if "decay_log" in str(path):
            return 0.3 * noise - 2
        whole = x.shape[-1:] == x.shape or "norm" in str(path)
        return (1 if whole else 0) + 0.3 * noise if role == "gain" else 0.25 * noise

    like = jax.eval_shape(decoder.init, jax.random.key(0))
    return jax.tree_util.tree_map_with_path(one, decoder.roles(), like)


# ── Against NumPy ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PARTS)
def test_each_part_is_the_one_written_in_numpy(name: str) -> None:
    model = shaped(**PARTS[name])
    decoder = Decoder(model)
    params = drawn(decoder)
    ours = jax.jit(decoder.logits)(params, TOKENS, SEGMENTS)
    for row in range(2):
        theirs = numpy_decoder.logits(model, params, TOKENS[row], SEGMENTS[row])
        assert theirs.std() > 0.1
        np.testing.assert_allclose(ours[row], theirs, rtol=1e-3, atol=2e-4)


def test_the_gradient_of_every_parameter_is_the_slope() -> None:
    model = shaped(**EVERY)
    decoder = Decoder(model)
    params = drawn(decoder)

    def loss(params: Params) -> jax.Array:
        return jnp.sum(decoder.logits(params, TOKENS[:1], SEGMENTS[:1]) ** 2)

    found, random = leaves(jax.jit(jax.grad(loss))(params)), np.random.default_rng(5)
    wide = jax.tree.map(np.float64, params)
    flat, tree = jax.tree.flatten(wide)
    for n, path in enumerate(leaves(wide)):
        way = random.normal(0, 1, flat[n].shape)

        def at(x: np.ndarray, n: int = n) -> float:
            changed = jax.tree.unflatten(tree, [*flat[:n], x, *flat[n + 1 :]])
            return float((numpy_decoder.logits(model, changed, TOKENS[0], SEGMENTS[0]) ** 2).sum())

        slope = (at(flat[n] + 1e-5 * way) - at(flat[n] - 1e-5 * way)) / 2e-5
        exact, size = float((found[path] * way).sum()), float(np.linalg.norm(found[path]))
        assert exact == pytest.approx(slope, rel=2e-3, abs=2e-3 * size), path
        assert size > 0, path


def rule(S: int, seed: int = 0, h: int = 8) -> tuple[np.ndarray, ...]:
    """What goes into a delta rule of one sequence and two heads."""
    random = np.random.default_rng(seed)
    q, k, v = random.normal(0, 1, (3, 1, S, 2, h)).astype(np.float32)
    rate, decay = random.uniform(0.1, 1, (2, 1, S, 2)).astype(np.float32)
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    return q, k, v, rate, decay**0.1


def by_recurrence(of: tuple[np.ndarray, ...], documents: np.ndarray) -> np.ndarray:
    heads = [numpy_parts.delta_rule(*(x[0, :, n].astype(np.float64) for x in of), documents)
             for n in range(2)]  # fmt: skip
    return np.stack(heads, axis=1)


def by_chunks(of: tuple[np.ndarray, ...], **more: Any) -> tuple[jax.Array, jax.Array]:
    q, k, v, rate, decay = of
    return jax.jit(linear_attention.delta_rule)(q, k, v, rate, np.log(decay), **more)


@pytest.mark.parametrize("S", [1, 5, 64, 150])
def test_chunks_are_the_recurrence_and_documents_begin_with_nothing(S: int) -> None:
    of, documents = rule(S), np.sort(np.random.default_rng(S).integers(1, 5, S))
    np.testing.assert_allclose(by_chunks(of)[0][0], by_recurrence(of, np.ones(S)), atol=2e-5)
    found, _ = by_chunks(of, segments_BS=documents[None])
    np.testing.assert_allclose(found[0], by_recurrence(of, documents), atol=2e-5)


def test_a_text_of_one_key_over_and_over_is_as_exact() -> None:
    q, k, v, rate, _ = rule(192)
    k = np.broadcast_to(k[:, :1], k.shape)
    of = q, k, v, np.ones_like(rate), np.ones_like(rate)
    np.testing.assert_allclose(by_chunks(of)[0][0], by_recurrence(of, np.ones(192)), atol=1e-3)


def test_a_state_goes_on_where_it_was_left() -> None:
    of = rule(100)
    whole, last = by_chunks(of)
    _, state = by_chunks(tuple(x[:, :37] for x in of))
    rest, again = by_chunks(tuple(x[:, 37:] for x in of), state_BHio=state)
    np.testing.assert_allclose(rest, whole[:, 37:], atol=2e-5)
    np.testing.assert_allclose(again, last, atol=2e-5)


def test_the_gradient_of_a_chunked_rule_is_its_slope() -> None:
    q, k, v, rate, decay = rule(70, h=4)
    documents = np.repeat([[1, 2]], 35, axis=1)

    def of(*arrays: jax.Array) -> jax.Array:
        return linear_attention.delta_rule(*arrays, documents)[0]

    check_grads(of, (q, k, v, rate, np.log(decay)), order=1, modes=["rev"], rtol=0.02, atol=0.02)


def test_what_is_left_of_an_output_is_orthogonal_to_the_value() -> None:
    o, v = jax.random.normal(jax.random.key(0), (2, 2, 5, 4, 8))
    left = parts.exclusive(o, v[:, :, :2])
    seen = np.repeat(v[:, :, :2], 2, axis=2)
    assert np.abs((left * seen).sum(axis=-1)).max() < 1e-4
    assert np.abs((o * seen).sum(axis=-1)).max() > 1


@pytest.mark.parametrize("name", ["gates", "short convolutions"])
def test_a_part_that_begins_as_nothing_begins_as_the_plain_model(name: str) -> None:
    changes = PARTS[name]
    plain = {key: x for key, x in changes.items() if key == "qk_norm"}
    logits = [
        Decoder(shaped(**of)).logits(Decoder(shaped(**of)).init(jax.random.key(0)), TOKENS)
        for of in (plain, changes)
    ]
    np.testing.assert_allclose(*logits, atol=1e-6)


@pytest.mark.parametrize("init", [pytest.param("marin", marks=pytest.mark.slow), "mup"])
def test_a_named_initialisation_draws_the_same_numbers_in_other_sizes(init: str) -> None:
    moe = {"num_experts": 4, "top_k": 2, "expert_dim": 8, "latent_dim": 6, "shared_dim": 5}
    changes = EVERY | {"moe": moe, "intermediate_dim": None}
    plain, other = (
        leaves(jax.jit(Decoder(shaped(**changes | of)).init)(jax.random.key(0)))
        for of in ({}, {"init": init})
    )
    roles = leaves(Decoder(shaped(**changes)).roles())
    for path, role in roles.items():
        x, y = np.asarray(plain[path]), np.asarray(other[path])
        drawn_as_gain = path.rpartition("/")[2] in ("rate", "decay")
        if role in ("gain", "state") and not drawn_as_gain:
            np.testing.assert_array_equal(x, y)
            continue
        np.testing.assert_allclose(y / y.std(), x / x.std(), rtol=1e-4, atol=1e-4)
        size = {"embedding": 1, "head": 1 / 16}.get(role, x.shape[-2] ** -0.5)
        expected = 0.88 * (size if init == "mup" else 0.5 / 16**0.5)
        assert y.std() == pytest.approx(expected, rel=0.35), path


# ── However it is run ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name", [pytest.param("two linear, one full", marks=pytest.mark.slow), "every part"]
)
def test_loops_and_remat_change_no_figure(name: str) -> None:
    model = shaped(**PARTS[name])
    params = drawn(Decoder(model))

    def gradients(**compute: Any) -> Any:
        decoder = Decoder(model, ComputeConfig.model_validate(compute))
        return jax.jit(jax.grad(lambda p: jnp.sum(decoder.logits(p, TOKENS) ** 2)))(params)

    plain = gradients(layers="unroll")
    looped = gradients(layers="scan", remat="block")
    for a, b in zip(*map(jax.tree.leaves, (looped, plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * float(jnp.abs(b).max() + 1))


@pytest.mark.parametrize("moe", [pytest.param(False, marks=pytest.mark.slow), True])
def test_generated_tokens_are_those_that_are_scored(moe: bool) -> None:
    experts = {"moe": {"num_experts": 4, "top_k": 2, "expert_dim": 8}, "intermediate_dim": None}
    decoder = Decoder(shaped(**EVERY | {"seq_len": 32} | (experts if moe else {})))
    params = drawn(decoder)
    random = np.random.default_rng(1)
    prompts = [
        generation.Prompt(random.integers(0, 19, n), 0, i) for i, n in enumerate((1, 2, 9, 6))
    ]
    made = generation.generate(decoder, params, prompts, 12, generation.Sampling(1.0))
    asked = [
        scoring.Continuation(np.concatenate([prompt.tokens, one.tokens]), len(prompt.tokens))
        for prompt, one in zip(prompts, made, strict=True)
    ]
    for one, again in zip(made, scoring.score(decoder, params, asked), strict=True):
        np.testing.assert_allclose(again.logprobs, one.logprobs, rtol=1e-3, atol=1e-3)


def test_a_packed_document_is_read_as_if_it_were_alone() -> None:
    decoder = Decoder(shaped(**EVERY, vocab_size=19))
    params = drawn(decoder)
    logits = jax.jit(decoder.logits)
    packed = logits(params, TOKENS[:1], np.array([[1, 1, 1, 2, 2, 2, 2, 2]]))
    for first, last in ((0, 3), (3, 8)):
        alone = logits(params, TOKENS[:1, first:last])
        np.testing.assert_allclose(packed[:, first:last], alone, rtol=1e-3, atol=1e-4)


def test_in_half_precision_only_rounding_changes() -> None:
    model = shaped(**EVERY)
    params = jax.tree.map(lambda x: 0.5 * x, drawn(Decoder(model)))
    full, half = (
        jax.jit(Decoder(model, ComputeConfig(dtype=dtype)).logits)(params, TOKENS)
        for dtype in ("float32", "bfloat16")
    )
    assert np.abs(full - half).max() < 0.05 * np.abs(full).max()


# ── What it costs ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layers", ["unroll", "scan"])
@pytest.mark.parametrize("name", PARTS)
def test_the_trace_gives_the_flops_of_the_formula(name: str, layers: Any) -> None:
    config = shaped(**PARTS[name])
    compute = ComputeConfig(attention="reference", layers=layers)
    # A masked score counts in a trace, so a window is as wide as the sequence here.
    wide = config.model_copy(update={"sliding_window": config.sliding_window and config.seq_len})
    found = traced_flops.forward_flops_per_token(Decoder(wide, compute))
    assert found == flops.forward_flops_per_token(wide)


@pytest.mark.parametrize("name", PARTS)
def test_all_parameters_are_counted_and_have_a_known_shape(name: str) -> None:
    config = shaped(**PARTS[name])
    real = leaves(jax.eval_shape(Decoder(config).init, jax.random.key(0)))
    assert shapes(config) == {path: leaf.shape for path, leaf in real.items()}
    assert flops.parameters(config) == sum(leaf.size for leaf in real.values())


@pytest.mark.parametrize(("optimizer", "counts"), [("adamw", 4), ("muonh", 4), ("soap", 8)])
def test_parameters_and_moments_are_counted_to_the_byte(optimizer: Any, counts: int) -> None:
    config = shaped(**EVERY)
    train = TrainConfig(
        train_batch_size=4, num_train_steps=9, learning_rate=0.1, optimizer=optimizer
    )
    recipe = step.recipe(Decoder(config), train, cross_entropy)
    state = step.abstract_state(recipe, model_mesh.make(MeshConfig()))
    held = [sum(4 * x.size for x in jax.tree.leaves(of)) for of in (state.params, state.moments)]
    counted = memory.footprint(config, train, ComputeConfig(), "cpu")
    assert (counted.parameters, counted.moments) == (held[0], held[1] - counts)


def temporary(config: ModelConfig, batch: int = 1) -> tuple[int, int]:
    """Bytes beside the state of a step, as XLA and as the formula count them."""
    train = TrainConfig(train_batch_size=batch, num_train_steps=9, learning_rate=0.1)
    compute = ComputeConfig(layers="scan")
    recipe = step.recipe(Decoder(config, compute), train, cross_entropy)
    lowered = step.lower(recipe, model_mesh.make(compute.mesh), batch, config.seq_len)
    counted = memory.footprint(config, train, compute, "cpu")
    held = lowered.compile().memory_analysis().temp_size_in_bytes
    return held, counted.total - counted.parameters - counted.moments


LARGER = {
    "hidden_dim": 64, "intermediate_dim": 224, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2,
    "seq_len": 128, "vocab_size": 512,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"gated_norm": 32, "attention_gate": True, "exclusive_attention": True},
        pytest.param({"short_convolution": 4}, marks=pytest.mark.slow),
        pytest.param({"layer_pattern": ["window", "full"], "sliding_window": 32},
                     marks=pytest.mark.slow),
        pytest.param({"layer_pattern": ["linear"]}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_the_memory_estimate_is_within_a_quarter(changes: dict[str, Any]) -> None:
    held, counted = temporary(ModelConfig.model_validate(LARGER | changes), batch=8)
    assert held == pytest.approx(counted, rel=0.25)


@pytest.mark.parametrize(
    ("changes", "least", "most"),
    [
        ({"sliding_window": 64}, 1.8, 2.2),
        ({"layer_pattern": ["linear"]}, 1.8, 2.2),
        pytest.param({}, 2.8, 4.2, marks=pytest.mark.slow),
    ],
    ids=["window", "linear", "full"],
)
def test_a_context_twice_as_long_needs_twice_the_memory(
    changes: dict[str, Any], least: float, most: float
) -> None:
    def kept(S: int) -> int:
        decoder = Decoder(shaped(num_layers=1, seq_len=S, **changes))
        params = jax.eval_shape(decoder.init, jax.random.key(0))
        tokens = jax.ShapeDtypeStruct((1, S), jnp.int32)
        slope = jax.grad(lambda params, tokens: decoder.features(params, tokens).sum())
        compiled = jax.jit(slope).lower(params, tokens).compile()
        return int(compiled.memory_analysis().temp_size_in_bytes)

    assert least < kept(1024) / kept(512) < most


# ── On a mesh ────────────────────────────────────────────────────────────────────────────────

WITH_EXPERTS = EVERY | {
    "head_dim": 8,
    "intermediate_dim": None,
    "moe": on_devices.MOE | {"latent_dim": 8},
}
WITH_EXPERTS |= {"num_layers": 3}


@pytest.mark.parametrize(
    "mesh",
    [(1, 2, 2, 2), (2, 2, 2, 1), (1, 1, 8, 1)],
)
@pytest.mark.slow  # each day `test_mesh` and `test_experts` ask this of simpler models
def test_every_mesh_learns_what_one_device_learns(mesh: tuple[int, ...], tmp_path: Path) -> None:
    [eight] = on_devices.ask(tmp_path / "eight", meshes=[mesh], model=WITH_EXPERTS)
    one = list(on_devices.run(tmp_path / "one", (1, 1, 1), model=WITH_EXPERTS))
    assert one[-1].loss < one[0].loss - 0.3
    for sizes, losses in eight["losses"].items():
        assert losses[0] == pytest.approx(one[0].loss, rel=1e-5), sizes
        assert losses[-1] == pytest.approx(one[-1].loss, rel=2e-3), sizes
