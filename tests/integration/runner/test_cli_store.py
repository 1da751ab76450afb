"""`regatta store` as a person types it, on a disk and in a bucket."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from runner.cli import main
from runner.lib.canonical_json import to_json
from runner.schema import record
from runner.store import artifacts, gc
from runner.store.store import Entry, Store
from tests import fake_gcs
from tests.integration.runner.test_worker import declare
from tests.unit.runner.test_cli import local as local  # a fixture
from tests.unit.runner.test_gc import CHECKPOINT, DONE, HERE, OPEN, STEP, X, Y, going


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_gcs.FakeGcs]:
    with fake_gcs.serving() as fake:
        fake.buckets["bucket"] = {}
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
        yield fake


@pytest.fixture(params=["disk", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "disk":
        return Store(tmp_path / "store")
    request.getfixturevalue("fake")
    return Store("gs://bucket/lab")


def ask(*words: object) -> Result:
    return CliRunner().invoke(main.app, [str(word) for word in words], env={"COLUMNS": "150"})


def _fill(store: Store) -> set[str]:
    for name, value in (DONE | OPEN).items():
        store.create(name, to_json(value))
    gone = {f"{HERE}/spec.json", f"{HERE}/out/log.txt", "texts/cc-dd/train"}
    for name in gone | {f"work/{CHECKPOINT}/params/a", f"work/{Y}.t1-bb/spec.json"}:
        store.create(name, b"x" * 1000)
    return gone


# ── gc ───────────────────────────────────────────────────────────────────────────────────────


def test_gc_shows_first_and_frees_only_with_yes(store: Store) -> None:
    gone = _fill(store)
    before = {entry.name for entry in store.walk()}
    shown = ask("store", "gc", "--store", store.root, "--older-than", 0)
    assert shown.exit_code == 0, shown.output
    assert f"{X} is done" in shown.stdout
    assert "Nothing was freed. Use --yes to free it." in shown.stdout
    assert {entry.name for entry in store.walk()} == before
    freed = ask("store", "gc", "--store", store.root, "--older-than", 0, "--yes")
    assert "3.0 kB freed." in freed.stdout
    assert {entry.name for entry in store.walk()} == before - gone
    again = ask("store", "gc", "--store", store.root, "--older-than", 0, "--yes")
    assert "Nothing to free." in again.stdout


def test_gc_leaves_no_empty_folders(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    _fill(store)
    ask("store", "gc", "--store", store.root, "--older-than", 0, "--yes")
    folders = {path.name for path in (tmp_path / "store").rglob("*") if path.is_dir()}
    assert "texts" in folders  # made for good
    assert "cc-dd" not in folders
    assert "checkpoints" in folders


def test_gc_frees_nothing_younger_than_an_hour(store: Store) -> None:
    _fill(store)
    assert "Nothing to free." in ask("store", "gc", "--store", store.root, "--yes").stdout


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (f"records/executions/{X}/t2.ended.json", b"{", "is not known"),
        ("pins/a.json", b"work/x", "is not known"),
        ("pins/note", b"work/x", "is not known"),
        ("pins/a.json", b'{"path": 1}', "is no pin"),
        ("pins/a.json", b'{"path": "work/typo", "reason": ""}', "nothing in the store"),
    ],
)
def test_a_record_or_a_pin_that_cannot_be_read_stops_it(
    store: Store, name: str, data: bytes, words: str
) -> None:
    _fill(store)
    store.create(name, data)
    before = {entry.name for entry in store.walk()}
    answer = ask("store", "gc", "--store", store.root, "--older-than", 0, "--yes")
    assert answer.exit_code == 1
    assert name in answer.stderr
    assert words in answer.stderr
    assert {entry.name for entry in store.walk()} == before


def test_a_plan_that_is_recorded_while_gc_looks_keeps_its_text(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, walk = _fill(store), store.walk

    def slow(folder: str = "") -> Iterator[Entry]:
        yield from walk(folder)
        if not folder:
            store.create("records/plans/1/2/3.json", to_json({"plan": {"data": ["cc", "dd"]}}))

    monkeypatch.setattr(store, "walk", slow)
    assert going(gc.look(store, time.time()), older_than=0.0) == gone - {"texts/cc-dd/train"}


def test_gc_survives_a_jobs_odd_files_among_manifests(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    gone = _fill(store)
    step = store.local(f"leases/{STEP}/1")
    step.mkdir(parents=True)
    os.mkfifo(step / "end.json")
    store.create(f"{STEP}/manifest.json", b"[" * 100_000)
    store.create(f"{STEP}/1-aaa/part", b"1")
    assert going(gc.look(store, time.time()), older_than=0.0) == gone


def test_gc_in_json_says_what_goes_and_what_stays(store: Store) -> None:
    gone = _fill(store)
    answer = ask("store", "gc", "--store", store.root, "--older-than", 0, "--json")
    said = json.loads(answer.stdout)
    assert said["freed"] is False
    assert sum(piece["files"] for piece in said["free"]) == len(gone)
    assert {piece["name"] for piece in said["free"]} == {HERE, "texts/cc-dd"}
    assert {"name", "files", "bytes", "why"} == said["keep"][0].keys()


@pytest.mark.usefixtures("local")
def test_after_gc_a_run_can_still_be_checked_against_its_record(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert ask("run", declare(tmp_path / "tiny"), "--store", root).exit_code == 0
    store = Store(root)
    assert "freed." in ask("store", "gc", "--store", root, "--older-than", 0, "--yes").stdout
    (execution,) = record.names(store, "executions")
    plan = record.require(store, f"executions/{execution}/execution", record.Execution).plan
    ended = record.require(store, f"executions/{execution}/t1.ended", record.Ended)
    for name, step in plan.steps.items():
        found = artifacts.find(store, step.store, step.fingerprint)
        assert found
        assert found.manifest.output_sha256 == ended.steps[name].output_sha256
    assert "log.txt" not in str(list(store.walk("work")))
    assert "already run" in ask("plan", tmp_path / "tiny", "--store", root).stdout
    # The text is named by the plan: the same experiment runs again.
    assert ask("run", tmp_path / "tiny", "--store", root).exit_code == 0


# ── ls and du ────────────────────────────────────────────────────────────────────────────────


def test_ls_shows_what_is_directly_in_a_folder(store: Store) -> None:
    _fill(store)
    top = ask("store", "ls", "--store", store.root)
    assert [line.split()[0] for line in top.stdout.splitlines()[1:]] == [
        *("records/", "store.json", "texts/", "work/")
    ]
    inner = ask("store", "ls", f"{HERE}/", "--store", store.root)
    assert [line.split()[:2] for line in inner.stdout.splitlines()[1:]] == [
        *(["out/"], ["spec.json", "1.0"])
    ]
    said = json.loads(ask("store", "ls", HERE, "--store", store.root, "--json").stdout)
    assert [(entry["name"], entry["folder"]) for entry in said] == [
        *((f"{HERE}/out", True), (f"{HERE}/spec.json", False))
    ]
    assert said[1]["bytes"] == 1000


def test_du_adds_up_what_lies_in_each_part(store: Store) -> None:
    _fill(store)
    said = json.loads(ask("store", "du", "--store", store.root, "--json").stdout)
    sizes = {part["name"]: (part["files"], part["bytes"]) for part in said["parts"]}
    assert sizes["work"] == (4, 4000)
    assert sizes["texts"] == (1, 1000)
    assert next(iter(sizes)) == "work"  # the largest first
    shown = ask("store", "du", "work", "--store", store.root).stdout
    assert "4.0 kB" in shown
    assert f"{X}.t1-aa" in shown


@pytest.mark.parametrize("command", ["ls", "du", "gc"])
def test_store_commands_create_no_store(tmp_path: Path, command: str) -> None:
    answer = ask("store", command, "--store", tmp_path / "typo")
    assert answer.exit_code == 2
    assert "There is no store at" in answer.stderr
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("command", ["ls", "du"])
def test_a_folder_that_is_not_there_is_said(store: Store, command: str) -> None:
    answer = ask("store", command, "none", "--store", store.root)
    assert answer.exit_code == 2
    assert "has no folder none" in answer.stderr


def test_odd_names_are_shown_and_do_not_paint(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for name in (b"work/[red]x", b"work/\xff", b"work/a\nb\x1b[31m"):
        path = Path(os.fsdecode(os.fsencode(store.root) + b"/" + name))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1")
    for command in ("ls", "du"):
        shown = ask("store", command, "work", "--store", store.root)
        assert shown.exit_code == 0, shown.output
        for words in ("[red]x", r"\xff", r"a\nb\x1b[31m"):
            assert words in shown.stdout
