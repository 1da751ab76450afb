"""Of `test_new.py` what needs a process, a socket or a compilation."""

import json
from pathlib import Path

import pytest

from runner.planning import planner
from runner.schema import step_graph
from runner.spec import declaration
from runner.store.artifacts import Made
from runner.store.store import Store
from runner.worker import executor
from tests.unit.runner.test_new import here as here  # a fixture
from tests.unit.runner.test_new import new


def every_step(folder: Path, store: Store) -> dict[str, Made]:
    """The outputs of an experiment, each made in a process of its own."""
    plan = planner.plan_folder(folder, store)
    code = store.local(planner.code_folder(plan))
    names = step_graph.order({name: step.needs for name, step in plan.steps.items()})
    return {
        name: executor.make(
            store, name, plan.steps, plan.kinds, code, "x1", terms=executor.OWN_MACHINE
        )
        for name in names
    }


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

    made = every_step(here / "mine", Store(tmp_path / "store"))
    curve = (made["train/xs,seed=0"].folder / "curve.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in curve]
    assert losses[0] == pytest.approx(5.5, abs=0.2), "it begins by guessing"
    assert losses[-1] < 4
    score = json.loads((made["evaluate"].folder / "scores.json").read_text())["xs,seed=0"]
    assert score["bpb"] < 6


@pytest.mark.slow
def test_the_datashop_chooses_a_tenth_and_judges_it_by_four_anneals(
    here: Path, tmp_path: Path
) -> None:
    """With less text, one seed and a few steps."""
    new("shop", "--from", "datashop")
    own = here / "shop" / "datashop.py"
    own.write_text(own.read_text().replace('root.rglob("*.py")', 'root.glob("*.py")'))
    declared = here / "shop" / declaration.FILE_NAME
    text = declared.read_text()
    for old, now in (
        ("num_train_steps: 500", "num_train_steps: 60"),
        ("num_train_steps: 250", "num_train_steps: 40"),
        ("seeds: [0, 1, 2]", "seeds: [0]"),
        ("tokens: 65536", "tokens: 4096"),
    ):
        assert old in text
        text = text.replace(old, now)
    declared.write_text(text)
    made = every_step(here / "shop", Store(tmp_path / "store"))

    def size(step: str) -> int:
        lines = (made[step].folder / "train.jsonl").read_text().splitlines()
        return sum(len(json.loads(line)["text"].encode()) for line in lines)

    tenth = size("pages") / 10
    for step in ("chosen", "random", "shuffled"):
        assert tenth - 20_000 < size(step) <= tenth, "whole documents, as many as there is room for"
    scores = json.loads((made["evaluate"].folder / "scores.json").read_text())
    bpb = {label.partition(",")[0]: score["bpb"] for label, score in scores.items()}
    assert bpb.keys() == {"control", "chosen", "random", "shuffled"}
    assert bpb["shuffled"] > max(bpb["control"], bpb["random"]) + 0.1
    assert bpb["chosen"] < bpb["random"]
