"""`regatta serve` as its operator meets it: a process with health, figures and a log."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from bot.controller import condition
from bot.fake_github import server
from bot.fake_github.world.webhooks import sign
from runner.execution.local_ray import free_ports
from tests.scenarios.lab import SECRET, a_lab

OLD = "the-secret-before-this-one"
BODY = json.dumps(
    {
        "action": "created",
        "sender": {"type": "User", "login": "ada", "id": 11},
        "repository": {"id": 700_001},
        "issue": {"number": 1},
        "comment": {
            "id": 4711,
            "body": "\n\x1b[31mforged\n",
            "user": {"login": "ada", "id": 11, "type": "User"},
            "created_at": "2026-11-21T12:00:00Z",
        },
    }
).encode()


@dataclass(frozen=True)
class Served:
    port: int
    metrics: int
    log: Path

    def get(self, path: str, port: int | None = None) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{port or self.port}{path}", timeout=10)

    def post(self, secret: str, delivery: str) -> int:
        headers = {
            "X-GitHub-Event": "issue_comment",
            "X-GitHub-Delivery": delivery,
            "X-Hub-Signature-256": sign(secret, BODY),
        }
        url = f"http://127.0.0.1:{self.port}/webhook"
        return httpx.post(url, content=BODY, headers=headers, timeout=10).status_code


@dataclass
class Life:
    """A bot without a Ray, on the sandbox, which may die and be started again."""

    root: Path
    sandbox: str

    @contextlib.contextmanager
    def serves(self) -> Iterator[tuple["subprocess.Popen[bytes]", Served]]:
        """Yields when it is ready, whether it leads or not."""
        root, (port, metrics) = self.root, free_ports(2)
        (root / "secret").write_text(SECRET + "\n")
        words = [
            *(sys.executable, "-m", "bot", "serve", "--repository", "regatta-lab/lab"),
            *("--store", str(root / "store"), "--github-api", f"{self.sandbox}/api/v3"),
            *("--ray-address", "http://127.0.0.1:9", "--port", str(port)),
            *("--metrics-port", str(metrics)),
        ]
        environment = {
            "PATH": os.environ["PATH"],
            "REGATTA_WEBHOOK_SECRET_FILE": str(root / "secret"),
            "REGATTA_WEBHOOK_SECRET_OLD": OLD,
            "REGATTA_GITHUB_TOKEN": "installation-token",
            "REGATTA_BOT": "regatta-lab[bot]",
            "REGATTA_RAY_TOKEN": "a-token-of-ray",
        }
        with (root / "log").open("ab") as log:
            folder = Path(__file__).parents[3]
            bot = subprocess.Popen(words, env=environment, cwd=folder, stderr=log)
        made = Served(port, metrics, root / "log")
        try:
            until = time.monotonic() + 100
            while time.monotonic() < until and bot.poll() is None:
                with contextlib.suppress(httpx.HTTPError):
                    if made.get("/readyz").is_success:
                        break
                time.sleep(0.2)
            else:
                raise AssertionError(made.log.read_text())
            yield bot, made
        finally:
            bot.terminate()
            bot.wait(60)


@contextlib.contextmanager
def a_life(root: Path) -> Iterator[Life]:
    with a_lab(root / "lab", serving=server.running) as lab:
        lab.die()
        lab.sandbox.open_issue("ada", "A question", "Not an experiment.")
        yield Life(root, lab.sandbox.url)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with a_life(tmp_path_factory.mktemp("served")) as life, life.serves() as (_, served):
        yield served


def test_a_server_is_healthy_and_ready(served: Served) -> None:
    assert served.get("/healthz").json()["status"] == "ok"
    assert served.get("/readyz").status_code == 200


def test_a_server_tells_its_condition_where_it_is_asked_for_its_health(served: Served) -> None:
    until = time.monotonic() + 60
    while "figures" not in (body := served.get("/healthz").json()):
        assert time.monotonic() < until, body
        time.sleep(0.2)
    assert list(body["sentences"]) == list(condition.FIGURES)
    assert body["figures"]["left"]["hour"] > 0
    assert "regatta_deliveries_skipped 0.0" in served.get("/metrics", served.metrics).text


def test_figures_are_on_their_own_port_only(served: Served) -> None:
    assert "regatta_loop_stood_still_seconds" in served.get("/metrics", served.metrics).text
    assert served.get("/metrics").status_code == 404


def test_old_and_new_secret_are_taken_and_no_other(served: Served) -> None:
    answers = [served.post(secret, f"d-{n}") for n, secret in enumerate((SECRET, OLD, "x"))]
    assert answers == [202, 202, 401]


def test_the_log_is_json_that_names_the_delivery_and_no_secret(served: Served) -> None:
    assert served.post(SECRET, "follow-me") == 202
    until = time.monotonic() + 60
    told: list[str] = []
    while "dealt with" not in told and time.monotonic() < until:
        time.sleep(0.2)
        lines = [json.loads(line) for line in served.log.read_text().splitlines()]
        told = [line["message"] for line in lines if line.get("delivery") == "follow-me"]
    assert told[0] == "issue_comment is answered 202: Kept."
    assert told[-1] == "dealt with"
    log = served.log.read_text()
    for secret in (SECRET, OLD, "installation-token", "a-token-of-ray", "forged"):
        assert secret not in log


def test_a_bot_that_was_killed_and_started_again_leads_within_five_seconds(tmp_path: Path) -> None:
    with a_life(tmp_path) as life:
        for _ in range(2):
            with life.serves() as (bot, served):
                until = time.monotonic() + 5
                while served.get("/readyz").json()["status"] != "leads":
                    assert time.monotonic() < until, served.get("/readyz").text
                    time.sleep(0.1)
                bot.kill()
                bot.wait()
