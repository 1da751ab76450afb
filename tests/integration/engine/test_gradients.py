"""Every parameter learns: whatever a declaration adds to a model, and with the own models that are
shipped, each array gets a gradient in each layer, and each optimizer moves it."""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engine.config.schema import ExpertsConfig, ModelConfig, TrainConfig
from engine.model.decoder import Decoder
from engine.training import optim

ROOT = Path(__file__).parents[3]
SHAPE: dict[str, Any] = {
    **{"hidden_dim": 16, "intermediate_dim": 24, "num_layers": 2, "num_heads": 4},
    **{"num_kv_heads": 2, "seq_len": 16, "vocab_size": 32},
}
EXPERTS = {"num_experts": 6, "top_k": 2, "expert_dim": 12}


def of_experts(**changes: Any) -> dict[str, Any]:
    return {"intermediate_dim": None, "moe": EXPERTS | changes}


MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied, marin's": {"tie_word_embeddings": True, "init": "marin", "qk_norm": "rms"},
    "normed": {"qk_norm": "learned", "logit_soft_cap": 20.0, "init": "mup", "head_dim": 6},
    "gates": {"attention_gate": True, "gated_norm": 4, "exclusive_attention": True},
    "convolved, the narrowest window": {"short_convolution": 4, "sliding_window": 2},
    "layers of all kinds": {
        **{"num_layers": 4, "layer_pattern": ["linear", "window", "nope"], "last_layer": "full"},
        **{"sliding_window": 4, "rope_fraction": 0.5, "short_convolution": 3},
    },
    "biases, norms after": {
        **{"attention_bias": "all", "norm_position": "after", "qk_norm": "whole"},
        "rope_scaling": {"factor": 8.0, "original_seq_len": 8},
    },
    "softmax experts": of_experts(scores="softmax"),
    "two experts": of_experts(shared_dim=8),
    "one expert": of_experts(top_k=1),
    "one expert by a bias": of_experts(top_k=1, balance="bias", weight_sum=2.5),
    "one expert by a loss": of_experts(top_k=1, balance="auxiliary", router_z_loss=0.01),
    "one expert, free": of_experts(top_k=1, balance="none", capacity_factor=1.0),
    "all experts": of_experts(top_k=6),
    "experts in a latent space": of_experts(latent_dim=6),
}
NO_PARTS = {  # sizes, and what changes no derivative
    *("size", "depth", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "seq_len"),
    *("num_kv_heads", "vocab_size", "rope_theta", "norm_epsilon"),
    *("num_experts", "expert_dim", "balance_rate"),
}


def config(name: str) -> ModelConfig:
    return ModelConfig.model_validate({k: v for k, v in (SHAPE | MODELS[name]).items() if v})


def own(path: str, name: str, **shape: Any) -> Any:
    """A model that own code of a shipped experiment makes."""
    spec = importlib.util.spec_from_file_location(f"own_{name}", ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = getattr(module, name)
    if name == "ParallelBlock":
        return Decoder(ModelConfig.model_validate(shape), block=made)
    return made(shape)


OWN = {
    "hackable": lambda: own(
        *("runner/spec/starters/hackable/model.py", "Transformer"),
        **{"width": 16, "layers": 2, "heads": 2, "seq_len": 16, "vocab_size": 32},
    ),
    "gated-attention": lambda: own("experiments/gated-attention/model.py", "gated", **SHAPE),
    "parallel-block": lambda: own("experiments/parallel-block/model.py", "ParallelBlock", **SHAPE),
}


def grown(params: Any, roles: Any) -> Any:
    """The parameters with weights as large as trained ones are, so that no derivative is small
    because what is behind it is."""

    def one(role: str, x: jax.Array) -> jax.Array:
        if role in ("gain", "state") or not jnp.any(x):
            return x
        size = 1.0 if role == "embedding" else x.shape[-2] ** -0.5
        return x * (size / jnp.std(x))

    return jax.tree.map(one, roles, params)


def shares(model: Any) -> dict[str, float]:
    """Of each parameter that learns, and of the layer in which it is least: the norm of its
    gradient as a share of that of all."""
    roles = model.roles()
    tokens = np.random.default_rng(0).integers(0, 32, (8, 17), np.int32)

    def loss(params: Any) -> jax.Array:
        logits_BSV = model.logits(params, jnp.asarray(tokens[:, :-1])).reshape(8, 16, -1)
        nats_BSV = -jax.nn.log_softmax(logits_BSV.astype(jnp.float32))
        return jnp.mean(jnp.take_along_axis(nats_BSV, jnp.asarray(tokens[:, 1:, None]), 2))

    params = grown(model.init(jax.random.key(0)), roles)
    gradient = jax.jit(jax.grad(loss))(params)
    learned = {
        jax.tree_util.keystr(path): np.asarray(g, np.float64)
        for (path, g), role in zip(
            jax.tree.leaves_with_path(gradient), jax.tree.leaves(roles), strict=True
        )
        if role != "state"
    }
    total = np.sqrt(sum((g**2).sum() for g in learned.values()))
    layers = {name: list(g) if "blocks'" in name else [g] for name, g in learned.items()}
    return {name: min(np.linalg.norm(g) for g in gs) / total for name, gs in layers.items()}


def test_the_models_here_have_all_that_can_be_declared() -> None:
    declared = {key for model in MODELS.values() for key in (*model, *(model.get("moe") or {}))}
    assert {*ModelConfig.model_fields, *ExpertsConfig.model_fields} - NO_PARTS <= declared


@pytest.mark.parametrize("name", [*MODELS, *OWN])
def test_each_parameter_gets_a_gradient_in_each_layer(name: str) -> None:
    model = OWN[name]() if name in OWN else Decoder(config(name))
    # What only rounding leaves of a derivative is below 1e-8.
    assert not {name: share for name, share in shares(model).items() if share < 1e-5}


@pytest.mark.parametrize("name", TrainConfig.model_fields["optimizer"].annotation.__args__)  # type: ignore[union-attr]
def test_each_optimizer_moves_each_parameter_in_three_steps(name: str) -> None:
    decoder = Decoder(config("gates"))
    train = TrainConfig.model_validate(
        {"train_batch_size": 1, "num_train_steps": 9, "learning_rate": 0.01, "optimizer": name}
    )
    transformation = optim.transform(optim.optimizer(train), decoder.roles())
    first = params = decoder.init(jax.random.key(0))
    state, update = transformation.init(params), jax.jit(transformation.update)
    for step in (1, 2, 3):
        key = jax.random.key(step)
        gradient = jax.tree.map(lambda x, key=key: jax.random.normal(key, x.shape), params)
        moves, state = update(gradient, state, params, rates=optim.rates(train)(step))
        params = jax.tree.map(jnp.add, params, moves)
    moved = jax.tree.map(lambda a, b: float(jnp.linalg.norm(b - a)), first, params)
    assert min(jax.tree.leaves(moved)) > 1e-4
