"""How activations and their gradients get from stage to stage. The k-th device of a stage sends to
the k-th of another: on one host directly, between processes by JAX's transfer servers, from memory
of one device to memory of the other. That half has run between CPUs only. What is sent waits at its
sender until it is pulled, and neither waits for the other: the step's own sums keep them together.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.experimental.transfer import start_transfer_server
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from orbax.checkpoint import multihost

from engine.model import processes
from engine.model.mesh import ROWS

LONGEST = 64  # bytes of a server's address

_meetings = itertools.count()  # the same numbers in all processes


class Links:
    """The links between the stages on these meshes. All processes make one at the same time."""

    def __init__(self, stages: Sequence[Mesh]) -> None:
        self._devices = [list(mesh.devices.flat) for mesh in stages]
        self._rows = [rows(mesh) for mesh in stages]
        self._me = jax.process_index()
        self._together = multihost.get_barrier_sync_fn()  # of one process it does nothing
        self._coming: dict[int, dict[int, jax.Array]] = {}  # by tag and by place in the mesh
        self._pulls: dict[int, Any] = {}  # connections, by process
        if any(device.process_index != self._me for one in self._devices for device in one):
            host = processes.address()
            client = jax.local_devices()[0].client
            self._server = start_transfer_server(client, f"{host}:0", [f"{host}:0"])
            mine = self._server.address().encode().ljust(LONGEST)
            all_of_them = multihost_utils.process_allgather(np.frombuffer(mine, np.uint8))
            self._addresses = [bytes(one).decode().strip() for one in all_of_them]

    def send(self, x: jax.Array, to: int, tag: int) -> None:
        """Send rows to a stage. `tag` is a number below 2⁴⁸ that nothing else has."""
        for shard in x.addressable_shards:
            place = self._place(shard.device)
            device = self._devices[to][place]
            if device.process_index == self._me:
                moved = jax.device_put(shard.data, device)
                self._coming.setdefault(tag, {})[place] = moved
            else:
                self._server.await_pull(_number(tag, place), [shard.data])

    def expect(self, like: jax.ShapeDtypeStruct, on: int, of: int, tag: int) -> None:
        """Begin to pull what stage `of` sends to stage `on`, from other processes."""
        for place, device in enumerate(self._devices[on]):
            there = self._devices[of][place].process_index
            if device.process_index != self._me or there == self._me:
                continue
            here = self._coming.setdefault(tag, {})
            if place in here:
                continue
            if there not in self._pulls:
                self._pulls[there] = self._server.connect(self._addresses[there])
            shape = self._rows[on].shard_shape(like.shape)
            one = jax.ShapeDtypeStruct(shape, like.dtype, sharding=SingleDeviceSharding(device))
            here[place] = self._pulls[there].pull(_number(tag, place), [one])[0]

    def receive(self, like: jax.ShapeDtypeStruct, on: int, of: int, tag: int) -> jax.Array:
        """What was sent, on the mesh of stage `on`."""
        self.expect(like, on, of, tag)
        shards = [x for _, x in sorted(self._coming.pop(tag).items())]
        return jax.make_array_from_single_device_arrays(like.shape, self._rows[on], shards)

    def meet(self) -> None:
        """Wait until all processes are here, by the network and not by their devices."""
        self._together(key=f"stages {next(_meetings)}", timeout_ms=1000 * processes.ALL_WITHIN)

    def _place(self, device: jax.Device) -> int:
        return next(one.index(device) for one in self._devices if device in one)


def rows(mesh: Mesh) -> NamedSharding:
    """How activations, and batches, are spread over a stage."""
    return NamedSharding(mesh, PartitionSpec(ROWS))


def _number(tag: int, place: int) -> int:
    return tag * 2**15 + place
