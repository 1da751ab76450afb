"""How parameters move: the learning-rate schedule, a plain function of the step, and AdamW. The
rate is multiplied in by the training step and is no part of the optimizer here, so that arms which
differ only in their rates share one compilation."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from engine.config import TrainConfig


class AdamW(NamedTuple):
    """The constants of AdamW that are compiled in."""

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    max_grad_norm: float


def adamw(config: TrainConfig) -> AdamW:
    """The optimizer that `config` declares."""
    return AdamW(**{name: getattr(config, name) for name in AdamW._fields})


def transform(adamw: AdamW, roles: Any) -> optax.GradientTransformation:
    """Gradients to what is subtracted, times the learning rate: clipping by the global norm, Adam
    with bias correction (Kingma & Ba), then decoupled decay (Loshchilov & Hutter) of every
    parameter whose role is not "gain". `roles` has the tree of the parameters."""
    return optax.chain(
        optax.clip_by_global_norm(adamw.max_grad_norm),
        optax.scale_by_adam(adamw.beta1, adamw.beta2, adamw.epsilon),
        optax.add_decayed_weights(
            adamw.weight_decay, mask=jax.tree.map(lambda role: role != "gain", roles)
        ),
    )


def schedule(config: TrainConfig) -> Callable[[int], float]:
    """The learning rate of step 1, 2, …, num_train_steps.

    With N steps, warm-up takes w = round(warmup · N) and decay d = round(decay · N), at most N − w
    (ties round to even). Steps 1 … w rise by peak/w each: the first has peak/w (the peak if
    w = 0), step w the peak. The rest depends on `lr_schedule`:

    - constant: the peak to the last step.
    - linear: holds the peak, then the last d steps (all N − w without `decay`) fall by peak/d
      each: peak, …, peak/d at the last step.
    - cosine: the N − w steps after the warm-up have peak · (1 + cos(π · i/(N − w)))/2 for
      i = 0, 1, …; the last step's is small but not zero.
    """
    steps, peak = config.num_train_steps, config.learning_rate
    rising = round(config.warmup * steps)
    rest = steps - rising
    falling = rest if config.decay is None else min(round(config.decay * steps), rest)

    def rate(step: int) -> float:
        if step <= rising:
            return peak * step / rising
        if config.lr_schedule == "linear" and step > steps - falling:
            return peak * (steps - step + 1) / falling
        if config.lr_schedule == "cosine":
            return peak * (1 + math.cos(math.pi * (step - rising - 1) / rest)) / 2
        return peak

    return rate
