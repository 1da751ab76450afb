"""Of `test_new.py` what needs a process, a socket or a compilation."""

import json
from pathlib import Path

import pytest

from runner.planning import planner
from runner.schema import step_graph
from runner.spec import declaration
from runner.store.store import Store
from runner.worker import executor
from tests.unit.runner.test_new import here as here  # a fixture
from tests.unit.runner.test_new import new


def test_the_hackable_one_is_trained_and_scored(here: Path, tmp_path: Path) -> None:
    """The smallest size for a few steps, each step in its own process."""
    new("mine", "--from", "hackable")
    declared = here / "mine" / declaration.FILE_NAME
    lines = declared.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "{model: {" not in line or line.startswith("  xs:")]
    assert len(kept) == len(lines) - 3
    [steps] = [line for line in lines if "num_train_steps:" in line]
    text = "".join(kept).replace(steps, "  num_train_steps: 20\n")
    declared.write_text(text.replace("train_batch_size: 16", "train_batch_size: 4"))

    store = Store(tmp_path / "store")
    plan = planner.plan_folder(here / "mine", store)
    code = store.local(planner.code_folder(plan))
    names = step_graph.order({name: step.needs for name, step in plan.steps.items()})
    made = {
        name: executor.make(
            store, name, plan.steps, plan.kinds, code, "x1", terms=executor.OWN_MACHINE
        )
        for name in names
    }
    curve = (made["train/xs,seed=0"].folder / "curve.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in curve]
    assert losses[0] == pytest.approx(5.5, abs=0.2), "it begins by guessing"
    assert losses[-1] < 4
    score = json.loads((made["evaluate"].folder / "scores.json").read_text())["xs,seed=0"]
    assert score["bpb"] < 6
