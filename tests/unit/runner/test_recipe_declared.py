"""`recipe:` in a declaration: the plan has what it filled in, and what is written wins."""

from pathlib import Path

import pytest

from runner.lib.problems import BadExperiment
from runner.planning import planner
from runner.schema.record import Plan

SHORT = """
title: "Which recipe?"
data: {source: stdlib}
model: {hidden_dim: 64, seq_len: 32}
train: {train_batch_size: 8, num_train_steps: 100}
resources: {kind: cpu}
arms:
  delphi: {train: {recipe: delphi}}
  faster: {train: {recipe: delphi, learning_rate: 0.02}, model: {num_layers: 3}}
  marin: {train: {recipe: marin-8b}}
"""


def planned(folder: Path, declared: str = SHORT) -> Plan:
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(declared)
    return planner.plan_folder(folder)


def test_an_arm_needs_a_size_and_a_recipe(tmp_path: Path) -> None:
    arms = planned(tmp_path / "x").arms
    delphi, faster, marin = (arms[name] for name in ("delphi", "faster", "marin"))
    assert delphi.labs
    assert faster.labs
    assert marin.labs
    assert (delphi.train.optimizer, marin.train.optimizer) == ("adamh", "adamw")
    assert (delphi.labs.intermediate_dim, marin.labs.intermediate_dim) == (256, 224)
    assert (faster.train.learning_rate, faster.labs.num_layers) == (0.02, 3)
    assert faster.train.adam_learning_rate == delphi.train.adam_learning_rate


def test_a_recipe_and_what_it_fills_in_are_one_run(tmp_path: Path) -> None:
    plan = planned(tmp_path / "x", SHORT.partition("  faster")[0])
    arm, labs = plan.arms["delphi"], plan.arms["delphi"].labs
    assert labs
    written = SHORT.partition("  delphi")[0] + (
        f"  delphi: {{train: {arm.train.model_dump_json(exclude_none=True)}, "
        f"model: {labs.model_dump_json(exclude_none=True)}}}\n"
    )
    again = planned(tmp_path / "y", written)
    assert again.steps["train/delphi,seed=0"].fingerprint == (
        plan.steps["train/delphi,seed=0"].fingerprint
    )


def test_an_unknown_recipe_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadExperiment) as it:
        planned(tmp_path / "x", SHORT.replace("marin-8b", "marin-8"))
    (problem,) = [p for p in it.value.problems if p.field.endswith("recipe")]
    assert "marin-8b" in problem.message
    assert problem.line == 10
