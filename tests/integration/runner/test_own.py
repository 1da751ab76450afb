"""Own models, losses, optimizers, schedules and data: what is trained with them, and what is said
of those that do not fit."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from engine.config.schema import ModelConfig, TrainConfig
from engine.data.token_store import TokenStore
from engine.model.decoder import Attention, Decoder
from engine.training.evaluate import CannotScore
from runner.lib.own_code_errors import BadOwnCode
from runner.planning import planner
from runner.schema import step_graph
from runner.store.store import Store
from runner.worker import executor
from runner.worker.models import plugins
from runner.worker.models import train as builtin_train
from runner.worker.scores import evaluate

B, S, V = 2, 8, 256


class Tiny:
    """Looks at nothing but the token itself."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.width, self.vocab = config["width"], config["vocab_size"]

    def init(self, key: jax.Array) -> Any:
        draw = jax.random.normal
        return {"in": {"w": draw(key, (self.vocab, self.width))}, "out": draw(key, (4, self.vocab))}

    def logits(self, params: Any, tokens: jax.Array) -> jax.Array:
        return params["in"]["w"][tokens] @ params["out"]


class Foreseeing(Tiny):
    """Tells what it should predict."""

    def logits(self, params: Any, tokens: jax.Array) -> jax.Array:
        return super().logits(params, tokens) + 9 * jax.nn.one_hot(jnp.roll(tokens, -1, 1), V)


def other(**methods: Callable[..., Any]) -> Callable[[Any], Any]:
    """A Tiny with other methods."""
    return lambda config: SimpleNamespace(
        **{"init": Tiny(config).init, "logits": Tiny(config).logits, **methods}
    )


def nats(config: Any, logits: jax.Array, targets: jax.Array) -> jax.Array:
    del config
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets)


def batches(config: Any, inputs: Any, seed: int) -> Callable[[int], Any]:
    def batch(step: int) -> Any:
        windows = np.random.default_rng([seed, step]).integers(97, 101, (B, S + 1))
        return windows[:, :-1], windows[:, 1:]

    del config, inputs
    return batch


def drifting(config: Any, inputs: Any, seed: int) -> Callable[[int], Any]:
    generator = np.random.default_rng(seed)
    del config, inputs
    return lambda _: (generator.integers(0, V, (B, S)), generator.integers(0, V, (B, S)))


def config(own: Mapping[str, str], **train: Any) -> dict[str, Any]:
    given = {"train_batch_size": B, "num_train_steps": 3, "learning_rate": 0.1, **train}
    model = {"seq_len": S, "vocab_size": V, "width": 4}
    if "model" not in own:
        model = ModelConfig(depth=1, seq_len=S).model_dump(mode="json")
    recipe = TrainConfig.model_validate(given).model_dump(mode="json")
    return {"model": model, "train": recipe, "own": dict(own), "options": {}, "seed": 1}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    for split in ("train", "validation"):
        TokenStore.build(folder / split, ["abcd" * 200])
    return folder


def tried(tokens: Path, functions: Mapping[str, Any], **train: Any) -> plugins.Parts:
    named = {key: f"mine:{key}" for key in functions}
    by_name = {f"mine:{key}": function for key, function in functions.items()}
    return plugins.Parts(config(named, **train), {"tokens": tokens}, by_name)


def raising(*_: Any) -> Any:
    raise ZeroDivisionError("of course")


