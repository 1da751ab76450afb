"""What a user has switched off stays off, in the tools' own words: W&B, Hugging Face, colours, and
where caches lie."""

import os
from pathlib import Path

import pytest

from runner.publish import wandb_upload
from runner.store import backends
from tests.integration.runner.test_drive import Life
from tests.stub_trainer import StubRay
from tests.unit.runner.test_cli import ask

KEY = {"WANDB_API_KEY": "k" * 40}


@pytest.mark.parametrize(
    ("report", "said", "file", "expected"),
    [
        ("a key alone", {}, "", "online"),
        ("wandb/wandb#8571", {"WANDB_MODE": "disabled"}, "", "disabled"),
        ("wandb/wandb#4624", {"WANDB_MODE": "offline"}, "", "offline"),
        ("wandb/wandb#1433", {"WANDB_MODE": "dryrun"}, "", "offline"),
        ("wandb/wandb#2048", {"WANDB_DISABLED": "true"}, "", "disabled"),
        ("wandb/wandb#1060, `wandb offline` here", {}, "[default]\nmode = offline\n", "offline"),
        ("wandb/wandb#8571, `wandb disabled` here", {}, "[default]\nmode = disabled\n", "disabled"),
        ("its older file", {}, "[default]\ndisabled = true\n", "disabled"),
        ("the environment has the last word", {"WANDB_MODE": "online"}, "[default]\n", "online"),
        ("a damaged file says nothing", {}, "mode\x00", "online"),
    ],
)
def test_w_and_b_is_off_where_its_own_switches_say_so(
    report: str, said: dict[str, str], file: str, expected: str, tmp_path: Path
) -> None:
    assert report
    if file:
        (tmp_path / "wandb").mkdir()
        (tmp_path / "wandb" / "settings").write_text(file)
    said = {**KEY, "WANDB_CONFIG_DIR": str(tmp_path / "none"), **said}
    assert wandb_upload.mode(said, tmp_path) == expected
    assert wandb_upload.wanted({**said, "WANDB_MODE": "disabled"}) is False


def test_w_and_b_offline_leaves_a_folder_that_its_own_tool_can_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wandb/wandb#4624 and #2423, wandb/examples#104: compute nodes without a network."""
    life = Life(tmp_path, StubRay(pace=1), seeds=(0, 1))
    assert life.to_the_end().state == "done"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    answer = ask("wandb", life.execution.id, "--store", life.store.root)
    assert answer.exit_code == 0, answer.output
    assert "4 runs written to wandb" in answer.output
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 4
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("WANDB_API_KEY", KEY["WANDB_API_KEY"])
    answer = ask("wandb", life.execution.id, "--store", life.store.root)
    assert answer.exit_code != 0
    assert "W&B is switched off" in answer.output


def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """no-color.org; Textualize/rich#2924 and #2425, pylint-dev/pylint#9128: with FORCE_COLOR beside
    it."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = ask("ls", "--store", tmp_path).output + ask("--help").output
    for colour in range(30, 38):
        assert f"\x1b[{colour}m" not in said
        assert f";{colour}m" not in said


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ({"REGATTA_CACHE": "a", "XDG_CACHE_HOME": "b"}, "a"),
        ({"XDG_CACHE_HOME": "b"}, "b/regatta"),
        ({}, ".cache/regatta"),
    ],
)
def test_the_labs_cache_lies_where_the_system_keeps_caches(
    said: dict[str, str], at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Freedesktop's base directories; jborg/attic#181, gleitz/howdoi#77, jazzband/pip-tools#170."""
    for name in ("REGATTA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in said.items():
        monkeypatch.setenv(name, os.fspath(tmp_path / value))
    assert backends.cache() == (tmp_path / at).resolve()
