"""Which steps of a graph are made by one task. Points of a sweep are given to a task a few at a
time, where they are many: whoever needs one needs them all, and while one is computed the task
brings the others to disk."""

from collections.abc import Iterator, Mapping

from runner.schema import step_graph
from runner.schema.devices import Kind
from runner.schema.record import PlannedStep
from runner.spec.step_types import BUILT_IN

MOST_TOGETHER = 16  # steps of a task
SHARES = 16  # tasks of a sweep for each place, so that no place ends much later than the others


def together(
    steps: Mapping[str, PlannedStep], kinds: Mapping[str, Kind], cores: float
) -> Iterator[tuple[str, ...]]:
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
        kind, most = kinds[first.resources.kind], 1
        if first.do != "train" and not kind.ray_gpus and not spreads(first):
            places = max(1, cores // (kind.ray_cpus * first.resources.count))
            most = max(1, min(MOST_TOGETHER, int(len(points[name]) // (places * SHARES))))
        for start in range(0, len(points[name]), most):
            yield tuple(points[name][start : start + most])


def _declared(node: str) -> str:
    """The step of which a node is a point."""
    return node.partition("/")[0]


def spreads(step: PlannedStep) -> bool:
    """Whether the step may be made in many processes, some shards of a text each."""
    return step.do in BUILT_IN and BUILT_IN[step.do].over is not None