@pytest.mark.parametrize(
    ("functions", "sentence"),
    [
        ({"model": raising}, "mine:model: ZeroDivisionError: of course"),
        ({"model": lambda _: 3}, "mine:model gives a int without init and logits; a model is"),
        ({"model": other(init=lambda _: [jnp.ones(3)])},
         "mine:model, init: the parameter 0 does not lie in nested dictionaries"),
        ({"model": other(init=lambda _: {"w": jnp.ones(3, jnp.bfloat16)})},
         "mine:model, init: the parameter w is bfloat16; make it float32"),
        ({"model": other(init=lambda _: {})}, "mine:model, init: there are no parameters"),
        ({"model": other(logits=lambda params, tokens: params["in"]["w"] @ tokens)},
         "mine:model, logits: TypeError: dot_general"),
        ({"model": other(logits=lambda params, tokens: params["in"]["w"][tokens])},
         r"mine:model, logits: for tokens (2, 8) it gives float32 (2, 8, 4); make it float32 "
         "(2, 8, 256)"),
        ({"model": other(logits=lambda *_: None)},
         "mine:model, logits: for tokens (2, 8) it gives a NoneType; make it an array (2, 8, 256)"),
        ({"model": other(roles=lambda: {"in": {"w": "row"}})},
         "mine:model, roles: they are not in the tree that `init` gives"),
        ({"model": other(roles=lambda: {"in": {"w": "rows"}, "out": "head"})},
         "mine:model, roles: there is no role rows; there are embedding, column, row"),
        ({"model": lambda _: Decoder(ModelConfig(depth=1, seq_len=4))},
         "mine:model gives a Decoder with vocab_size 256 and seq_len 4, and `model:` says 256 and"),
        ({"loss": lambda _, logits, __: jnp.sum(logits)},
         "mine:loss: for targets (2, 8) it gives float32 (); make it float32 (2, 8)"),
        ({"loss": lambda logits: logits}, "mine:loss: TypeError: "),
        ({"model": Tiny, "loss": lambda _, logits, __: jax.lax.while_loop(
            lambda x: x[0, 0] < 0, lambda x: x + 1, logits[:, :, 0])},
         "mine:model with mine:loss, its gradient: ValueError: Reverse-mode differentiation"),
        ({"optimizer": lambda *_: "sgd"},
         "mine:optimizer gives a str and no optax.GradientTransformation"),
        ({"optimizer": lambda *_: optax.GradientTransformation(
            lambda _: (), lambda _, state, __: (0.0, state))},
         "mine:optimizer: its updates are not like the parameters in structure"),
        ({"optimizer": lambda *_: optax.GradientTransformation(
            lambda _: 0, lambda grads, *_: (grads, 0.0))},
         "mine:optimizer: its state after a step is not like the one before"),
        ({"schedule": lambda *_: -1.0},
         "mine:schedule: at step 1 it gives -1.0, which is no learning rate"),
        ({"schedule": lambda _, step: 1.0 if step < 3 else float("nan")},
         "mine:schedule: at step 3 it gives nan"),
        ({"schedule": lambda *_: None}, "mine:schedule, step 1: TypeError: float()"),
        ({"data": lambda *_: [1]},
         "mine:data gives a list and no function from a step"),
        ({"data": lambda *_: raising},
         "mine:data, step 1: ZeroDivisionError: of course"),
        ({"data": lambda *_: lambda _: (np.zeros((B, S + 1), int),) * 2},
         "mine:data, step 1: its inputs are int64 (2, 9); make them token ids (2, 8), "),
        ({"data": lambda *_: lambda _: (np.zeros((B, S), int), np.zeros((B, S)))},
         "mine:data, step 1: its targets are float64 (2, 8); make them token ids"),
        ({"data": lambda *_: lambda step: (np.full((B, S), step * 100),) * 2},
         "mine:data, step 3: its inputs go from 300 to 300, and ids go from 0 to 255"),
        ({"data": drifting}, "mine:data: asked twice for step 1 it gives two batches"),
    ],
)  # fmt: skip
def test_an_unfit_own_function_is_named_before_training(
    tokens: Path, functions: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadOwnCode) as it:
        tried(tokens, functions)
    assert str(it.value).startswith(sentence.replace("int64", str(np.dtype(int)))), it.value


def test_muon_wants_to_know_what_parameters_are_for(tokens: Path) -> None:
    with pytest.raises(BadOwnCode, match="mine:model has no `roles`, and muon goes by them"):
        tried(tokens, {"model": Tiny}, optimizer="muon")
    roles = {"in": {"w": "embedding"}, "out": "column"}
    found = tried(tokens, {"model": other(roles=lambda: roles)}, optimizer="muon").model
    assert found.roles() == roles


def test_a_decoder_of_other_parts_is_an_own_model(tokens: Path) -> None:
    class Loud(Attention):
        def heads(self, *given: Any) -> jax.Array:
            return 2 * super().heads(*given)

    made = Decoder(ModelConfig(depth=1, seq_len=S), attention=Loud)
    found = tried(tokens, {"model": lambda _: made})
    assert found.model == made
    assert found.each is None


def test_an_own_schedule_moves_adam_beside_muon_by_the_same_ratio(tokens: Path) -> None:
    beside = {"optimizer": "muon", "adam_learning_rate": 0.01}
    rates = tried(tokens, {"schedule": lambda _, step: 0.5 / step}, **beside).rates
    assert rates
    assert [float(x) for x in rates(2)[:2]] == pytest.approx([0.25, 0.025])


def test_without_own_code_all_is_the_labs(tokens: Path) -> None:
    found = tried(tokens, {})
    assert isinstance(found.model, Decoder)
    assert found.loss is plugins.cross_entropy
    assert (found.each, found.optimizer, found.rates) == (None, None, None)
    assert not isinstance(found.batches, plugins.OwnBatches)


# ── Trained ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def making(tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Trains with these functions, here in this process, and returns the output's folder."""
    monkeypatch.setattr(builtin_train, "keep_heap", lambda: None)

    def make(functions: Mapping[str, Any]) -> Path:
        named = {key: f"mine:{key}" for key in functions}
        by_name = {f"mine:{key}": function for key, function in functions.items()}
        out = tmp_path / "out"
        out.mkdir()
        builtin_train.train(config(named), {"tokens": tokens}, out, by_name)
        return out

    return make


