"""One program on many hosts: `run` reserves all hosts of a gang at once as a Ray placement group
(TPU slices whole), starts a process on each, joins them to one JAX (`engine.model.processes`) and
calls the program in each. When one process ends early, all are ended and the hosts are released
(`runner.worker.host_group`). A host that Ray has lost may still write for a while, so each gang
needs a folder of its own.

The TPU half is written to Ray's interface and has not run on TPUs yet.
"""

import os
import random
import secrets
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util import tpu
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from runner.isolation import gang_network
from runner.store.artifacts import MakerLost, MakerPreempted, MakingFailed
from runner.worker.host_group import End, Gang, PeerLost, TpuSlice, decide, ranked, strategy

if TYPE_CHECKING:  # it imports JAX, which then reads the environment
    from engine.model.processes import Place

SETTLED_AFTER = 5.0  # seconds in which Ray reports a loss that other hosts have noticed
NODE_DIED = "node has died"  # in Ray's reason
MOST_WORDS = 300  # of a host's reason
TPU_WORKER_ID = "ray.io/tpu-worker-id"  # Ray's label for the number of a host in its slice
JAX_FELT = "JaxRuntimeError"
OURS = {"REGATTA_GANG": "1"}  # so that Ray reuses no process in which a task has used JAX


def tpu_gang(version: str, topology: str, slices: int = 1) -> Gang:
    """The gang on so many TPU slices of a shape, one process for all chips of a host. Raises
    ValueError for an unknown shape."""
    hosts, resources = tpu.get_tpu_worker_resources(topology, version)
    environment = {"JAX_PLATFORMS": "tpu"}
    return Gang(hosts, slices, resources, environment, TpuSlice(version, topology))


class NotEnough(Exception):
    """Not enough hosts were free within the gang's patience."""


def run(
    program: Callable[..., Any],
    gang: Gang,
    *args: Any,
    begins: Callable[[], object] = lambda: None,
) -> Any:
    """Call `program(place, *args)` on all hosts of `gang`, with one JAX over all their devices.
    Returns the result of rank 0. Waits until enough hosts are free, and then calls `begins`, or
    raises NotEnough.

    Of a `boxed` gang, the processes here join no JAX: the program does that in a box, and also gets
    the boxes' `network`. Call it where Ray is connected: in a job's entrypoint, a task or an actor.
    `program` is a function of a module that every host can import. Raises MakingFailed, MakerLost
    if a host was lost, and MakerPreempted if its machine was taken away.
    """
    with _reserved(gang) as group:
        begins()
        hosts = [_start(gang, group, bundle) for bundle in range(gang.hosts)]
        try:
            end = _watch(gang, _begin(program, gang, hosts, args))
        except RayError as error:  # before the program started
            end = End(0, "lost", _words(error))
        finally:
            for host in hosts:
                ray.kill(host)
    if end.how in ("lost", "felt"):
        lost = MakerPreempted if end.preempted else MakerLost
        raise lost(f"host {end.rank} of {gang.hosts} was lost: {end.why}")
    if end.how == "raised":
        raise MakingFailed(f"host {end.rank} of {gang.hosts} failed: {end.why}")
    return end.result


def _watch(gang: Gang, ranks: dict[Any, int]) -> End:
    """The deciding end of the processes with these `ranks`."""
    ends, waiting, settled = list[End](), list(ranks), False
    while not (decisive := decide(ends, gang.hosts, settled=settled)):
        failing = any(end.how in ("raised", "felt") for end in ends)
        done, waiting = ray.wait(waiting, timeout=SETTLED_AFTER if failing else None)
        settled = not done
        ends += [_end(ranks[reference], reference) for reference in done]
    return decisive


@contextmanager
def _reserved(gang: Gang) -> Iterator[PlacementGroup]:
    """All hosts of the gang at once, one bundle per host."""
    if gang.tpu:
        slices = _slices(gang, gang.tpu)
        group = cast(PlacementGroup, slices.placement_group)
        try:
            _wait_for(group, gang)
            slices.release_head_pgs()  # they only reserved the slices until here
            yield group
        finally:
            slices.shutdown()
        return
    nodes = sum(node["Alive"] for node in ray.nodes())
    group = placement_group([dict(gang.resources)] * gang.hosts, strategy=strategy(nodes))
    try:
        _wait_for(group, gang)
        yield group
    finally:
        remove_placement_group(group)


def _wait_for(group: PlacementGroup, gang: Gang) -> None:
    try:
        ray.get(group.ready(), timeout=gang.patience)
    except GetTimeoutError as error:
        raise NotEnough from error


