"""Which steps of a graph are made by one task. Points of a sweep are given to a task a few at a
time, where they are many: whoever needs one needs them all, and while one is computed the task
brings the others to disk. And which training likely follows a step, so that JAX is imported for
it while the step is computed."""

from collections.abc import Iterator, Mapping

from runner.schema import step_graph
from runner.schema.devices import KINDS, takes_gang
from runner.schema.job_reports import Isolation
from runner.schema.record import Plan, PlannedStep
from runner.spec.step_types import BUILT_IN
from runner.store.store import Store
from runner.worker.step_process import Training

MOST_TOGETHER = 16  # steps of a task
SHARES = 16  # tasks of a sweep for each place, so that no place ends much later than the others


def together(steps: Mapping[str, PlannedStep], cores: float) -> Iterator[tuple[str, ...]]:
    """The steps in the order of their making, each after those it needs; a tuple is for one task.

    Only points of one sweep are put together, since who needs one needs all; none that trains,
    spreads or takes an accelerator, which is never short; and so few that each place which `cores`
    of the cluster make for them gets SHARES tasks.
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
        kind, most = KINDS[first.resources.kind], 1
        if first.do != "train" and not kind.ray_gpus and not spreads(first):
            places = max(1, cores // (kind.ray_cpus * first.resources.count))
            most = max(1, min(MOST_TOGETHER, int(len(points[name]) // (places * SHARES))))
        for start in range(0, len(points[name]), most):
            yield tuple(points[name][start : start + most])


def trainings_after(store: Store, plan: Plan, isolation: Isolation) -> dict[str, Training]:
    """For each step that a training outside of a box needs, the first of these trainings."""
    found: dict[str, Training] = {}
    for step in sorted(plan.steps.values(), key=lambda step: step.turn):
        if of := training(store, step, isolation):
            for other in step.needs:
                found.setdefault(other, of)
    return found


def training(store: Store, step: PlannedStep, isolation: Isolation) -> Training | None:
    """What JAX is imported with for this step; None where it does not train, or not in a process
    of this machine's that sees all of it."""
    boxed = step.private and isolation == "bubblewrap"
    if step.do != "train" or boxed or takes_gang(step.resources.kind, step.resources.count):
        return None
    return Training(step.resources.kind, cache(store, step))


def cache(store: Store, step: PlannedStep) -> str:
    """The folder of what was compiled before, or "": own code is given none, and what scores uses
    none, since who trains writes it."""
    return str(store.local("cache/xla")) if step.do == "train" and not step.own else ""


def _declared(node: str) -> str:
    """The step of which a node is a point."""
    return node.partition("/")[0]


def spreads(step: PlannedStep) -> bool:
    """Whether the step may be made in many processes, some shards of a text each."""
    return step.do in BUILT_IN and BUILT_IN[step.do].over is not None
