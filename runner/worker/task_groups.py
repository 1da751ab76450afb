"""Groups the steps of a graph into tasks. A task gets several points of a sweep if there are many:
the steps that need one need all, and while one computes, the task writes the others to disk. Also
says which training likely follows a step, so that JAX is imported for it while the step
computes."""

from collections.abc import Iterator, Mapping

from runner.schema import step_graph
from runner.schema.devices import Kind, takes_gang
from runner.schema.job_reports import Isolation
from runner.schema.record import Plan, PlannedStep
from runner.spec.step_types import BUILT_IN, TRAINS
from runner.store.store import Store
from runner.worker.step_process import Training

MOST_TOGETHER = 16  # steps per task
SHARES = 16  # tasks of a sweep per worker, so that all workers end at about the same time


def together(
    steps: Mapping[str, PlannedStep], kinds: Mapping[str, Kind], cores: float
) -> Iterator[tuple[str, ...]]:
    """The steps in order, each after those it needs; one tuple per task.

    Only points of one sweep share a task, because steps that need one need all; none that trains,
    has many shards or uses an accelerator, which never takes a short time; and each worker that
    `cores` of the cluster allow gets SHARES tasks.
    """
    points: dict[str, list[str]] = {}
    for name in sorted(steps, key=lambda name: steps[name].turn):
        points.setdefault(_declared(name), []).append(name)
    needs = {
        name: {_declared(other) for one in some for other in steps[one].needs}
        for name, some in points.items()
    }
    for name in step_graph.order(needs):
        first = steps[points[name][0]]
        kind, most = kinds[first.resources.kind], 1
        if first.do not in TRAINS and not kind.ray_gpus and not spreads(first):
            places = max(1, cores // (kind.ray_cpus * first.resources.count))
            most = max(1, min(MOST_TOGETHER, int(len(points[name]) // (places * SHARES))))
        for start in range(0, len(points[name]), most):
            yield tuple(points[name][start : start + most])


def trainings_after(store: Store, plan: Plan, isolation: Isolation) -> dict[str, Training]:
    """For each step that a training outside of a box needs, the first such training."""
    found: dict[str, Training] = {}
    for step in sorted(plan.steps.values(), key=lambda step: step.turn):
        if of := training(store, step, plan.kinds[step.resources.kind], isolation):
            for other in step.needs:
                found.setdefault(other, of)
    return found


def training(store: Store, step: PlannedStep, kind: Kind, isolation: Isolation) -> Training | None:
    """What JAX is imported with for this step, on devices of this kind; None if it does not train,
    or trains in a box or on other hosts."""
    boxed = step.private and isolation == "bubblewrap"
    if step.do != "train" or boxed or takes_gang(kind, step.resources.count):
        return None
    return Training(kind, cache(store, step))


def cache(store: Store, step: PlannedStep) -> str:
    """The folder of compiled programs, or "": own code gets none, and scoring uses none, because
    training code writes it."""
    return str(store.local("cache/xla")) if step.do in TRAINS and not step.own else ""


def _declared(node: str) -> str:
    """The declared step of a node."""
    return node.partition("/")[0]


def spreads(step: PlannedStep) -> bool:
    """Whether the step may run in many processes, some shards of a text each."""
    return step.do in BUILT_IN and BUILT_IN[step.do].over is not None
