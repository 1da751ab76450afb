"""A modern mixture of experts is one short declaration, and its plan counts it."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from engine.config import flops
from engine.data.lab_texts import Text
from runner.planning import planned_steps, planner
from runner.schema.record import Plan
from runner.spec import declaration
from tests.scenarios.lab import TEXT

TUTORIAL = Path(__file__).parents[3] / "docs/tutorials/change-the-model.md"


@pytest.fixture(scope="module")
def text() -> str:
    [found] = [x for x in TUTORIAL.read_text().split("```") if x.startswith("yaml\ntitle: ")]
    return found.removeprefix("yaml\n")


@pytest.fixture(scope="module")
def plan(text: str) -> Plan:
    experiment = declaration.parse(text, "experiments/modern/experiment.yaml")
    split = Text("stdlib", TEXT.encode() * 2, TEXT.encode() * 2)
    with mock.patch.object(planned_steps, "text", lambda _, source: replace(split, source=source)):
        return planner.make_plan(experiment, Path("no-folder"), called="experiments/modern")


def test_the_declaration_in_the_tutorial_has_every_part_on_25_lines(text: str) -> None:
    assert len(text.splitlines()) <= 25
    for part in ("moe", "quantile", "attention_gate", "exclusive_attention", "gated_norm",
                 "rope_fraction", "sliding_window", "layer_pattern", "muonh", "wsd"):  # fmt: skip
        assert part in text


def test_its_plan_counts_it_and_an_arm_without_a_part(plan: Plan) -> None:
    every, without = plan.arms["all"].labs, plan.arms["without-gates"].labs
    assert every
    assert without
    assert every.kinds == ("window", "window", "window", "nope") * 2
    gates = every.num_layers * every.hidden_dim * every.num_heads
    assert plan.arms["all"].parameters == flops.parameters(without) + gates
    assert plan.arms["all"].model_flops == flops.model_flops(every, plan.arms["all"].tokens or 0)
    assert without == every.model_copy(update={"attention_gate": False})
