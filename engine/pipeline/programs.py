"""What a stage computes: for each of its chunks the programs of both passes, and the update of its
parameters. A chunk's parameters are `Params`: the layers one by one, their matrices in the compute
dtype, and of the model's ends what the chunk has of them."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from engine.config.schema import LayerKind
from engine.config.shapes import stack
from engine.config.stages import Layout
from engine.model import mesh as meshes
from engine.model.decoder import Decoder, Ends, Model, Params, Sequences
from engine.model.layers import each
from engine.model.loss import cross_entropy
from engine.model.mesh import ROWS, constrain
from engine.pipeline import links
from engine.pipeline.split import Passes, Split, Values, split
from engine.training import optim
from engine.training import step as training_step
from engine.training.step import Figures, Recipe, State

FIRST_ENDS = ("embedding", "embedding_norm")  # of the first chunk; the last one has the others


class Chunk(NamedTuple):
    """What a chunk's programs are made for. Equal chunks share them."""

    decoder: Decoder
    kinds: tuple[LayerKind, ...]  # of its layers
    first: bool  # of the model: it has the embedding
    last: bool  # it has the loss
    seq_len: int
    z_loss_weight: float

    def has(self, name: str) -> bool:
        """Whether it has this one of the model's ends."""
        return self.first if name in FIRST_ENDS else self.last


class Late(NamedTuple):
    """What comes for the backward pass: arrays, or their shapes."""

    dy: Any = None  # (T, D); the last chunk makes it from the two below
    targets_BS: Any = None
    scored: Any = None  # targets of the whole batch


class Early(NamedTuple):
    """What comes for the forward pass: x, or tokens for the first chunk."""

    x: Any  # (T, D) in the compute dtype, or (B, S)
    segments_BS: Any


def passes(chunk: Chunk, params: Params, early: Early, late: Late) -> Passes:
    """Both passes of one part of a batch. The loss is a sum over targets, divided by `scored`."""
    decoder, ends, layers = chunk.decoder, params["ends"], params["layers"]
    sequences = Sequences(chunk.seq_len, early.segments_BS)

    def embed(ends: Params) -> jax.Array:
        return decoder.embed(_whole(decoder, ends), early.x)

    def through(layers: list[Params], x_TD: jax.Array) -> jax.Array:
        for kind, of in zip(chunk.kinds, layers, strict=True):
            x_TD = _layer(decoder, kind, sequences)(x_TD, of)
        return x_TD

    def objective(ends: Params, y_TD: jax.Array) -> tuple[jax.Array, jax.Array]:
        whole = _whole(decoder, ends)
        losses = cross_entropy(
            decoder.final(whole, y_TD),
            decoder.output_matrix(whole),
            late.targets_BS,
            soft_cap=decoder.config.logit_soft_cap,
            z_loss_weight=chunk.z_loss_weight,
        )
        return (losses.nats + losses.penalty) / late.scored, losses.nats / late.scored

    x_TD = early.x
    of_ends = jax.tree.map(jnp.zeros_like, ends)
    if chunk.first:
        x_TD, pull_embedding = jax.vjp(embed, ends)
    y_TD, pull = jax.vjp(through, layers, x_TD)
    dy_TD, loss = late.dy, jnp.zeros(())
    if chunk.last:
        gradient = jax.grad(objective, argnums=(0, 1), has_aux=True)
        (of_ends, dy_TD), loss = gradient(ends, y_TD)
    of_layers, dx_TD = pull(dy_TD)
    if chunk.first:
        (of_embedding,) = pull_embedding(dx_TD)
        of_ends = jax.tree.map(jnp.add, of_ends, of_embedding) if chunk.last else of_embedding
    return Passes(y_TD, (dx_TD, loss), {"ends": of_ends, "layers": of_layers})


def _layer(decoder: Decoder, kind: LayerKind, sequences: Sequences) -> Any:
    of_kind = decoder.of(kind)
    definition, _ = of_kind.declared(of_kind.block)

    def through(x_TD: jax.Array, of: Params) -> jax.Array:
        return constrain(nnx.merge(definition, of)(x_TD, sequences), ROWS, None)

    return jax.checkpoint(through) if decoder.compute.remat == "block" else through


def _whole(decoder: Decoder, ends: Params) -> Params:
    """The ends that a chunk has, and shapes in the place of the others, which it does not use."""
    _, state = decoder.declared(Ends)
    return nnx.to_pure_dict(state) | ends


class Programs(NamedTuple):
    """The compiled programs of a chunk, for parts of a batch of one shape. `sums` are gradients
    that are added up; a call that takes them overwrites them."""

    split: Split
    forward: Callable[[Params, Early], tuple[jax.Array, Values]]
    backward: Callable[[Params, Values, Late, Params], tuple[Any, Params]]
    inputs: Callable[[Params, Values, Late], tuple[Any, Values]]
    weights: Callable[[Params, Values, Params], Params]


