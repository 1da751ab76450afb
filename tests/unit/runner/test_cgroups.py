"""Control groups, in folders that look like the kernel's."""

from pathlib import Path

import pytest

from runner.isolation import cgroups

LIMITS = {"pids": 100, "memory": 1 << 20}


@pytest.fixture
def of(tmp_path: Path) -> Path:
    return tmp_path / "self"


def group(path: Path, *controllers: str) -> Path:
    """A group of version 2 that hands these controllers on."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.subtree_control").write_text(" ".join(controllers))
    return path


def test_a_group_beside_our_own_holds_what_its_parent_hands_on(tmp_path: Path, of: Path) -> None:
    service = group(tmp_path / "lab.service", "cpu", "memory", "pids")
    group(service / "main")
    of.write_text("0::/lab.service/main\n")
    with cgroups.held(LIMITS, tmp_path, of) as held:
        (folder,) = held.folders
        assert folder.parent == service
        assert held.controllers == ("memory", "pids")
        assert (folder / "pids.max").read_text() == "100"
        assert (folder / "memory.max").read_text() == str(1 << 20)
        held.enter()
        assert (folder / "cgroup.procs").read_text() == "0"
        for file in folder.iterdir():  # the kernel's files are no hindrance to removing a group
            file.unlink()
    assert not folder.exists()


def test_version_1_has_a_group_for_each_controller(tmp_path: Path, of: Path) -> None:
    for name in ("pids", "memory"):
        (tmp_path / name / "lab").mkdir(parents=True)
    of.write_text("5:memory:/lab\n4:cpu,cpuacct:/\n3:pids:/lab\n0::/\n")
    with cgroups.held(LIMITS, tmp_path, of) as held:
        assert {folder.parent.parent.name for folder in held.folders} == {"pids", "memory"}
        found = {file.name for folder in held.folders for file in folder.iterdir()}
        assert found == {"pids.max", "memory.limit_in_bytes"}
        for folder in held.folders:
            for file in folder.iterdir():
                file.unlink()


@pytest.mark.parametrize("handed", [(), ("cpu",)])
def test_without_delegated_cgroups_no_limit_is_set(
    tmp_path: Path, of: Path, handed: tuple[str, ...]
) -> None:
    group(tmp_path / "user.slice", *handed)
    of.write_text("0::/user.slice\n")
    with cgroups.held(LIMITS, tmp_path, of) as held:
        assert held == cgroups.Held()
    with cgroups.held(LIMITS, tmp_path, tmp_path / "missing") as held:
        assert held == cgroups.Held()
