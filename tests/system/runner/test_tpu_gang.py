"""Gangs on TPU slices, as far as that shows without TPUs: Ray nodes that say they are hosts of
three v4-16 slices, and processes that compute on CPUs. The job (`test_tpu_gang.py FOLDER`) starts
the nodes, `test_tpu_gang.py node ADDRESS RESOURCES`, by Ray's own internals, because `ray start`
puts no second node on a loopback address."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.processes import Place
from tests.system.runner.test_gang import in_a_job

VERSION, TOPOLOGY, TYPE = "v4", "2x2x2", "v4-16"  # two hosts of four chips
SLICES = ("left", "right", "spare")


def start(found: ExitStack, address: str, name: str, worker: int) -> subprocess.Popen[bytes]:
    """A node that is host `worker` of the slice `name`."""
    resources = {"TPU": 4} | ({f"TPU-{TYPE}-head": 1} if worker == 0 else {})
    says = {"NAME": name, "WORKER_ID": str(worker), "ACCELERATOR_TYPE": TYPE, "TOPOLOGY": TOPOLOGY}
    node = subprocess.Popen(
        [sys.executable, __file__, "node", address, json.dumps(resources)],
        env=os.environ | {f"TPU_{what}": word for what, word in says.items()},
        stdout=subprocess.PIPE,
    )
    found.callback(node.wait)
    found.callback(node.terminate)
    assert node.stdout
    assert node.stdout.readline() == b"up\n"
    return node


def be_a_node(address: str, resources: str) -> None:
    """A Ray node until SIGTERM."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    signal.signal(signal.SIGTERM, lambda *_: None)
    node = Node(
        RayParams(
            gcs_address=address,
            num_cpus=1,
            resources=json.loads(resources),
            node_ip_address="127.0.0.1",
            object_store_memory=80_000_000,
            dashboard_agent_listen_port=0,
            include_log_monitor=False,
            min_worker_port=0,
            max_worker_port=0,
        ),
        head=False,
        shutdown_at_exit=False,
    )
    print("up", flush=True)
    signal.pause()
    node.kill_all_processes(check_alive=False)


def where(place: Place) -> Any:
    """Of each process: its rank, its slice by rank and as libtpu is told, and its host."""
    import numpy as np
    from jax.experimental import multihost_utils

    of = SLICES.index(os.environ["TPU_NAME"])
    told = int(os.environ.get("MEGASCALE_SLICE_ID", 0))
    mine = np.array([place.rank, place.slice, told, of, int(os.environ["TPU_WORKER_ID"])])
    return multihost_utils.process_allgather(mine).tolist()


def stay(place: Place, folder: str) -> None:
    """Say that this process runs, and run for as long as it may."""
    Path(folder, f"{place.rank} of {os.environ['TPU_NAME']}").touch()
    time.sleep(600)


def drive(folder: Path) -> dict[str, Any]:
    """Where the processes of gangs on one slice and on two are; and of one on two that loses a
    slice, how that ended, and where the next one is."""
    import ray

    from runner.worker import host_group_ray

    with ExitStack() as nodes:
        address = os.environ["RAY_ADDRESS"]
        of = {name: [start(nodes, address, name, x) for x in (1, 0)] for name in SLICES[:2]}
        ray.init(log_to_driver=False)
        found = {}
        for slices in (1, 2):
            gang = host_group_ray.tpu_gang(VERSION, TOPOLOGY, slices)
            gang = replace(gang, environment={"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"})
            found[str(slices)] = host_group_ray.run(where, gang)
        with ThreadPoolExecutor() as pool:
            lasting = pool.submit(host_group_ray.run, stay, gang, str(folder))
            while len(list(folder.glob("* of *"))) < gang.hosts:
                assert not lasting.done(), lasting.exception()
                time.sleep(0.1)
            for node in of["left"]:
                node.terminate()
            found["lost"] = type(lasting.exception()).__name__
        for worker in (1, 0):
            start(nodes, address, "spare", worker)
        found["after"] = host_group_ray.run(where, gang)
        ray.shutdown()
    return found


@pytest.mark.slow
def test_slices_are_reserved_whole_and_ranks_follow_their_hosts(tmp_path: Path) -> None:
    found = in_a_job(tmp_path, __file__, str(tmp_path))
    one = [*zip(*found["1"], strict=True)]
    assert one[:3] == [(0, 1), (0, 0), (0, 0)]
    assert one[3] in [(0, 0), (1, 1)], "both hosts are of one slice"
    assert one[4] == (0, 1)
    for key, on in (("2", {0, 1}), ("after", {1, 2})):
        _of_two(found[key], on)
    assert found["lost"] == "MakerPreempted"


def _of_two(ranks: list[list[int]], on: set[int]) -> None:
    """Four hosts in two slices, which are those with these numbers."""
    two = [*zip(*ranks, strict=True)]
    assert two[:3] == [(0, 1, 2, 3), (0, 0, 1, 1), (0, 0, 1, 1)]
    assert two[3] in [(one, one, other, other) for one, other in itertools.permutations(on)]
    assert two[4] == (0, 1, 0, 1)


if __name__ == "__main__":
    if sys.argv[1] == "node":
        be_a_node(*sys.argv[2:])
    else:
        at = Path(sys.argv[1])
        (at / "found.json").write_text(json.dumps(drive(at)))
