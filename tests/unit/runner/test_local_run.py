"""What a look at a running graph costs, and what is said of it."""

from pathlib import Path

import pytest

from runner.cli import local_run, steps_view
from runner.schema.record import Execution, Plan, StepEnd
from runner.store import artifacts
from runner.store.store import Store
from tests import synthetic
from tests.integration.runner.test_execute import HEAD, planned
from tests.unit.runner.test_cli import local as local  # a fixture

CHAIN = [f"s{n}: {{do: own:prepare, inputs: {{x: s{n - 1}}}}}" for n in range(1, 20)]
DECLARED = f"{HEAD}steps:\n  s0: {{do: own:prepare}}\n  " + "\n  ".join(CHAIN)


def test_a_step_is_looked_at_once_its_inputs_are_there_and_until_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store, DECLARED)
    execution = Execution(id="x1", at=synthetic.START, plan=plan, origin=None)
    names = {step.fingerprint: name for name, step in plan.steps.items()}
    looked, find, told = list[str](), artifacts.find, dict[str, StepEnd]()

    def finding(store: Store, name: str, fingerprint: str, *, check: bool) -> artifacts.Made | None:
        looked.append(names[fingerprint])
        return find(store, name, fingerprint, check=check)

    monkeypatch.setattr(artifacts, "find", finding)

    def look() -> list[str]:
        looked.clear()
        return [f"{name} {end.state}" for name, end in local_run._ended(store, execution, told)]

    assert look() == []
    assert looked == ["s0"]
    make(store, plan, "s0", "s1")
    assert look() == ["s0 made", "s1 made"]
    assert looked == ["s0", "s1", "s2"]
    assert look() == []
    assert looked == ["s2"]


def make(store: Store, plan: Plan, *names: str) -> None:
    for name in names:
        step = plan.steps[name]
        artifacts.make(store, step.store, step.fingerprint, lambda _: None, {}, by="x1")


def test_a_reason_is_left_out_only_where_the_steps_say_all_of_it() -> None:
    a, b = StepEnd(state="failed", why="ValueError: x; y"), StepEnd(state="made")
    says = steps_view.says
    assert says("a: ValueError: x; y", {"a": a, "b": b})
    assert says("c: ValueError: x; y; a: ValueError: x; y", {"a": a, "c": a})
    assert not says("a: ValueError: x; y; b: its output is not in the store", {"a": a, "b": b})
    assert not says("b: it was lost", {"b": b})
    assert not says("the job ended", {"a": a})
