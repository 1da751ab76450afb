"""A stretch of a run that is trained again: the same bits, or it is said."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from runner import cli_replay, record, reproduce
from runner.cli_replay import CannotReplay
from runner.record import Execution, Replayed
from runner.store import Store
from tests import synthetic
from tests.runner.test_execute import made, planned

RECEIPT = {"jax": "0.10.2", "affinity": "0,1", "isolation": "bubblewrap 0.8.0"}
CURVE = {5: 2.0, 6: 1.9}


def found(same: bool, receipt: dict[str, str], loss: float = 2.0) -> dict[str, Any]:
    return {
        "same": same,
        "now_sha256": "ab" * 32,
        "losses": {"5": loss, "6": 1.9},
        "receipt": receipt,
    }


@pytest.mark.parametrize(
    ("said", "how", "words"),
    [
        (found(True, {}), "bit for bit", "abababababababab… again"),
        (found(False, RECEIPT | {"affinity": "2,3"}), "differs", "equal bits are promised"),
        (found(False, RECEIPT | {"jax": "0.11"}, 2.01), "within the tolerance", "0.50% apart; jax"),
        (found(False, RECEIPT | {"jax": "0.11"}, 2.1), "differs", "up to 5.00% apart"),
    ],
)
def test_how_a_stretch_came_out(said: dict[str, Any], how: str, words: str) -> None:
    told = cli_replay.judged(said, CURVE, RECEIPT)
    assert told[0] == how
    assert words in told[1]


def test_an_execution_without_steps_says_what_to_do_instead(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    execution = synthetic.execution(synthetic.plan())
    with pytest.raises(CannotReplay, match=f"`regatta reproduce {execution.id}` runs it again"):
        cli_replay.replay(store, execution, "", random.Random(1))


@pytest.mark.long
def test_a_stretch_between_two_checkpoints_comes_out_the_same_or_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store)
    plan = plan.model_copy(
        update={"steps": {x: plan.steps[x] for x in plan.steps if x.split("/")[0] in NEEDED}}
    )
    execution: Execution = synthetic.execution(plan, pull=None)
    made(store, plan, execution.id)
    stretches = cli_replay._stretches(store, execution, "train/fast")
    assert [x[1:] for x in stretches] == [(0, 4), (4, 8)]
    told = cli_replay.replay(store, execution, "train/fast", _chooses((4, 8)))
    assert (told.first, told.last, told.how) == (4, 8, "bit for bit")
    slow = cli_replay._stretches(store, execution, "train/slow")[0][0]
    fast = stretches[0][0]
    shutil.rmtree(fast / "4")
    shutil.copytree(slow / "4", fast / "4")
    told = cli_replay.replay(store, execution, "train/fast", _chooses((4, 8)))
    assert told.how == "differs"
    said = record.numbered(store, f"replays/{execution.id}", Replayed)
    assert [one.how in reproduce.GOOD for one in said] == [True, False]


NEEDED = ("prepare", "short", "loud", "tokens", "train")


def _chooses(stretch: tuple[int, int]) -> random.Random:
    class Chance(random.Random):
        def choice(self, choices: Any) -> Any:
            return next(x for x in choices if tuple(x[2:]) == stretch)

    return Chance()
