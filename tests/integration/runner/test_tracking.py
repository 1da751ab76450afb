"""What W&B gets of an execution, from W&B's own commands and a stand-in for its server."""

import gzip
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runner.history import run_metrics
from runner.lib import process_tree
from runner.publish import wandb_live, wandb_upload
from runner.schema import record
from tests import stub_trainer
from tests.integration.runner.test_drive import Life
from tests.stub_trainer import StubRay

CANARY = "canary-of-the-environment"
ENVIRONMENT = {"WANDB_API_KEY": "k" * 40, "WANDB_ENTITY": "us"}
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """One attempt died, one run diverged, one step was skipped, and the job lied at its end."""
    ray = StubRay(
        pace=1,
        by_metric=lambda *_: 9.5,
        die_after={"t1": 5},
        diverge={"fast.s1": 3},
        skip={"fast.s0": 2},
        tamper=stub_trainer.false_metrics,
    )
    life = Life(tmp_path, ray, seeds=(0, 1))
    assert life.to_the_end().state == "done"
    return life


class Server:
    """As much of W&B's server as runs need, at `url`; `told` holds what was said to it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.refuses = False
        told, refuses = self.told, lambda: self.refuses

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                asked = json.loads(body)
                told.append((self.path, asked))
                self.answer(json.dumps(_answer(self.path, asked, url)).encode())

            def do_PUT(self) -> None:
                told.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
                self.answer(b"")

            def answer(self, data: bytes) -> None:
                self.send_response(401 if refuses() else 200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = url = f"http://127.0.0.1:{self.listening.server_port}"

    def run(self, id: str) -> dict[str, Any]:
        """The variables by which a run was made."""
        return next(
            said["variables"]
            for path, said in self.told
            if path == "/graphql" and said["variables"].get("name") == id
        )

    def stream(self, id: str, file: str) -> list[Any]:
        """The lines of a file that was streamed for a run."""
        return [
            json.loads(line)
            for said in self._streamed(id)
            for line in said.get("files", {}).get(file, {}).get("content", [])
        ]

    def exit_code(self, id: str) -> int:
        return next(said["exitcode"] for said in self._streamed(id) if said.get("complete"))

    def _streamed(self, id: str) -> list[Any]:
        return [said for path, said in self.told if path == f"/files/us/regatta/{id}/file_stream"]


def _answer(path: str, asked: Any, url: str) -> dict[str, Any]:
    if path != "/graphql":
        return {"exitcode": 0}
    if asked["operationName"] == "CreateRunFiles":
        names = asked["variables"]["files"]
        files = [{"name": name, "uploadUrl": f"{url}/uploaded/{name}"} for name in names]
        return {"data": {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}}
    name = asked["variables"].get("name")
    project = {"id": "p", "name": "regatta", "entity": {"id": "e", "name": "us"}}
    bucket = {"id": name, "name": name, "project": project, "historyLineCount": 0}
    upserted = {"bucket": bucket, "inserted": True}
    return {"data": {"upsertBucket": upserted, "model": None, "viewer": None}}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.listening.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.listening.shutdown()
        thread.join()
        server.listening.server_close()


def test_w_and_b_gets_each_run_with_its_settings_and_every_figure_that_is_believed(
    life: Life, server: Server
) -> None:
    path = f"runs/{life.execution.id}.slow.s0"
    run = record.require(life.store, path, record.Run)
    scored = run.model_copy(update={"validation": ((2, 9.75, None), (4, 9.5, 0.1))})
    life.store.local(f"records/{path}.json").write_bytes(scored.canonical())
    life.restart()  # a store remembers what it has read
    there, troubles = wandb_upload.upload(
        life.store, life.execution.id, {**ENVIRONMENT, "WANDB_BASE_URL": server.url}
    )
    assert (sorted(there), troubles) == (["fast.s0", "fast.s1", "slow.s0", "slow.s1"], [])
    x, plan = life.execution.id, life.execution.plan

    logged = {run: server.stream(f"{x}.{run}", "wandb-history.jsonl") for run in there}
    steps = {run: [line["_step"] for line in lines] for run, lines in logged.items()}
    whole = [1, 2, 3, 4]
    assert steps == {"slow.s0": whole, "slow.s1": whole, "fast.s0": whole, "fast.s1": [1, 2]}
    figures = [
        {name: value for name, value in line.items() if name[0] != "_"}
        for line in logged["fast.s0"]
    ]
    rate, tokens = plan.arms["fast"].train.learning_rate, plan.arms["fast"].tokens_until(1)
    always = {
        **{"param_norm": 10.0, "learning_rate": rate, "tokens_per_second": 50_000.0, "mfu": 0.4}
    }
    assert figures[1] == {**always, "tokens": 2 * tokens, "skipped": True}
    assert figures[3].keys() == {*always, "tokens", "skipped", "loss", "bpb", "grad_norm"}
    on_the_way = [line for line in logged["slow.s0"] if "validation/bpb" in line]
    curve = [(line["_step"], line["validation/bpb"]) for line in on_the_way]
    assert curve == [(2, 9.75), (4, 9.5)]
    for run in there:
        of = record.require(life.store, f"runs/{x}.{run}", record.Run)
        losses = [(line["_step"], line["loss"]) for line in logged[run] if "loss" in line]
        assert losses == [(step, pytest.approx(loss, rel=1e-12)) for step, loss in of.curve]
        [*_, summary] = server.stream(f"{x}.{run}", "wandb-summary.json")
        assert summary["loss"] == losses[-1][1]
        if of.evaluated:
            assert summary["eval/bpb"] == of.evaluated.bpb
            assert summary["weights/output_norm"] == 9.5
        assert server.exit_code(f"{x}.{run}") == (1 if run == "fast.s1" else 0)

    made = server.run(f"{x}.slow.s1")
    assert (made["displayName"], made["groupName"]) == ("slow.s1", x)
    assert (made["project"], made["entity"], made["host"]) == ("regatta", "us", "regatta")
    assert not made.get("commit")
    config = {name: said["value"] for name, said in json.loads(made["config"]).items()}
    assert (config["arm"], config["seed"]) == ("slow", 1)
    assert config["model"]["hidden_dim"] == 128
    assert config["train"]["num_train_steps"] == 4
    assert config["data"]["train_sha256"] == plan.data.train_sha256
    files = {path for path, _ in server.told if path.startswith("/uploaded")}
    assert files == {"/uploaded/config.yaml", "/uploaded/wandb-summary.json"}


def test_w_and_b_gets_figures_while_runs_train_and_the_lab_notes_where_it_shows_them(
    tmp_path: Path, server: Server
) -> None:
    life = Life(tmp_path, StubRay(pace=1), seeds=(0,))
    x = life.execution.id
    environment = {**ENVIRONMENT, "WANDB_BASE_URL": server.url}

    def steps(run: str) -> list[int]:
        return [line["_step"] for line in server.stream(f"{x}.{run}", "wandb-history.jsonl")]

    with wandb_live.Streams(life.store, environment) as streams:
        streams.look(x)  # nothing has begun
        life.until(lambda _: len(run_metrics.of_step(life.store, step(life)).lines) == 2)
        streams.look(x)
        wait(lambda: steps("slow.s0") == [1, 2])
        assert not life.turn().result, "it still runs"
        life.to_the_end()
        streams.look(x)
        streams.close(x)
    assert steps("slow.s0") == steps("fast.s0") == [1, 2, 3, 4]
    assert wandb_live.address(life.store, x) == f"{server.url}/us/regatta/groups/{x}"
    assert server.run(f"{x}.fast.s0")["groupName"] == x
    # At the end each run is uploaded whole, over what is there.
    assert wandb_upload.upload(life.store, x, environment) == (["fast.s0", "slow.s0"], [])


def step(life: Life) -> record.PlannedStep:
    plan = life.execution.plan
    return plan.steps[plan.trained()["slow", 0]]


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_key_that_w_and_b_refuses_is_no_upload(life: Life, server: Server) -> None:
    server.refuses = True
    there, troubles = wandb_upload.upload(
        life.store, life.execution.id, {**ENVIRONMENT, "WANDB_BASE_URL": server.url}
    )
    assert there == []
    assert len(troubles) == 4
    assert all("did not reach W&B: " in trouble for trouble in troubles)
    assert record.names(life.store, "wandb") == []


SPY = """
import json, os, runpy
from pathlib import Path
Path({seen!r}).write_text(json.dumps(dict(os.environ)))
os.environ.update({proxies!r})
runpy.run_module("runner.publish.wandb_writer", run_name="__main__", alter_sys=True)
"""


def test_the_wandb_writer_has_no_key_no_network_and_leaves_no_files(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, seen = tmp_path / "home", tmp_path / "seen.json"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WANDB_API_KEY", CANARY)
    monkeypatch.setenv("REGATTA_GITHUB_TOKEN", CANARY)
    before = set(process_tree.descendants(os.getpid()))
    with (
        socket.create_server(("127.0.0.1", 0)) as proxy,
        tempfile.TemporaryDirectory() as scratch,  # short, for W&B's socket
    ):
        monkeypatch.setattr(tempfile, "tempdir", scratch)
        url = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        code = SPY.format(seen=str(seen), proxies=dict.fromkeys(PROXIES, url))
        monkeypatch.setattr(wandb_upload, "WRITING", (sys.executable, "-c", code))
        # `true` in the place of W&B: what is written is not uploaded.
        there, troubles = wandb_upload.upload(
            life.store, life.execution.id, {"WANDB_API_KEY": CANARY}, ["true"]
        )
        assert (there, len(troubles)) == ([], 4)
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()  # nobody came
        assert list(Path(scratch).iterdir()) == []
    names = {"PATH", "LANG", "LC_CTYPE", "HOME", "PWD", "TMPDIR", "WANDB_ERROR_REPORTING"}
    environment = json.loads(seen.read_text())
    assert environment.keys() <= names | {"WANDB_DIR", "WANDB_MODE", "WANDB_PROJECT"}
    assert CANARY not in seen.read_text()
    assert list(home.iterdir()) == []
    assert set(process_tree.descendants(os.getpid())) == before
    assert not list(life.store.root.rglob("*.wandb"))
