"""Where arrays lie on many devices: the mesh, one short table that says how a parameter of each
role is cut, and how a batch gets onto the devices. Axes are `Auto`: XLA works out the communication
from where parameters and batches lie and from the few places that call `constrain`.

    data    copies of the parameters; each has its rows of the batch. Only it crosses slices
    fsdp    rows of the batch too, and a slice of every weight, gathered when a layer needs it
    tensor  heads, the MLP's inside and the vocabulary

An axis `expert` would stand between `fsdp` and `tensor` and cut the leading axis of experts.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from engine.config.memory import misfits
from engine.config.schema import MeshConfig, ModelConfig, TrainConfig
from engine.model.processes import slice_of

AXES = ("data", "fsdp", "tensor")
ROWS = ("data", "fsdp")  # the axes over which a batch's rows are spread

# How the last dimensions of a parameter are cut, by its role. Dimensions before these, layers for
# one, are whole everywhere. Gains are small: everybody has all of them.
SHARDINGS = {
    "embedding": PartitionSpec("tensor", "fsdp"),  # V, D
    "column": PartitionSpec("fsdp", "tensor"),  # in, out
    "row": PartitionSpec("tensor", "fsdp"),  # in, out
    "head": PartitionSpec("fsdp", "tensor"),  # D, V
    "gain": PartitionSpec(),
}

T = TypeVar("T")


class BadMesh(Exception):
    """A mesh that does not fit the devices, the model or the batch; the message says what to do."""


def make(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh over `devices`, by default all there are. Raises BadMesh unless its sizes multiply
    to their number, and unless `data` can be spread over their slices: `fsdp` and `tensor` stay
    inside of one."""
    devices = jax.devices() if devices is None else devices
    if problems := misfits(config, devices=len(devices)):
        raise BadMesh(problems[0].words)
    slices: dict[int, list[jax.Device]] = {}
    for device in devices:
        slices.setdefault(slice_of(device), []).append(device)
    if config.data % len(slices):
        raise BadMesh(
            f"data {config.data} cannot be spread over {len(slices)} slices, and fsdp and tensor "
            f"stay inside of one; make data a multiple of {len(slices)}"
        )
    # Neighbours on the mesh are neighbours on a TPU's torus, also where no side is as long as an
    # axis: that is why it is not jax.make_mesh, which refuses those.
    inside = (config.data // len(slices), config.fsdp, config.tensor)
    laid_out = np.concatenate(
        [
            mesh_utils.create_device_mesh(inside, group, allow_split_physical_axes=True)
            for _, group in sorted(slices.items())
        ]
    )
    # With Explicit axes, the other kind, every operation would have to say its sharding.
    return Mesh(laid_out, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def check(model: ModelConfig | None, train: TrainConfig, config: MeshConfig) -> None:
    """Raises BadMesh where the mesh does not divide the model, where its shape is known, or the
    batch."""
    if problems := misfits(config, model=model, train=train):
        raise BadMesh("; ".join(problem.words for problem in problems))


def shardings(mesh: Mesh, roles: Any, abstract: Any) -> Any:
    """The sharding of every leaf of `abstract` (arrays or jax.ShapeDtypeStruct): the parameters,
    or anything that holds trees like them, such as a whole training state.

    `roles` is the parameters' tree with a role each. A leaf whose path ends with a parameter's
    path follows that parameter, so moments and averages lie where their parameter lies; every
    other leaf (a step's count) is whole on each device, and so is one with fewer dimensions than
    the role cuts (a norm per layer).
    """
    role_of = {_names(path): role for path, role in jax.tree_util.tree_leaves_with_path(roles)}

    def sharding(path: tuple[Any, ...], x: Any) -> NamedSharding:
        names = _names(path)
        ends = (names[start:] for start in range(len(names)))  # the longest that is known counts
        role = next((role_of[end] for end in ends if end in role_of), "gain")
        cut = SHARDINGS[role]
        whole = x.ndim - len(cut)
        if whole < 0 or not cut:
            return NamedSharding(mesh, PartitionSpec())
        return NamedSharding(mesh, PartitionSpec(*[None] * whole, *cut))

    return jax.tree_util.tree_map_with_path(sharding, abstract)


def constrain(x: jax.Array, *axes: str | tuple[str, ...] | None) -> jax.Array:
    """`x`, told to lie on the mesh that jax.set_mesh has set with dimension i cut over `axes[i]`.
    Without a mesh, or on one device, `x` itself."""
    if jax.sharding.get_abstract_mesh().size <= 1:
        return x
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*axes))


def platform() -> str:
    """What the devices of the mesh that jax.set_mesh has set are: cpu, gpu or tpu; without a mesh,
    what this process computes on. A program that is compiled for devices elsewhere has both."""
    there = jax.sharding.get_abstract_mesh().abstract_device
    return there.platform if there is not None else jax.default_backend()


def row_groups() -> int:
    """Among how many groups of devices the mesh that is set spreads a batch's rows; 1 without."""
    shape = jax.sharding.get_abstract_mesh().shape
    return math.prod(shape.get(axis, 1) for axis in ROWS)


def local_rows(mesh: Mesh, batch_size: int) -> np.ndarray:
    """The rows of a batch that this host's devices hold, ascending."""
    held = _rows(mesh).addressable_devices_indices_map((batch_size,)).values()
    return np.unique(np.concatenate([np.arange(batch_size)[index] for index in held]))


def put(mesh: Mesh, rows: T, batch_size: int) -> T:
    """A batch on the devices. `rows` is a tree of NumPy arrays, each with this host's part of the
    batch, the rows `local_rows(mesh, batch_size)` in their order; the result is the same tree of
    arrays of all `batch_size` rows, spread over `data` and `fsdp`."""
    here = local_rows(mesh, batch_size)

    def whole(x: np.ndarray) -> jax.Array:
        def part(index: Any) -> np.ndarray:
            start, stop, _ = index[0].indices(batch_size)
            first = np.searchsorted(here, start)
            return x[first : first + stop - start]

        shape = (batch_size, *x.shape[1:])
        return jax.make_array_from_callback(shape, _rows(mesh), part)

    return jax.tree.map(whole, rows)


def _rows(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(ROWS))


def _names(path: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(map(str, path))
