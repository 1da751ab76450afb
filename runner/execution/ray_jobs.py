"""Runs attempts as Ray Jobs over HTTP.

Ray is never imported here. A cluster is an address and a token; its size makes no difference. Ray's
report on a job is a hint: leases and records decide (`runner.execution.lifecycle`).
"""

import logging
import shlex
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx

from runner.execution.lifecycle import Job
from runner.lib import addresses, redact
from runner.schema.job_reports import ANOTHER_WORKER
from runner.schema.record import Plan

LOOK = httpx.Timeout(5.0, connect=2.0)  # a look must never hold up the others
EXAMPLE = "http://127.0.0.1:8265"
SUBMIT = httpx.Timeout(20.0, connect=2.0)  # Ray's first one takes some seconds

JOBS: dict[str, Job] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "STOPPED": "stopped",
}

log = logging.getLogger(__name__)


class RayError(Exception):
    """Ray is not usable; the message says why and what to do."""


class RayAway(RayError):
    """Ray does not answer, perhaps only now."""


@dataclass(frozen=True)
class RayAddress:
    """A Ray cluster: the URL of its dashboard, and the file with its token."""

    url: str
    token_file: Path


@dataclass(frozen=True)
class Listed:
    """A job in Ray's list: the attempt's folder, and the id of the store that submitted it."""

    folder: str
    store: str


class _Token(httpx.Auth):
    """Adds Ray's token to each request, and reads it again if Ray refuses it."""

    def __init__(self, ray: RayAddress) -> None:
        self._ray, self._token = ray, ""
        self._read()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """The request with the token, and once more with another one."""
        before = self._token
        for _ in range(2):
            request.headers["Authorization"] = f"Bearer {self._token}"
            answer = yield request
            if answer.status_code not in (401, 403):
                return
            self._read()
            if self._token == before:
                break
        raise RayError(
            f"Ray at {self._ray.url} does not accept the token in {self._ray.token_file}. "
            "Name the token file that Ray was started with (its RAY_AUTH_TOKEN_PATH)."
        )

    def _read(self) -> None:
        try:
            token = self._ray.token_file.read_text().strip()
        except OSError as error:
            raise RayError(
                f"The token of Ray cannot be read from {self._ray.token_file}: {error.strerror}."
            ) from error
        redact.hold(token, instead_of=self._token)
        self._token = token  # if Ray got another one


class RayJobs:
    """Attempts as Ray jobs. A job's submission id is its attempt's folder name, nonce included."""

    def __init__(self, ray: RayAddress, store: str = "") -> None:
        """Read the token of `ray`. Raises RayError if there is none, or if its URL is none. `store`
        is the id of these attempts' store; each job carries it, because several stores may share a
        Ray."""
        if not addresses.is_http(ray.url):
            raise RayError(f"{ray.url} is not the address of a Ray dashboard, such as {EXAMPLE}.")
        self._ray, self._store = ray, store
        # No proxy between the lab and its cluster.
        self._http = httpx.Client(base_url=ray.url, trust_env=False, timeout=LOOK, auth=_Token(ray))

    def check(self) -> None:
        """Raises RayAway if no Ray answers, and RayError if it does not accept our token."""
        try:
            if isinstance(self._http.get("/api/jobs/").raise_for_status().json(), list):
                return
            why = "the answer is not Ray's"
        except (httpx.HTTPError, ValueError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
        raise RayAway(
            f"No Ray answers at {self._ray.url} ({why}). Start it with its dashboard, or name "
            "where it is."
        )

    def look(self, folder: str) -> Job:
        """The status of the job. Raises RayError if Ray does not accept our token."""
        try:
            answer = self._http.get(f"/api/jobs/{folder}")
            if answer.status_code == 404:
                return "unknown"
            job = answer.raise_for_status().json()
            if job.get("driver_exit_code") == ANOTHER_WORKER:
                return "unknown"  # the job belongs to another attempt, so Ray does not know ours
            return JOBS[job["status"]]
        except (httpx.HTTPError, ValueError, KeyError, AttributeError) as error:
            log.debug("looking for %s: %r", folder, error)
            return "unreachable"

    def submit(self, folder: str, where: Path | str, spec_sha256: str, plan: Plan) -> None:
        """Start `runner.worker.main` on the attempt's folder `where` (a path or a gs:// URL),
        unless its job exists.

        Its command line contains the digest of its spec, which no job can change. Raises RayError
        for errors that a retry cannot fix. After any other error the next look finds the job
        unknown, and it is submitted again.
        """
        worker = [sys.executable, "-m", "runner.worker.main"]
        job = {
            # `exec`, so that the worker's parent is Ray's supervisor of the job and no shell.
            "entrypoint": shlex.join(["exec", *worker, str(where), spec_sha256]),
            "submission_id": folder,
            # Steps are tasks of their own; their driver needs no core.
            "entrypoint_num_cpus": 0,
            "entrypoint_num_gpus": 0,
            "metadata": {"attempt": folder, "experiment": plan.experiment, "store": self._store},
        }
        try:
            answer = self._http.post("/api/jobs/", json=job, timeout=SUBMIT)
            if answer.is_success:
                return
            trouble = answer.text.strip().rpartition("\n")[2][:300]
        except httpx.HTTPError as error:
            answer, trouble = None, repr(error)
        # A second submission is an error, too, as are two at once: look at the result.
        if self.look(folder) != "unknown":
            return
        if answer is not None and answer.is_client_error:
            raise RayError(f"Ray at {self._ray.url} refuses the job {folder}: {trouble}")
        log.warning("Ray at %s has not taken %s yet: %s", self._ray.url, folder, trouble)

    def listed(self) -> list[Listed]:
        """The jobs that Ray knows and that have not ended. Raises RayError if Ray does not accept
        our token; empty if Ray does not answer."""
        try:
            found = self._http.get("/api/jobs/").raise_for_status().json()
            return [
                Listed(str(job["submission_id"]), str((job.get("metadata") or {}).get("store", "")))
                for job in found
                if job.get("submission_id") and JOBS.get(job["status"]) in ("pending", "running")
            ]
        except (httpx.HTTPError, ValueError, KeyError, AttributeError, TypeError) as error:
            log.warning("the jobs of Ray cannot be listed: %r", error)
            return []

    def stop(self, folder: str) -> None:
        """Ask the job and all its processes to end. The next look says whether they have."""
        try:
            self._http.post(f"/api/jobs/{folder}/stop")
        except httpx.HTTPError as error:
            log.debug("stopping %s: %r", folder, error)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
