"""What may go and what stays, as a table of files."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from runner.store import gc
from runner.store.backends import remove_tree
from runner.store.store import Entry, Store, StoreError
from tests.examples import examples

NOW = 1_800_000_000.0
X, Y = "x" + "1" * 16, "x" + "2" * 16
HERE = f"work/{X}.t1-aa"
CHECKPOINT = f"{X}.t1-aa/out/checkpoints/fast.s0/16"
DONE = {
    f"records/executions/{X}/execution.json": {"plan": {"data": {"train": "aa", "val": "bb"}}},
    f"records/executions/{X}/t1.claimed.json": {"nonce": "aa", "set_aside": [f"work/{X}.t1-bad"]},
    f"records/executions/{X}/t1.ended.json": {"runs": {"fast.s0": {"path": CHECKPOINT}}},
    f"records/executions/{X}/result.json": {"state": "done"},
}
OPEN = {
    f"records/executions/{Y}/execution.json": {},
    f"records/executions/{Y}/t1.claimed.json": {"nonce": "bb"},
}
STEP = "steps/tokens/0123456789abcdef"


def facts(
    files: dict[str, object] | list[str], records: dict[str, object] | None = None, **more: float
) -> gc.Facts:
    """A store with these files, all of a day ago or as old (seconds) as `more` says by name."""
    said = dict.fromkeys(files) if isinstance(files, list) else files
    said = said | (records if records is not None else DONE | OPEN)
    return gc.Facts(
        entries=tuple(Entry(name, 10, NOW - more.get(name, 86400.0)) for name in said),
        records={name: value for name, value in said.items() if name.startswith("records/")},
        makers={
            name: value
            for name, value in said.items()
            if name.endswith("/manifest.json") or name.endswith("/end.json")
        },
        pins={
            name: gc.Pin.model_validate(value)
            for name, value in said.items()
            if name.startswith("pins/")
        },
        now=NOW,
    )


def going(of: gc.Facts, **more: float) -> set[str]:
    """The files that may go."""
    pieces = gc.plan(of, **more)
    return {e.name for piece in pieces if piece.verdict == "free" for e in piece.entries}


# ── Work ─────────────────────────────────────────────────────────────────────────────────────


def test_only_recorded_checkpoints_of_ended_executions_stay() -> None:
    kept = [f"work/{CHECKPOINT}/params/a", f"work/{CHECKPOINT}/rest/b"]
    gone = [
        f"{HERE}/spec.json",
        f"{HERE}/out/log.txt",
        f"{HERE}/out/checkpoints/fast.s0/8/params/a",
        f"{HERE}/out/checkpoints/fast.s0/160/params/a",
        f"work/{X}.e1-cc/out/copies/a",
    ]
    assert going(facts(kept + gone)) == set(gone)


def test_nothing_of_an_execution_that_is_not_over_goes() -> None:
    assert not going(facts([f"work/{Y}.t1-bb/out/log.txt", f"{STEP}/{Y}.t1-bb/a"]))


def test_an_attempt_that_has_not_ended_keeps_its_execution_whatever_its_result_says() -> None:
    claimed = {f"records/executions/{X}/e1.claimed.json": {"nonce": "cc"}}
    assert going(facts([f"{HERE}/spec.json"]))
    assert not going(facts([f"{HERE}/spec.json"], DONE | claimed))


def test_unknown_files_stay() -> None:
    assert not going(facts([f"work/x{'3' * 16}.t1-aa/a", "work/mine/a", "notes/a", "work/a"]))


def test_folders_that_were_set_aside_are_freed_although_named() -> None:
    assert going(facts([f"work/{X}.t1-bad/a"])) == {f"work/{X}.t1-bad/a"}


@pytest.mark.parametrize("seconds", [10, 3599])
def test_a_lease_that_was_renewed_within_the_hour_keeps_its_work(seconds: float) -> None:
    lease = [f"leases/{X}.t1-aa/start.json", f"leases/{X}.t1-aa/beat-000000001.json"]
    beaten = facts([f"{HERE}/a", *lease], **{lease[1]: seconds})
    assert not going(beaten)
    assert not going(beaten, older_than=0.0)
    released = facts([f"{HERE}/a", *lease, f"leases/{X}.t1-aa/released.json"], **{lease[1]: 10})
    assert going(released) == {f"{HERE}/a"}


def test_a_recent_write_keeps_its_folder() -> None:
    written = facts([f"{HERE}/a", f"{HERE}/b"], **{f"{HERE}/b": 60})
    assert not going(written)
    assert going(written, older_than=59) == {f"{HERE}/a", f"{HERE}/b"}


# ── Steps and texts ──────────────────────────────────────────────────────────────────────────


def test_the_folder_that_a_manifest_names_stays() -> None:
    manifest = {f"{STEP}/manifest.json": {"generation": 2, "maker": "bbb"}}
    ends = {
        f"leases/{STEP}/1/end.json": {"how": "lost"},
        f"leases/{STEP}/2/end.json": {"how": "made"},
    }
    files = dict.fromkeys([f"{STEP}/1-aaa/part", f"{STEP}/2-bbb/part", f"{STEP}/2-bbb/deep/x"])
    assert going(facts(manifest | ends | files)) == {f"{STEP}/1-aaa/part"}


@pytest.mark.parametrize(
    ("end", "goes"),
    [
        ({"how": "lost"}, True),
        ({"how": "failed"}, True),
        ({"how": "made"}, False),  # its maker died before it could write the manifest
        (None, False),  # no JSON
        ({}, False),
        ("missing", False),  # it may still be finished
    ],
)
def test_a_makers_folder_goes_once_its_manifest_would_be_refused(end: object, goes: bool) -> None:
    files: dict[str, object] = {f"{STEP}/7-aaa/part": None, f"leases/{STEP}/7/start.json": None}
    if end != "missing":
        files[f"leases/{STEP}/7/end.json"] = end
    assert bool(going(facts(files))) is goes


def test_scratch_goes_once_the_step_is_made_for_until_then_the_next_maker_needs_it() -> None:
    scratch = [f"{STEP}/1-aaa.scratch/checkpoints/8/a", f"{STEP}/2-bbb.scratch/log.txt"]
    ends = {f"leases/{STEP}/1/end.json": {"how": "lost"}}
    assert not going(facts(dict.fromkeys(scratch) | ends))
    made = {f"{STEP}/manifest.json": {"generation": 2, "maker": "bbb"}}
    assert going(facts(dict.fromkeys(scratch) | ends | made)) == set(scratch)
    end = f"leases/{STEP}/2/end.json"
    just_made = facts(dict.fromkeys(scratch) | ends | made | {end: {"how": "made"}}, **{end: 5.0})
    assert going(just_made) == set(scratch)


def test_a_maker_that_was_taken_for_dead_and_still_beats_keeps_its_folder() -> None:
    files = {
        f"{STEP}/1-aaa/part": None,
        f"leases/{STEP}/1/end.json": {"how": "lost"},
        f"leases/{STEP}/1/beat-000000009.json": None,
    }
    assert going(facts(files)) == {f"{STEP}/1-aaa/part"}
    assert not going(facts(files, **{f"leases/{STEP}/1/beat-000000009.json": 20.0}))


def test_a_step_with_an_unreadable_manifest_is_kept() -> None:
    files = {f"{STEP}/1-aaa/train/a": None, f"leases/{STEP}/1/end.json": {"how": "lost"}}
    assert going(facts(files)) == {f"{STEP}/1-aaa/train/a"}
    assert not going(facts({f"{STEP}/manifest.json": None} | files))


def test_a_text_or_code_stays_as_long_as_a_plan_on_record_names_it() -> None:
    data = {"train": "cc", "validation": "dd"}
    plan = {"records/plans/1/2/3.json": {"plan": {"data": data, "code_sha256": "ee"}}}
    files = ["texts/aa-bb/train", "texts/cc-dd/train", "code/ee/a.py"]
    assert going(facts(files, DONE)) == {"texts/cc-dd/train", "code/ee/a.py"}
    assert not going(facts(files, DONE | plan))


# ── Pins, drafts, and all of it ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "goes"),
    [
        (HERE, set()),
        (f"{HERE}/out", {f"{HERE}/spec.json"}),
        (f"{HERE}/out/log.txt", {f"{HERE}/spec.json", f"{HERE}/out/m"}),
        (HERE[:-1], {f"{HERE}/spec.json", f"{HERE}/out/m", f"{HERE}/out/log.txt"}),
    ],
)
def test_a_pin_keeps_the_file_or_folder_with_its_name(path: str, goes: set[str]) -> None:
    pin = {"pins/a.json": {"path": path, "reason": "for the paper"}}
    files = dict.fromkeys([f"{HERE}/spec.json", f"{HERE}/out/m", f"{HERE}/out/log.txt"])
    pinned = facts(files | pin)
    assert going(pinned) == goes
    whys = {piece.why for piece in gc.plan(pinned) if piece.name == path}
    assert whys <= {"pins/a.json: for the paper"}


def test_drafts_of_dead_writers_go_and_records_never_do() -> None:
    draft = f"records/executions/{X}/.result.json.0123456789ab.tmp"
    young = "records/runs/.a.json.0123456789ab.tmp"
    files = [draft, young, "records/.mine", "store.json", "leases/bot/000000000001.json"]
    assert going(facts(files, **{young: 5.0})) == {draft}


PARTS = some.sampled_from(
    [*("records", "work", "steps", "texts", "leases", "pins", "executions", "manifest.json", ".."),
     *(X, f"{X}.t1-aa", f"{Y}.t1-bb", "1-aaa", "aa-bb", "out", ".a.0123456789ab.tmp", "store.json")]
)  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(some.sets(some.lists(PARTS, min_size=1, max_size=6).map("/".join), max_size=30))
def test_each_file_is_in_one_piece_and_no_record_is_ever_in_one_that_goes(names: set[str]) -> None:
    of = facts(sorted(name for name in names if not name.startswith("pins/")))
    pieces = gc.plan(of)
    assert sorted(e.name for piece in pieces for e in piece.entries) == sorted(
        entry.name for entry in of.entries
    )
    for name in going(of):
        assert name.startswith(("work/", "steps/", "texts/")) or name.endswith(".tmp")
        assert not name.startswith(f"work/{Y}")
        assert not (name.startswith("steps/") and name.split("/")[3].startswith(Y))


# ── What own code has left ───────────────────────────────────────────────────────────────────


def deep(folder: Path, levels: int, name: str) -> None:
    """Folders in folders, beyond the longest name that the kernel takes."""
    folder.mkdir(parents=True)
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


def test_unlistable_names_in_a_makers_folder_are_one_entry(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store")
    box = f"{STEP}/1-aaa.scratch/box"
    deep(store.local(f"{box}/d"), 20, "d" * 250)
    store.create(f"{STEP}/manifest.json", b'{"generation": 2, "maker": "bbb"}')
    looked = gc.look(store, time.time() + 86400.0)
    (entry,) = [entry for entry in looked.entries if entry.folder]
    assert entry.name.startswith(f"{box}/d/dd")
    gone = [piece for piece in gc.plan(looked) if piece.verdict == "free"]
    gc.free(store, gone)
    assert not store.local(f"{STEP}/1-aaa.scratch").exists()


def test_a_pin_on_a_part_keeps_the_whole() -> None:
    scratch, made = f"{STEP}/1-aaa.scratch/d", {"generation": 2, "maker": "bbb"}
    pin = {"path": f"{scratch}/x", "reason": "for the paper"}
    for pins, goes in (({}, True), ({"pins/a.json": pin}, False)):
        of = facts({f"{STEP}/manifest.json": made, **pins})
        whole = replace(of, entries=(*of.entries, Entry(scratch, at=1.0, folder=True)))
        assert (scratch in going(whole)) is goes


def test_unlistable_names_elsewhere_are_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    deep(store.local("records/executions"), 20, "d" * 250)
    with pytest.raises(StoreError, match="cannot be listed"):
        gc.look(store, time.time())
    remove_tree(store.local("records/executions"))


@pytest.mark.parametrize(("levels", "name"), [(20, "d" * 250), (3000, "d"), (0, "")])
def test_a_folder_goes_however_deep_it_is_and_whatever_its_rights(
    tmp_path: Path, levels: int, name: str
) -> None:
    folder = tmp_path / "folder"
    deep(folder, levels, name)
    for path in (folder / "closed", folder / "closed/inner"):
        path.mkdir()
    (folder / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    (folder / "closed/inner").chmod(0)
    (folder / "closed").chmod(0)
    folder.chmod(0o300)
    remove_tree(folder)
    remove_tree(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
