"""What the records tell of earlier executions."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from bot.controller import records_branch
from runner.cli import forecast
from runner.history.execution_index import Past
from runner.scheduler.budget_ledger import Ledger
from runner.scheduler.cluster import parse
from runner.scheduler.live_queue import Turns
from runner.schema import record
from runner.store.store import Store
from tests import synthetic
from tests.synthetic import PLAIN, START, planned_arm


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def finished(store: Store, name: str, shift: float = 0.0, **plan: object) -> record.Execution:
    of = synthetic.execution(synthetic.plan(**plan), name, at=START + timedelta(hours=int(name)))
    synthetic.finish(store, of, {run: bpb + shift for run, bpb in PLAIN.items() if bpb})
    return of


def test_under_a_preregistration_is_what_any_pull_request_ran_for_it(store: Store) -> None:
    synthetic.preregister(store, 1, edits=2)
    past = Past(store)
    one = finished(store, "1", preregistration=1)
    finished(store, "2", preregistration=5)
    found = past.registration(synthetic.REPOSITORY, 1)
    assert found
    assert [x.execution for x in found.outcomes] == [one]
    assert found.outcomes[0].complete
    assert len(found.edits) == 2
    running = synthetic.execution(synthetic.plan(preregistration=1), "3", pull=9)
    synthetic.begin(store, running)
    later = past.registration(synthetic.REPOSITORY, 1)
    assert later
    assert {x.execution.id for x in later.outcomes} == {one.id, running.id}
    assert past.registration(synthetic.REPOSITORY, 7) is None


def test_the_spread_is_that_of_runs_alike_on_the_same_text(store: Store) -> None:
    plan, past = synthetic.plan(), Past(store)
    assert past.spread(plan) is None
    finished(store, "1")
    assert past.spread(plan) is None, "two arms are too few"
    finished(store, "2", shift=0.1)
    spread = past.spread(plan)
    assert spread
    assert (spread.arms, spread.freedom) == (4, 8)
    assert spread.deviation == pytest.approx(0.0432, abs=0.001)
    for name, other in (
        ("3", {"text": "wiki"}),
        ("4", {"eval_tokens": 8192}),
        ("5", {"arms": {arm: planned_arm(steps=1600) for arm in ("slow", "fast")}}),
    ):
        finished(store, name, shift=float(name), **other)
    assert past.spread(plan) == spread
    finished(store, "6")
    assert past.spread(plan) == spread, "equal bits are no news"


def test_the_spread_by_another_metric_is_that_of_runs_measured_alike(store: Store) -> None:
    metric = "weights/output_norm"
    told = synthetic.prediction("> 1").model_copy(update={"metric": metric})
    past = Past(store)
    for name, by, tokens in (("1", 0.1, 16_384), ("2", 0.2, 16_384), ("3", 50.0, 8192)):
        of = synthetic.execution(synthetic.plan(eval_tokens=tokens), name)
        runs = [
            synthetic.run(of.plan, arm, seed, 2.0, execution=of.id).model_copy(
                update={"scores": {metric: record.Score(value=seed * by + (arm == "fast"))}}
            )
            for arm, seed in of.plan.runs()
        ]
        synthetic.finish(store, of, {}, runs=runs)
    assert past.spreads(synthetic.plan(), [synthetic.prediction()]) == {}
    (spread,) = past.spreads(synthetic.plan(), [told]).values()
    assert (spread.arms, spread.freedom) == (4, 8)
    assert spread.deviation == pytest.approx(0.025**0.5)


def test_predictions_are_found_where_only_one_repository_can_be_meant(store: Store) -> None:
    past, plan = Past(store), synthetic.plan(preregistration=1)
    assert past.predictions(plan) == ()
    seal = synthetic.preregister(store, 1)
    assert past.predictions(plan) == seal.predictions
    assert past.predictions(synthetic.plan()) == ()


def test_a_record_beyond_all_bounds_stops_nobody_who_reads_all_executions(store: Store) -> None:
    one, other = finished(store, "1"), finished(store, "2", shift=0.1)
    competed = {"evaluated": {"examined": {"forward_flops_per_token": 10**320}}}
    for path, told in (
        (f"runs/{one.id}.fast.s0", {"evaluated": {"bpb": 1e300}}),
        (f"executions/{other.id}/result", {"entered": [competed]}),
    ):
        file = store.local(f"records/{path}.json")
        file.write_text(json.dumps(json.loads(file.read_bytes()) | told))
    past, now = Past(store), START + timedelta(hours=9)
    spread = past.spread(synthetic.plan())
    assert spread
    assert (spread.arms, spread.freedom) == (4, 7), "the other runs have their figures"
    assert past.begun(synthetic.REPOSITORY, synthetic.plan(preregistration=1)) == ""
    turns = Turns(store, parse("pools: {desk: {kind: cpu, count: 1}}\n", "cluster.yaml"))
    assert turns.waiting(now) == {}
    assert turns.refusal(synthetic.plan(), "ada", now) is None
    assert len(list(Ledger(store).lives())) == 2
    assert set(records_branch.waiting(store)) == {one.id, other.id}
    assert len(list(forecast.points_in(store))) == 11
