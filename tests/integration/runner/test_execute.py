"""Steps that are really made, each in its own process: from own code to a table of scores."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from runner.history import provenance
from runner.isolation import bubblewrap
from runner.planning import planner
from runner.schema import step_graph
from runner.schema.record import Plan
from runner.store import artifacts
from runner.store.store import Store
from runner.worker import executor
from tests import synthetic

DECLARED = """\
title: Two arms on a small text
resources: {kind: cpu}
steps:
  prepare: {do: own:prepare, config: {documents: 40}}
  short: {do: filter, inputs: {text: prepare}, config: {most_characters: 60}}
  loud: {do: map, inputs: {text: short}, config: {function: own:loud}}
  tokens: {do: tokenize, inputs: {text: loud}}
  train:
    do: train
    inputs: {tokens: tokens}
    config:
      model: {hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}
      train: {train_batch_size: 2, num_train_steps: STEPS, learning_rate: 0.01, checkpoint_every: 4}
    sweep: [{name: slow, train.learning_rate: 0.001}, {name: fast}]
  scores: {do: evaluate, inputs: {models: train, tokens: tokens}, config: {tokens: 64}}
  best: {do: own:best, inputs: {scores: scores}}
"""
HEAD = "title: T\nresources: {kind: cpu}\n"
OWN = """
import json

def prepare(config, inputs, out):
    for split, count in (("train", config["documents"]), ("validation", 20)):
        lines = (json.dumps({"text": f"{split} {n} " + "abc" * n}) + "\\n" for n in range(count))
        (out / f"{split}.jsonl").write_text("".join(lines))

def loud(text):
    return text.upper() if "3" not in text else None

def best(config, inputs, out):
    scores = json.loads((inputs["scores"] / "scores.json").read_text())
    (out / "best.txt").write_text(min(scores, key=lambda arm: scores[arm]["bpb"]))

def broken(config, inputs, out):
    (out / "half.txt").write_text("half")
    raise ValueError("no such word")
"""


def planned(
    tmp_path: Path, store: Store, declared: str = DECLARED, steps: int = 8, own: str = OWN
) -> Plan:
    folder = tmp_path / "two-arms"
    folder.mkdir(exist_ok=True)
    (folder / "experiment.yaml").write_text(declared.replace("STEPS", str(steps)))
    (folder / "own.py").write_text(own)
    return planner.plan_folder(folder, store)


def made(
    store: Store,
    plan: Plan,
    execution: str = "x1",
    terms: executor.Terms = executor.OWN_MACHINE,
    *,
    steps: Collection[str] = (),  # which; by default all
) -> Mapping[str, artifacts.Made]:
    code = store.local(planner.code_folder(plan))
    names = step_graph.order({name: step.needs for name, step in plan.steps.items()})
    return {
        name: executor.make(store, name, plan.steps, plan.kinds, code, execution, terms=terms)
        for name in names
        if name in (steps or names)
    }


@pytest.mark.long
def test_a_graph_is_made_and_the_next_execution_finds_all_of_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store)
    before = provenance.standing(store, plan.steps, {})
    assert {one.state for one in before.values()} == {"new"}

    found = made(store, plan)
    documents = (found["loud"].folder / "train.jsonl").read_text().splitlines()
    assert json.loads(documents[0]) == {"text": "TRAIN 0 "}
    assert len(documents) == 16, "of 40 those with 60 characters at most and no 3"
    curve = (found["train/slow"].folder / "curve.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in curve] == list(range(1, 9))
    scores = json.loads((found["scores"].folder / "scores.json").read_text())
    assert set(scores) == {"slow", "fast"}
    assert scores["fast"]["bpb"] < scores["slow"]["bpb"] < 8
    assert (found["best"].folder / "best.txt").read_text() == "fast"
    assert "jax" in found["train/fast"].manifest.receipt
    assert found["scores"].manifest.parts["inputs"] == {
        "models": {name: plan.steps[name].fingerprint for name in ("train/slow", "train/fast")},
        "tokens": {"tokens": plan.steps["tokens"].fingerprint},
    }

    again = made(store, plan, "x2")
    assert {name: one.manifest for name, one in again.items()} == {
        name: one.manifest for name, one in found.items()
    }
    stands = provenance.standing(store, plan.steps, plan.steps)
    assert {one.state for one in stands.values()} == {"cached"}
    assert stands["best"].why.endswith("from x1")
    other = planned(tmp_path, store, DECLARED.replace("0.01,", "0.02,"))
    stands = provenance.standing(store, other.steps, plan.steps)
    assert stands["tokens"].state == "cached"
    assert stands["train/fast"].state == "changed"
    assert stands["train/fast"].why == "train.learning_rate 0.01 → 0.02"
    assert stands["train/slow"].state == "cached", "its own rate stands in the sweep"
    assert stands["best"].why == "input scores: scores changed"


@pytest.mark.long
@pytest.mark.skipif(bool(bubblewrap.probe()), reason=f"nothing was isolated: {bubblewrap.probe()}")
def test_training_and_scoring_outputs_of_own_code_is_isolated(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    found = made(store, planned(tmp_path, store, steps=4), terms=executor.Terms("bubblewrap"))
    for name, one in found.items():
        assert one.manifest.receipt["isolation"].startswith("bubblewrap "), name
    assert (found["best"].folder / "best.txt").read_text() in ("fast", "slow")


def test_own_code_that_fails_is_said_and_leaves_no_output(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store, f"{HEAD}steps: {{a: {{do: own:broken}}}}")
    with pytest.raises(artifacts.MakingFailed, match="ValueError: no such word"):
        made(store, plan)
    step = plan.steps["a"]
    assert artifacts.find(store, step.store, step.fingerprint) is None
    stands = provenance.standing(store, plan.steps, {})["a"]
    assert stands.state == "failed before"
    assert "no such word" in stands.why


LOUD = """
def fails(config, inputs, out):
    print("so far")
    raise ValueError("shapes [batch] and \\x1b[31m differ")
"""


def test_the_log_of_a_failed_step_is_shown_without_control_characters(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store")
    plan = planned(tmp_path, store, f"{HEAD}steps: {{a: {{do: own:fails}}}}", own=LOUD)
    execution = synthetic.execution(plan)
    with pytest.raises(artifacts.MakingFailed) as failed:
        made(store, plan, execution.id)
    assert r"shapes [batch] and \x1b[31m differ" in str(failed.value)
    (log,) = provenance.logs(store, execution).values()
    assert Path(log).read_text().startswith("so far\nTraceback")


def test_the_code_that_was_planned_runs_and_not_what_lies_there_now(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    declared = f"{HEAD}steps: {{a: {{do: own:prepare, config: {{documents: 2}}}}}}"
    plan = planned(tmp_path, store, declared)
    (tmp_path / "two-arms" / "own.py").write_text("def prepare(*_): raise SystemExit(1)")
    assert "train.jsonl" in made(store, plan)["a"].manifest.files


def test_a_step_is_not_made_where_its_code_is_not_the_planned_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    declared = f"{HEAD}steps: {{a: {{do: own:prepare, config: {{documents: 2}}}}}}"
    plan = planned(tmp_path, store, declared)
    (store.local(planner.code_folder(plan)) / "own.py").write_text(OWN + "x = 1\n")
    with pytest.raises(artifacts.MakingFailed, match=r"not the planned one \(own\.py changed\)"):
        made(store, plan)
