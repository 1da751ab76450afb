"""One run over several processes, one per host: how they join, and how they agree.

Every process runs the same program on its own devices. Arrays are spread over the devices of all
processes, so a step or a checkpoint waits until every process has reached it. Hence every decision
about what comes next must be the same in all processes, or they wait forever. Most decisions are:
batches are a function of the step, and a step's metrics are the same everywhere. What differs
between hosts (clock, signals, the content of a shared folder) goes through `Agreement` or
`as_first`.

Processes may form slices: groups of hosts with a fast network inside and a slower one between them,
such as the slices of a TPU. Only the axis `data` of `engine.model.mesh` crosses slices.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

HEARD_WITHIN = 30  # seconds; a process that is silent for longer ends the others, too
ALL_WITHIN = 300  # seconds for all processes to meet, at the beginning and at the end

_slices = 1  # number of slices, for devices that do not know it
_coordinator = ""  # host:port, of several processes


@dataclass(frozen=True)
class Place:
    """The rank of this process, and how many there are."""

    rank: int  # 0 … count − 1; ranks of a slice are consecutive
    count: int
    coordinator: str  # host:port on which rank 0 listens; the others must reach it
    slices: int = 1  # divides count

    @property
    def slice(self) -> int:
        """The slice of this process."""
        return self.rank * self.slices // self.count


def join(place: Place) -> None:
    """Make this process one of `place.count`. Call it before JAX touches a device; it returns when
    all processes have joined. Raises JaxRuntimeError if that takes more than 5 minutes."""
    global _slices, _coordinator
    _slices, _coordinator = place.slices, place.coordinator
    if place.count == 1:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX's own handling of SIGTERM would replace the caller's.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        place.coordinator,
        place.count,
        place.rank,
        cluster_detection_method="deactivate",  # do not guess from the environment
        coordinator_bind_address=place.coordinator,  # not on every network of the machine
        initialization_timeout=ALL_WITHIN,
        heartbeat_timeout_seconds=HEARD_WITHIN,
        shutdown_timeout_seconds=ALL_WITHIN,
    )


def leave() -> None:
    """Leave at the end: waits for the others, so that nobody takes this exit for a crash."""
    jax.distributed.shutdown()


def address() -> str:
    """This process's address in the network in which it reaches the first one."""
    host, _, port = _coordinator.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((host, int(port)))  # sends nothing
        return str(one.getsockname()[0])


def slice_of(device: jax.Device) -> int:
    """The slice of a device: a TPU knows it, for others it follows from `join`."""
    if device.platform == "tpu":
        return getattr(device, "slice_index", 0)
    if _slices == 1:
        return 0
    return device.process_index * _slices // jax.process_count()


def as_first(numbers: Sequence[int]) -> list[int]:
    """The first process's `numbers` (below 2³¹, equally many everywhere). All processes wait for
    it."""
    if jax.process_count() == 1:
        return list(numbers)
    return np.asarray(multihost_utils.broadcast_one_to_all(np.array(numbers, np.int32))).tolist()


class Agreement:
    """Lets all processes of a mesh act at the same step on what one of them wants.

    Each process calls `agree(*wants)` once per step, after it has dispatched the step. With one
    process it returns `wants`. With several it returns what any of them wanted one call earlier:
    the exchange runs behind the earlier step, so the devices do not wait for it. A want that is
    granted by a call is not passed on by that call.
    """

    def __init__(self, mesh: Mesh) -> None:
        self._several = len({device.process_index for device in mesh.devices.flat}) > 1
        self._rows = NamedSharding(mesh, PartitionSpec(mesh.axis_names))  # one per device
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
