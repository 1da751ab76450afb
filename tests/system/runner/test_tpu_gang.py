"""Gangs on TPU slices, as far as that shows without TPUs: Ray nodes that say they are hosts of two
v4-16 slices, and processes that compute on CPUs. The job (`test_tpu_gang.py FOLDER`) starts the
nodes, `test_tpu_gang.py node ADDRESS RESOURCES`, by Ray's own internals, because `ray start` puts
no second node on a loopback address."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.model.processes import Place
from tests.system.runner.test_gang import in_a_job

VERSION, TOPOLOGY, TYPE = "v4", "2x2x2", "v4-16"  # two hosts of four chips
SLICES = ("left", "right")


def start(found: ExitStack, address: str, name: str, worker: int) -> None:
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


def drive() -> dict[str, Any]:
    """Where the processes of gangs on one slice and on two are."""
    import ray

    from runner.worker import host_group_ray

    with ExitStack() as nodes:
        for name in SLICES:
            for worker in (1, 0):
                start(nodes, os.environ["RAY_ADDRESS"], name, worker)
        ray.init(log_to_driver=False)
        found = {}
        for slices in (1, 2):
            gang = host_group_ray.tpu_gang(VERSION, TOPOLOGY, slices)
            gang = replace(gang, environment={"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"})
            found[str(slices)] = host_group_ray.run(where, gang)
        ray.shutdown()
    return found


@pytest.mark.slow
def test_slices_are_reserved_whole_and_ranks_follow_their_hosts(tmp_path: Path) -> None:
    found = in_a_job(tmp_path, __file__, str(tmp_path))
    one = [*zip(*found["1"], strict=True)]
    assert one[:3] == [(0, 1), (0, 0), (0, 0)]
    assert one[3] in [(0, 0), (1, 1)], "both hosts are of one slice"
    assert one[4] == (0, 1)
    two = [*zip(*found["2"], strict=True)]
    assert two[:3] == [(0, 1, 2, 3), (0, 0, 1, 1), (0, 0, 1, 1)]
    assert two[3] in [(0, 0, 1, 1), (1, 1, 0, 0)]
    assert two[4] == (0, 1, 0, 1)


if __name__ == "__main__":
    if sys.argv[1] == "node":
        be_a_node(*sys.argv[2:])
    else:
        (Path(sys.argv[1]) / "found.json").write_text(json.dumps(drive()))
