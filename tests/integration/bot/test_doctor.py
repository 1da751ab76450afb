"""Of `test_doctor.py` what needs a process, a socket or a compilation."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.main import app
from tests.unit.bot.test_doctor import FAULTS, World
from tests.unit.bot.test_doctor import world as world  # a fixture


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_the_advice_mends_it(world: World, fault: str) -> None:
    plant, name = FAULTS[fault]
    plant(world)
    failing = world.failing()
    assert name in failing, failing
    world.follow(failing[name].mend)
    assert world.failing() == {}


def test_the_command_names_what_fails_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGATTA_WEBHOOK_SECRET", "short")
    options = ["--repository", "lab/lab", "--store", str(tmp_path / "store")]
    nowhere = ["--ray-address", "http://127.0.0.1:9", "--github-api", "http://127.0.0.1:9"]
    told = CliRunner().invoke(app, ["doctor", *options, *nowhere])
    assert told.exit_code == 1, told.output
    assert "✗ webhook secret" in told.output
    assert "→ Make one:" in told.output
