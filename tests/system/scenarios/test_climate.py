"""GitHub is late, limited and forgetful, and a thread ends as it would have without that."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, TEXT, a_lab, form_body
from tests.scenarios.visible import visible
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_faults import PIXEL

FILES = {
    "experiments/warm/experiment.yaml": EXPERIMENT.encode(),
    "experiments/warm/text.txt": TEXT.encode(),
}


def tell(climate: str = "", seed: int = 0) -> dict[str, Any]:
    """The story of an experiment; what is visible in the end."""
    with tempfile.TemporaryDirectory() as there, pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "png", lambda _: PIXEL)
        with a_lab(Path(there), StubRay(pace=48)) as lab:
            if climate:
                lab.set_climate(climate, seed)
            lab.sandbox.open_issue("ada", "Experiment: warmer is better", form_body())
            lab.settle(4000)
            lab.sandbox.commit("ada", "warm", FILES, "Declare an experiment")
            lab.sandbox.open_pull("ada", "Warmer learning rate", "Tests #1.", "warm")
            lab.settle(4000)
            for who, body in (("sam", "/run"), ("sam", "/status"), ("grace", "/run")):
                lab.clock.advance(61)
                lab.sandbox.comment(who, 2, body)
                lab.settle(4000)
            found = visible(lab)
            for number, names in lab.climate.labelled.items() if lab.climate else ():
                left = found["threads"][number]["labels"]
                assert names <= set(left), "labels of others stay"
                found["threads"][number]["labels"] = [one for one in left if one not in names]
            return found


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return tell()


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_thread_ends_the_same_in_the_worst_climate(
    seed: int, undisturbed: dict[str, Any]
) -> None:
    assert tell("worst", seed) == undisturbed


# ── The stories of the other files ──

HERE = Path(__file__).parent
FEW = {
    "story": "heard_at_once or role_counts or help_lists or delivered_twice",
    "approval": "moves_forward or who_updates or policy_of_a_pull",
    "entries": "merge_brings or replacing",
}
MANY = (
    *("story", "approval", "bad_input", "steps", "verdicts", "manners", "modes", "buttons"),
    *("entries", "recovery", "two_bots", "aside", "forbidden", "sweep", "rounds"),
)


def told(seed: int, files: Iterable[str], *options: str) -> None:
    """Tell stories in a mild climate. One that is marked `calm` says why it is left out."""
    paths = [str(HERE / f"test_{name}.py") for name in files]
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short", *options, *paths]
    climate = {"REGATTA_CLIMATE": "mild", "REGATTA_SEED": str(seed)}
    ended = subprocess.run(run, env=os.environ | climate, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.timeout(900)  # on a machine that others use, too
@pytest.mark.parametrize("seed", [1, 2])
def test_a_few_stories_end_the_same_in_a_mild_climate(seed: int) -> None:
    told(seed, FEW, "-k", " or ".join(FEW.values()))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("file", MANY)
def test_the_stories_end_the_same_in_a_mild_climate(file: str, seed: int) -> None:
    told(seed, [file], "-m", "not slow")
