"""A gang without Ray: `run` stands for `runner.worker.host_group_ray.run` and starts each host as a
process of this machine with a cache of its own, `python -m tests.runner.local_gang FOLDER RANK`, so
that two of them share nothing but the store."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.model.processes import Place
from runner.isolation import gang_network
from runner.store.artifacts import MakerLost, MakerPreempted, MakingFailed
from runner.worker.host_group import Gang
from runner.worker.host_group_ray import NotEnough

PREEMPTED = 99  # exit code


def await_file(under: Path, pattern: str, seconds: float = 200) -> None:
    """Wait until a path that ends like this is there, while others write and rename beside it."""
    until = time.monotonic() + seconds
    # Unlike `rglob`, `os.walk` passes over folders that vanish while it lists them.
    while not any(
        (Path(folder) / name).match(pattern)
        for folder, below, files in os.walk(under)
        for name in (*below, *files)
    ):
        assert time.monotonic() < until, f"{under}: no {pattern}"
        time.sleep(0.02)


class LocalGangs:
    """All gangs of a test, one after the other; `hosts` are the processes of the newest."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.count = folder, 0
        self.most_slices = 99  # that are free
        self.hosts: list[subprocess.Popen[bytes]] = []

    def run(
        self,
        program: Callable[..., Any],
        gang: Gang,
        *args: Any,
        begins: Callable[[], object] = lambda: None,
    ) -> Any:
        """Call the program on all hosts of the gang."""
        begins()
        if gang.slices > self.most_slices:
            assert gang.patience is not None, "it would wait for ever"
            raise NotEnough
        self.count += 1
        folder = self._folder / str(self.count)
        folder.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = "{}:{}".format(*free.getsockname())
        places = [Place(rank, gang.hosts, address, gang.slices) for rank in range(gang.hosts)]
        if gang.boxed:
            at = f"{gang_network.address(0)}:{gang_network.PORT}"
            places = [replace(place, coordinator=at) for place in places]
        (folder / "asked").write_bytes(pickle.dumps((program, gang.boxed, places, args)))
        started = []
        for rank in range(gang.hosts):
            own = {"REGATTA_CACHE": str(self._folder / f"host-{rank}")}
            with (folder / f"{rank}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "tests.runner.local_gang", str(folder), str(rank)],
                        env=os.environ | gang.environment | own,
                        stdout=log,
                        stderr=log,
                    )
                )
        self.hosts = started
        try:
            while not all(host.poll() == 0 for host in started):
                codes = [host.poll() for host in started]
                if PREEMPTED in codes:
                    raise MakerPreempted("it saved and left")
                if any(code is not None and code < 0 for code in codes):
                    raise MakerLost("a host was killed")
                if any(codes):
                    logs = "\n".join(x.read_text()[-3000:] for x in folder.glob("*.log"))
                    raise MakingFailed(logs)
                time.sleep(0.02)
        finally:
            for host in started:
                host.kill()
                host.wait()
        return pickle.loads((folder / "result").read_bytes())


def network(folder: Path, rank: int, count: int) -> AbstractContextManager[gang_network.Network]:
    """The network of a rank's box; all meet by files."""
    door = socket.create_server(("127.0.0.1", 0))
    draft = folder / f".door-{rank}"
    draft.write_text("{}:{}".format(*door.getsockname()))
    draft.rename(folder / f"door-{rank}")
    while len(doors := sorted(folder.glob("door-*"))) < count:
        time.sleep(0.02)
    own = folder / f"network-{rank}"
    own.mkdir()
    return gang_network.joined(rank, door, [x.read_text() for x in doors], b"a secret" * 4, own)


def main(folder: Path, rank: int) -> int:
    from engine.model import processes

    program, boxed, places, args = pickle.loads((folder / "asked").read_bytes())
    try:
        if boxed:
            with network(folder, rank, len(places)) as joined:
                result = program(places[rank], *args, network=joined)
        else:
            processes.join(places[rank])
            result = program(places[rank], *args)
            processes.leave()
    except MakerPreempted:
        return PREEMPTED
    if rank == 0:
        (folder / "result").write_bytes(pickle.dumps(result))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
