"""A graph of steps as Ray tasks, from inside an attempt's job: each step after its inputs, with the
resources that it names. What exists is not made again, and of two executions that want the same
step one makes it while the other waits (`runner.makers`). A task only watches: what a step computes
runs in a child of its own (`runner.step_child`), of which nothing is left when the step is over.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import graph, makers, planning
from runner.hardware import KINDS
from runner.leases import STALE_AFTER
from runner.record import Plan, PlannedStep
from runner.step_child import RECEIPT, WHY, Job
from runner.store import Store, StoreError

RETRIES = 3  # of a task whose worker or node was lost
MOST_WORDS = 400  # of why a step failed
NO_INPUT = "what it needs could not be made"


class StepsFailed(Exception):
    """Some steps could not be made; the message names each with its reason."""


def run(store: Store, plan: Plan, code: Path, execution: str) -> None:
    """Make every step of the plan, with the experiment's own modules in `code`. Raises StepsFailed
    once all that does not need what failed has been made."""
    import ray

    ray.init(log_to_driver=False)  # the job's environment names its cluster
    task = ray.remote(_make)
    tasks: dict[str, Any] = {}
    for name in graph.order({name: step.needs for name, step in plan.steps.items()}):
        step = plan.steps[name]
        kind, count = KINDS[step.resources.kind], step.resources.count
        needed = {one: plan.steps[one] for one in (name, *step.needs)}
        tasks[name] = task.options(
            name=name,
            num_cpus=kind.ray_cpus * count,
            num_gpus=kind.ray_gpus * count,
            max_retries=RETRIES,
        ).remote(
            *(str(store.root), name, needed, str(code), execution),
            *(tasks[other] for other in step.needs),
        )
    why: dict[str, str] = {}
    for name, made in tasks.items():
        try:
            why[name] = ray.get(made)
        except ray.exceptions.RayError as error:  # a worker or a node was lost, again and again
            lost = any(why[other] for other in plan.steps[name].needs)
            why[name] = NO_INPUT if lost else " ".join(str(error).split())[:MOST_WORDS]
        step = plan.steps[name]
        if not why[name] and not makers.find(store, step.store, step.fingerprint, check=False):
            why[name] = "its output is not in the store; is the store's folder there on every node?"
    if failed := [f"{name}: {words}" for name, words in why.items() if words not in ("", NO_INPUT)]:
        raise StepsFailed("; ".join(failed))


def check_code(name: str, step: PlannedStep, code: Path) -> None:
    """Raises makers.MakingFailed where the code that is here, the lab's or the experiment's in
    `code`, is not the one that was planned."""
    found = planning.code_of(step.function, step.own, code)
    if found != step.code:
        now = step.model_copy(update={"code": found, "fingerprint": ""})
        raise makers.MakingFailed(
            f"{name}: the code here is not the planned one ({graph.changes(step, now)[0]}); plan "
            "again with it"
        )


def _make(
    root: str, name: str, steps: dict[str, PlannedStep], code: str, execution: str, *inputs: str
) -> str:
    """Why the step could not be made, empty if it is there; `inputs` is the same of its inputs."""
    if any(inputs):
        return NO_INPUT
    try:
        make(Store(Path(root), make=False), name, steps, Path(code), execution)
    except makers.MakingFailed as error:
        return str(error.__cause__ or error)[:MOST_WORDS]
    except (makers.BadOutput, StoreError) as error:
        return str(error)[:MOST_WORDS]
    return ""


def make(
    store: Store,
    name: str,
    steps: Mapping[str, PlannedStep],
    code: Path,
    execution: str,
    stale_after: float = STALE_AFTER,
) -> makers.Made:
    """The output of one step, whose inputs are there. Raises makers.MakingFailed."""
    step = steps[name]
    receipt: dict[str, str] = {}

    def build(out: Path) -> None:
        scratch = out.with_name(f"{out.name}.scratch")
        scratch.mkdir()
        check_code(name, step, code)
        job = Job(
            function=step.function,
            config=step.config,
            own="" if step.function in step.own else "".join(step.own),
            inputs={key: _given(store, these, steps) for key, these in step.inputs.items()},
            out=str(out),
            scratch=str(scratch),
            code=str(code) if step.own else "",
            resources=step.resources,
        )
        with (scratch / "log.txt").open("wb") as log:
            child = subprocess.run(
                [sys.executable, "-m", "runner.step_child"],
                input=job.canonical(),
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                cwd=planning.LAB,
            )
        if child.returncode:
            why = scratch / WHY
            words = f"its process ended with {child.returncode}"
            raise makers.MakingFailed(why.read_text() if why.is_file() else words)
        check_code(name, step, code)  # the lab's might have been edited meanwhile
        receipt.update(json.loads((scratch / RECEIPT).read_bytes()))

    parts = step.model_dump(mode="json", include={"do", "config", "inputs", "code"})
    return makers.make(
        store,
        step.store,
        step.fingerprint,
        build,
        parts,
        by=execution,
        receipt=lambda: receipt,
        stale_after=stale_after,
    )


def _given(
    store: Store, these: Mapping[str, str], steps: Mapping[str, PlannedStep]
) -> str | dict[str, str]:
    """The folders of one input: one, or one for each point of a sweep, by its label."""
    folders = {}
    for name, fingerprint in these.items():
        found = makers.find(store, steps[name].store, fingerprint)
        if found is None:
            raise makers.MakingFailed(f"its input {name} is not there")
        folders[name.partition("/")[2]] = str(found.folder)
    return folders[""] if set(folders) == {""} else folders
