"""What the lab sends to W&B of what its jobs wrote, how, and how often."""

import gzip
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from wandb.proto import wandb_internal_pb2 as pb

from runner import cli, guard, local_ray, record, upload, wandb_file
from runner.store import Store
from tests import synthetic, wandb_files
from tests.runner.test_cli import LocalStub
from tests.runner.test_worker import declare

KEY = "k" * 40
CANARY = "canary-of-the-environment"
ENVIRONMENT = {"WANDB_API_KEY": KEY, "WANDB_ENTITY": "us", "SECRET": CANARY}
PLAN = synthetic.plan(arms={"fast": synthetic.planned_arm(steps=4)}, seeds=[0, 1])
X = synthetic.execution(PLAN).id

# Does to the files what `wandb sync` would, and tells how it was called.
STUB = """
import json, os, shutil, sys, time
from pathlib import Path
runs = Path(sys.argv[-1])
seen = Path({seen!r})
seen.mkdir(exist_ok=True)
n = len(list(seen.glob("*.json")))
(seen / f"{{n}}.json").write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
shutil.copytree(runs, seen / f"runs{{n}}")
{body}
"""
MARK = "for one in runs.glob('*/run.wandb'): one.with_name('run.wandb.synced').touch()"


class Stub:
    """A command in the place of `wandb`."""

    def __init__(self, folder: Path, body: str = MARK) -> None:
        self._seen = folder / "seen"
        self._script = folder / "stub.py"
        self.does(body)

    def does(self, body: str) -> None:
        self._script.write_text(STUB.format(seen=str(self._seen), body=body))

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(self._script)]

    @property
    def calls(self) -> list[tuple[list[str], dict[str, str]]]:
        files = sorted(self._seen.glob("*.json"))
        return [tuple(json.loads(file.read_text())) for file in files]

    def file(self, run: str, call: int = 0) -> Path:
        return self._seen / f"runs{call}" / f"offline-run-{run}" / "run.wandb"


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A lab in which the execution X is over."""
    store = Store(tmp_path / "store")
    record.write(store, f"executions/{X}/execution", synthetic.execution(PLAN))
    return store


def claim(store: Store, name: str = "t1", *, wandb: bool = True) -> Path:
    """An attempt; the folder in which it writes for W&B."""
    said = record.Claimed(at=synthetic.START, nonce="aa", spec_sha256="0" * 64, wandb=wandb)
    record.write(store, f"executions/{X}/{name}.claimed", said)
    return store.path(f"work/{X}.{name}-aa/out/wandb")


def write(folder: Path, run: str, *more: Any, losses: int = 4, **changes: Any) -> Path:
    """A run's file as W&B writes it, with more records."""
    path = folder / f"offline-run-20260301_120000-{X}.{run}" / f"run-{X}.{run}.wandb"
    of = pb.RunRecord(run_id=f"{X}.{run}", project="regatta", run_group=X, display_name=run)
    for name, value in changes.items():
        setattr(of, name, value)
    records = [pb.Record(run=of)]
    for step in range(1, losses + 1):
        items = {"_step": step, "loss": 1.0 / step, "words": "x" * 100}
        pairs = [
            pb.HistoryItem(nested_key=[key], value_json=json.dumps(value))
            for key, value in items.items()
        ]
        records.append(pb.Record(history=pb.HistoryRecord(item=pairs)))
    wandb_files.write(path, [*records, *more, pb.Record(exit=pb.RunExitRecord(exit_code=0))])
    return path


def uploads(store: Store) -> dict[str, record.Upload]:
    names = record.names(store, "wandb")
    return {name: record.require(store, f"wandb/{name}", record.Upload) for name in names}


def send(store: Store, stub: Stub) -> tuple[list[str], list[str]]:
    return upload.upload(store, X, ENVIRONMENT, stub.command)


# ── How ──────────────────────────────────────────────────────────────────────────────────────