@lru_cache(maxsize=64)
def shapes(chunk: Chunk, mesh: Mesh) -> Params:
    """A chunk's parameters as shapes with shardings (jax.ShapeDtypeStruct)."""
    decoder = chunk.decoder

    def taken(whole: Params, stacks: Params) -> Params:
        ends = {x: of for x, of in whole.items() if x not in stacks and chunk.has(x)}
        return {"ends": ends, "layers": [stacks[stack(kind)] for kind in chunk.kinds]}

    def first_layers() -> Params:
        whole = decoder.init(jax.random.key(0))
        cast = decoder.cast(whole)
        return taken(whole, {name: jax.tree.map(lambda x: x[0], of) for name, of in cast.items()})

    with jax.set_mesh(mesh):
        found = jax.eval_shape(first_layers)
    roles = decoder.roles()
    cut = taken(roles, {name: roles[name] for name in decoder.stacks()})
    return jax.tree.map(placed, found, meshes.shardings(mesh, cut, found))


@lru_cache(maxsize=64)
def programs(chunk: Chunk, mesh: Mesh, rows: int, packed: bool) -> Programs:
    """The programs for parts of so many rows, traced. The first call of each compiles it."""
    whole = NamedSharding(mesh, PartitionSpec())
    of_rows = partial(jax.ShapeDtypeStruct, sharding=links.rows(mesh))
    with jax.set_mesh(mesh):
        dtype = chunk.decoder.dtype
    x = of_rows((rows * chunk.seq_len, chunk.decoder.config.hidden_dim), dtype)
    tokens = of_rows((rows, chunk.seq_len), jnp.int32)
    early = Early(tokens if chunk.first else x, tokens if packed else None)
    scored = jax.ShapeDtypeStruct((), jnp.float32, sharding=whole)
    late = Late(None, tokens, scored) if chunk.last else Late(x)
    params = shapes(chunk, mesh)
    with jax.set_mesh(mesh):
        cut = split(partial(passes, chunk), params, early, late)

    def backward(params: Params, kept: Values, late: Late, sums: Params) -> tuple[Any, Params]:
        dx, grads = cut.run_backward(params, kept, late)
        return dx, _added(sums, grads)

    def weights(params: Params, passed: Values, sums: Params) -> Params:
        return _added(sums, cut.run_weights(params, passed))

    of_params = training_step.shardings_of(params)
    dx = None if chunk.first else x.sharding, None
    jit = partial(on_mesh, mesh)
    return Programs(
        cut,
        jit(cut.run_forward, out_shardings=(x.sharding, None)),
        jit(backward, out_shardings=(dx, of_params), donate_argnums=3),
        jit(cut.run_inputs, out_shardings=(dx, None)),
        jit(weights, out_shardings=of_params, donate_argnums=2),
    )


