"""GitHub is late, limited and forgetful, and a thread ends as it would have without that."""

import tempfile
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
            return visible(lab)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return tell()


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_thread_ends_the_same_in_the_worst_climate(
    seed: int, undisturbed: dict[str, Any]
) -> None:
    assert tell("worst", seed) == undisturbed
