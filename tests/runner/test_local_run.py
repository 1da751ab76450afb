"""What a look at a running graph costs."""

from pathlib import Path

import pytest

from runner import local_run, makers
from runner.record import Execution, Plan
from runner.store import Store
from tests import synthetic
from tests.runner.test_execute import HEAD, planned

CHAIN = [f"s{n}: {{do: own:prepare, inputs: {{x: s{n - 1}}}}}" for n in range(1, 20)]
DECLARED = f"{HEAD}steps:\n  s0: {{do: own:prepare}}\n  " + "\n  ".join(CHAIN)


def test_a_step_is_looked_at_once_its_inputs_are_there_and_until_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store, DECLARED)
    execution = Execution(id="x1", at=synthetic.START, plan=plan, origin=None)
    names = {step.fingerprint: name for name, step in plan.steps.items()}
    looked, find, told = list[str](), makers.find, set[str]()

    def finding(store: Store, name: str, fingerprint: str, *, check: bool) -> makers.Made | None:
        looked.append(names[fingerprint])
        return find(store, name, fingerprint, check=check)

    monkeypatch.setattr(makers, "find", finding)

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
        makers.make(store, step.store, step.fingerprint, lambda _: None, {}, by="x1")
