"""Optimizers: learning rates as plain functions of the step, and AdamW and its kin, Lion, SOAP,
Muon, AdamH and MuonH, in Optax's form. The role that the model declares for a parameter decides
how it moves, never its number of dimensions: stacked norm gains look like matrices. Rates are
arguments of the compiled step, so arms that differ only in them share one compilation."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from engine.config.schema import GUARD_WINDOW, HYPERBALL, TrainConfig, span_steps
from engine.training.soap import scale_by_soap

# The roles that Muon and Hyperball move; Adam moves the rest.
MATRICES = ("column", "row", "expert column", "expert row")
IN, OUT = -2, -1  # the last two axes are a matrix, y = x @ w; those before are layers, experts
TINY = 1e-10  # smallest norm to divide by
Coefficients = tuple[float, float, float]
# The coefficients of the five Newton–Schulz steps: Jordan's, five times; and those of Levanter from
# January 2026 on, which are of NVIDIA's Emerging-Optimizers.
NEWTON_SCHULZ = {
    "simple": ((3.4445, -4.7750, 2.0315),) * 5,
    "quintic": (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
}


class Optimizer(NamedTuple):
    """The settings that are compiled in."""

    name: Literal["adamw", "nadamw", "adamc", "lion", "soap", "muon", "adamh", "muonh"]
    momentum: float | None  # of Muon
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    max_grad_norm: float
    max_update_sigma: float | None = None
    newton_schulz: Literal["simple", "quintic"] = "simple"  # of Muon


# An optimizer of own code: maps a step's learning rate (a traced scalar) to everything that happens
# to gradients, clipping and decay included.
AtRate = Callable[[Any], optax.GradientTransformation]


class Rates(NamedTuple):
    """The learning rates of one step, float32 scalars."""

    matrix: Any  # for the roles in MATRICES
    rest: Any
    height: Any = np.float32(1)  # both as a fraction of their peaks


def optimizer(config: TrainConfig) -> Optimizer:
    """The optimizer that `config` declares."""
    constants = {name: getattr(config, name) for name in Optimizer._fields if name != "name"}
    return Optimizer(config.optimizer, **constants)


def transform(optimizer: Optimizer | AtRate, roles: Any) -> optax.GradientTransformationExtraArgs:
    """A transformation from gradients to parameter updates: `update(grads, state, params,
    rates=Rates)`.

    Gradients are clipped by their global norm; then each is turned into a direction u (what all
    move by may be clipped, too: `max_update_sigma`):

    | optimizer | u of a matrix | a matrix p moves by      | all else moves by Adam's u, and |
    | --------- | ------------- | ------------------------ | ------------------------------- |
    | adamw     | Adam          | −rate · (u + decay · p)  | decays but for gains            |
    | soap      | SOAP          | −rate · (u + decay · p)  | decays but for gains            |
    | muon      | Muon          | −rate · (u + decay · p)  | decays but for gains            |
    | adamh     | Adam          | Hyperball, no decay      | never decays                    |
    | muonh     | Muon          | Hyperball, no decay      | never decays                    |

    "All else" is embedding, head, routers and gains; states do not move. Adam has bias correction
    (Kingma & Ba, arXiv 1412.6980); decay is decoupled (Loshchilov & Hutter, arXiv 1711.05101).
    Three are as adamw but for one thing: nadamw has Nesterov's momentum (Dozat, 2016); lion moves
    everything by the sign of a momentum (Chen et al., arXiv 2302.06675); with adamc the decay of
    all but the head falls with the rate, as a fraction of its peak (Defazio, arXiv 2506.02285).
    `roles` has the tree of the parameters, a Role for each.

    In the state, each moment has the shape and dtype of its parameter and has the same path below
    some prefix (…/mu/<path>, …/nu/<path>): Adam and SOAP keep mu and nu, Muon and Lion only mu.
    SOAP also has four square factors for each matrix (`engine.training.soap`). The rest of the
    state is small: counts.
    """
    if not isinstance(optimizer, Optimizer):
        return _at_each_rate(optimizer)
    name, betas, epsilon = optimizer.name, (optimizer.beta1, optimizer.beta2), optimizer.epsilon
    direction = optax.scale_by_adam(*betas, epsilon, nesterov=name == "nadamw")
    if name == "lion":
        direction = optax.scale_by_lion(*betas)
    of_matrices = None
    if name in ("muon", "muonh"):
        assert optimizer.momentum is not None
        # Levanter's 1e-8 is beside a sum of gradients, which is 1/(1 − momentum) times their mean.
        tiny = 1e-8 * (1 - optimizer.momentum) if name == "muonh" else 1e-7
        of_matrices = _muon(optimizer.momentum, tiny, NEWTON_SCHULZ[optimizer.newton_schulz])
    elif name == "soap":
        of_matrices = scale_by_soap(*betas, epsilon)
    if of_matrices:
        routes = jax.tree.map(lambda role: "muon" if role in MATRICES else "adam", roles)
        direction = optax.partition({"muon": of_matrices, "adam": direction}, routes)
    decay = optax.identity()
    if name == "adamc":
        decay = _decay_with_the_rate(optimizer.weight_decay, roles)
    elif name not in HYPERBALL:
        decayed = jax.tree.map(lambda role: role not in ("gain", "state"), roles)
        decay = optax.add_decayed_weights(optimizer.weight_decay, mask=decayed)
    clip = optax.clip_by_global_norm(optimizer.max_grad_norm)
    chain = [clip, direction, decay, _move(roles, name in HYPERBALL)]
    if optimizer.max_update_sigma is not None:
        chain.append(_not_far_above_the_last(optimizer.max_update_sigma))
    return optax.chain(*chain)


def rates(config: TrainConfig) -> Callable[[int], Rates]:
    """The learning rates of step 1, 2, …, num_train_steps.

    With N steps, the warm-up takes w steps and the decay d. Fractions give w = round(warmup · N)
    and d = round(decay · N) (ties round to even); integers are steps already. Steps 1 … w rise by
    peak/w each: the first has peak/w (the peak if w = 0), step w the peak. The rest depends on
    `lr_schedule`:

    - constant: the peak to the last step.
    - linear: the N − w steps after the warm-up fall by peak/(N − w) each: peak, …, peak/(N − w) at
      the last step.
    - cosine: the N − w steps after the warm-up have peak · (1 + cos(π · i/(N − w)))/2 for i = 0, 1,
      …; the last step's rate is small but not zero.
    - wsd: the peak, then the last d steps (N − w if that is less) fall by peak/d each: peak, …,
      peak/d at the last step. With `cycle` (WSD-S; Wen et al., arXiv 2410.05192) so do the last d
      of every so many steps, counted from the end, and a fraction d is one of the cycle.

    With `min_lr_ratio` m, what falls is m · peak + (1 − m) · the rate above.

    The peak is `learning_rate`; for the parameters that Adam moves beside another optimizer it is
    `adam_learning_rate`.

    With phases, each schedule has its own N and counts from its own first step.
    """
    turns = [(before, _rates(one)) for before, one in config.schedules()]

    def at(step: int) -> Rates:
        before, rates = next(turn for turn in reversed(turns) if step > turn[0])
        return rates(step - before)

    return at


def _rates(config: TrainConfig) -> Callable[[int], Rates]:
    """As `rates`, without phases."""
    steps, floor = config.num_train_steps, config.min_lr_ratio or 0.0
    rising, cycle = span_steps(config.warmup, steps), config.cycle or steps
    after = steps - rising
    falling = {"linear": after, "wsd": min(span_steps(config.decay or 0, cycle), after)}
    adam_peak = config.adam_learning_rate or config.learning_rate  # AdamW has only one

    def height(step: int) -> float:
        """The rate as a fraction of its peak."""
        if step <= rising:
            return step / rising
        if config.lr_schedule == "cosine":
            fallen = (1 + math.cos(math.pi * (step - rising - 1) / after)) / 2
        else:
            later = min((steps - step) // cycle, steps // cycle - 1)  # cycles
            left, fall = steps - step + 1 - later * cycle, falling.get(config.lr_schedule, 0)
            fallen = left / fall if left < fall else 1.0
        return floor + (1 - floor) * fallen

    def at(step: int) -> Rates:
        now = height(step)
        every = config.learning_rate * now, adam_peak * now, now
        return Rates(*map(np.float32, every))

    return at


def _at_each_rate(optimizer: AtRate) -> optax.GradientTransformationExtraArgs:
    def update(grads: Any, state: Any, params: Any, *, rates: Rates) -> tuple[Any, Any]:
        return optimizer(rates.matrix).update(grads, state, params)

    return optax.GradientTransformationExtraArgs(lambda params: optimizer(0.0).init(params), update)


class MuonState(NamedTuple):
    mu: Any  # mean of the gradients


def _muon(
    momentum: float, epsilon: float, coefficients: Sequence[Coefficients]
) -> optax.GradientTransformation:
    """Muon's direction of each matrix, as its author computes it (Jordan et al., 2024;
    https://kellerjordan.github.io/posts/muon and `muon.py` of KellerJordan/Muon), in float32: the
    mean m ← β·m + (1 − β)·g without bias correction, Nesterov's β·m + (1 − β)·g, and five
    Newton–Schulz steps from there towards the nearest orthogonal matrix, times √max(1, out/in).
    `optax.contrib.muon` corrects the bias, which is another direction in the first steps."""

    def begin(params: Any) -> MuonState:
        return MuonState(optax.tree.zeros_like(params))

    def update(grads: Any, state: MuonState, _: Any = None) -> tuple[Any, MuonState]:
        def mean(mu: jax.Array, g: jax.Array) -> jax.Array:
            return momentum * mu + (1 - momentum) * g

        def direction(x_IO: jax.Array) -> jax.Array:
            scale = math.sqrt(max(1.0, x_IO.shape[OUT] / x_IO.shape[IN]))
            return scale * _orthogonal(x_IO / (_norm(x_IO) + epsilon), coefficients)

        mu = jax.tree.map(mean, state.mu, grads)
        return jax.tree.map(direction, jax.tree.map(mean, mu, grads)), MuonState(mu)

    return optax.GradientTransformation(begin, update)


def _orthogonal(x_IO: jax.Array, coefficients: Sequence[Coefficients]) -> jax.Array:
    """Newton–Schulz steps with x of norm 1: A = X·Xᵀ, X ← a·X + (b·A + c·A²)·X."""
    if x_IO.shape[IN] > x_IO.shape[OUT]:  # Xᵀ has the smaller A, and the same result
        return _orthogonal(x_IO.mT, coefficients).mT
    for a, b, c in coefficients:
        gram = x_IO @ x_IO.mT
        x_IO = a * x_IO + (b * gram + c * gram @ gram) @ x_IO
    return x_IO


def _decay_with_the_rate(decay: float, roles: Any) -> optax.GradientTransformationExtraArgs:
    """Adds decay · p, times the rate as a fraction of its peak; for the head, whose output no norm
    follows, without that fraction, and nothing for gains."""

    def update(directions: Any, state: Any, params: Any, *, rates: Rates) -> tuple[Any, Any]:
        def decayed(role: str, u: jax.Array, p: jax.Array) -> jax.Array:
            share = {"gain": 0.0, "state": 0.0, "head": 1.0}.get(role, rates.height)
            return u + decay * share * p

        return jax.tree.map(decayed, roles, directions, params), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def _move(roles: Any, hyperball: bool) -> optax.GradientTransformationExtraArgs:
    """From directions to updates, with the lengths that `rates` gives."""

    def update(directions: Any, state: Any, params: Any, *, rates: Rates) -> tuple[Any, Any]:
        def step(role: str, u: jax.Array, p: jax.Array) -> jax.Array:
            if role not in MATRICES:
                return -rates.rest * u
            return _on_sphere(p, u, rates.matrix) if hyperball else -rates.matrix * u

        return jax.tree.map(step, roles, directions, params), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


class UpdateNorms(NamedTuple):
    """The norms of the last updates."""

    norms_W: jax.Array  # a ring
    steps: jax.Array


def _not_far_above_the_last(sigma: float) -> optax.GradientTransformationExtraArgs:
    """Scales an update down to the mean norm of the last GUARD_WINDOW ones plus so many of their
    standard deviations, once there are so many. Norms are global, as they were before they were
    scaled, and divided by the rate, so that neither a schedule nor a phase looks like a spike.
    Marin's 32B run did so with 2 deviations of the last 128 (Levanter's
    `clip_update_by_historical_norm`)."""

    def begin(_: Any) -> UpdateNorms:
        return UpdateNorms(jnp.zeros(GUARD_WINDOW), jnp.zeros((), jnp.int32))

    def update(
        updates: Any, state: UpdateNorms, _: Any = None, *, rates: Rates
    ) -> tuple[Any, UpdateNorms]:
        norms_W, steps = state
        norm = optax.tree.norm(updates) / jnp.maximum(rates.matrix, TINY)
        most = jnp.mean(norms_W) + sigma * jnp.std(norms_W)
        kept = jnp.where(steps < GUARD_WINDOW, norm, jnp.minimum(norm, most))
        factor = kept / jnp.maximum(norm, TINY)
        norms_W = norms_W.at[steps % GUARD_WINDOW].set(norm)
        return jax.tree.map(lambda u: u * factor, updates), UpdateNorms(norms_W, steps + 1)

    return optax.GradientTransformationExtraArgs(begin, update)


def _on_sphere(p_IO: jax.Array, u_IO: jax.Array, rate: jax.Array) -> jax.Array:
    """Hyperball: p' = p − rate · u · ‖p‖/‖u‖, scaled back to ‖p‖. Returns p' − p. So `rate` is
    relative: how far p moves, as a fraction of its norm. Each matrix has its own Frobenius norm. A
    matrix of zeros stays zero; if it starts at zero, it needs another role."""
    radius = _norm(p_IO)
    moved = p_IO - rate * radius / jnp.maximum(_norm(u_IO), TINY) * u_IO
    return moved * (radius / jnp.maximum(_norm(moved), TINY)) - p_IO


def _norm(x_IO: jax.Array) -> jax.Array:
    return jnp.linalg.norm(x_IO, axis=(IN, OUT), keepdims=True)
