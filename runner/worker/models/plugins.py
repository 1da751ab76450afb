"""Own functions that replace the lab's in training and scoring:

    model(config)                      an object with
        .init(key)                         parameters: nested dictionaries of float32 arrays
        .logits(params, tokens_BS)         (batch, position, vocab_size), of the next tokens
        .roles()                           optional: each parameter's role, in the same tree
                                       or an `engine.api.Decoder` of other parts
    loss(config, logits, targets)      (batch, position): what is minimised, for each position
    optimizer(config, learning_rate)   an optax.GradientTransformation, clipping and decay included
    schedule(config, step)             the learning rate of step 1, 2, …
    data(config, inputs, seed)         a function from a step to its (inputs, targets), each (batch,
                                       position) token ids; a target of −1 is not scored

`model` gets the step's `model:`; all others get the step's whole configuration. All must be pure
functions of their arguments; otherwise a resumed run would differ. Each is checked on shapes before
training, and errors name it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from engine.config.schema import BatchSizes, ComputeConfig, ModelConfig, TrainConfig
from engine.data.sampling import Batches
from engine.data.token_store import Batch
from engine.model.decoder import Decoder, Model
from engine.model.loss import LossFunction, cross_entropy
from engine.model.plain import EachLoss, PlainModel, loss_of_logits
from engine.training.optim import MATRICES, AtRate, Rates
from engine.training.optim import rates as rates_of
from engine.training.step import recipe as step_recipe
from engine.training.train import Diverged
from runner.lib.own_code_errors import BadOwnCode, blamed
from runner.spec.step_types import INIT
from runner.worker.models import initial_model, tuned
from runner.worker.models.initial_model import NOTHING
from runner.worker.models.plugin_model import Functions, as_wanted, check_model, own_model
from runner.worker.texts.mixtures import parts_of, sampler

Shape = jax.ShapeDtypeStruct
T = TypeVar("T")


class Parts:
    """The parts of training that a `train` step's configuration names, the lab's by default. Raises
    BadOwnCode and WrongTokens."""

    def __init__(
        self, config: Mapping[str, Any], inputs: Mapping[str, Path], functions: Functions
    ) -> None:
        config = tuned.with_settings(config, inputs)
        self.config, self._names = config, config["own"]
        self._functions = functions
        self.recipe = recipe = TrainConfig.model_validate(config["train"])
        self.model: Model = self._own("model", partial(own_model, config["model"])) or Decoder(
            ModelConfig.model_validate(config["model"]),
            ComputeConfig.model_validate(config.get("compute", {})),
        )
        self._shape = max(recipe.batch_sizes.sizes), self.model.config.seq_len
        if "model" in self._names:
            check_model(self._names["model"], self.model, *self._shape)
            self.model = _on_mesh(self.model, config.get("compute", {}))
        self.each = self._own("loss", self._loss)  # None for the lab's loss
        self.optimizer = self._own("optimizer", self._optimizer)
        if not self.optimizer and recipe.optimizer != "adamw" and _without_roles(self.model):
            raise BadOwnCode(
                f"{self._names['model']} has no `roles`, and {recipe.optimizer} goes by them: it "
                f"moves the matrices ({', '.join(MATRICES)}) and Adam all else; add `roles`, or "
                "write adamw"
            )
        self.loss: LossFunction = cross_entropy
        if self.each or isinstance(self.model, PlainModel):
            self.loss = partial(loss_of_logits, each=self.each)
            self._check_gradient()
        self.rates = self._own("schedule", self._schedule)
        self.batches: Batches = self._own("data", partial(self._data, inputs)) or sampler(
            *(recipe, config["seed"], self.model.config.seq_len, inputs, config.get("loss_on")),
            alone=isinstance(self.model, PlainModel),
        )
        self.start = NOTHING
        if init := config.get("init"):
            made = step_recipe(self.model, recipe, self.loss, self.optimizer)
            self.start = initial_model.read(inputs[INIT], init, made, config["seed"])
            if before := init["steps"]:
                rates = self.rates or rates_of(_longer(recipe, before))
                self.rates = initial_model.later(rates, before)
                self.batches = initial_model.LaterBatches(self.batches, before)

    def _own(self, key: str, made_of: Callable[[str, Callable[..., Any]], T]) -> T | None:
        """The result of `made_of` for the own function of `key`; None if there is none."""
        name = self._names.get(key)
        return made_of(name, self._functions[name]) if name else None

    def blame_for(self, error: Diverged) -> BadOwnCode | Diverged:
        """The same error with the function whose value is not finite, if that shows at the first
        step; otherwise with all own functions that ran."""
        if not self._names:
            return error
        if error.step == 1:
            batch = self.batches.rows(1, range(self.recipe.train_batch_size))
            params = self.model.init(jax.random.key(self.config["seed"]))
            logits = self.model.logits(params, jnp.asarray(batch.inputs_BS))
            targets = jnp.maximum(jnp.asarray(batch.targets_BS), 0)
            for key, where, found in (
                ("model", ", init", params),
                ("model", ", logits", logits),
                ("loss", "", self.each(logits, targets) if self.each else ()),
            ):
                if key in self._names and not _finite(found):
                    where = f"{self._names[key]}{where}"
                    return BadOwnCode(f"{where}: at the first step it gives what is not finite")
        ran = ", ".join(f"{name} ({key})" for key, name in self._names.items())
        return BadOwnCode(f"{error}. Own code ran in it: {ran}")

    def _check_gradient(self) -> None:
        model, loss = self.model, self.loss

        def objective(params: Any, tokens: jax.Array) -> jax.Array:
            losses = loss(model.features(params, tokens), model.output_matrix(params), tokens)
            return losses.nats + losses.penalty

        who = " with ".join(self._names[key] for key in ("model", "loss") if key in self._names)
        with blamed(who, "its gradient"):
            jax.eval_shape(jax.grad(objective), _drawn(model), Shape(self._shape, jnp.int32))

    def _loss(self, name: str, function: Callable[..., Any]) -> EachLoss:
        each = partial(function, self.config)
        with blamed(name):
            logits = Shape((*self._shape, self.model.config.vocab_size), jnp.float32)
            found = jax.eval_shape(each, logits, Shape(self._shape, jnp.int32))
        as_wanted(f"{name}: for targets {self._shape}", found, self._shape)
        return each

    def _optimizer(self, name: str, function: Callable[..., Any]) -> AtRate:
        at_rate = partial(function, self.config)
        params = _drawn(self.model)

        def step(rate: jax.Array, params: Any) -> Any:
            made = at_rate(rate)
            if not isinstance(made, optax.GradientTransformation):
                raise BadOwnCode(
                    f"{name} gives a {type(made).__name__} and no optax.GradientTransformation"
                )
            state = made.init(params)
            updates, after = made.update(params, state, params)
            return updates, state, after

        with blamed(name):
            updates, state, after = jax.eval_shape(step, Shape((), jnp.float32), params)
        for what, found, wanted in (
            ("its updates are not like the parameters", updates, params),
            ("its state after a step is not like the one before", after, state),
        ):
            if _like(found) != _like(wanted):
                raise BadOwnCode(f"{name}: {what} in structure, shapes and dtypes")
        return at_rate

    def _schedule(self, name: str, function: Callable[..., Any]) -> Callable[[int], Rates]:
        recipe = self.recipe
        beside = (recipe.adam_learning_rate or recipe.learning_rate) / recipe.learning_rate

        def rates(step: int) -> Rates:
            with blamed(name, f"step {step}"):
                rate = float(function(self.config, step))
            if not (math.isfinite(rate) and rate >= 0):
                raise BadOwnCode(
                    f"{name}: at step {step} it gives {rate}, which is no learning rate"
                )
            return Rates(*map(np.float32, (rate, rate * beside, rate / recipe.learning_rate)))

        for step in (1, recipe.num_train_steps):
            rates(step)
        return rates

    def _data(
        self, inputs: Mapping[str, Path], name: str, function: Callable[..., Any]
    ) -> "OwnBatches":
        with blamed(name):
            read = function(self.config, inputs, self.config["seed"])
        if not callable(read):
            raise BadOwnCode(f"{name} gives a {type(read).__name__} and no function from a step")
        stores, weights = zip(*parts_of(inputs["tokens"], "train").values(), strict=True)
        average = np.average([x.manifest.bytes_per_token for x in stores], weights=weights)
        vocab_size = self.model.config.vocab_size
        sizes, seq_len = self.recipe.batch_sizes, self.model.config.seq_len
        batches = OwnBatches(name, read, sizes, seq_len, vocab_size, float(average))
        steps = 1, self.recipe.num_train_steps, 1
        first, _, again = (batches.rows(step, np.arange(sizes.at(step))) for step in steps)
        if any((one != other).any() for one, other in zip(first[:2], again[:2], strict=True)):
            raise BadOwnCode(
                f"{name}: asked twice for step 1 it gives two batches; a batch has to follow from "
                "seed and step alone, or a resumed run would see other tokens"
            )
        return batches


class OwnBatches:
    """The batches of an own data function, each checked before training uses it."""

    packed = False

    def __init__(
        self,
        name: str,
        read: Callable[[int], Any],
        batch_sizes: BatchSizes,
        seq_len: int,
        vocab_size: int,
        bytes_per_token: float,
    ) -> None:
        self.batch_sizes, self.seq_len = batch_sizes, seq_len
        self.vocab_size, self._bytes_per_token = vocab_size, bytes_per_token
        self._name, self._read = name, read

    def bytes_per_token(self, step: int) -> float:  # noqa: ARG002
        """The mean over the tokenized text, because the tokens may come from anywhere in it."""
        return self._bytes_per_token

    def rows(self, step: int, rows: Sequence[int] | np.ndarray) -> Batch:
        """These rows of the batch of `step`. Raises BadOwnCode."""
        where, shape = f"{self._name}, step {step}", (self.batch_sizes.at(step), self.seq_len)
        with blamed(where):
            inputs, targets = self._read(step)
            both = np.asarray(inputs), np.asarray(targets)
        for what, x, least in (("inputs", both[0], 0), ("targets", both[1], -1)):
            if x.shape != shape or x.dtype.kind not in "iu":
                raise BadOwnCode(
                    f"{where}: its {what} are {x.dtype} {x.shape}; make them token ids "
                    f"{shape}, train_batch_size rows of seq_len"
                )
            if x.min() < least or x.max() >= self.vocab_size:
                raise BadOwnCode(
                    f"{where}: its {what} go from {x.min()} to {x.max()}, and ids go from {least} "
                    f"to {self.vocab_size - 1}"
                )
        here = np.asarray(rows)
        return Batch(*(np.ascontiguousarray(x[here], dtype=np.int32) for x in both))


def _longer(recipe: TrainConfig, before: int) -> TrainConfig:
    return recipe.model_copy(update={"num_train_steps": before + recipe.num_train_steps})


def _on_mesh(model: Model, compute: Mapping[str, Any]) -> Model:
    """An own model on the declared mesh."""
    assert isinstance(model, PlainModel | Decoder)
    mesh = ComputeConfig.model_validate(compute).mesh
    return replace(model, compute=model.compute.model_copy(update={"mesh": mesh}))


def _without_roles(model: Model) -> bool:
    return isinstance(model, PlainModel) and model.roles_of is None


def _drawn(model: Model) -> Any:
    return jax.eval_shape(model.init, jax.random.key(0))


def _like(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(x.shape, x.dtype) for x in leaves]


def _finite(tree: Any) -> bool:
    return all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(tree))