def on_mesh(mesh: Mesh, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function, compiled for a mesh."""
    compiled = jax.jit(function, **options)

    def call(*given: Any) -> Any:
        with jax.set_mesh(mesh):
            return compiled(*given)

    return call


def _added(sums: Params, grads: Params) -> Params:
    return jax.tree.map(lambda total, x: total + x.astype(total.dtype), sums, grads)


# ── A stage ──────────────────────────────────────────────────────────────────────────────────


class OfStage(NamedTuple):
    """The model of a recipe, as far as an optimizer asks: the roles of a stage's parameters."""

    decoder: Decoder
    names: tuple[str, ...]

    def roles(self) -> Params:
        return {name: of for name, of in self.decoder.roles().items() if name in self.names}


class Stage:
    """What one stage holds and computes, on its mesh."""

    def __init__(
        self, layout: Layout, number: int, recipe: Recipe, mesh: Mesh, seq_len: int
    ) -> None:
        self.layout, self.number, self.mesh = layout, number, mesh
        self._decoder = decoder = cast(Decoder, recipe.decoder)
        last, weight = layout.stages * layout.chunks - 1, recipe.z_loss_weight
        self.chunks = {
            of: Chunk(decoder, layout.kinds(of), of == 0, of == last, seq_len, weight)
            for of in layout.chunks_on(number)
        }
        self.first, self.last = number == 0, number == layout.stages - 1
        names = tuple(name for name in decoder.roles() if self._has(name))
        # Gradients are clipped before, by the norm of the whole model.
        optimizer = cast(optim.Optimizer, recipe.optimizer)
        self._most = optimizer.max_grad_norm
        self.recipe = recipe._replace(
            decoder=cast(Model, OfStage(decoder, names)),
            optimizer=optimizer._replace(max_grad_norm=math.inf),
        )
        found = jax.eval_shape(lambda: self.drawn(jax.random.key(0)))
        self.abstract: State = jax.tree.map(
            placed, found, meshes.shardings(mesh, decoder.roles(), found)
        )
        where = training_step.shardings_of(self.abstract)
        self._prepared_shapes = [shapes(of, mesh) for of in self.chunks.values()]
        parts = training_step.shardings_of(self._prepared_shapes)
        everywhere = NamedSharding(mesh, PartitionSpec())
        self.draw = on_mesh(mesh, self.drawn, out_shardings=where)
        self.begin = on_mesh(mesh, self._begun, out_shardings=where)
        self.prepare = on_mesh(mesh, self._prepared, out_shardings=parts)
        self.zeros = on_mesh(mesh, self._zeros, out_shardings=parts)
        self.scored = on_mesh(mesh, _scored, out_shardings=everywhere)
        self.norms = on_mesh(mesh, self._norms, out_shardings=everywhere)
        self.update = on_mesh(
            mesh, self._updated, out_shardings=(where, everywhere), donate_argnums=0
        )

    @property
    def is_here(self) -> bool:
        """Whether this process has devices of it."""
        return jax.process_index() in {x.process_index for x in self.mesh.devices.flat}

    def _has(self, name: str) -> bool:
        of_layers = name in self._decoder.stacks()
        return of_layers or any(chunk.has(name) for chunk in self.chunks.values())

    def cut(self, params: Params) -> Params:
        """This stage's parameters of those of the whole model."""
        found = {name: of for name, of in params.items() if self._has(name)}
        for name in self._decoder.stacks():
            rows = np.array(self.layout.rows(self.number, name))
            found[name] = jax.tree.map(lambda x, rows=rows: x[rows], found[name])
        return found

    def drawn(self, key: jax.Array) -> State:
        """The state before the first step, of the parameters that one process would draw."""
        return training_step.initial(self.recipe, self.cut(self._decoder.init(key)))

    def _begun(self, params: Params) -> State:
        """The state before the first step, from parameters that stay as they are."""
        return training_step.initial(self.recipe, jax.tree.map(jnp.copy, params))

    def _prepared(self, params: Params) -> list[Params]:
        """The parameters as its chunks use them."""
        cast = self._decoder.cast(params)
        stacks = {name: iter(each(of)) for name, of in cast.items()}
        ends = {name: of for name, of in params.items() if name not in stacks}
        return [
            {
                "ends": {name: x for name, x in ends.items() if chunk.has(name)},
                "layers": [next(stacks[stack(kind)]) for kind in chunk.kinds],
            }
            for chunk in self.chunks.values()
        ]

    def _zeros(self) -> list[Params]:
        return jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), self._prepared_shapes)

    def joined(self, sums: list[Params]) -> Params:
        """What `_prepared` took apart: a tree like the stage's parameters."""
        found: Params = {}
        layers: dict[str, list[Params]] = {}
        for chunk, of in zip(self.chunks.values(), sums, strict=True):
            found |= of["ends"]
            for kind, one in zip(chunk.kinds, of["layers"], strict=True):
                layers.setdefault(stack(kind), []).append(one)
        return found | {name: jax.tree.map(_stacked, *these) for name, these in layers.items()}

    def _norms(self, params: Params, sums: list[Params], losses: list[jax.Array]) -> jax.Array:
        """(1, 3): this stage's parts of the loss and of the squares of the gradient's and of the
        parameters' norms."""
        loss = sum(losses, start=jnp.zeros(()))
        squares = (optax.tree.norm(x, squared=True) for x in (sums, params))
        return jnp.stack([loss, *squares])[None]

    def _updated(
        self, state: State, sums: list[Params], totals_3: jax.Array, rates: optim.Rates
    ) -> tuple[State, Figures]:
        """As `engine.training.step.train_step` updates, by the sums over all stages."""
        recipe, roles = self.recipe, self.recipe.decoder.roles()
        loss, grad_norm, param_norm = totals_3[0], *jnp.sqrt(totals_3[1:])
        bad = ~jnp.isfinite(loss + grad_norm + param_norm)
        if recipe.spike_sigma:
            bad |= training_step._spikes(state.guard, loss, grad_norm, recipe.spike_sigma)
        bad_steps = jnp.where(bad, state.guard.bad_steps + 1, 0)
        factor = jnp.where(grad_norm < self._most, 1.0, self._most / grad_norm)

        def update(state: State) -> State:
            grads = jax.tree.map(lambda x: x * factor, self.joined(sums))
            transform = optim.transform(recipe.optimizer, roles)
            deltas, moments = transform.update(grads, state.moments, state.params, rates=rates)
            params = optax.apply_updates(state.params, deltas)
            average = state.average
            if recipe.ema_decay:
                average = optax.incremental_update(params, average, 1 - recipe.ema_decay)
            guard = training_step._remember(state.guard, loss, grad_norm)
            return State(params, moments, average, guard)

        def skip(state: State) -> State:
            return state._replace(guard=state.guard._replace(bad_steps=bad_steps))

        if recipe.on_bad_step == "skip":
            state = jax.lax.cond(bad, skip, update, state)
        else:
            state = update(state)  # the loop stops before it uses this
        return state, Figures(loss, grad_norm, param_norm, bad_steps, None, None)


def _scored(targets: list[jax.Array]) -> jax.Array:
    """The number of scored targets in all parts, 1 at least."""
    counts = (jnp.sum(x >= 0) for x in targets)
    return jnp.maximum(sum(counts, start=jnp.zeros((), jnp.int32)), 1).astype(jnp.float32)


def placed(x: jax.ShapeDtypeStruct, where: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)


def _stacked(*layers: jax.Array) -> jax.Array:
    return jnp.stack(layers)
