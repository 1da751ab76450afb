"""Of `test_init.py` what needs a process, a socket or a compilation."""

from pathlib import Path

import httpx
import pytest

from bot.cli.main import app
from bot.fake_github.server import running
from bot.fake_github.world.sandbox import make_sandbox
from bot.setup import init
from tests.unit.bot.test_init import run


def test_init_makes_the_labels_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = make_sandbox(
        tmp_path / "sandbox",
        files={"README.md": b"A lab"},
        bot_token="a-token",
        persona_tokens={},
        webhook_secret="a-secret",
    )
    sandbox.create_label("regatta-lab", "experiment: done", "ffffff")
    monkeypatch.setenv("REGATTA_GITHUB_TOKEN", "a-token")
    with running(sandbox) as url:
        api = f"{url}/api/v3"
        options = ["--yes", "--repository", "regatta-lab/lab", "--github-api", api]
        told = run(app, ["init", str(tmp_path), *options])
        found = httpx.get(f"{api}/repos/regatta-lab/lab/labels").json()
    assert told.exit_code == 0, told.output
    colors = {label["name"]: label["color"] for label in found}
    assert colors == init.labels() | {"experiment: done": "ffffff"}
