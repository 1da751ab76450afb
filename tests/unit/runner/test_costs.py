"""What a plan says its training will cost: all of it, and what of it is still to be made."""

from pathlib import Path

import pytest
from rich.console import Console

from runner.cli import terminal
from runner.planning import cost
from runner.schema.record import Plan, Standing
from tests.unit.runner.test_aliases import ran as ran  # a fixture
from tests.unit.runner.test_cli import local as local  # a fixture
from tests.unit.runner.test_own_declared import SHORT, planned
from tests.unit.runner.test_steps import HEAD, MODEL, TRAIN

SWEEP = (
    f"{HEAD}  tokens: {{do: tokenize, config: {{source: stdlib}}}}\n"
    f"  train: {{do: train, inputs: {{tokens: tokens}}, config: {{model: {MODEL}, train: {TRAIN}}},"
    f" sweep: {{train.weight_decay: {[n / 100 for n in range(100)]}}}}}\n"
)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return planned(tmp_path / "x", SHORT)


def stands(plan: Plan, cached: set[str]) -> dict[str, Standing]:
    return {x: Standing(state="cached" if x in cached else "changed") for x in plan.steps}


def said(plan: Plan, cached: set[str]) -> str:
    return " ".join(terminal._cost(plan, stands(plan, cached)))


def test_the_parts_of_a_cost_add_up(plan: Plan) -> None:
    assert cost.left(plan, stands(plan, {"tokens"})) == plan.cost
    parts = [cost.left(plan, stands(plan, {*plan.steps} - {name})) for name in plan.steps]
    for what in ("runs", "uncounted", "tokens", "model_flops"):
        assert sum(getattr(part, what) for part in parts) == getattr(plan.cost, what)
    assert sum(part.seconds[1] for part in parts) == pytest.approx(plan.cost.seconds[1])


def test_a_plan_costs_what_is_still_to_be_made(plan: Plan) -> None:
    trained = {name for name, step in plan.steps.items() if step.do == "train"}
    assert said(plan, set()).startswith("3 arms × 2 seeds = 6 runs, 768 tokens, ")
    one = trained - {"train/harder,seed=1"}
    words = said(plan, one)
    assert words.startswith("8 steps, 5 cached and 3 to run; 1 of them trains, 128 tokens, ")
    assert f"{cost.left(plan, stands(plan, one)).model_flops:.2e}"[:4] in words
    assert "with models" not in words
    own = trained - {"train/mine,seed=0"}
    assert "1 of them trains with its own models" in said(plan, own)
    assert said(plan, trained) == (
        "8 steps, 6 cached and 2 to run; none of them trains; run time unknown"
    )
    assert said(plan, set(plan.steps)) == "8 steps, all cached: nothing to run"


def test_a_range_below_a_second_is_shown_once(tmp_path: Path) -> None:
    words = said(planned(tmp_path / "x", SWEEP), set())
    assert ", under 1 s on 1 × CPU, 2 cores" in words


def test_a_hundred_arms_alike_are_named_on_one_line_and_nothing_is_cut_off(tmp_path: Path) -> None:
    plan = planned(tmp_path / "x", SWEEP)
    view = terminal.plan_view(plan, terminal._called(list(plan.arms)), {})
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    console.print(view)
    text = console.export_text()
    assert text.count("weight_decay=0.0 and 99 more") == 1, "where a device's memory is told"
    assert len(text.splitlines()) < 20
    assert "…" not in text
