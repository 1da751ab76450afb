"""Which files there were, by Git's names and by digests."""

import subprocess
from pathlib import Path

import pytest

from runner.execution import git_source


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment's folder in a checkout, committed."""
    folder = tmp_path / "experiments" / "one"
    (folder / "parts").mkdir(parents=True)
    for name, text in (("a.py", "1"), ("parts/b.py", "2"), ("parts.py", "3"), ("ä.txt", "")):
        (folder / name).write_text(text)
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a.py")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "One")
    return folder


def test_a_folders_tree_is_the_one_that_git_names(folder: Path) -> None:
    found = git_source.source(folder)
    assert found.tree == git(folder, "rev-parse", "HEAD:experiments/one")
    assert found.commit == git(folder, "rev-parse", "HEAD")
    assert not found.changed


def test_a_change_that_is_not_committed_is_said(folder: Path) -> None:
    before = git_source.source(folder)
    (folder / "parts" / "b.py").write_text("4")
    after = git_source.source(folder)
    assert (after.commit, after.changed) == (before.commit, True)
    assert after.tree != before.tree


def test_caches_and_stores_are_no_part_of_a_folder(folder: Path) -> None:
    before = git_source.source(folder)
    for inner in ("__pycache__", ".idea", "store"):
        (folder / inner).mkdir()
        (folder / inner / "store.json").write_text("{}")
    assert git_source.source(folder) == before


def test_a_folder_in_no_checkout_has_a_tree_and_no_commit(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    found = git_source.source(tmp_path)
    assert (found.commit, found.changed, len(found.tree)) == ("", False, 40)


def test_the_labs_code_and_lock_have_digests_and_its_commit_is_its_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    lab = tmp_path / "lab"
    for room in ("engine", "runner", "bot"):
        (lab / room).mkdir(parents=True)
        (lab / room / "__init__.py").write_text("")
    (lab / "requirements.lock").write_text("jax==1\n")
    git(tmp_path, "commit", "--allow-empty", "-qm", "Somebody's own, in which the lab is installed")
    installed = git_source.lab(lab)
    assert (installed.commit, installed.changed) == ("", False)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Two")
    here = git_source.lab(lab)
    assert (here.commit, here.changed) == (git(tmp_path, "rev-parse", "HEAD"), False)
    (lab / "engine" / "loss.py").write_text("x = 1\n")
    (lab / "requirements.lock").write_text("jax==2\n")
    edited = git_source.lab(lab)
    assert edited.changed
    assert edited.code_sha256 != here.code_sha256
    assert edited.lock_sha256 != here.lock_sha256