def test_runs_go_there_once_with_the_key_in_the_environment_alone(store: Store, stub: Stub) -> None:
    folder = claim(store)
    for run in ("fast.s0", "fast.s1"):
        write(folder, run)
    assert send(store, stub) == (["fast.s0", "fast.s1"], [])
    [(arguments, environment)] = stub.calls
    assert arguments[:-1] == ["sync", "--project", "regatta", "--entity", "us"]
    assert environment["WANDB_API_KEY"] == KEY
    assert not any(CANARY in value for value in environment.values())
    names = {"PATH", "LANG", "LC_CTYPE", "HOME", "PWD", "TMPDIR", "WANDB_ERROR_REPORTING"}
    assert environment.keys() <= names | {"WANDB_API_KEY"}
    assert not Path(environment["HOME"]).exists()  # nor anything else is left
    assert {one.id for one in uploads(store).values()} == {f"{X}.fast.s0", f"{X}.fast.s1"}
    for run in ("fast.s0", "fast.s1"):
        assert list(wandb_files.history(stub.file(run))) == [1, 2, 3, 4]

    assert send(store, stub) == (["fast.s0", "fast.s1"], [])
    assert len(stub.calls) == 1


def test_what_did_not_get_there_is_said_and_sent_again(store: Store, stub: Stub) -> None:
    for run in ("fast.s0", "fast.s1"):
        write(claim(store), run)
    one_of_them = "(runs / 'offline-run-fast.s0' / 'run.wandb.synced').touch()"
    stub.does(f"{one_of_them}; print('no such entity, {KEY}')")
    there, [trouble] = send(store, stub)
    assert there == ["fast.s0"]
    assert trouble == "fast.s1 did not reach W&B: no such entity, …"
    stub.does(MARK)
    assert send(store, stub) == (["fast.s0", "fast.s1"], [])
    assert not stub.file("fast.s0", call=1).exists()


def test_the_newest_attempt_that_has_a_run_counts(store: Store, stub: Stub) -> None:
    for name, losses in (("t1", 2), ("t2", 4), ("t10", 3)):
        folder = claim(store, name)
        write(folder, "fast.s0", losses=losses)
        if name != "t10":
            write(folder, "fast.s1", losses=losses)
    write(claim(store, "t11"), "fast.s0").write_bytes(b"")  # killed before W&B wrote anything
    assert send(store, stub) == (["fast.s0", "fast.s1"], [])
    assert len(wandb_files.history(stub.file("fast.s0"))) == 3
    assert len(wandb_files.history(stub.file("fast.s1"))) == 4


def test_nothing_goes_there_that_the_lab_did_not_ask_for(store: Store, stub: Stub) -> None:
    write(claim(store, wandb=False), "fast.s0")
    assert send(store, stub) == ([], [])
    assert stub.calls == []


