"""What executions take besides training, as plans say it."""

from pathlib import Path

import pytest

from runner.history import overhead, provenance
from runner.schema import record
from runner.store.store import Store
from tests import synthetic


def test_it_is_learned_from_executions_that_are_done_and_measured_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    assert overhead.learned(None) == overhead.learned(store) == (overhead.PER_STEP, 0)
    made = synthetic.execution(synthetic.plan())
    synthetic.finish(store, made, dict.fromkeys(made.plan.runs(), 2.0))
    ends = {name: record.StepEnd(state="made", by=made.id) for name in made.plan.steps}
    monkeypatch.setattr(provenance, "step_ends", lambda *_: ends)
    result = record.require(store, f"executions/{made.id}/result", record.Result)
    runs = [
        record.require(store, f"runs/{made.id}.{record.run_name(*run)}", record.Run)
        for run in made.plan.runs()
    ]
    trained = sum(run.tokens / (run.tokens_per_second or 1) for run in runs)
    expected = max(0.0, (result.seconds or 0) - trained) / len(ends)
    assert overhead.learned(store) == (pytest.approx(expected), 1)
    ends = {name: record.StepEnd(state="cached", by="x") for name in made.plan.steps}
    assert overhead.learned(store).learned_from == 0, "what was cached took no time"
