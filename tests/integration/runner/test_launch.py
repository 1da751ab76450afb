"""Ray Jobs over HTTP, against a dashboard that answers what a test wants."""

import json
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner.execution import local_ray, ray_jobs
from runner.execution.ray_jobs import RayAddress, RayError, RayJobs
from runner.lib import redact
from runner.schema.job_reports import ANOTHER_WORKER
from tests import synthetic

FOLDER = "x0123456789abcdef.t1-aa"
PLAN = synthetic.plan()
DIGEST = "d" * 64


class Dashboard:
    """Answers each request with the next of `answers` (the last one stays), and keeps them."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, object]] = [(404, "does not exist")]
        self.requests: list[tuple[str, str, object, str]] = []
        self.delay = 0.0
        dashboard = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                token = self.headers.get("authorization", "")
                said = json.loads(body) if body else None
                dashboard.requests.append((self.command, self.path, said, token))
                time.sleep(dashboard.delay)
                answers = dashboard.answers
                status, value = answers.pop(0) if len(answers) > 1 else answers[0]
                data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _answer

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    dashboard = Dashboard()
    yield dashboard
    dashboard.server.shutdown()
    dashboard.server.server_close()


@pytest.fixture
def jobs(dashboard: Dashboard, tmp_path: Path) -> Iterator[RayJobs]:
    (tmp_path / "token").write_text("t0ken\n")
    jobs = RayJobs(RayAddress(dashboard.url, tmp_path / "token"))
    yield jobs
    jobs.close()


def job(status: str, code: int | None = None) -> dict[str, object]:
    return {"status": status, "driver_exit_code": code, "submission_id": FOLDER}


EXISTS = "Traceback …\nValueError: Job with submission_id x already exists. Please use another."


# ── Looking ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "answer", "seen"),
    [
        (200, job("PENDING"), "pending"),
        (200, job("RUNNING"), "running"),
        (200, job("SUCCEEDED", 0), "succeeded"),
        (200, job("FAILED", 1), "failed"),
        (200, job("FAILED", -9), "failed"),
        (200, job("FAILED"), "failed"),
        (200, job("STOPPED"), "stopped"),
        # This job found the attempt begun by another one, of whose end Ray cannot tell.
        (200, job("FAILED", ANOTHER_WORKER), "unknown"),
        (404, "Job does not exist", "unknown"),
        (500, "Traceback", "unreachable"),
        (503, "", "unreachable"),
        (200, "<html>a proxy's page</html>", "unreachable"),
        (200, job("A STATE OF THE FUTURE"), "unreachable"),
        (200, [], "unreachable"),
    ],
)
def test_job_states_from_ray(
    dashboard: Dashboard, jobs: RayJobs, status: int, answer: object, seen: str
) -> None:
    dashboard.answers = [(status, answer)]
    assert jobs.look(FOLDER) == seen
    assert dashboard.requests == [("GET", f"/api/jobs/{FOLDER}", None, "Bearer t0ken")]


def test_a_ray_that_is_not_there_is_unreachable(dashboard: Dashboard, jobs: RayJobs) -> None:
    dashboard.server.shutdown()
    dashboard.server.server_close()
    assert jobs.look(FOLDER) == "unreachable"
    jobs.submit(FOLDER, Path("/store/work") / FOLDER, DIGEST, PLAN)
    jobs.stop(FOLDER)


def test_a_look_does_not_wait_for_a_ray_that_hangs(
    dashboard: Dashboard, jobs: RayJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(ray_jobs.LOOK.as_dict().values()) <= 5  # type: ignore[type-var]
    monkeypatch.setattr(ray_jobs, "LOOK", 0.2)
    dashboard.delay = 1.0
    began = time.monotonic()
    assert RayJobs(jobs._ray).look(FOLDER) == "unreachable"
    assert time.monotonic() - began < 0.9


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_token_is_an_error_in_words_wherever_it_shows(
    dashboard: Dashboard, jobs: RayJobs, status: int
) -> None:
    dashboard.answers = [(status, "no")]
    for ask in (
        lambda: jobs.look(FOLDER),
        lambda: jobs.submit(FOLDER, Path("/store/work") / FOLDER, DIGEST, PLAN),
        lambda: jobs.stop(FOLDER),
    ):
        with pytest.raises(RayError, match=r"does not accept the token in .*/token"):
            ask()


def test_a_token_that_was_changed_is_read_again(
    dashboard: Dashboard, jobs: RayJobs, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("another-t0ken\n")
    dashboard.answers = [(401, "no"), (200, {"status": "RUNNING"})]
    assert jobs.look(FOLDER) == "running"
    assert [token for *_, token in dashboard.requests] == ["Bearer t0ken", "Bearer another-t0ken"]
    assert redact.clean("another-t0ken") == redact.IN_PLACE


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RayError, match="nowhere: No such file"):
        RayJobs(RayAddress("http://127.0.0.1:1", tmp_path / "nowhere"))


# ── Submitting ───────────────────────────────────────────────────────────────────────────────


def test_a_job_says_what_it_runs_what_it_needs_and_whose_it_is(
    dashboard: Dashboard, jobs: RayJobs
) -> None:
    dashboard.answers = [(200, {"submission_id": FOLDER})]
    jobs.submit(FOLDER, Path("/a store/work") / FOLDER, DIGEST, PLAN)
    [(method, path, body, _)] = dashboard.requests
    assert (method, path) == ("POST", "/api/jobs/")
    assert isinstance(body, dict)
    where = f"/a store/work/{FOLDER}"
    worker = [sys.executable, "-m", "runner.worker.main"]
    assert shlex.split(body["entrypoint"]) == ["exec", *worker, where, DIGEST]
    assert body["submission_id"] == FOLDER
    needs = body["entrypoint_num_cpus"], body["entrypoint_num_gpus"]
    assert needs == (0, 0), "its steps are tasks of their own"
    assert body["metadata"]["attempt"] == FOLDER
    assert "runtime_env" not in body


@pytest.mark.parametrize("status", [500, 400])
def test_a_second_submission_finds_that_the_job_exists(
    dashboard: Dashboard, jobs: RayJobs, status: int
) -> None:
    dashboard.answers = [(status, EXISTS), (200, job("RUNNING"))]
    jobs.submit(FOLDER, Path("/store/work") / FOLDER, DIGEST, PLAN)
    assert [request[0] for request in dashboard.requests] == ["POST", "GET"]


def test_a_submission_that_came_to_nothing_is_left_to_the_next_look(
    dashboard: Dashboard, jobs: RayJobs, caplog: pytest.LogCaptureFixture
) -> None:
    dashboard.answers = [(500, "No available agent to submit job"), (404, "no")]
    jobs.submit(FOLDER, Path("/store/work") / FOLDER, DIGEST, PLAN)
    assert "No available agent" in caplog.text


def test_a_job_that_ray_refuses_for_good_is_an_error_in_words(
    dashboard: Dashboard, jobs: RayJobs
) -> None:
    dashboard.answers = [
        (400, "Traceback\nTypeError: entrypoint_num_cpus must be a number"),
        (404, ""),
    ]
    with pytest.raises(RayError, match="entrypoint_num_cpus must be a number"):
        jobs.submit(FOLDER, Path("/store/work") / FOLDER, DIGEST, PLAN)


# ── A Ray of one's own ───────────────────────────────────────────────────────────────────────


def test_the_local_rays_environment_is_built_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CANARY", "GITHUB_TOKEN", "PYTHONPATH", "RAY_ADDRESS", "HOME"):
        monkeypatch.setenv(name, "a secret")
    made = local_ray._environment(tmp_path, tmp_path / "token", list(range(20)))
    assert "a secret" not in made.values()
    assert set(made) - {"PATH", "HOME", "LANG"} == {
        *("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_JOB_START_TIMEOUT_SECONDS"),
        *("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT", "RAY_JOB_STOP_WAIT_TIME_S"),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
        *("HF_DATASETS_CACHE", "HF_HUB_CACHE"),  # below the home folder, where no token is
    }


def test_the_local_rays_ports_are_free_and_distinct() -> None:
    ports = local_ray.free_ports(11)
    assert len(set(ports)) == 11
    assert not set(ports) & set(range(10_002, 20_000))
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_local_ray_that_fails_to_start_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [sys.executable, "-c", "import sys; sys.exit('no room for a Ray here')"]
    monkeypatch.setattr(local_ray, "_head", lambda *_: words)
    before = set(Path("/tmp").glob("ray-*"))
    with pytest.raises(RayError, match="no room for a Ray here"), local_ray.local_ray(tmp_path):
        pass
    assert set(Path("/tmp").glob("ray-*")) <= before


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_local_rays_guard_ends_everything_when_its_holder_dies(tmp_path: Path) -> None:
    """The holder is killed outright; what it started hides in a session of its own, ignores
    SIGTERM and has lost its parent."""
    stubborn = (
        "import os, signal, sys, time\n"
        "if os.fork() == 0:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        f"open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(600)\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    holder = (
        "import subprocess, sys, time\n"
        "guard = subprocess.Popen([sys.executable, '-m', 'runner.lib.process_tree', *sys.argv[1:]],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        f"open({str(tmp_path / 'guard')!r}, 'w').write(str(guard.pid))\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", holder, str(scratch), sys.executable, "-c", stubborn]
    held = os.posix_spawn(sys.executable, command, os.environ)
    pids = tmp_path / "pids"
    _until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    kept = [int(pid) for pid in pids.read_text().split()]
    os.kill(held, 9)
    os.waitpid(held, 0)
    _until(lambda: not any(map(_alive, kept)))
    _until(lambda: not _alive(int((tmp_path / "guard").read_text())))
    assert not scratch.exists()


def _alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _until(reached, seconds: float = 10.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
