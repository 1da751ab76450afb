"""When the lab uploads to W&B, how, and how often. `test_tracking` says what W&B gets."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.cli import local_run, main
from runner.execution import local_ray
from runner.lib import process_tree
from runner.publish import uploads, wandb_live, wandb_upload
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.integration.runner.test_worker import declare
from tests.unit.runner.test_cli import LocalStub

KEY = "k" * 40
CANARY = "canary-of-the-environment"
ENVIRONMENT = {"WANDB_API_KEY": KEY, "WANDB_ENTITY": "us", "SECRET": CANARY}
PLAN = synthetic.plan(arms={"fast": synthetic.planned_arm(steps=4)}, seeds=[0, 1, 2])
X = synthetic.execution(PLAN).id

# Leaves files where W&B would.
WRITING = """
import json, os, sys
from pathlib import Path
lines = map(json.loads, Path(sys.argv[1]).read_text().splitlines())
for name in [line["open"] for line in lines if "open" in line]:
    file = Path(os.environ["WANDB_DIR"]) / f"wandb/offline-run-{name}" / f"run-{name}.wandb"
    file.parent.mkdir(parents=True)
    file.touch()
"""
# Does to the files what `wandb sync` would, and tells how it was called.
STUB = """
import json, os, sys, time
from pathlib import Path
runs = {{file.stem.partition(".")[2]: file for file in Path(sys.argv[-1]).glob("*/*.wandb")}}
mark = lambda *names: [Path(f"{{runs[name]}}.synced").touch() for name in names]
seen = Path({seen!r})
seen.mkdir(exist_ok=True)
call = json.dumps([sys.argv[1:], dict(os.environ), sorted(runs)])
(seen / f"{{len(list(seen.iterdir()))}}.json").write_text(call)
{body}
"""
MARK = "mark(*runs)"


class Stub:
    """A command in the place of `wandb`."""

    def __init__(self, folder: Path) -> None:
        self._seen = folder / "seen"
        self._script = folder / "stub.py"
        self.does(MARK)

    def does(self, body: str) -> None:
        self._script.write_text(STUB.format(seen=str(self._seen), body=body))

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(self._script)]

    @property
    def calls(self) -> list[tuple[list[str], dict[str, str], list[str]]]:
        """Of each call its arguments, its environment and the runs that were to be uploaded."""
        return [tuple(json.loads(file.read_text())) for file in sorted(self._seen.glob("*.json"))]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setattr(wandb_upload, "WRITING", (sys.executable, "-c", WRITING))
    return Stub(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A lab in which the execution X is over; its run `fast.s2` has no figures."""
    store = Store(tmp_path / "store")
    finish(store)
    return store


def finish(store: Store) -> None:
    runs = [synthetic.run(PLAN, "fast", seed, 2.0, execution=X) for seed in (0, 1)]
    lost = synthetic.run(PLAN, "fast", 2, None, execution=X, curve=[], state="unfinished")
    synthetic.finish(store, synthetic.execution(PLAN), {}, runs=[*runs, lost])


def send(store: Store, stub: Stub) -> tuple[list[str], list[str]]:
    return wandb_upload.upload(store, X, ENVIRONMENT, stub.command)


# ── How ──────────────────────────────────────────────────────────────────────────────────────


def test_runs_go_there_once_with_the_key_in_the_environment_alone(store: Store, stub: Stub) -> None:
    assert send(store, stub) == (["fast.s0", "fast.s1"], [])
    [(arguments, environment, runs)] = stub.calls
    assert arguments[:-1] == ["sync", "--project", "regatta", "--entity", "us"]
    assert runs == ["fast.s0", "fast.s1"]
    assert environment["WANDB_API_KEY"] == KEY
    assert not any(CANARY in value for value in environment.values())
    names = {"PATH", "LANG", "LC_CTYPE", "HOME", "PWD", "TMPDIR", "WANDB_ERROR_REPORTING"}
    assert environment.keys() <= names | {"WANDB_API_KEY"}
    assert not Path(environment["HOME"]).exists()
    assert not Path(arguments[-1]).exists()
    assert record.names(store, "wandb") == [f"{X}.fast.s0", f"{X}.fast.s1"]
    noted = record.require(store, f"wandb/{X}.fast.s0", record.Upload)
    assert noted.id == f"{X}.fast.s0"

    assert send(store, stub) == (["fast.s0", "fast.s1"], [])
    assert len(stub.calls) == 1


def test_a_failed_upload_is_reported_and_retried(store: Store, stub: Stub) -> None:
    stub.does("mark('fast.s0'); print('no such entity,', os.environ['WANDB_API_KEY'])")
    there, [trouble] = send(store, stub)
    assert there == ["fast.s0"]
    assert trouble == "fast.s1 did not reach W&B: no such entity, …"
    stub.does(MARK)
    assert send(store, stub) == (["fast.s0", "fast.s1"], [])
    assert stub.calls[1][2] == ["fast.s1"]


