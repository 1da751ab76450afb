"""What an output carries beside its bytes: nothing that a later step could read."""

import json
import os
from pathlib import Path

import pytest

from runner.isolation import bubblewrap
from runner.isolation.bubblewrap import Limits
from runner.planning import planner
from runner.schema import step_graph
from runner.store import digests
from runner.store.artifacts import Made, MakingFailed, find, make
from runner.store.store import Store
from runner.worker import executor
from runner.worker.executor import OWN_MACHINE, Terms
from tests.runner.bucket import machine

TRAP = Path(__file__).parents[2] / "traps" / "unseen" / "own.py"
FINGERPRINT = "0123456789abcdef" * 4
ISOLATED = Terms("bubblewrap", Limits(memory=1 << 30, seconds=30))
isolating = pytest.mark.skipif(
    bool(bubblewrap.probe()),
    reason=f"nothing was isolated, and so not tested: {bubblewrap.probe()}",
)


def made(store: Store, tmp_path: Path, how: str, terms: Terms = OWN_MACHINE) -> Made:
    """What a step makes of another one's output, which leaves word."""
    folder = tmp_path / "unseen"
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_bytes(TRAP.read_bytes())
    steps = {
        "before": {"do": "own:step", "config": {"how": how}},
        "after": {"do": "own:reads", "inputs": {"before": "before"}},
    }
    declared = {"title": "Unseen", "resources": {"kind": "cpu"}, "steps": steps}
    (folder / "experiment.yaml").write_text(json.dumps(declared))
    plan = planner.plan_folder(folder, store)
    code = store.fetch(planner.code_folder(plan))
    for name in step_graph.order({name: step.needs for name, step in plan.steps.items()}):
        last = executor.make(store, name, plan.steps, plan.kinds, code, "x1", terms=terms)
    return last


@pytest.mark.parametrize("how", ["times", "modes", "links"])
def test_modes_times_and_links_of_an_output_tell_nothing_alike_on_disk_and_bucket(
    tmp_path: Path, bucket: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = made(Store(tmp_path / "store"), tmp_path, how)
    told = json.loads((disk.folder / "told.json").read_text())
    file, folder = ["0o100644", digests.TIME * 10**9, 1], ["0o40755", digests.TIME * 10**9]
    names = {"first.txt", "deep/second.txt"} | ({"deep/third.txt"} if how == "links" else set())
    assert told == {".": folder, "deep": folder} | dict.fromkeys(names, file)
    there = made(bucket, tmp_path, how)
    assert (there.folder / "told.json").read_bytes() == (disk.folder / "told.json").read_bytes()
    machine(monkeypatch, tmp_path / "another")
    for one in there.manifest.parts["inputs"]["before"].values():  # type: ignore[index, call-overload, union-attr]
        copied = find(bucket, "unseen.own.step", str(one))
        assert copied
        for path in [copied.folder, *copied.folder.rglob("*")]:
            mode = digests.FOLDER_MODE if path.is_dir() else digests.FILE_MODE
            assert (path.stat().st_mode & 0o7777, path.stat().st_mtime) == (mode, digests.TIME)


REFUSED = [
    ("attribute", "'deep/second.txt' has an attribute, user.word"),
    ("attribute_of_a_folder", "'deep' has an attribute, user.word"),
    ("attribute_of_all", "'.' has an attribute, user.word"),
    ("access_list", "'first.txt' has an attribute, system.posix_acl_access"),
    ("empty", "its folder 'deep/er' is empty"),
]


@pytest.mark.parametrize(("how", "words"), REFUSED)
@pytest.mark.parametrize("terms", [OWN_MACHINE, pytest.param(ISOLATED, marks=isolating)])
def test_attributes_and_empty_folders_of_an_output_are_refused(
    tmp_path: Path, how: str, words: str, terms: Terms
) -> None:
    with pytest.raises(MakingFailed, match=words):
        made(Store(tmp_path / "store"), tmp_path, how, terms)


def test_on_a_bucket_they_are_refused_before_anything_is_uploaded(
    tmp_path: Path, bucket: Store
) -> None:
    for how, words in REFUSED:
        with pytest.raises(MakingFailed, match=words):
            made(bucket, tmp_path, how)
    assert not [entry for entry in bucket.walk("steps") if "own.step" in entry.name]


def test_an_output_of_nothing_is_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert make(store, "a", FINGERPRINT, lambda _: None, {}).manifest.files == {}


def test_the_systems_own_attributes_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listxattr", lambda *_, **__: ["security.selinux", "system.nfs4_acl"])
    (tmp_path / "x").write_text("x")
    assert list(digests.accepted(tmp_path)) == ["x"]
