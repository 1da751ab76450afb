"""One training step as a pure function: (state, batch, rates) → (state, figures). The `Recipe`
holds everything that is compiled in; learning rates are arguments, so runs that differ only in them
share one compilation."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from engine.config.schema import GUARD_WINDOW, TrainConfig
from engine.data.token_store import Batch
from engine.model import experts
from engine.model import mesh as meshes
from engine.model.decoder import Model, Params
from engine.model.loss import LossFunction
from engine.training import optim


class Recipe(NamedTuple):
    """What a step is made of. Hashable: equal recipes are compiled once."""

    decoder: Model
    loss: LossFunction
    optimizer: optim.Optimizer | optim.AtRate
    z_loss_weight: float
    parts: int  # number of parts of a batch (gradient accumulation)
    ema_decay: float | None
    on_bad_step: Literal["stop", "skip"]
    spike_sigma: float | None


class Guard(NamedTuple):
    """The history that detects bad steps and ends a run with too many of them."""

    losses_W: jax.Array  # ring buffers of the last good steps' figures
    grad_norms_W: jax.Array
    good_steps: jax.Array
    bad_steps: jax.Array  # consecutive, up to now


class State(NamedTuple):
    """Everything that a step changes. Parts that a recipe does not need are empty tuples."""

    params: Params
    moments: Any  # the optimizer's state
    average: Any  # of the parameters, if one is kept
    guard: Guard

    @property
    def scored(self) -> Params:
        """The parameters that are scored: the average if one is kept."""
        return self.average or self.params

    @property
    def rest(self) -> dict[str, Any]:
        """Everything but `scored`."""
        rest = {"moments": self.moments, "guard": self.guard}
        return {**rest, "params": self.params} if self.average else rest

    @staticmethod
    def of(scored: Params, rest: dict[str, Any]) -> "State":
        """The inverse of `scored` and `rest`: `State.of(state.scored, state.rest)` is `state`."""
        params, average = (rest["params"], scored) if "params" in rest else (scored, ())
        return State(params, rest["moments"], average, rest["guard"])


class Figures(NamedTuple):
    """The measurements of a step; scalars on the device."""

    loss: jax.Array  # nats per scored target, before the update
    grad_norm: jax.Array  # global, before clipping
    param_norm: jax.Array  # global, before the update
    bad_steps: jax.Array  # consecutive, up to this one; 0 if it was good
    max_load: jax.Array | None  # of any expert, 1 being even; None without experts
    dropped: jax.Array | None  # fraction of what tokens chose


def recipe(
    decoder: Model,
    config: TrainConfig,
    loss: LossFunction,
    optimizer: optim.AtRate | None = None,
) -> Recipe:
    """The recipe of `config`; `optimizer` replaces the one that it names."""
    return Recipe(
        decoder=decoder,
        loss=loss,
        optimizer=optimizer or optim.optimizer(config),
        z_loss_weight=config.z_loss_weight,
        parts=config.gradient_accumulation_steps,
        ema_decay=config.ema_decay,
        on_bad_step=config.on_bad_step,
        spike_sigma=config.spike_sigma,
    )


def initial(recipe: Recipe, params: Params) -> State:
    """The state before the first step, from the given parameters."""
    ring, zero = jnp.zeros(GUARD_WINDOW), jnp.zeros((), jnp.int32)
    return State(
        params=params,
        moments=optim.transform(recipe.optimizer, recipe.decoder.roles()).init(params),
        average=jax.tree.map(jnp.copy, params) if recipe.ema_decay else (),
        guard=Guard(ring, ring, zero, zero),
    )


def train_step(
    recipe: Recipe, state: State, batch: Batch, rates: optim.Rates
) -> tuple[State, Figures]:
    """Update `state` on `batch` once.

    A step is bad if its loss or the norm of the gradient or of the parameters is not finite, or
    (with `spike_sigma`) if loss or gradient norm exceeds the mean of the last 64 good steps by more
    than so many standard deviations, once there are 64. With `on_bad_step: skip` a bad step changes
    nothing in the state but the count of bad steps.
    """
    roles = recipe.decoder.roles()
    loss, grads = _gradients(recipe, state.params, batch)
    grads, changes = _apart(roles, grads)
    grad_norm, param_norm = optax.tree.norm(grads), optax.tree.norm(_apart(roles, state.params)[0])
    # Parameters that no token of the batch uses affect only their norm.
    bad = ~jnp.isfinite(loss + grad_norm + param_norm)
    if recipe.spike_sigma:
        bad |= _spikes(state.guard, loss, grad_norm, recipe.spike_sigma)
    bad_steps = jnp.where(bad, state.guard.bad_steps + 1, 0)

    def update(state: State) -> State:
        transform = optim.transform(recipe.optimizer, roles)
        deltas, moments = transform.update(grads, state.moments, state.params, rates=rates)
        params = optax.apply_updates(state.params, _either(roles, changes, deltas))
        average = state.average
        if recipe.ema_decay:
            average = optax.incremental_update(params, average, 1 - recipe.ema_decay)
            average = _either(roles, params, average)
        return State(params, moments, average, _remember(state.guard, loss, grad_norm))

    def skip(state: State) -> State:
        return state._replace(guard=state.guard._replace(bad_steps=bad_steps))

    if recipe.on_bad_step == "skip":
        state = jax.lax.cond(bad, skip, update, state)
    else:
        state = update(state)  # the loop stops before it uses this
    max_load, dropped = experts.balance(roles, state.params) or (None, None)
    return state, Figures(loss, grad_norm, param_norm, bad_steps, max_load, dropped)


def _either(roles: Any, of_states: Params, of_others: Params) -> Params:
    """The leaves of `of_states` where a parameter is a state, and of `of_others` elsewhere."""
    return jax.tree.map(lambda role, a, b: a if role == "state" else b, roles, of_states, of_others)


def _apart(roles: Any, tree: Params) -> tuple[Params, Params]:
    """`tree` with 0 for the states, and with 0 for all else. A model without states has it back."""
    zero = jax.tree.map(jnp.zeros_like, tree)
    return _either(roles, zero, tree), _either(roles, tree, zero)


def _gradients(recipe: Recipe, params: Params, batch: Batch) -> tuple[jax.Array, Params]:
    """The mean loss over all scored targets of the batch, and the gradient of the mean objective
    (loss and penalty): the mean over the recipe's parts, whose objectives add up to it. What a part
    says of itself in place of a gradient (see `engine.model.experts`) is so averaged, too."""
    decoder = recipe.decoder
    scored = jnp.maximum(jnp.sum(batch.targets_BS >= 0), 1).astype(jnp.float32) / recipe.parts

    def objective(params: Params, part: Batch) -> tuple[jax.Array, jax.Array]:
        losses = recipe.loss(
            decoder.features(params, part.inputs_BS, part.segments_BS),
            decoder.output_matrix(params),
            part.targets_BS,
            soft_cap=decoder.config.logit_soft_cap,
            z_loss_weight=recipe.z_loss_weight,
        )
        return (losses.nats + losses.penalty) / scored, losses.nats / scored

    gradient = jax.grad(objective, has_aux=True)
    if recipe.parts == 1:
        grads, loss = gradient(params, batch)
        return loss, grads

    def add(total: Any, part: Batch) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, gradient(params, part)), None

    # Row i goes to part i mod parts, so that each part is spread over all devices.
    parts = jax.tree.map(
        lambda x: jnp.swapaxes(x.reshape(-1, recipe.parts, *x.shape[1:]), 0, 1), batch
    )
    zero = jax.tree.map(jnp.zeros_like, params), jnp.zeros(())
    total, _ = jax.lax.scan(add, zero, parts)
    grads, loss = jax.tree.map(lambda x: x / recipe.parts, total)
    return loss, grads


def _spikes(guard: Guard, loss: jax.Array, grad_norm: jax.Array, sigma: float) -> jax.Array:
    spikes = jnp.array(False)
    for x, ring in ((loss, guard.losses_W), (grad_norm, guard.grad_norms_W)):
        spikes |= x > jnp.mean(ring) + sigma * jnp.std(ring)
    return spikes & (guard.good_steps >= GUARD_WINDOW)


def _remember(guard: Guard, loss: jax.Array, grad_norm: jax.Array) -> Guard:
    place = guard.good_steps % GUARD_WINDOW
    return Guard(
        losses_W=guard.losses_W.at[place].set(loss),
        grad_norms_W=guard.grad_norms_W.at[place].set(grad_norm),
        good_steps=guard.good_steps + 1,
        bad_steps=jnp.zeros((), jnp.int32),
    )


# ── Compilation ──────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=16)
def abstract_state(recipe: Recipe, mesh: Mesh) -> State:
    """The state's shapes, dtypes and shardings, without arrays."""

    def make() -> State:
        return initial(recipe, recipe.decoder.init(jax.random.key(0)))

    shapes = jax.eval_shape(make)
    return jax.tree.map(
        lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
        shapes,
        meshes.shardings(mesh, recipe.decoder.roles(), shapes),
    )


