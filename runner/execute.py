"""A graph of steps as Ray tasks, from inside an attempt's job: each step after its inputs, with the
resources that it names. What exists is not made again, and of two executions that want the same
step one makes it while the other waits (`runner.makers`). A task only watches: what a step computes
runs in a process of its own (`runner.step_server`), of which nothing is left when the step is over.

Points of a sweep are given to a task a few at a time, where they are many: whoever needs one needs
them all, and while one is computed the task brings the others to disk.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runner import graph, makers, planning
from runner.hardware import KINDS, takes_gang
from runner.leases import STALE_AFTER
from runner.record import Plan, PlannedStep, Resources
from runner.step_child import RECEIPT, WHY, Job
from runner.step_server import StepServer
from runner.store import Store, StoreError

AT_ONCE = 4  # steps of a task: one is computed, the others are on their way from or to the disk
MOST_TOGETHER = 16  # steps of a task
SHARES = 16  # tasks of a sweep for each place, so that no place ends much later than the others
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
    tasks: dict[tuple[str, ...], Any] = {}
    of: dict[str, Any] = {}
    for names in together(plan.steps, ray.cluster_resources().get("CPU", 0)):
        step = plan.steps[names[0]]
        kind, count = KINDS[step.resources.kind], step.resources.count
        needed = {one: plan.steps[one] for one in (*names, *step.needs)}
        tasks[names] = task.options(
            name=names[0],
            # The hosts of a gang have their own.
            num_cpus=0 if takes_gang(step.resources.kind, count) else kind.ray_cpus,
            num_gpus=0 if takes_gang(step.resources.kind, count) else kind.ray_gpus,
            max_retries=RETRIES,
        ).remote(
            *(str(store.root), names, needed, str(code), execution),
            *dict.fromkeys(of[other] for other in step.needs),
        )
        of |= dict.fromkeys(names, tasks[names])
    why: dict[str, str] = {}
    for names, made in tasks.items():
        try:
            why |= zip(names, ray.get(made), strict=True)
        except ray.exceptions.RayError as error:  # a worker or a node was lost, again and again
            lost = any(why[other] for other in plan.steps[names[0]].needs)
            words = NO_INPUT if lost else " ".join(str(error).split())[:MOST_WORDS]
            why |= dict.fromkeys(names, words)
        for name in names:
            step = plan.steps[name]
            if not why[name] and not makers.find(store, step.store, step.fingerprint, check=False):
                why[name] = (
                    "its output is not in the store; is the store's folder there on every node?"
                )
    if failed := [f"{name}: {words}" for name, words in why.items() if words not in ("", NO_INPUT)]:
        raise StepsFailed("; ".join(failed))


def together(steps: Mapping[str, PlannedStep], cores: float) -> Iterator[tuple[str, ...]]:
    """The steps in the order of their making, each after those it needs; a tuple is for one task.

    Only points of one sweep are put together, since who needs one needs all; none that trains or
    takes an accelerator, which is never short; and so few that each place which `cores` of the
    cluster make for them gets SHARES tasks.
    """
    points: dict[str, list[str]] = {}
    for name in sorted(steps):
        points.setdefault(_declared(name), []).append(name)
    needs = {name: set(map(_declared, steps[some[0]].needs)) for name, some in points.items()}
    for name in graph.order(needs):
        first = steps[points[name][0]]
        kind, most = KINDS[first.resources.kind], 1
        if first.do != "train" and not kind.ray_gpus:
            places = max(1, cores // (kind.ray_cpus * first.resources.count))
            most = max(1, min(MOST_TOGETHER, int(len(points[name]) // (places * SHARES))))
        for start in range(0, len(points[name]), most):
            yield tuple(points[name][start : start + most])


def _declared(node: str) -> str:
    """The step of which a node is a point."""
    return node.partition("/")[0]


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


_server = StepServer()  # of this process, which makes steps of one execution only


def _make(
    root: str,
    names: tuple[str, ...],
    steps: dict[str, PlannedStep],
    code: str,
    execution: str,
    *inputs: list[str],
) -> list[str]:
    """Why each of the steps could not be made, empty if it is there; `inputs` is the same of the
    tasks that made their inputs."""
    if any(why for these in inputs for why in these):
        return [NO_INPUT] * len(names)
    store = Store(Path(root), make=False)
    _server.start()  # from this thread, which outlives the others
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda name: _made(store, name, steps, Path(code), execution), names))


def _made(
    store: Store, name: str, steps: dict[str, PlannedStep], code: Path, execution: str
) -> str:
    try:
        make(store, name, steps, code, execution)
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
        if takes_gang(step.resources.kind, step.resources.count):
            from runner import gang_step  # needs Ray

            receipt.update(gang_step.train(name, step, job))
            job = job.model_copy(update={"resources": Resources(kind="cpu")})
        if code_of_exit := _server.make(job):
            why = scratch / WHY
            words = f"its process ended with {code_of_exit}"
            raise makers.MakingFailed(why.read_text() if why.is_file() else words)
        check_code(name, step, code)  # the lab's might have been edited meanwhile
        receipt.update(json.loads((scratch / RECEIPT).read_bytes()) | receipt)

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
