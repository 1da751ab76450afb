"""One run over several processes, one a host: how they join, and how they stay of one mind.

Every process runs the same program on its own devices. Arrays lie over the devices of all, so a
step, and a checkpoint too, waits until every process has come to it. Hence whatever decides what
comes next must come out the same in each of them, or they wait for each other without end. Most of
it does by itself: batches are a function of the step, and a step's figures are everywhere the same.
What differs from host to host, its clock, its signals and what a shared folder shows it, goes
through `Agreement` or `as_first`.

Processes may stand in slices: groups of hosts with a fast network inside and a slower one between
them, such as the slices of a TPU. `engine.model.mesh` lets only the axis `data` cross it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

HEARD_WITHIN = 30  # seconds; a process that was silent for so long takes the others down with it
ALL_WITHIN = 300  # seconds for all to come together, at the beginning and at the end

_slices = 1  # in which the processes stand, where their devices do not know it


@dataclass(frozen=True)
class Place:
    """Which of how many processes this one is."""

    rank: int  # 0 … count − 1; those of a slice follow each other
    count: int
    coordinator: str  # host:port on which rank 0 listens, and which the others can reach
    slices: int = 1  # divides count

    @property
    def slice(self) -> int:
        """The slice that this process is of."""
        return self.rank * self.slices // self.count


def join(place: Place) -> None:
    """Make this process one of `place.count`. Comes before JAX is asked for any device, and
    returns when all are there. Raises JaxRuntimeError if they are not within 5 minutes."""
    global _slices
    _slices = place.slices
    if place.count == 1:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX's own answer to SIGTERM would take the place of whoever trains.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        place.coordinator,
        place.count,
        place.rank,
        cluster_detection_method="deactivate",  # nothing is guessed from the environment
        coordinator_bind_address=place.coordinator,  # and not on every network of the machine
        initialization_timeout=ALL_WITHIN,
        heartbeat_timeout_seconds=HEARD_WITHIN,
        shutdown_timeout_seconds=ALL_WITHIN,
    )


def leave() -> None:
    """Part, at the end: waits for the others, so that nobody takes it for a death."""
    jax.distributed.shutdown()


def slice_of(device: jax.Device) -> int:
    """The slice that a device is of: a TPU knows it, others stand as `join` was told."""
    if device.platform == "tpu":
        return getattr(device, "slice_index", 0)
    if _slices == 1:
        return 0
    return device.process_index * _slices // jax.process_count()


def as_first(numbers: Sequence[int]) -> list[int]:
    """The `numbers` (below 2³¹, equally many everywhere) that the first process has. All wait."""
    if jax.process_count() == 1:
        return list(numbers)
    return np.asarray(multihost_utils.broadcast_one_to_all(np.array(numbers, np.int32))).tolist()


class Agreement:
    """What one process of a mesh wants, all do, at the same step.

    `agree(*wants)` is called by each of them once a step, after the step was dispatched. With one
    process it returns `wants`. With several it returns what any of them wanted one call before:
    that has travelled behind the earlier step's figures, so the devices do not wait for it. What
    is granted is not asked for again in the same call.
    """

    def __init__(self, mesh: Mesh) -> None:
        self._several = len({device.process_index for device in mesh.devices.flat}) > 1
        self._rows = NamedSharding(mesh, PartitionSpec(mesh.axis_names))  # one of each device
        everywhere = NamedSharding(mesh, PartitionSpec())
        self._any = jax.jit(lambda wants_NW: wants_NW.max(axis=0), out_shardings=everywhere)
        self._asked: jax.Array | None = None

    def __call__(self, *wants: bool) -> tuple[bool, ...]:
        if not self._several:
            return wants
        granted = (
            (False,) * len(wants)
            if self._asked is None
            else tuple(bool(word) for word in np.asarray(self._asked))
        )
        still = [want and not done for want, done in zip(wants, granted, strict=True)]
        mine_NW = np.tile(np.array(still, np.int32), (self._rows.mesh.size, 1))
        self._asked = self._any(
            jax.make_array_from_callback(mine_NW.shape, self._rows, mine_NW.__getitem__)
        )
        return granted
