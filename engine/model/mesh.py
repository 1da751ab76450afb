"""Where arrays are on many devices: the mesh, one short table of how parameters of each role are
sharded, and how a batch gets onto the devices. Axes are `Auto`: XLA derives the communication from
the shardings of parameters and batches and from the few calls of `constrain`.

    data    copies of the parameters; each has its rows of the batch. Only this axis crosses slices
    fsdp    more rows of the batch, and a slice of every weight, gathered when a layer needs it
    expert  more rows of the batch, and some of the experts of every block, which compute for the
            rows of all along this axis; everything else has copies here
    tensor  heads, the MLP's inner dimension and the vocabulary
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

AXES = ("data", "fsdp", "expert", "tensor")
ROWS = ("data", "fsdp", "expert")  # the axes over which a batch's rows are spread

# How the last dimensions of a parameter are sharded, by its role. Leading dimensions, such as
# layers, are not sharded. Gains are small: every device has all of them.
SHARDINGS = {
    "embedding": PartitionSpec("tensor", "fsdp"),  # V, D
    "column": PartitionSpec("fsdp", "tensor"),  # in, out
    "row": PartitionSpec("tensor", "fsdp"),  # in, out
    "expert column": PartitionSpec("expert", "fsdp", "tensor"),  # expert, in, out
    "expert row": PartitionSpec("expert", "tensor", "fsdp"),  # expert, in, out
    "head": PartitionSpec("fsdp", "tensor"),  # D, V
    "router": PartitionSpec(),
    "state": PartitionSpec(),
    "gain": PartitionSpec(),
}

T = TypeVar("T")


class BadMesh(Exception):
    """The mesh does not fit the devices, the model or the batch; the message says what to do."""


def make(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh over `devices`, by default all devices. Raises BadMesh unless its sizes multiply to
    their number and `data` can be spread over their slices; the other axes stay inside one
    slice."""
    devices = jax.devices() if devices is None else devices
    if problems := misfits(config, devices=len(devices)):
        raise BadMesh(problems[0].words)
    slices: dict[int, list[jax.Device]] = {}
    for device in devices:
        slices.setdefault(slice_of(device), []).append(device)
    if problems := misfits(config, slices=len(slices)):
        raise BadMesh(problems[0].words)
    # Neighbours on the mesh are neighbours on a TPU's torus. Not jax.make_mesh, which refuses a
    # torus without a side as long as an axis.
    inside = (config.data // len(slices), config.fsdp, config.expert, config.tensor)
    laid_out = np.concatenate(
        [
            mesh_utils.create_device_mesh(inside, group, allow_split_physical_axes=True)
            for _, group in sorted(slices.items())
        ]
    )
    # With Explicit axes every operation would have to declare its sharding.
    return Mesh(laid_out, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def check(model: ModelConfig | None, train: TrainConfig, config: MeshConfig) -> None:
    """Raise BadMesh if the mesh does not divide the batch or, if its shape is known, the model."""
    if problems := misfits(config, model=model, train=train):
        raise BadMesh("; ".join(problem.words for problem in problems))


def shardings(mesh: Mesh, roles: Any, abstract: Any) -> Any:
    """The sharding of every leaf of `abstract` (arrays or jax.ShapeDtypeStruct): the parameters, or
    anything that contains trees like them, such as a whole training state.

    `roles` is the parameters' tree with a role each. A leaf whose path ends with a parameter's path
    gets that parameter's sharding, so moments and averages are where their parameter is. Every
    other leaf (such as a step count) is whole on each device, and so is a leaf with fewer
    dimensions than its role shards (such as a norm per layer).
    """
    role_of = {_names(path): role for path, role in jax.tree_util.tree_leaves_with_path(roles)}

    def sharding(path: tuple[Any, ...], x: Any) -> NamedSharding:
        names = _names(path)
        ends = (names[start:] for start in range(len(names)))  # the longest known ending wins
        role = next((role_of[end] for end in ends if end in role_of), "gain")
        cut = SHARDINGS[role]
        whole = x.ndim - len(cut)
        if whole < 0 or not cut:
            return NamedSharding(mesh, PartitionSpec())
        return NamedSharding(mesh, PartitionSpec(*[None] * whole, *cut))

    return jax.tree_util.tree_map_with_path(sharding, abstract)


def constrain(x: jax.Array, *axes: str | tuple[str, ...] | None) -> jax.Array:
    """Constrain the sharding of `x` on the mesh of jax.set_mesh: dimension i is sharded over
    `axes[i]`. Without a mesh, or on one device, returns `x` unchanged."""
    if jax.sharding.get_abstract_mesh().size <= 1:
        return x
    return jax.lax.with_sharding_constraint(x, PartitionSpec(*axes))


def platform() -> str:
    """The platform of the devices in the mesh of jax.set_mesh: cpu, gpu or tpu; without a mesh, the
    platform of this process. They differ when a program is compiled for other devices."""
    there = jax.sharding.get_abstract_mesh().abstract_device
    return there.platform if there is not None else jax.default_backend()


def row_groups() -> int:
    """Over how many groups of devices the mesh of jax.set_mesh spreads a batch's rows; 1 without a
    mesh."""
    shape = jax.sharding.get_abstract_mesh().shape
    return math.prod(shape.get(axis, 1) for axis in ROWS)


def local_rows(mesh: Mesh, batch_size: int) -> np.ndarray:
    """The rows of a batch that this host's devices hold, ascending."""
    held = _rows(mesh).addressable_devices_indices_map((batch_size,)).values()
    return np.unique(np.concatenate([np.arange(batch_size)[index] for index in held]))


def put(mesh: Mesh, rows: T, batch_size: int) -> T:
    """Put a batch on the devices. `rows` is a tree of NumPy arrays that hold this host's rows,
    `local_rows(mesh, batch_size)` in order. Returns the same tree of arrays of all `batch_size`
    rows, sharded over ROWS."""
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