def shardings_of(abstract: Any) -> Any:
    """The shardings of a tree of jax.ShapeDtypeStruct."""
    return jax.tree.map(lambda x: x.sharding, abstract)


@lru_cache(maxsize=16)
def starter(recipe: Recipe, mesh: Mesh) -> Callable[[jax.Array], State]:
    """The compiled function from a key to the state before the first step."""

    def fresh(key: jax.Array) -> State:
        return initial(recipe, recipe.decoder.init(key))

    return jax.jit(fresh, out_shardings=shardings_of(abstract_state(recipe, mesh)))


def lower(
    recipe: Recipe, mesh: Mesh, batch_size: int, seq_len: int, packed: bool = False
) -> jax.stages.Lowered:
    """The step, traced for a mesh and a batch's shape, not compiled. Allocates nothing."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    rows = NamedSharding(mesh, PartitionSpec(meshes.ROWS))
    tokens_BS = jax.ShapeDtypeStruct((batch_size, seq_len), jnp.int32, sharding=rows)
    batch = Batch(tokens_BS, tokens_BS, tokens_BS if packed else None)
    rate = jax.ShapeDtypeStruct((), jnp.float32, sharding=everywhere)
    state = abstract_state(recipe, mesh)
    with jax.set_mesh(mesh):
        return jax.jit(
            partial(train_step, recipe),
            donate_argnums=0,
            out_shardings=(shardings_of(state), everywhere),
        ).lower(state, batch, optim.Rates(rate, rate, rate))


@lru_cache(maxsize=16)
def compiled(
    recipe: Recipe, mesh: Mesh, batch_size: int, seq_len: int, packed: bool
) -> jax.stages.Compiled:
    """The compiled step: `compiled(...)(state, batch, rates)`. `state` is donated."""
    return lower(recipe, mesh, batch_size, seq_len, packed).compile()
