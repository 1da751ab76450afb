"""Of `test_deployment.py` what needs a process, a socket or a compilation."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.main import app
from bot.github import Later
from bot.setup import settings
from bot.setup.settings import SECRET
from bot.telemetry import logs
from tests.unit.bot.test_deployment import nothing_said as nothing_said  # a fixture


def test_a_server_says_in_words_that_github_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "set_up", lambda *_, **__: None)
    monkeypatch.setenv(SECRET, "s" * 40)
    monkeypatch.setenv(settings.TOKEN, "a-token")
    monkeypatch.setenv(settings.RAY_TOKEN, "another-token")
    away = "http://127.0.0.1:9"
    options = ["--repository", "a/b", "--store", str(tmp_path / "store"), "--port", "0"]
    for bot in ([], ["--bot", "lab[bot]"]):
        told = CliRunner().invoke(
            app, ["serve", *options, "--github-api", away, "--ray-address", away, *bot]
        )
        assert told.exit_code == 1, told.output
        expected = "GET /user" if not bot else "GET /repos/a/b"
        assert f"GitHub at {away} cannot be used now: {expected}: " in told.output
        assert not isinstance(told.exception, Later)
