"""What a step costs beyond its own work: `python -m tests.bench.steps`. One graph of steps that do
nothing but write their number into a file is made three ways, in turns: by the lab's executor and
as bare Ray tasks of the same size, both on one local Ray and counted from connecting to it, and by
Snakemake, counted as a whole command. The lab's outputs are digested, synced to the disk and
recorded; neither of the others does any of this. Writes `results/steps.json` and `steps.md`."""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from runner.execution.local_ray import local_ray
from runner.lib import process_tree
from runner.planning import planner
from runner.schema import step_graph
from runner.store import artifacts
from runner.store.store import Store
from runner.worker import executor
from tests.bench.cpu import CORES, RESULTS, machine, wait_for_quiet

GOAL = 5.0  # milliseconds a step over bare Ray tasks, for steps that do not wait for each other
OWN = """\
def write(config, inputs, out):
    (out / "n.txt").write_text(str(config["n"]))
"""
SNAKEFILE = """\
STEPS = {steps}
rule all:
    input: expand("{{step}}.txt", step=STEPS)
rule step:
    output: "{{step}}.txt"
    input: lambda of: [f"{{need}}.txt" for need in STEPS[of.step]]
    threads: {cores}
    shell: "printf %s {{wildcards.step}} > {{output}}"
"""


def sweep(count: int) -> str:
    """A declaration: so many points that need nothing."""
    points = ", ".join(map(str, range(count)))
    return f"  all: {{do: 'noop:write', config: {{n: 0}}, sweep: {{n: [{points}]}}}}\n"


def chain(count: int) -> str:
    """A declaration: each step needs the one before it."""
    first = "  s0: {do: 'noop:write', config: {n: 0}}\n"
    rest = (
        f"  s{n}: {{do: 'noop:write', config: {{n: {n}}}, inputs: {{before: s{n - 1}}}}}\n"
        for n in range(1, count)
    )
    return first + "".join(rest)


def declare(folder: Path, steps: str) -> None:
    """Write an experiment with these steps."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "noop.py").write_text(OWN)
    head = "title: Steps that do nothing\nresources: {kind: cpu}\nsteps:\n"
    (folder / "experiment.yaml").write_text(head + steps)


def by_the_lab(experiment: Path, place: Path) -> float:
    """Seconds in which the lab makes all steps in a new store."""
    store = Store(place)
    plan = planner.plan_folder(experiment, store)
    began = time.perf_counter()
    executor.run(store, plan, planner.code_folder(plan), "x0", executor.OWN_MACHINE)
    seconds = time.perf_counter() - began
    for step in plan.steps.values():
        made = artifacts.find(store, step.store, step.fingerprint)
        assert made
        assert (made.folder / "n.txt").read_text() == str(step.config["n"])
    return seconds


def as_bare_tasks(experiment: Path, place: Path) -> float:
    """Seconds in which Ray runs a task for each step, which writes the step's file."""
    import ray

    place.mkdir()
    plan = planner.plan_folder(experiment)

    def write(path: str, n: int, *_: None) -> None:
        Path(path).write_text(str(n))

    began = time.perf_counter()
    ray.init(log_to_driver=False)
    task, tasks = ray.remote(write), {}
    for name in step_graph.order({name: step.needs for name, step in plan.steps.items()}):
        step = plan.steps[name]
        tasks[name] = task.options(num_cpus=CORES).remote(
            str(place / name.replace("/", "-")),
            step.config["n"],
            *(tasks[other] for other in step.needs),
        )
    ray.get(list(tasks.values()))
    seconds = time.perf_counter() - began
    assert len(list(place.iterdir())) == len(plan.steps)
    return seconds


def by_snakemake(experiment: Path, place: Path) -> float:
    """Seconds of a whole `snakemake` on the same graph, with one job on all cores at a time."""
    place.mkdir()
    plan = planner.plan_folder(experiment)
    steps = {
        name.replace("/", "-").replace("=", "-"): [
            other.replace("/", "-").replace("=", "-") for other in step.needs
        ]
        for name, step in plan.steps.items()
    }
    (place / "Snakefile").write_text(SNAKEFILE.format(steps=steps, cores=CORES))
    command = [os.environ["SNAKEMAKE"], "--cores", str(CORES), "--quiet", "all"]
    began = time.perf_counter()
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    assert len(list(place.glob("*.txt"))) == len(plan.steps)
    return seconds