def test_runs_that_could_not_be_written_are_not_sent(
    store: Store, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = WRITING + "    sys.exit('no space left')"
    for code, why in ((half, "no space left"), ("raise SystemExit(3)", "exit code 3")):
        monkeypatch.setattr(wandb_upload, "WRITING", (sys.executable, "-c", code))
        assert send(store, stub) == ([], [f"the runs could not be written for W&B: {why}"])
    assert stub.calls == []
    assert record.names(store, "wandb") == []


HANGING = """
import subprocess, time
from pathlib import Path
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
Path({pid!r}).write_text(str(child.pid))
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("writing", "why"),
    [
        (True, ["the runs could not be written for W&B: no answer within 3 s"]),
        (False, [f"fast.s{seed} did not reach W&B: no answer within 3 s" for seed in (0, 1)]),
    ],
)
def test_a_command_that_hangs_is_ended_with_all_it_started(
    store: Store,
    stub: Stub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writing: bool,
    why: list[str],
) -> None:
    before = set(process_tree.descendants(os.getpid()))
    hanging = HANGING.format(pid=str(tmp_path / "pid"))
    stub.does(hanging)
    if writing:
        monkeypatch.setattr(wandb_upload, "WRITING", (sys.executable, "-c", hanging))
    monkeypatch.setattr(wandb_upload, "MAY_TAKE", 3.0)
    assert send(store, stub) == ([], why)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
    assert set(process_tree.descendants(os.getpid())) == before


# ── When ─────────────────────────────────────────────────────────────────────────────────────


def test_the_bot_uploads_what_is_over_and_tries_again_later(
    tmp_path: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    synthetic.begin(store, synthetic.execution(PLAN), "t1.claimed", "t1.started")
    monkeypatch.setattr(uploads, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(uploads, "RETRY_AFTER", 0.5)
    monkeypatch.setattr(wandb_upload.upload, "__defaults__", (ENVIRONMENT, stub.command))
    stop = threading.Event()

    wandb_live.keep_uploading(store, stop)  # without a key it is over at once
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    stub.does("pass")
    thread = threading.Thread(target=wandb_live.keep_uploading, args=(store, stop))
    thread.start()
    try:
        time.sleep(0.3)
        assert stub.calls == []  # it is not over
        finish(store)
        _wait(lambda: len(stub.calls) == 1)
        stub.does(MARK)
        _wait(lambda: len(record.names(store, "wandb")) == 2)
        time.sleep(1.0)
        assert len(stub.calls) == 2
    finally:
        stop.set()
        thread.join()


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_command_uploads_an_execution_by_hand(
    tmp_path: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    begun, voided = synthetic.execution(PLAN), synthetic.execution(PLAN, "never begun")
    synthetic.begin(store, begun, "t1.claimed")
    synthetic.finish(store, voided, {}, state="voided", runs=[])

    def answer(execution: str = X) -> tuple[int, str]:
        asked = ["wandb", execution, "--store", str(store.root)]
        said = CliRunner().invoke(main.app, asked)
        return said.exit_code, " ".join(said.output.split())

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert answer() == (2, "WANDB_API_KEY is not set; it says whose W&B the runs are to go to.")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(wandb_upload.upload, "__defaults__", (ENVIRONMENT, stub.command))
    assert answer("x1")[0] == 2
    assert answer() == (2, f"{X} is not over; upload its runs when it has a result.")
    nothing = "W&B: nothing uploaded: no run has a score"
    assert answer(voided.id) == (0, nothing)
    finish(store)
    stub.does("mark('fast.s0')")
    assert answer() == (1, "W&B: fast.s1 did not reach W&B:")
    stub.does(MARK)
    assert answer() == (0, "W&B: fast.s0, fast.s1")


def test_run_uploads_at_its_end_and_does_not_depend_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, asked = LocalStub(), []
    monkeypatch.setattr(local_ray, "local_ray", local.start)
    monkeypatch.setattr(local_run, "RayJobs", lambda _: local.ray)
    monkeypatch.setattr(local_run, "POLL", 0.001)
    monkeypatch.setenv("WANDB_API_KEY", KEY)

    def full(store: Store, execution: str) -> None:
        asked.append(record.read(store, f"executions/{execution}/result", record.Result))
        raise OSError("no space left")

    monkeypatch.setattr(wandb_upload, "upload", full)
    words = ["run", str(declare(tmp_path / "tiny")), "--store", str(tmp_path / "store")]
    said = CliRunner().invoke(main.app, words)
    assert said.exit_code == 0
    assert "W&B: no space left" in said.output
    assert [result.state for result in asked] == ["done"]
