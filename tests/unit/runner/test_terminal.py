"""The order in which the terminal shows arms and steps."""

import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from engine.config.schema import ComputeConfig
from runner.cli import execution_view, main, steps_view, terminal
from runner.execution.lifecycle import Facts
from runner.history import provenance
from runner.schema.record import Plan, Result, Standing
from runner.store.store import Store
from tests import synthetic

SIZES = {"xs": 8, "s": 16, "m": 32, "l": 64}
NAMES = list(SIZES)


@pytest.fixture
def plan() -> Plan:
    arms = {name: synthetic.planned_arm(hidden_dim=dim) for name, dim in SIZES.items()}
    return synthetic.plan(arms=arms, seeds=(0, 1))


def printed(view: RenderableType) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(view)
    return console.export_text()


def named(view: RenderableType, column: int = 0) -> list[str]:
    """The sizes in a column of a view's tables, in its order."""
    rows = [line.strip("│ ").replace("│", " ").split() for line in printed(view).splitlines()]
    return [row[column] for row in rows if len(row) > column and row[column] in NAMES]


def test_arms_and_steps_are_shown_in_the_order_in_which_they_were_declared(plan: Plan) -> None:
    assert list(plan.arms) == sorted(NAMES), "a record is sorted by name"
    assert named(terminal.plan_view(plan, "", {})) == NAMES

    ((on, _), arms), *_ = main._asked_for(steps_view.in_turn(plan), described=False).items()
    memory = printed(terminal.memory_view(arms, on, ComputeConfig()))
    assert [word for word in memory.split() if word in NAMES] == NAMES

    trained = [f"train/{name},seed={seed}" for name in NAMES for seed in (0, 1)]
    new = {name: Standing(state="new") for name in plan.steps}
    for view in (
        steps_view.standings(plan.steps, new),
        steps_view.ends(plan.steps, {}),
        steps_view.drawing(plan.steps),
    ):
        lines = [line.split()[0] for line in printed(view).splitlines()]
        assert lines == ["step", "tokenize", *trained, "evaluate"]


def test_results_are_shown_in_the_order_in_which_they_were_declared(
    plan: Plan, tmp_path: Path
) -> None:
    store, execution = Store(tmp_path / "store"), synthetic.execution(plan)
    figures = {(name, seed): 8.0 - n - seed / 10 for n, name in enumerate(NAMES) for seed in (0, 1)}
    runs = synthetic.finish(store, execution, figures)
    account = provenance.account(store, execution)
    assert isinstance(account.result, Result)
    facts = Facts(execution, (), None, None, account.result)
    table = terminal.result_view(facts, runs)
    assert named(table)[: len(NAMES)] == NAMES
    shown = printed(execution_view.view(store, account, {}))
    steps = [line.split()[0] for line in shown.splitlines() if line.startswith("train/")]
    assert steps[-1] == "train/l,seed=1"
    assert [x for x in dict.fromkeys(steps) if x.endswith("0")] == [
        f"train/{x},seed=0" for x in NAMES
    ]


def test_a_plan_for_people_is_the_same_plan(plan: Plan) -> None:
    shown = steps_view.in_turn(plan)
    assert list(shown.arms) == NAMES
    assert shown == plan
    assert list(plan.arms) == sorted(NAMES), "the plan itself stays as it was"


def test_a_plan_without_steps_keeps_its_order(plan: Plan) -> None:
    old = plan.model_copy(update={"steps": {}})
    assert list(steps_view.in_turn(old).arms) == sorted(NAMES)


@pytest.mark.parametrize(
    ("runs", "uncounted", "words"),
    [
        (4, 0, "40 s to 1 min 40 s of training on 1 × CPU, 2 cores"),
        (4, 1, "40 s to 1 min 40 s of training on 1 × CPU, 2 cores, and 1 run of own models"),
        (4, 4, "not known (own models), on 1 × CPU, 2 cores"),
        (0, 0, "no training, on 1 × CPU, 2 cores"),
    ],
)
def test_a_planned_time_is_said_only_where_it_is_known(
    plan: Plan, tmp_path: Path, runs: int, uncounted: int, words: str
) -> None:
    cost = plan.cost.model_copy(update={"runs": runs, "uncounted": uncounted})
    store = Store(tmp_path / "store")
    execution = synthetic.execution(plan.model_copy(update={"cost": cost}))
    synthetic.begin(store, execution)
    shown = printed(execution_view.view(store, provenance.account(store, execution), {}))
    planned = next(line for line in shown.splitlines() if line.strip().startswith("planned"))
    assert planned.split("planned")[1].strip() == words
