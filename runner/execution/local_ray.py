"""A private Ray on this machine: starts with a clean environment, leaves nothing behind."""

import contextlib
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.execution.ray_jobs import RayAddress, RayError, RayJobs
from runner.lib import process_tree

START_MAY_TAKE = 120.0  # seconds until a local Ray answers; 5 on an idle machine
PENDING_MAY_LAST = 90 * 24 * 3600  # seconds; Ray's default is 15 minutes, too short for a queue
STOP_MAY_TAKE = 5  # seconds between SIGTERM and SIGKILL when a job is stopped


@dataclass(frozen=True)
class LocalRay(RayAddress):
    """A Ray on this machine that ends with the process that started it."""

    guard: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.guard.poll() is None


def local_cpus() -> int:
    """The cores that a local Ray offers: at least two, which one `cpu` needs."""
    return max(2, os.cpu_count() or 1)


def local_gpus() -> int:
    """The NVIDIA devices of this machine; Ray finds them itself."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


@contextlib.contextmanager
def local_ray(folder: Path, reach: Mapping[str, str] | None = None) -> Iterator[LocalRay]:
    """A Ray on this machine during the `with` body; its output goes to `ray.log` in `folder`.

    Its environment is new, so that it and its jobs get none of our secrets, and contains `reach`,
    with which jobs find a store that is not on this disk. It listens on 127.0.0.1 only, and needs
    no other network. None of its processes is left at the end, also when this process is killed.
    Only one per machine, because two interfere. Raises RayError if it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # short: it holds Unix sockets
    token = scratch / "token"
    with open(token, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(secrets.token_hex(32))
    (scratch / "home").mkdir()
    ports = free_ports(11)
    command = _head(scratch, ports)
    environment = {**_environment(scratch, token, ports), **(reach or {})}
    try:
        with process_tree.kept(command, scratch, folder / "ray.log", environment) as keeper:
            ray = LocalRay(f"http://127.0.0.1:{ports[0]}", token, keeper)
            _wait_for(ray, folder / "ray.log")
            yield ray
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _head(scratch: Path, ports: list[int]) -> list[str]:
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        f"--num-cpus={local_cpus()}",
        "--object-store-memory=100000000",  # unused, and /dev/shm may be small
        "--node-ip-address=127.0.0.1",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={ports[0]}",
        f"--port={ports[1]}",
        f"--node-manager-port={ports[2]}",
        f"--object-manager-port={ports[3]}",
        f"--dashboard-agent-listen-port={ports[4]}",
        f"--dashboard-agent-grpc-port={ports[5]}",
        f"--runtime-env-agent-port={ports[6]}",
        f"--metrics-export-port={ports[7]}",
        f"--ray-client-server-port={ports[8]}",
        f"--temp-dir={scratch}/r",
        "--include-log-monitor=false",
        "--disable-usage-stats",
    ]


def _environment(scratch: Path, token: Path, ports: list[int]) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(scratch / "home"),
        "LANG": "C.UTF-8",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # one machine: addresses stay on loopback
        "RAY_JOB_START_TIMEOUT_SECONDS": str(PENDING_MAY_LAST),
        "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_MAY_TAKE),
        "AUTOSCALER_METRIC_PORT": str(ports[9]),
        "DASHBOARD_METRIC_PORT": str(ports[10]),
        **_data_caches(os.environ),
    }


def _data_caches(here: Mapping[str, str]) -> dict[str, str]:
    """Where Hugging Face's `datasets` and Hub client find what is on this machine, by their own
    rules; not HF_HOME, which has a token."""
    around = here.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    home = Path(here.get("HF_HOME") or Path(around) / "huggingface").expanduser()
    return {
        "HF_DATASETS_CACHE": here.get("HF_DATASETS_CACHE") or str(home / "datasets"),
        "HF_HUB_CACHE": here.get("HF_HUB_CACHE") or str(home / "hub"),
    }


def free_ports(count: int) -> list[int]:
    """Ports that are free now, outside those that Ray gives its workers (10002–19999)."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            # Below the kernel's range for outgoing connections, which could take them.
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", random.randrange(20_000, 32_768)))
                found.append(probe.getsockname()[1])
    return found


def _wait_for(ray: LocalRay, output: Path) -> None:
    until = time.monotonic() + START_MAY_TAKE
    with contextlib.closing(RayJobs(ray)) as jobs:
        while jobs.look("x") == "unreachable":
            if not ray.alive or time.monotonic() > until:
                tail = output.read_text(errors="replace").strip()[-600:]
                raise RayError(f"Ray did not start; {output} ends with:\n{tail}")
            time.sleep(0.1)