def _slices(gang: Gang, shape: TpuSlice) -> tpu.SlicePlacementGroup:
    """Whole TPU slices."""
    until = None if gang.patience is None else time.monotonic() + gang.patience
    while True:
        try:
            return tpu.slice_placement_group(
                shape.topology,
                shape.version,
                resources_per_bundle=dict(gang.resources),
                num_slices=gang.slices,
            )
        except TimeoutError as error:
            if until is not None and time.monotonic() > until:
                raise NotEnough from error
            # It has released the slices it got, so that of two gangs that wait for each other one
            # continues; a random time, so that they do not collide again.
            time.sleep(random.uniform(1, 20))


def _start(gang: Gang, group: PlacementGroup, bundle: int) -> Any:
    """A process on the host of a bundle."""
    return (
        ray.remote(_Host)
        .options(
            num_cpus=gang.resources.get("CPU", 0),
            num_gpus=gang.resources.get("GPU", 0),
            resources={x: n for x, n in gang.resources.items() if x not in ("CPU", "GPU")},
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
            runtime_env={"env_vars": {**OURS, **gang.environment}},
        )
        .remote()
    )


def _begin(
    program: Callable[..., Any], gang: Gang, hosts: list[Any], args: tuple[Any, ...]
) -> dict[Any, int]:
    """Call the program on all hosts. Returns the rank of each reference."""
    from engine.model.processes import Place

    nodes = {node["NodeID"]: node for node in ray.nodes()}
    seats = [nodes[node] for node in ray.get([host.node.remote() for host in hosts])]
    numbers = [int(seat["Labels"].get(TPU_WORKER_ID, 0)) if gang.tpu else 0 for seat in seats]
    bundles = ranked(gang, numbers)
    address = seats[bundles[0]]["NodeManagerAddress"]
    coordinator = ray.get(hosts[bundles[0]].free_port.remote(address))
    meeting = None
    if gang.boxed:
        coordinator = f"{gang_network.address(0)}:{gang_network.PORT}"
        doors = [hosts[x].listen.remote(seats[x]["NodeManagerAddress"]) for x in bundles]
        meeting = ray.get(doors), secrets.token_bytes(32)
    places = [Place(rank, gang.hosts, coordinator, gang.slices) for rank in range(gang.hosts)]
    return {
        hosts[bundle].work.remote(gang, place, meeting, program, args): place.rank
        for bundle, place in zip(bundles, places, strict=True)
    }


def _end(rank: int, reference: Any) -> End:
    try:
        end: End = ray.get(reference)
    except RayTaskError as error:  # such as a failed import of the program
        return End(rank, "raised", _words(error))
    except RayError as error:
        taken = getattr(error, "preempted", False) or NODE_DIED in str(error)
        return End(rank, "lost", _words(error, after="is dead because "), preempted=taken)
    return end


def network(gang: Gang, place: "Place") -> dict[str, str]:
    """Environment variables about the network between TPU slices."""
    if not gang.tpu or gang.slices == 1:
        return {}
    host = place.coordinator.rpartition(":")[0]
    return tpu.get_tpu_coordinator_env_vars(host, gang.slices, place.slice)


class _Host:
    """One process of a gang, as a Ray actor."""

    def node(self) -> str:
        """Ray's id of its node."""
        return ray.get_runtime_context().get_node_id()

    def free_port(self, address: str) -> str:
        """`address` of this node, with a port that is free now."""
        with socket.create_server((address, 0)) as free:
            return f"{address}:{free.getsockname()[1]}"

    def listen(self, address: str) -> str:
        """The address at which the others find this process, for a network of boxes."""
        self._door = socket.create_server((address, 0))
        return f"{address}:{self._door.getsockname()[1]}"

    def work(
        self,
        gang: Gang,
        place: "Place",
        meeting: tuple[list[str], bytes] | None,
        program: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> End:
        """Join the others and call the program."""
        os.environ.update(network(gang, place))
        try:
            if meeting:
                with (
                    tempfile.TemporaryDirectory() as folder,
                    gang_network.joined(place.rank, self._door, *meeting, Path(folder)) as joined,
                ):
                    result = program(place, *args, network=joined)
            else:
                result = _joined(place, program, args)
        except MakerLost as error:
            how: Literal["felt", "lost"] = "felt" if isinstance(error, PeerLost) else "lost"
            return End(place.rank, how, _words(error), None, isinstance(error, MakerPreempted))
        except Exception as error:
            traceback.print_exc()
            # JAX raises its own error when another process is gone.
            felt = type(error).__name__ == JAX_FELT
            why = f"{type(error).__name__}: {_words(error)}"
            return End(place.rank, "felt" if felt else "raised", why)
        return End(place.rank, "returned", result=None if place.rank else result)


def _joined(place: "Place", program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    from engine.model import processes

    processes.join(place)
    result = program(place, *args)
    processes.leave()
    return result


def _words(error: Exception, after: str = "") -> str:
    """An error on one line; only the part after `after`, if it contains that."""
    words = " ".join(str(error).split())
    return (words.partition(after)[2] if after and after in words else words)[:MOST_WORDS]
