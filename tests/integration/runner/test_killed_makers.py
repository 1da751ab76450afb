"""Two executions that share steps, while their workers are killed: both end with the bytes of
undisturbed ones."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.lib import paths
from runner.planning import planner
from runner.schema.record import Plan
from runner.store import artifacts
from runner.store.store import Store
from tests.integration.runner.test_execute import HEAD, made, planned

pytestmark = pytest.mark.slow

STEPS = 24
DECLARED = f"""{HEAD}steps:
  prepare: {{do: own:prepare, config: {{documents: 40}}}}
  tokens: {{do: tokenize, inputs: {{text: prepare}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    config:
      model: {{hidden_dim: 8, intermediate_dim: 16, num_layers: 1, num_heads: 2, seq_len: 16}}
      train: {{train_batch_size: 2, num_train_steps: {STEPS}, learning_rate: 0.01,
              checkpoint_every: 2, evaluate_every: 5}}
  scores: {{do: evaluate, inputs: {{models: train, tokens: tokens}}, config: {{tokens: SCORED}}}}
"""
PLANS = {"x1": "64", "x2": "128"}  # two that score the same model otherwise
MAKE = """
import sys
from pathlib import Path
from runner.worker import executor as execute; from runner.schema import step_graph as graph, record
from runner.store.store import Store
root, plan, code, execution = sys.argv[1:]
plan = record.Plan.model_validate_json(Path(plan).read_bytes())
for name in graph.order({name: step.needs for name, step in plan.steps.items()}):
    terms = execute.OWN_MACHINE
    where = Store(Path(root)), name, plan.steps, plan.kinds, Path(code), execution
    execute.make(*where, stale_after=4.0, terms=terms)
"""


def plans(folder: Path, store: Store) -> dict[str, Plan]:
    return {
        name: planned(folder, store, DECLARED.replace("SCORED", scored))
        for name, scored in PLANS.items()
    }


def outputs(store: Store, plan: Plan) -> dict[str, str]:
    """Of each step its output's digest; each file was read and compared."""
    found = {}
    for name, step in plan.steps.items():
        one = artifacts.find(store, step.store, step.fingerprint)
        assert one, name
        found[name] = one.manifest.output_sha256
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What each of the two makes alone, in a store of its own."""
    found = {}
    for name in PLANS:
        folder = tmp_path_factory.mktemp(name)
        store = Store(folder / "store")
        plan = plans(folder, store)[name]
        made(store, plan)
        found[name] = outputs(store, plan)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_two_executions_whose_workers_are_killed_end_with_the_bytes_of_undisturbed_ones(
    tmp_path: Path, undisturbed: dict[str, dict[str, str]], seed: int
) -> None:
    """At three seeded steps of training its maker is killed, and at one of them the other one too;
    whoever is left, or comes anew, goes on."""
    chance = random.Random(seed)
    points, both = sorted(chance.sample(range(2, STEPS - 2), 3)), chance.randrange(3)
    store = Store(tmp_path / "store")
    planned = plans(tmp_path, store)
    running = {name: start(tmp_path, store, name, plan) for name, plan in planned.items()}
    killed: list[str] = []
    step = planned["x1"].steps["train"]
    at = f"{step.store}/{step.fingerprint[:16]}"
    try:
        for number, point in enumerate(points):
            if (maker := maker_at(store, at, point, beyond=len(killed))) is None:
                break  # it was faster than we look
            if killed.count(maker) == 2:
                break  # the third time the execution would give up
            killed.append(maker)
            for name in PLANS if number == both else [maker]:
                running[name].send_signal(signal.SIGKILL)
                running[name].wait()
                running[name] = start(tmp_path, store, name, planned[name])
        assert [process.wait(240) for process in running.values()] == [0, 0]
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    assert {name: outputs(store, plan) for name, plan in planned.items()} == undisturbed
    assert undisturbed["x1"]["train"] == undisturbed["x2"]["train"]
    assert undisturbed["x1"]["scores"] != undisturbed["x2"]["scores"]
    found = artifacts.find(store, step.store, step.fingerprint)
    assert found
    assert found.manifest.generation == len(killed) + 1 >= 3, "it was made by all of them in turn"


def start(folder: Path, store: Store, name: str, plan: Plan) -> "subprocess.Popen[bytes]":
    (folder / f"{name}.json").write_bytes(plan.canonical())
    code = store.local(planner.code_folder(plan))
    arguments = [str(store.root), str(folder / f"{name}.json"), str(code), name]
    return subprocess.Popen([sys.executable, "-c", MAKE, *arguments], cwd=paths.LAB)


def maker_at(store: Store, at: str, point: int, beyond: int) -> str | None:
    """Who trains as a later generation than `beyond`, once `point` steps are done. None: it has
    finished."""
    until = time.monotonic() + 120
    while not store.local(f"steps/{at}/manifest.json").exists():
        for curve in store.local(f"steps/{at}").glob("*.scratch/curve/*.jsonl"):
            generation = int(curve.parents[1].name.partition("-")[0])
            lines = curve.read_text().splitlines()
            if generation > beyond and any(json.loads(line)["step"] >= point for line in lines):
                start = store.local(f"leases/steps/{at}/{generation}/start.json")
                return str(json.loads(start.read_bytes())["by"])
        assert time.monotonic() < until, f"nobody trained {point} steps"
        time.sleep(0.01)
    return None
