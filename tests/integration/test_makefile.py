"""What a newcomer's first commands bring along, and what they say where they cannot."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def made(
    folder: Path, *words: str, root: bool, apt: str | None
) -> "subprocess.CompletedProcess[str]":
    """`make` with these words on a machine without bubblewrap. `apt`: what its apt-get does."""
    commands = {"id": f"echo {0 if root else 1000}"} | ({"apt-get": apt} if apt else {})
    for name, does in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    for name in ("make", "sh"):
        (folder / name).symlink_to(shutil.which(name) or name)
    ready = ("-o", ".venv/ready", "-o", ".venv/ready-for-tests")
    return subprocess.run(
        [folder / "make", *ready, *words, "SHELL=" + str(folder / "sh")],
        env={"PATH": str(folder)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("goal", ["demo", "test"])
def test_the_demo_as_the_tests_look_for_bubblewrap_first(tmp_path: Path, goal: str) -> None:
    told = made(tmp_path, "--dry-run", goal, root=True, apt="true")
    assert "command -v bwrap" in told.stdout
    assert told.stdout.index("command -v bwrap") < told.stdout.index(".venv/bin/")


def test_make_installs_bubblewrap_if_it_may(tmp_path: Path) -> None:
    told = made(tmp_path, "bubblewrap", root=True, apt='echo "$@" >> "${0%/*}/asked"')
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    assert "install" in (tmp_path / "asked").read_text()
    assert "bubblewrap" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("root", "apt"),
    [(False, "true"), (True, None), (True, "exit 100")],
    ids=["user", "mac", "offline"],
)
def test_make_names_what_it_may_not_install_and_continues(
    tmp_path: Path, root: bool, apt: str | None
) -> None:
    told = made(tmp_path, "bubblewrap", root=root, apt=apt)
    assert told.returncode == 0
    assert told.stdout == (
        "Own code will not be run in isolation: sudo apt-get install bubblewrap\n"
    )
