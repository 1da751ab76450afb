"""Training, as one recipe that reads from top to bottom: state, step, loop. It talks to nobody: it
takes tokens, yields metrics, and leaves checkpoints in a folder. Every batch and key is a function
of (seed, step), so a run that was killed and resumed ends with the same parameters, bit for bit, on
the same devices, versions, flags and number of threads."""

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from engine import checkpoint, optim
from engine import model as decoder
from engine.config import ModelConfig, TrainConfig
from engine.data import WrongTokens, batch
from engine.loss import cross_entropy

WINDOW = 5  # steps over which throughput is measured


class Metrics(NamedTuple):
    """What is known after a step."""

    step: int  # finished steps, from 1
    loss: float  # nats per token, of the batch before the update
    grad_norm: float  # global, before clipping
    learning_rate: float
    tokens: int  # trained on so far, earlier attempts included
    tokens_per_second: float | None  # over the last 5 steps, once in 5 steps


class NonFiniteLoss(Exception):
    """Training diverged at `step`."""

    def __init__(self, step: int, name: str = "loss", value: float = math.nan) -> None:
        super().__init__(
            f"the {name} was not finite ({value}) at step {step}; lower learning_rate or "
            "max_grad_norm, or lengthen warmup"
        )
        self.step = step


class State(NamedTuple):
    params: decoder.Params
    moments: Any  # the optimizer's state


def train(
    model: ModelConfig,
    config: TrainConfig,
    tokens: np.ndarray,
    seed: int,
    checkpoints: Path,
    resume_from: Sequence[Path] = (),
) -> Iterator[Metrics]:
    """Train on `tokens` (the train split, (N,) uint8) and yield each step's metrics.

    Continues after the newest complete checkpoint in `checkpoints` or any of `resume_from`, and
    yields nothing if that one is the last. Writes to `checkpoints` only: `<checkpoints>/<step>`
    every `checkpoint_every` steps and at the end; the last one is complete when the iterator ends.
    A step's metrics are yielded before its checkpoint is begun, so who writes them down before
    asking for more has no gap in the curve after a resume. `seed` is 0 … 2³² − 1.

    Raises NonFiniteLoss after the metrics of all earlier steps, BadCheckpoint, WrongTokens.
    """
    if tokens.size and tokens.max() >= model.vocab_size:
        raise WrongTokens(
            f"the text has token {tokens.max()} and vocab_size is {model.vocab_size}; "
            "raise vocab_size (256 for bytes)"
        )
    state, done = _begin(model, config, seed, (checkpoints, *resume_from))
    size = config.train_batch_size, model.seq_len
    adamw, rate_of = optim.adamw(config), optim.schedule(config)
    pace = _Pace(tokens_per_step=math.prod(size))

    def metrics(step: int, loss: jax.Array, grad_norm: jax.Array) -> Metrics:
        for name, value in (("loss", float(loss)), ("gradient norm", float(grad_norm))):
            if not math.isfinite(value):
                raise NonFiniteLoss(step, name, value)
        return Metrics(
            step=step,
            loss=float(loss),
            grad_norm=float(grad_norm),
            learning_rate=rate_of(step),
            tokens=step * math.prod(size),
            tokens_per_second=pace.after_a_step(),
        )

    with checkpoint.manager(checkpoints) as saver:
        if done == config.num_train_steps and checkpoint.latest(checkpoints) != done:
            checkpoint.save(saver, done, state.params, state.moments)  # finished elsewhere
        unread = None  # the step before: its figures are fetched while the next one computes
        for step in range(done + 1, config.num_train_steps + 1):
            windows = batch(tokens, seed, step, *size)
            state, *figures = _step(model, adamw, state, windows, np.float32(rate_of(step)))
            if unread:
                yield metrics(*unread)
            unread = (step, *figures)
            if step % config.checkpoint_every == 0 or step == config.num_train_steps:
                yield metrics(*unread)  # which also refuses to save what is not finite
                unread = None
                checkpoint.save(saver, step, state.params, state.moments)


def _begin(
    model: ModelConfig, config: TrainConfig, seed: int, folders: Sequence[Path]
) -> tuple[State, int]:
    """The state to go on from and how many steps it has behind it."""
    fresh = partial(_fresh, model, optim.adamw(config))
    found = [(step, folder) for folder in folders if (step := checkpoint.latest(folder))]
    if not found:
        return fresh(jax.random.key(seed)), 0
    step, folder = max(found, key=lambda pair: pair[0])
    like = jax.eval_shape(fresh, jax.random.key(seed))
    path = folder / str(step)
    if step > config.num_train_steps:
        raise checkpoint.BadCheckpoint(
            f"{path} is {step} steps into a run and num_train_steps is {config.num_train_steps}; "
            "use another folder or raise num_train_steps"
        )
    params = checkpoint.restore(path, "params", like.params)
    return State(params, checkpoint.restore(path, "rest", like.moments)), step


@partial(jax.jit, static_argnames=("model", "adamw"))
def _fresh(model: ModelConfig, adamw: optim.AdamW, key: jax.Array) -> State:
    params = decoder.init(model, key)
    return State(params, optim.transform(adamw, decoder.roles(model)).init(params))


@partial(jax.jit, static_argnames=("model", "adamw"), donate_argnames="state")
def _step(
    model: ModelConfig,
    adamw: optim.AdamW,
    state: State,
    windows_BW: jax.Array,
    learning_rate: jax.Array,
) -> tuple[State, jax.Array, jax.Array]:
    """One update. `windows_BW` is (B, S + 1). Returns the state, the loss and the gradient's norm
    before clipping."""

    def mean_loss(params: decoder.Params) -> jax.Array:
        logits_TV = decoder.logits(model, params, windows_BW[:, :-1])
        return jnp.mean(cross_entropy(logits_TV, windows_BW[:, 1:].reshape(-1)))

    loss, grads = jax.value_and_grad(mean_loss)(state.params)
    updates, moments = optim.transform(adamw, decoder.roles(model)).update(
        grads, state.moments, state.params
    )
    params = jax.tree.map(lambda p, u: p - learning_rate * u, state.params, updates)
    return State(params, moments), loss, optax.tree.norm(grads)


class _Pace:
    """Tokens a second over windows of steps. The first step, which may compile, starts the clock;
    saving and whoever reads the metrics count, since a run takes that time too."""

    def __init__(self, tokens_per_step: int) -> None:
        self.tokens_per_step = tokens_per_step
        self.began: float | None = None
        self.steps = 0

    def after_a_step(self) -> float | None:
        now = time.monotonic()
        if self.began is None:
            self.began = now
            return None
        self.steps += 1
        if self.steps < WINDOW:
            return None
        pace = self.steps * self.tokens_per_step / (now - self.began)
        self.began, self.steps = now, 0
        return pace
