"""A task of one's own and its data, on a pull request."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.publish import charts
from tests.reports.benchmark.test_lm_eval_data import OWN
from tests.scenarios.lab import EXPERIMENT, TEXT, Lab, a_lab
from tests.system.scenarios.test_faults import PIXEL

BENCHMARKS = "benchmarks: {lm_eval: [{task: sums.yaml}], data: rows}\n"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path) as lab:
        yield lab


def test_a_pull_request_brings_a_task_and_its_data(lab: Lab) -> None:
    row = json.dumps({"question": "1 + 1 =", "answer": 1}) + "\n"
    files = {
        "experiment.yaml": (EXPERIMENT.rstrip("\n") + "\n" + BENCHMARKS).encode(),
        "text.txt": TEXT.encode(),
        "sums.yaml": OWN.encode(),
        "rows/sums/validation.jsonl": row.encode(),
    }
    lab.preregister()
    below = {f"experiments/warm/{name}": content for name, content in files.items()}
    lab.sandbox.commit("ada", "warm", below, "Declare an experiment")
    pull = lab.sandbox.open_pull("ada", "Sums", "Tests #1.", "warm")
    lab.settle()
    assert "**To start it**" in lab.last(pull.number)
    lab.clock.advance(31)
    lab.say("grace", pull.number, "/run")
    lab.settle()
    [plan] = lab.records(f"plans/{lab.sandbox.world.repository_id}").values()
    steps = [step for step in plan["plan"]["steps"].values() if step["do"] == "benchmark"]
    assert {tuple(step["config"]["data_files"]) for step in steps} == {("sums/validation.jsonl",)}
    assert (lab.store.root / "texts").is_dir()
    kept = [path.name for path in (lab.store.root / "texts").rglob("*.jsonl")]
    assert "validation.jsonl" in kept, "the jobs find the data in the store"