@pytest.mark.parametrize(
    ("functions", "sentence"),
    [
        ({"model": other(logits=lambda params, tokens: Tiny({"width": 4, "vocab_size": V}).logits(
            params, tokens) / 0)},
         "mine:model, logits: at the first step it gives what is not finite"),
        ({"model": Tiny, "loss": lambda *given: nats(*given) / 0},
         "mine:loss: at the first step it gives what is not finite"),
        ({"model": Tiny, "optimizer": lambda *_: optax.scale(jnp.nan)},
         "the loss was not finite (nan) at step 2; lower learning_rate or max_grad_norm, or "
         "lengthen warmup. Own code ran in it: mine:model (model), mine:optimizer (optimizer)"),
    ],
)  # fmt: skip
def test_a_run_that_is_not_finite_says_whose_code_it_was(
    making: Callable[..., Path], functions: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadOwnCode) as it:
        making(functions)
    assert str(it.value) == sentence


def test_a_model_that_looks_ahead_is_trained_and_then_refused_by_name(
    making: Callable[..., Path], tokens: Path, tmp_path: Path
) -> None:
    inputs = {"models": making({"model": Foreseeing}), "tokens": tokens}
    with pytest.raises(
        BadOwnCode, match=r"mine:model made the model, and this step was not planned with it"
    ):
        evaluate.evaluate({"tokens": 64}, inputs, tmp_path)
    with pytest.raises(
        BadOwnCode, match=r"mine:model, scoring .*change with the tokens after"
    ) as it:
        evaluate.evaluate({"tokens": 64}, inputs, tmp_path, {"mine:model": Foreseeing})
    assert isinstance(it.value.__cause__, CannotScore)


OWN = """
import jax.numpy as jnp, numpy as np, optax
from engine.data.token_store import TokenStore

class Bigram:
    def __init__(self, config):
        assert config == {"seq_len": 16, "vocab_size": 256, "scale": 0.5}, config
        self.scale = config["scale"]

    def init(self, key):
        return {"table": jnp.zeros((256, 256))}

    def logits(self, params, tokens):
        return self.scale * params["table"][tokens]

def loss(config, logits, targets):
    smooth = config["options"]["smooth"]
    return optax.softmax_cross_entropy(
        logits, smooth / 256 + (1 - smooth) * jnp.eye(256)[targets])

def optimizer(config, learning_rate):
    return optax.lion(learning_rate)

def schedule(config, step):
    return config["train"]["learning_rate"] * (1 - (step - 1) / config["train"]["num_train_steps"])

def data(config, inputs, seed):
    store = TokenStore.open(inputs["tokens"] / "train")
    rows, length = config["train"]["train_batch_size"], config["model"]["seq_len"]
    def batch(step):
        starts = np.random.default_rng([seed, step]).integers(0, 10_000, rows)
        windows = store.read(starts[:, None] + np.arange(length + 1)).astype(np.int32)
        return windows[:, :-1], windows[:, 1:]
    return batch
"""
SHORT = """\
title: All of it is mine
data: {source: lab-2026-11}
model: {seq_len: 16}
train: {train_batch_size: 4, num_train_steps: 30, learning_rate: 0.3}
eval: {tokens: 512}
resources: {kind: cpu}
arms:
  mine:
    own: {model: "own:Bigram", loss: "own:loss", optimizer: "own:optimizer",
          schedule: "own:schedule", data: "own:data"}
    model: {scale: 0.5}
    options: {smooth: 0.1}
"""


def test_an_arm_of_own_parts_alone_is_trained_and_scored(tmp_path: Path) -> None:
    folder, store = tmp_path / "all-mine", Store(tmp_path / "store")
    folder.mkdir()
    (folder / "experiment.yaml").write_text(SHORT)
    (folder / "own.py").write_text(OWN)
    plan = planner.plan_folder(folder, store)
    code = store.local(planner.code_folder(plan))
    names = step_graph.order({name: step.needs for name, step in plan.steps.items()})
    made = {
        name: executor.make(
            store, name, plan.steps, plan.kinds, code, "x1", terms=executor.OWN_MACHINE
        )
        for name in names
    }
    curve = (made["train/mine,seed=0"].folder / "curve.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in curve]
    assert losses[0] == pytest.approx(np.log(256), abs=1e-4), "cross-entropy of a table of zeros"
    assert losses[-1] < 4.5
    [score] = json.loads((made["evaluate"].folder / "scores.json").read_text()).values()
    assert score["bpb"] < 7
    assert score["targets"] == 512
