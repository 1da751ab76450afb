"""How long planning ten thousand steps takes: `python -m tests.bench.planning`. Three graphs, each
planned in a process of its own: cold, from its file to its plan; and warm, where every step has
been made and the store is asked how each one stands. The steps' outputs are written as makers leave
them, without making anything. Writes `results/planning.json` and `planning.md`."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.history import provenance
from runner.planning import planner
from runner.schema.record import Execution, PlannedStep, write
from runner.store import artifacts
from runner.store.digests import FileDigest
from runner.store.store import Store
from tests.bench.cpu import RESULTS, machine, wait_for_quiet

GOAL_COLD = 1.0  # seconds for ten thousand steps
GOAL_WARM = 1.0  # milliseconds a step
HEAD = "title: Many steps\nresources: {kind: cpu}\nsteps:\n"
OWN = "def write(config, inputs, out):\n    (out / 'n.txt').write_text(str(config['n']))\n"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # SHA-256 of no bytes


def sweep(count: int) -> str:
    """Points of one sweep of an own function."""
    return f"  all: {{do: 'many:write', config: {{n: 0}}, sweep: {{n: {list(range(count))}}}}}\n"


def training(count: int) -> str:
    """A text, its tokens, a grid of trainings with all their defaults, and one evaluation."""
    rates = [round(1e-4 * (n + 1), 4) for n in range(100)]
    return f"""\
  tokens: {{do: tokenize, config: {{source: stdlib}}}}
  train:
    do: train
    inputs: {{tokens: tokens}}
    config:
      model: {{hidden_dim: 128, intermediate_dim: 352, num_layers: 4, num_heads: 4, seq_len: 256}}
      train: {{train_batch_size: 16, num_train_steps: 16, learning_rate: 0.003}}
    sweep: {{seed: {list(range(count // 100))}, train.learning_rate: {rates}}}
  evaluate: {{do: evaluate, inputs: {{models: train, tokens: tokens}}}}
"""


def chain(count: int) -> str:
    """Sweeps of ten points, each of which takes all of the one before."""
    head = "  s0: {do: 'many:write', config: {n: 0}, sweep: {k: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}}\n"
    rest = (
        f"  s{n}: {{do: 'many:write', config: {{n: {n}}}, inputs: {{a: s{n - 1}}}, "
        "sweep: {k: [0,1,2,3,4,5,6,7,8,9]}}\n"
        for n in range(1, count // 10)
    )
    return head + "".join(rest)


GRAPHS = {"sweep": (sweep, 10_000), "training": (training, 9_900), "chain": (chain, 9_000)}


def turn(folder: Path, place: Path) -> dict[str, float]:
    """Seconds of a cold and of a warm plan of the experiment in `folder`."""
    began = time.perf_counter()
    plan = planner.plan_folder(folder)
    cold = time.perf_counter() - began
    store = Store(place)
    if not store.list("steps"):
        for step in plan.steps.values():
            leave(store, step)
        write(
            store,
            "executions/x0/execution",
            Execution(id="x0", at=datetime.now(UTC), plan=plan, origin=None),
        )
    store = Store(place)  # as somebody who comes later
    began = time.perf_counter()
    plan = planner.plan_folder(folder)
    before = provenance.latest(store, plan.experiment)
    stands = provenance.standing(store, plan.steps, before.plan.steps if before else {})
    warm = time.perf_counter() - began
    assert {one.state for one in stands.values()} == {"cached"}
    return {"steps": len(plan.steps), "cold": cold, "warm": warm}


def leave(store: Store, step: PlannedStep) -> None:
    """A step's output and manifest, as its maker leaves them."""
    turn = artifacts.Turn(
        name=step.store,
        fingerprint=step.fingerprint,
        generation=1,
        maker="0" * 16,
        by="x0",
        host="here",
    )
    manifest = artifacts.Manifest(
        **turn.model_dump(),
        files={"n.txt": FileDigest(sha256=EMPTY, bytes=0)},
        parts=step.model_dump(mode="json", include={"do", "config", "inputs", "code"}),
        receipt={},
        made_at=datetime.now(UTC),
        seconds=0.0,
    )
    # Not by `store.create`, which waits for the disk each time.
    folder = store.local(turn.folder)
    folder.mkdir(parents=True)
    (folder / "n.txt").touch()
    (folder.parent / "manifest.json").write_bytes(manifest.canonical())


def measure(name: str, count: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Seconds of each round of one graph."""
    declare, _ = GRAPHS[name]
    experiment = folder / name
    experiment.mkdir(parents=True)
    (experiment / "many.py").write_text(OWN)
    (experiment / "experiment.yaml").write_text(HEAD + declare(count))
    found: dict[str, Any] = {"steps": 0, "cold": [], "warm": []}
    for number in range(rounds):
        wait_for_quiet()
        command = [sys.executable, "-m", "tests.bench.planning", "turn", str(experiment)]
        answer = subprocess.run(
            [*command, str(folder / f"{name}-store")], check=True, stdout=subprocess.PIPE
        )
        said = json.loads(answer.stdout)
        found["steps"] = said["steps"]
        for which in ("cold", "warm"):
            found[which].append(round(said[which], 3))
        print(f"{name} round {number + 1}: {said['cold']:.2f} s, {said['warm']:.2f} s", flush=True)
    return found


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [
        "| graph | steps | cold, least | cold, median | warm, median | warm, a step |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, found in results["graphs"].items():
        cold, warm = (statistics.median(found[which]) for which in ("cold", "warm"))
        lines.append(
            f"| {name} | {found['steps']:,} | {min(found['cold']):.2f} s | {cold:.2f} s "
            f"| {warm:.2f} s | {warm / found['steps'] * 1000:.2f} ms |"
        )
    return "\n".join(lines) + "\n"


def missed(results: dict[str, Any]) -> list[str]:
    """Which goals are not reached, in sentences."""
    words = []
    for name, found in results["graphs"].items():
        cold, warm = (statistics.median(found[which]) for which in ("cold", "warm"))
        if cold > GOAL_COLD * found["steps"] / 10_000:
            words.append(f"{name}: {found['steps']:,} steps are planned in {cold:.2f} s")
        if (each := warm / found["steps"] * 1000) > GOAL_WARM:
            words.append(f"{name}: a warm plan takes {each:.2f} ms a step")
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, help="else as many as an experiment may have")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine("pydantic", "PyYAML"), "graphs": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, most) in GRAPHS.items():
            found = measure(name, options.steps or most, options.rounds, Path(folder))
            results["graphs"][name] = found
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "planning.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "planning.md").write_text(table(results))
    print(table(results))
    if found := missed(results):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["turn"]:
        print(json.dumps(turn(Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main()
