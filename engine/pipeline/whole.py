"""The stages' states as the state of the whole model: the form of a checkpoint that was trained
without a pipeline, so that each continues from the other's, and from any number of stages. An array
of layers is cut between the stages; one that a single stage has, such as the embedding, gets a copy
on every stage while it is saved; and counts are the same on all."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from engine.model import mesh as meshes
from engine.pipeline.programs import Stage, on_mesh
from engine.training import step as training_step
from engine.training.digest import leaves, path_of
from engine.training.step import Recipe, State

PIPELINE = "pipeline"
Arrays = dict[str, jax.Array]  # by path in the state


class Whole:
    """The state of a recipe's model over all stages. All processes call each method together."""

    def __init__(self, recipe: Recipe, stages: Sequence[Stage]) -> None:
        self._stages = stages
        devices, names = np.stack([x.mesh.devices for x in stages]), (PIPELINE, *meshes.AXES)
        self.mesh = Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))
        held = [leaves(stage.abstract) for stage in stages]
        full = training_step.abstract_state(recipe, self.mesh)
        self._owners = {
            path: [n for n, here in enumerate(held) if path in here] for path in leaves(full)
        }
        self._cut = {
            path: held[owners[0]][path].shape != leaves(full)[path].shape
            for path, owners in self._owners.items()
        }

        def placed(at: Any, x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            spec = x.sharding.spec
            if self._cut[path_of(at)]:
                spec = PartitionSpec(PIPELINE, *spec[1:])
            where = NamedSharding(self.mesh, spec)
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)

        self.like: State = jax.tree_util.tree_map_with_path(placed, full)
        where = {path: x.sharding for path, x in leaves(self.like).items()}
        self._join = jax.jit(self._joined, out_shardings=where)
        everywhere = NamedSharding(self.mesh, PartitionSpec())
        self._sum = jax.jit(lambda x: jnp.sum(x, axis=0), out_shardings=everywhere)

    def total(self, of: Mapping[int, jax.Array]) -> dict[int, jax.Array]:
        """The sum over all stages of what each has in (1, …), on each stage that is here."""
        shape = (len(self._stages), *next(iter(of.values())).shape[1:])
        stages = NamedSharding(self.mesh, PartitionSpec(PIPELINE))
        found = self._sum(_array(shape, stages, of.values()))
        return {
            number: _array(
                found.shape, NamedSharding(self._stages[number].mesh, PartitionSpec()), [found]
            )
            for number in of
        }

    def joined(self, states: Mapping[int, State]) -> State:
        """The whole state, in buffers of its own, of the stages' that are here."""
        given: dict[str, list[jax.Array]] = {path: [] for path in self._owners}
        for number, state in states.items():
            mesh = self._stages[number].mesh
            where = {path: NamedSharding(mesh, self._spec(path, None)) for path in given}
            for path, x in on_mesh(mesh, self._exported, out_shardings=where)(
                leaves(state)
            ).items():
                given[path].append(x)
        raw = {}
        for path, x in leaves(self.like).items():
            shape = (len(self._stages), *x.shape) if self._is_alone(path) else x.shape
            on_all = NamedSharding(self.mesh, self._spec(path, PIPELINE))
            raw[path] = _array(shape, on_all, given[path])
        found = self._join(raw)
        return jax.tree_util.tree_map_with_path(lambda at, _: found[path_of(at)], self.like)

    def _is_alone(self, path: str) -> bool:
        """Whether a single stage has it."""
        return len(self._owners[path]) == 1

    def _spec(self, path: str, first: str | None) -> PartitionSpec:
        """How an array is cut that the stages give, with this axis for stages."""
        spec = leaves(self.like)[path].sharding.spec
        if self._is_alone(path):
            return PartitionSpec(first, *spec)
        return PartitionSpec(first, *spec[1:]) if self._cut[path] else spec

    def _exported(self, state: Arrays) -> Arrays:
        """Copies of a stage's arrays; zeros for what another stage has alone."""
        found = {}
        for path, x in leaves(self.like).items():
            here = jnp.copy(state[path]) if path in state else jnp.zeros(x.shape, x.dtype)
            found[path] = here[None] if self._is_alone(path) else here
        return found

    def _joined(self, raw: Arrays) -> Arrays:
        """Layers in their order, and what one stage has alone from it."""
        found = {}
        for path, x in raw.items():
            owner, alone = self._owners[path][0], self._is_alone(path)
            found[path] = x[owner] if alone else self._ordered(path, x, joins=True)
        return found

    def _ordered(self, path: str, x: jax.Array, *, joins: bool) -> jax.Array:
        """An array in the order of layers, of the order of stages; or the other way."""
        layout = self._stages[0].layout
        if not self._cut[path] or layout.chunks == 1:
            return x
        sizes = (layout.stages, layout.chunks) if joins else (layout.chunks, layout.stages)
        return x.reshape(*sizes, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    def parted(self, whole: Any, below: str = "") -> dict[int, Any]:
        """What each stage that is here has of `whole`, a tree like `like` or like its field
        `below`."""
        start = f"{below}/" if below else ""
        found = {f"{start}{path}": x for path, x in leaves(whole).items()}
        where = {path: x.sharding for path, x in found.items()}
        order = jax.jit(
            lambda of: {path: self._ordered(path, x, joins=False) for path, x in of.items()},
            out_shardings=where,
        )
        found = order(found)

        def of_stage(stage: Stage) -> Any:
            like = getattr(stage.abstract, below) if below else stage.abstract

            def one(at: Any, x: jax.ShapeDtypeStruct) -> jax.Array:
                return _array(x.shape, x.sharding, [found[f"{start}{path_of(at)}"]])

            return jax.tree_util.tree_map_with_path(one, like)

        return {stage.number: of_stage(stage) for stage in self._stages if stage.is_here}


def _array(shape: Any, where: NamedSharding, of: Iterable[jax.Array]) -> jax.Array:
    """An array of the shards that these have on its devices."""
    shards = [shard.data for x in of for shard in x.addressable_shards]
    here = [x for x in shards if x.device in where.device_set]
    return jax.make_array_from_single_device_arrays(tuple(shape), where, here)
