"""What the lab foretells of a plan's arms, and what it will not say."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from runner.history import forecasts
from runner.history.execution_index import Past
from runner.schema.record import Execution, Foretold, Plan, PlanRecord
from runner.store.store import Store
from tests import synthetic

LAW = [3.0 * 4.0 ** (-0.3 * n) + 1.2 for n in range(7)]  # bits per byte, of sizes that grow by four


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def plan(*sizes: int, rate: float = 3e-3, **changes: Any) -> Plan:
    """A plan of arms `t0`, `t1`, …, of which each trains four times as long as the one before."""
    arms = {f"t{n}": synthetic.planned_arm(steps=16 * 4**n, rate=rate) for n in sizes}
    return synthetic.plan(arms=arms, **changes)


def ran(store: Store, of: Plan, name: str = "1", state: str = "done") -> Execution:
    execution = synthetic.execution(of, name, at=synthetic.START + timedelta(hours=int(name)))
    figures = {
        (arm, seed): LAW[int(arm[1:])] + 0.002 * (seed - 1) for arm in of.arms for seed in of.seeds
    }
    synthetic.finish(store, execution, figures, state=state)
    return execution


def test_an_arm_that_continues_a_ladder_is_foretold_with_an_interval(store: Store) -> None:
    ran(store, plan(0, 1, 2, 3, 4))
    found = forecasts.foretell(Past(store), plan(5))
    told = found.forecasts["t5"]
    assert told.low < LAW[5] < told.high
    assert told.loss == pytest.approx(LAW[5], rel=0.01)
    assert (told.rungs, told.runs, told.level) == (5, 15, 0.9)
    assert told.reach == pytest.approx(4)
    assert found.without == {}


def test_the_ladder_may_have_been_run_in_several_executions(store: Store) -> None:
    ran(store, plan(0, 1, 2))
    ran(store, plan(3, 4), "2")
    assert forecasts.foretell(Past(store), plan(5)).forecasts["t5"].rungs == 5


def test_an_empty_lab_says_why_it_foretells_nothing(store: Store) -> None:
    found = forecasts.foretell(Past(store), plan(0, 1))
    assert found.forecasts == {}
    assert set(found.without) == {"t0", "t1"}
    assert found.without["t0"].startswith(
        "it needs runs of 3 smaller models with the same recipe (training settings) on this text"
    )


def test_a_plan_reads_each_needed_execution_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        ran(store, plan(n % 3, text="wiki" if n % 2 else "another"), f"{n + 10}")
    ran(store, plan(0, 1, 2, 3, 4), "1")
    goes_on = synthetic.execution(plan(6), "2")
    synthetic.begin(store, goes_on, "t1.claimed")
    read = Counter[str]()
    whole = Store.read

    def counted(self: Store, name: str) -> bytes | None:
        read[name] += 1
        return whole(self, name)

    monkeypatch.setattr(Store, "read", counted)
    past = Past(store)
    assert forecasts.foretell(past, plan(5)).forecasts["t5"].rungs == 5
    assert len([name for name in read if name.endswith("/execution.json")]) == 22
    assert len([name for name in read if name.startswith("records/runs/")]) == 15
    assert len(read) == 22 + 15 + 2, "two are on the same text, and what goes on has no result"
    assert max(read.values()) <= 3

    read.clear()
    assert forecasts.foretell(past, plan(5)).forecasts["t5"].rungs == 5
    assert dict(read) == {f"records/executions/{goes_on.id}/result.json": 1}
    read.clear()
    ran(store, plan(5), "3")
    assert set(forecasts.foretell(past, plan(5)).without) == {"t5"}, "it has been run meanwhile"
    assert sum(read.values()) == 3 + 3 + 2, "what is new, and whether the other one has ended"


def test_a_finished_run_gets_no_forecast(store: Store) -> None:
    execution = ran(store, plan(0, 1, 2, 3, 4))
    found = forecasts.foretell(Past(store), plan(4, 5))
    assert set(found.forecasts) == {"t5"}
    assert found.without == {"t4": f"the lab has already run it, as {execution.id}.t4.s0"}


@pytest.mark.parametrize(
    "changes", [{"text": "another"}, {"eval_tokens": 8192}], ids=["text", "number of tokens"]
)
def test_runs_that_were_scored_on_something_else_tell_nothing(
    store: Store, changes: dict[str, Any]
) -> None:
    ran(store, plan(0, 1, 2, 3, 4))
    found = forecasts.foretell(Past(store), plan(5, **changes))
    assert found.forecasts == {}
    assert "it needs runs of 3 smaller models" in found.without["t5"]


def test_a_run_that_goes_on_or_was_cancelled_tells_nothing(store: Store) -> None:
    ran(store, plan(0, 1, 2, 3, 4), state="cancelled")
    synthetic.begin(store, synthetic.execution(plan(0, 1, 2, 3), "2"), "t1.claimed")
    assert forecasts.foretell(Past(store), plan(5)).forecasts == {}


def test_runs_of_other_rates_do_not_hide_a_ladder(store: Store) -> None:
    ran(store, plan(0, 1, 2, 3, 4))
    ran(store, plan(1, 2, rate=3e-4), "2")
    told = forecasts.foretell(Past(store), plan(5)).forecasts["t5"]
    assert (told.rungs, told.runs) == (5, 15)


def test_a_ladder_whose_rates_follow_its_size_is_taken_as_one(store: Store) -> None:
    for n in range(5):
        ran(store, plan(n, rate=3e-3 / 2**n), str(n))
    assert forecasts.foretell(Past(store), plan(5, rate=3e-3 / 32)).forecasts["t5"].rungs == 5


def test_a_forecast_does_not_rest_on_what_is_larger(store: Store) -> None:
    ran(store, plan(0, 1, 2, 3, 4, 6))
    assert forecasts.foretell(Past(store), plan(5)).forecasts["t5"].rungs == 5


def test_a_forecast_is_held_against_the_first_seed_of_its_arm() -> None:
    told = Foretold(
        axis="model_flops", at=1e12, loss=2.0, low=1.9, high=2.1, level=0.9, law="L", rungs=5,
        runs=15, reach=4.0,
    )  # fmt: skip
    execution = synthetic.execution(plan(5)).model_copy(update={"forecasts": {"t5": told}})
    figures = {("t5", 0): 2.02, ("t5", 1): 3.0, ("t5", 2): 3.0}
    (one,) = forecasts.outcomes(execution, figures)
    assert (one.seed, one.measured, one.inside) == (0, 2.02, True)
    assert one.error == pytest.approx(0.01)
    assert list(forecasts.outcomes(execution, {("t5", 1): 2.0})) == [], "no figure, no outcome"
    assert not next(iter(forecasts.outcomes(execution, {("t5", 0): 2.11}))).inside


def test_a_plan_without_forecasts_is_written_as_before_there_were_any() -> None:
    told = [synthetic.prediction(), synthetic.prediction("2.6 ± 0.1", versus=None)]
    planned = PlanRecord(
        repository=7,
        pull=2,
        n=1,
        commit="a" * 40,
        at=synthetic.START,
        # Of an older lab, which had no steps for arms.
        plan=synthetic.plan(predictions=told, preregistration=1).model_copy(update={"steps": {}}),
    )
    assert planned.digest().startswith("43550a7b4305eeef41cf6f22ba23341a")
    assert "forecasts" not in planned.canonical().decode()
    assert PlanRecord.model_validate_json(planned.canonical()) == planned
