"""Where attempts run: Ray Jobs over HTTP, and a Ray of one's own on this machine.

Ray is never imported here. A cluster is an address and a token; one machine or a thousand make no
other difference. Ray's word on a job is a hint: leases and records decide (`runner.lifecycle`).
"""

import contextlib
import logging
import os
import random
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from runner.claims import ANOTHER_WORKER
from runner.hardware import KINDS
from runner.lifecycle import Job
from runner.record import Plan

LOOK = httpx.Timeout(5.0, connect=2.0)  # a look must never hold up the others
SUBMIT = httpx.Timeout(20.0, connect=2.0)  # Ray's first one takes some seconds
START_MAY_TAKE = 120.0  # seconds until a local Ray answers; 5 on an idle machine
STOP_MAY_TAKE = 25.0
PENDING_MAY_LAST = 90 * 24 * 3600  # seconds; Ray's default of 15 minutes is no queue

JOBS: dict[str, Job] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "STOPPED": "stopped",
}

log = logging.getLogger(__name__)


class RayError(Exception):
    """Ray cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class RayAddress:
    """A Ray cluster: where its dashboard answers, and the file with its token."""

    url: str
    token_file: Path


# ── Jobs ─────────────────────────────────────────────────────────────────────────────────────


class RayJobs:
    """Attempts as Ray jobs. A job's submission id is its attempt's folder name, nonce included."""

    def __init__(self, ray: RayAddress) -> None:
        """Read the token of `ray`. Raises RayError if there is none."""
        self._ray = ray
        try:
            token = ray.token_file.read_text().strip()
        except OSError as error:
            raise RayError(
                f"The token of Ray cannot be read from {ray.token_file}: {error.strerror}."
            ) from error
        self._http = httpx.Client(
            base_url=ray.url,
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,  # no proxy stands between the lab and its cluster
        )

    def look(self, folder: str) -> Job:
        """What has become of the job. Raises RayError if Ray does not accept our token."""
        try:
            answer = self._ask("GET", f"/api/jobs/{folder}")
            if answer.status_code == 404:
                return "unknown"
            job = answer.raise_for_status().json()
            if job.get("driver_exit_code") == ANOTHER_WORKER:
                return "unknown"  # the attempt is another job's, of which this Ray cannot tell
            return JOBS[job["status"]]
        except (httpx.HTTPError, ValueError, KeyError, AttributeError) as error:
            log.debug("looking for %s: %r", folder, error)
            return "unreachable"

    def submit(self, folder: str, where: Path, plan: Plan) -> None:
        """Start `runner.worker` on the attempt's folder `where`, unless its job exists.

        Raises RayError for what trying again cannot mend. After any other trouble the next look
        finds the job unknown, and it is submitted again.
        """
        kind, count = KINDS[plan.resources.kind], plan.resources.count
        job = {
            # `exec`, so that the worker's parent is Ray's supervisor of the job and no shell.
            "entrypoint": shlex.join(["exec", sys.executable, "-m", "runner.worker", str(where)]),
            "submission_id": folder,
            "entrypoint_num_cpus": kind.ray_cpus * count,
            "entrypoint_num_gpus": kind.ray_gpus * count,
            "metadata": {"attempt": folder, "experiment": plan.experiment},
        }
        try:
            answer = self._ask("POST", "/api/jobs/", job, SUBMIT)
            if answer.is_success:
                return
            trouble = answer.text.strip().rpartition("\n")[2][:300]
        except httpx.HTTPError as error:
            answer, trouble = None, repr(error)
        # A second submission is an error too, and so are two at the same moment: see what is.
        if self.look(folder) != "unknown":
            return
        if answer is not None and answer.is_client_error:
            raise RayError(f"Ray at {self._ray.url} refuses the job {folder}: {trouble}")
        log.warning("Ray at %s has not taken %s yet: %s", self._ray.url, folder, trouble)

    def stop(self, folder: str) -> None:
        """Ask the job and all its processes to end. The next look says whether they have."""
        try:
            self._ask("POST", f"/api/jobs/{folder}/stop")
        except httpx.HTTPError as error:
            log.debug("stopping %s: %r", folder, error)

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def _ask(
        self, method: str, path: str, body: object = None, timeout: httpx.Timeout | None = None
    ) -> httpx.Response:
        answer = self._http.request(method, path, json=body, timeout=timeout or LOOK)
        if answer.status_code in (401, 403):
            raise RayError(
                f"Ray at {self._ray.url} does not accept the token in {self._ray.token_file}. "
                "Name the token file that Ray was started with (its RAY_AUTH_TOKEN_PATH)."
            )
        return answer


# ── A Ray of one's own ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LocalRay(RayAddress):
    """A Ray on this machine that ends with whoever started it."""

    guard: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.guard.poll() is None


def local_cpus() -> int:
    """The cores that a local Ray hands out: at least the two of one `cpu`."""
    return max(2, os.cpu_count() or 1)


def local_gpus() -> int:
    """The NVIDIA devices of this machine, which Ray finds by itself."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


@contextlib.contextmanager
def local_ray(folder: Path) -> Iterator[LocalRay]:
    """A Ray on this machine for the `with` body; its output goes to `ray.log` in `folder`.

    Its environment is built from nothing, so that no secret of ours reaches it or its jobs; it
    listens on 127.0.0.1 only, and needs no other network. None of its processes is left at the
    end, also when this process is killed. One a machine: two disturb each other. Raises RayError
    if it does not come up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # short: it holds Unix sockets
    token = scratch / "token"
    with open(token, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(secrets.token_hex(32))
    (scratch / "home").mkdir()
    ports = _free_ports(11)
    with (folder / "ray.log").open("wb") as output:
        guard = subprocess.Popen(
            [sys.executable, "-m", "runner.guard", str(scratch), *_head(scratch, ports)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(scratch, token, ports),
            cwd=scratch,
            start_new_session=True,  # a Ctrl-C is ours to handle
        )
    ray = LocalRay(f"http://127.0.0.1:{ports[0]}", token, guard)
    try:
        _wait_for(ray, folder / "ray.log")
        yield ray
    finally:
        if guard.stdin:
            guard.stdin.close()
        try:
            guard.wait(STOP_MAY_TAKE)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _head(scratch: Path, ports: list[int]) -> list[str]:
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        f"--num-cpus={local_cpus()}",
        "--object-store-memory=100000000",  # nobody uses it, and /dev/shm may be small
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
        "AUTOSCALER_METRIC_PORT": str(ports[9]),
        "DASHBOARD_METRIC_PORT": str(ports[10]),
    }


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, outside those that Ray gives its workers (10002–19999)."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            # Below what the kernel hands out for outgoing connections, or it might do so yet.
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