def test_a_command_that_hangs_is_ended_with_all_it_started(
    store: Store, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(claim(store), "fast.s0")
    stub.does(
        "import subprocess; child = subprocess.Popen(['sleep', '600'], start_new_session=True); "
        f"Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid)); time.sleep(600)"
    )
    monkeypatch.setattr(upload, "SYNC_MAY_TAKE", 1.0)
    assert send(store, stub)[1] == ["fast.s0 did not reach W&B: no answer within 1 s"]
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
    assert not [one for one in guard.descendants(os.getpid()) if _is(one, "stub.py")]


def _is(process: int, name: str) -> bool:
    return name.encode() in Path(f"/proc/{process}/cmdline").read_bytes()


# ── What ─────────────────────────────────────────────────────────────────────────────────────


def test_nothing_in_a_file_makes_w_and_b_read_other_files(store: Store, stub: Stub) -> None:
    files = pb.FilesRecord(files=[pb.FilesItem(path="/proc/self/environ")])
    artifact = pb.ArtifactRecord(name="all", type="x", entity="theirs")
    output = pb.OutputRawRecord(line="words")
    bad = [pb.Record(files=files), pb.Record(artifact=artifact), pb.Record(output_raw=output)]
    both = bad[0].SerializeToString() + pb.Record(exit=pb.RunExitRecord()).SerializeToString()
    good = pb.Record(summary=pb.SummaryRecord())
    path = write(claim(store), "fast.s0", *bad, _Bytes(both), good)
    assert {"files", "artifact", "output_raw"} <= {
        one.WhichOneof("record_type") for one in wandb_files.read(path)
    }
    send(store, stub)
    kinds = [one.WhichOneof("record_type") for one in wandb_files.read(stub.file("fast.s0"))]
    assert kinds == ["run", *["history"] * 4, "summary", "exit"]


class _Bytes:
    """A record that was written by hand."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:
        return self._data


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"run_id": f"{X}.fast.s1"}, f"it is of another run than {X}.fast.s0"),
        ({"entity": "theirs"}, "its run has fields that the worker never writes"),
        ({"sweep_id": "theirs"}, "its run has fields that the worker never writes"),
    ],
)
def test_a_file_that_would_write_elsewhere_is_refused_for_good(
    store: Store, stub: Stub, changes: dict[str, str], why: str
) -> None:
    write(claim(store), "fast.s0", **changes)
    write(claim(store), "fast.s1")
    there, [trouble] = send(store, stub)
    assert there == ["fast.s1"]
    assert why in trouble
    assert not stub.file("fast.s0").exists()
    assert uploads(store)[f"{X}.fast.s0"].refused == trouble
    assert send(store, stub) == (["fast.s1"], [])


def _links(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _is_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _is_huge(path: Path) -> None:
    wandb_files.write(path, [_Bytes(b"\x08\x01" * 10_000)] * 300)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_links, "Too many levels of symbolic links"),
        (_is_a_pipe, "not a regular file"),
        (lambda path: path.write_bytes(b""), "no file of W&B"),
        (lambda path: path.write_bytes(b"x" * 40_000), "no file of W&B"),
        (lambda path: path.write_bytes(wandb_file.MAGIC), "does not say which run"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3] + b"bad"), "a checksum is wrong"),
        (_is_huge, "larger than 4210688 bytes"),
        (lambda path: wandb_files.write(path, [_Bytes(b"\x0f")]), "no protocol buffer"),
        (lambda path: wandb_files.write(path, [_Bytes(b"\xff" * 20)]), "no protocol buffer"),
        (lambda path: wandb_files.write(path, [_Bytes(b"\x12\x7f")]), "no protocol buffer"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_a_run_is_refused_in_words(
    store: Store, stub: Stub, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(write(claim(store), "fast.s0"))
    there, [trouble] = send(store, stub)
    assert (there, stub.calls) == ([], [])
    assert why in trouble
    assert trouble.startswith(f"{X}.t1-aa")


def test_a_flood_of_folders_is_refused(store: Store, stub: Stub) -> None:
    folder = claim(store)
    for n in range(upload.MOST_FOLDERS + 1):
        (folder / str(n)).mkdir(parents=True)
    _, troubles = send(store, stub)
    assert len(troubles) == 2
    assert "holds more files than are read" in troubles[0]


def test_a_file_that_was_cut_short_is_sent_as_far_as_it_goes(store: Store, stub: Stub) -> None:
    path = write(claim(store), "fast.s0", losses=900)  # over several blocks
    whole = path.read_bytes()
    assert len(whole) > 3 * wandb_file.BLOCK
    path.write_bytes(whole[: len(whole) // 2])
    send(store, stub)
    steps = list(wandb_files.history(stub.file("fast.s0")))
    assert 400 < len(steps) < 500
    assert steps == list(range(1, len(steps) + 1))


def test_records_are_copied_wherever_a_block_cuts_them(tmp_path: Path) -> None:
    """A copy of a copy, each of which has its records at other places of its blocks."""
    sizes = [1, 32_754, 7, 32_755, 0, 100_000, 32_753, 40_000, 5]
    said = [pb.Record(run=pb.RunRecord(run_id="a"))]
    said += [pb.Record(config=pb.ConfigRecord(update=[_item(size)])) for size in sizes * 3]
    path, copy = tmp_path / "0.wandb", tmp_path / "1.wandb"
    with path.open("wb") as file:
        writer = wandb_file._Writer(file)
        for one in said:
            writer.add(one.SerializeToString())
    with path.open("rb") as source, copy.open("wb") as target:
        wandb_file.copy(source, target, "a", 10**9)
    assert wandb_files.read(path) == wandb_files.read(copy) == said


def _item(size: int) -> Any:
    return pb.ConfigItem(key="k", value_json="x" * size)


# ── When ─────────────────────────────────────────────────────────────────────────────────────


def test_the_bot_uploads_what_is_over_and_tries_again_later(
    store: Store, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(claim(store), "fast.s0")
    monkeypatch.setattr(upload, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(upload, "RETRY_AFTER", 0.5)
    monkeypatch.setattr(upload.upload, "__defaults__", (ENVIRONMENT, stub.command))
    stop = threading.Event()

    upload.keep_uploading(store, stop)  # without a key it is over at once
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    stub.does("pass")
    thread = threading.Thread(target=upload.keep_uploading, args=(store, stop))
    thread.start()
    try:
        time.sleep(0.3)
        assert stub.calls == []  # it is not over
        result = record.Result(at=synthetic.START, state="done")
        record.write(store, f"executions/{X}/result", result)
        _wait(lambda: len(stub.calls) == 1)
        stub.does(MARK)
        _wait(lambda: len(uploads(store)) == 1)
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
    store: Store, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(execution: str = X) -> tuple[int, str]:
        asked = ["wandb", execution, "--store", str(store.root)]
        said = CliRunner().invoke(cli.app, asked)
        return said.exit_code, " ".join(said.output.split())

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert answer() == (2, "WANDB_API_KEY is not set; it says whose W&B the runs are to go to.")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert answer("x1")[0] == 2
    assert answer() == (0, "W&B: nothing was written for it, since it had no key at the start")
    monkeypatch.setattr(upload.upload, "__defaults__", (ENVIRONMENT, stub.command))
    write(claim(store), "fast.s0")
    assert answer() == (0, "W&B: fast.s0")
    write(claim(store), "fast.s1", run_id="another")
    code, words = answer()
    assert code == 1
    assert "it is of another run" in words


def test_run_uploads_at_its_end_and_does_not_depend_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, asked = LocalStub(), []
    monkeypatch.setattr(local_ray, "local_ray", local.start)
    monkeypatch.setattr(cli, "RayJobs", lambda _: local.ray)
    monkeypatch.setattr(cli, "POLL", 0.001)
    monkeypatch.setenv("WANDB_API_KEY", KEY)

    def full(store: Store, execution: str) -> None:
        asked.append(record.read(store, f"executions/{execution}/result", record.Result))
        raise OSError("no space left")

    monkeypatch.setattr(upload, "upload", full)
    words = ["run", str(declare(tmp_path / "tiny")), "--store", str(tmp_path / "store")]
    said = CliRunner().invoke(cli.app, words)
    assert said.exit_code == 0
    assert "W&B: no space left" in said.output
    assert [result.state for result in asked] == ["done"]
    assert local.ray.of("t1").spec.wandb


# ── With W&B's own command ───────────────────────────────────────────────────────────────────


@contextmanager
def server() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """As much of W&B's server as a run needs; its URL and what it was told."""
    told: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            asked = json.loads(body)
            told.append((self.path, asked))
            answer: dict[str, Any] = {"exitcode": 0}
            if self.path == "/graphql":
                name = asked["variables"].get("name")
                project = {"id": "p", "name": "regatta", "entity": {"id": "e", "name": "us"}}
                bucket = {"id": name, "name": name, "project": project, "historyLineCount": 0}
                upserted = {"bucket": bucket, "inserted": True}
                answer = {"data": {"upsertBucket": upserted, "model": None, "viewer": None}}
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}", told
        finally:
            listening.shutdown()
            thread.join()