def measure(
    shape: Callable[[int], str], steps: int, rounds: int, snakemake: Path | None, folder: Path
) -> dict[str, Any]:
    """Seconds of each side in each round, each in a process of its own. Snakemake, which takes
    many times as long, has one round. What they write stays until all is over: for five minutes
    ext4 goes looking past the inodes of files that were removed, which costs who writes next."""
    experiment = folder / "noop"
    declare(experiment, shape(steps))
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        sides = [name for name in SIDES if name != "Snakemake" or (snakemake and number == 0)]
        for name in sides[number % len(sides) :] + sides[: number % len(sides)]:
            wait_for_quiet()
            place = folder / f"{name}-{number}"
            command = [sys.executable, "-m", "tests.bench.steps", "side", name]
            seconds = float(
                subprocess.run(
                    [*command, str(experiment), str(place)],
                    env=os.environ | {"SNAKEMAKE": str(snakemake)},
                    check=True,
                    stdout=subprocess.PIPE,
                ).stdout
            )
            print(f"{shape.__name__} round {number + 1} {name}: {seconds:.2f} s", flush=True)
            found.setdefault(name, []).append(round(seconds, 3))
    return {"steps": steps, "seconds": found}


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """The Ray that `regatta run` starts, for processes that are started in the `with` body."""
    with local_ray(folder) as ray:
        # What Ray tells a job in its environment.
        os.environ["RAY_ADDRESS"] = _address(ray.guard.pid)
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(ray.token_file)
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        yield


def _address(keeper: int) -> str:
    """Where a Ray listens, as the guard that keeps it has told one of its processes."""
    for process in process_tree.descendants(keeper):
        for word in Path(f"/proc/{process}/cmdline").read_text().split("\0"):
            if word.startswith("--gcs-address="):
                return word.partition("=")[2]
    raise SystemExit("none of Ray's processes says where it listens")


def over(found: dict[str, Any]) -> float:
    """Milliseconds that a step takes in the lab over a bare Ray task (medians)."""
    lab, bare = (statistics.median(found["seconds"][x]) for x in ("lab", "bare Ray tasks"))
    return (lab - bare) / found["steps"] * 1000


def table(results: dict[str, Any]) -> str:
    """The figures in Markdown."""
    lines = [
        "| graph | side | least | median | a step | the lab takes |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for shape, found in results["shapes"].items():
        lab = statistics.median(found["seconds"]["lab"])
        for name, seconds in found["seconds"].items():
            median = statistics.median(seconds)
            lines.append(
                f"| {shape} of {found['steps']:,} | {name} | {min(seconds):.2f} s | {median:.2f} s "
                f"| {median / found['steps'] * 1000:.1f} ms | {lab / median:.2f}× |"
            )
    lines += [""] + [
        f"{shape}: {over(found):.1f} ms a step over bare Ray tasks"
        for shape, found in results["shapes"].items()
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--snakemake", type=Path, help="its program; without it, it is left out")
    parser.add_argument("--into", type=Path, default=RESULTS)
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine("ray"), "shapes": {}}
    snakemake = options.snakemake and options.snakemake.absolute()
    with tempfile.TemporaryDirectory() as name, cluster(Path(name) / "ray"):
        for shape in options.shape or SHAPES:
            results["shapes"][shape] = measure(
                SHAPES[shape], options.steps, options.rounds, snakemake, Path(name) / shape
            )
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "steps.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.into / "steps.md").write_text(table(results))
    print(table(results))
    if "sweep" in results["shapes"] and over(results["shapes"]["sweep"]) > GOAL:
        sys.exit(f"a step takes more than {GOAL:g} ms over a bare Ray task")


SHAPES = {"sweep": sweep, "chain": chain}
SIDES = {"lab": by_the_lab, "bare Ray tasks": as_bare_tasks, "Snakemake": by_snakemake}

if __name__ == "__main__":
    if sys.argv[1:2] == ["side"]:
        print(SIDES[sys.argv[2]](Path(sys.argv[3]), Path(sys.argv[4])))
    else:
        main()
