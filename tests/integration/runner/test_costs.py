"""Of `test_costs.py` what needs a process, a socket or a compilation."""

from pathlib import Path

from tests.unit.runner.test_aliases import ran as ran  # a fixture
from tests.unit.runner.test_cli import ask
from tests.unit.runner.test_cli import local as local  # a fixture
from tests.unit.runner.test_costs import plan as plan  # a fixture


def test_a_finished_plan_costs_nothing(ran: tuple[Path, Path]) -> None:
    folder, store = ran
    words = " ".join(ask("plan", folder, "--store", store).stdout.split())
    assert "all cached: nothing to run" in words
    words = " ".join(ask("plan", folder, "--store", store / "another").stdout.split())
    assert "nothing to run" not in words
    assert "training alone, at 50 % to 20 % of peak FLOP/s: " in words