def test_w_and_b_itself_takes_a_copy_and_sends_every_step(store: Store) -> None:
    for run in ("fast.s0", "fast.s1"):
        write(claim(store), run, pb.Record(output_raw=pb.OutputRawRecord(line="no")), losses=600)
    with server() as (url, told):
        environment = {**ENVIRONMENT, "WANDB_BASE_URL": url}
        assert upload.upload(store, X, environment) == (["fast.s0", "fast.s1"], [])
    for run in ("fast.s0", "fast.s1"):
        lines = [
            json.loads(line)
            for path, said in told
            if path == f"/files/us/regatta/{X}.{run}/file_stream"
            for line in said.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
        ]
        assert [line["_step"] for line in lines] == list(range(1, 601))
        assert lines[-1]["loss"] == 1 / 600
    assert not any("output" in json.dumps(said) for path, said in told if path != "/graphql")


def test_no_word_of_w_and_b_is_no_upload(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(claim(store), "fast.s0")
    monkeypatch.setattr(upload, "SYNC_MAY_TAKE", 4.0)
    there, [trouble] = upload.upload(store, X, {**ENVIRONMENT, "WANDB_BASE_URL": "http://[::1]:9"})
    assert there == []
    assert trouble.startswith("fast.s0 did not reach W&B: ")
    assert uploads(store) == {}
