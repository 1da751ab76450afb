"""`evaluate_every`: the scores of a run's snapshots are those of runs that end there."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.data.token_store import TokenStore
from runner.history import step_runs
from runner.planning import planner
from runner.schema.record import Plan
from runner.store.artifacts import Made
from runner.store.scratch_paths import SCRATCH
from runner.store.store import Store
from runner.worker import executor
from runner.worker.models import train
from runner.worker.models.plugins import Parts
from tests.integration.runner.test_execute import made

MODEL = "{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}"
TRAIN = "train_batch_size: 2, learning_rate: 0.05, lr_schedule: constant, checkpoint_every: 4"
HEAD = """title: T
resources: {kind: cpu}
steps:
  tokens: {do: tokenize, config: {source: lab-2026-11}}
"""
OWN = """
import jax

class Table:
    def __init__(self, config):
        self.vocab = config["vocab_size"]

    def init(self, key):
        return {"w": 0.1 * jax.random.normal(key, (self.vocab, self.vocab))}

    def logits(self, params, tokens):
        return params["w"][tokens]
"""


def step(name: str, steps: int, train: str = "", of: str = "", more: str = "", model=MODEL) -> str:
    return f"""  {name}:
    do: train
    inputs: {{tokens: tokens{f", init: {of}" if of else ""}}}
    config: {{model: {model}, train: {{num_train_steps: {steps}, {TRAIN}{train}}}{more}}}
  {name}-scores:
    do: evaluate
    inputs: {{models: {name}, tokens: tokens}}
    config: {{tokens: 64}}
"""


def outputs(tmp_path: Path, declared: str, terms: Any = executor.OWN_MACHINE) -> tuple[Any, ...]:
    tmp_path.mkdir(exist_ok=True)
    folder, store = tmp_path / "snapshots", Store(tmp_path / "store")
    folder.mkdir()
    (folder / "experiment.yaml").write_text(HEAD + declared)
    (folder / "model.py").write_text(OWN)
    plan = planner.plan_folder(folder, store)
    found: dict[str, Made] = dict(made(store, plan, terms=terms))
    return {name: one.folder for name, one in found.items()}, store, plan


def curve(out: dict[str, Path], name: str) -> dict[str, Any]:
    return json.loads((out[f"{name}-scores"] / "curves.json").read_text())[""]


def params(folder: Path) -> bytes:
    return (folder / "params.safetensors").read_bytes()


def score(out: dict[str, Path], name: str) -> Any:
    return json.loads((out[f"{name}-scores"] / "measured.json").read_text())[""]["eval/bpb"]


def test_a_snapshot_is_the_model_of_a_run_that_ends_there_and_has_its_score(tmp_path: Path) -> None:
    keep, on = ", keep_moments: true", ", init: {moments: true, schedule: continue}"
    out, store, plan = outputs(
        tmp_path,
        step("whole", 8, ", evaluate_every: 3")
        + step("first", 3, keep)
        + step("second", 5, ", evaluate_every: 3", "first", on),
    )
    whole, second = (out[name] / "snapshots" for name in ("whole", "second"))
    assert sorted(path.name for path in whole.iterdir()) == ["3", "6"]
    assert params(whole / "3") == params(out["first"])
    assert [path.name for path in second.iterdir()] == ["3"]
    assert params(second / "3") == params(whole / "6")
    assert params(out["second"]) == params(out["whole"])
    assert not (out["first-scores"] / "curves.json").exists()
    assert curve(out, "whole") == {"3": score(out, "first"), "6": curve(out, "second")["3"]}
    assert_recorded(store, plan, out)


def assert_recorded(store: Store, plan: Plan, out: dict[str, Path]) -> None:
    """What the records get of it."""
    found, refused = step_runs.curves_by(store, plan, {})
    assert not refused
    of = curve(out, "whole")
    assert found["whole"] == tuple(
        (n, of[str(n)]["value"], of[str(n)]["standard_error"]) for n in (3, 6)
    )
    assert found.keys() == {"whole", "second"}


@pytest.mark.slow
def test_an_own_model_has_the_same_curve_in_a_box_and_out_of_it(tmp_path: Path) -> None:
    own, table = ', own: {model: "model:Table"}', "{seq_len: 16}"
    declared = step("mine", 4, ", evaluate_every: 2", more=own, model=table)
    boxed, *_ = outputs(tmp_path / "boxed", declared, executor.Terms("bubblewrap"))
    open_, *_ = outputs(tmp_path / "open", declared + step("short", 2, more=own, model=table))
    assert params(boxed["mine"] / "snapshots/2") == params(open_["mine"] / "snapshots/2")
    assert params(open_["short"]) == params(open_["mine"] / "snapshots/2")
    assert curve(open_, "mine") == {"2": score(open_, "short")}
    assert curve(boxed, "mine")["2"]["value"] == pytest.approx(score(open_, "short")["value"], 1e-5)


def test_snapshots_of_a_training_that_was_interrupted_have_the_same_bytes(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        TokenStore.build(tmp_path / "tokens" / split, ["abcd" * 200])
    keys = "num_train_steps: 8, evaluate_every: 3, keep_checkpoints: 1"
    recipe = yaml.safe_load(f"{{{TRAIN}, {keys}}}")
    config = {"model": yaml.safe_load(MODEL), "train": recipe, "own": {}, "seed": 3}
    inputs = {"tokens": tmp_path / "tokens"}
    whole, later = tmp_path / "whole/1-aa", tmp_path / "interrupted/2-bb"
    whole.mkdir(parents=True)
    later.mkdir(parents=True)
    train.train(config, inputs, whole)
    steps = count(1)
    lost = later.with_name(f"1-aa{SCRATCH}") / "checkpoints"
    for _ in train.steps(Parts(config, inputs, {}), lost, [], lambda: next(steps) == 5):
        pass
    assert sorted(path.name for path in lost.iterdir()) == ["3", "5"], "not 4, which is no snapshot"
    train.train(config, inputs, later)
    for name in ("snapshots/3", "snapshots/6", "."):
        assert params(later / name) == params(whole / name)
