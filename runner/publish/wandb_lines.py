"""What W&B is told about runs: lines of JSON, from the lab's own figures. The lab writes them to a
file, and a child (`runner.publish.wandb_writer`) reads it. So the child needs no store, and works
for any store.

    {"open": run, "group": …, "name": …, "config": {…}}
    {"log": run, "step": n, "figures": {…}}
    {"summary": run, "figures": {…}}
    {"close": run, "code": 0}
    {"end": true}
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from runner.history import run_metrics
from runner.schema import record
from runner.schema.job_reports import StepMetrics
from runner.store.store import Store

# Not eval/bpb: W&B shows the last value of a curve as the run's score.
VALIDATION = "validation/bpb"
END = {"end": True}

Line = dict[str, Any]


def run_id(execution: str, run: str) -> str:
    """A run's id at W&B."""
    return f"{execution}.{run}"


def opening(plan: record.Plan, execution: str, arm: str, seed: int) -> Line:
    """That a run exists, with its settings."""
    name, planned = record.run_name(arm, seed), plan.arms[arm]
    config = {
        "experiment": plan.experiment,
        "arm": arm,
        "seed": seed,
        "model": planned.model.model_dump(mode="json"),
        "train": planned.train.model_dump(mode="json"),
        "data": plan.data.model_dump(mode="json") if plan.data else None,
    }
    return {"open": run_id(execution, name), "group": execution, "name": name, "config": config}


def logged(run: str, lines: Iterable[StepMetrics]) -> Iterator[Line]:
    """The figures of some steps of a run."""
    for line in lines:
        yield {"log": run, "step": line.step, "figures": figures_of(line)}


def whole(store: Store, plan: record.Plan, run: record.Run) -> Iterator[Line]:
    """All about a run that has ended: every figure, validation curve, scores."""
    yield opening(plan, run.execution, run.arm, run.seed)
    id = run_id(run.execution, record.run_name(run.arm, run.seed))
    step = plan.steps.get(plan.trained().get((run.arm, run.seed), ""))
    lines = run_metrics.of_step(store, step).lines if step else ()
    noted = [(line.step, figures_of(line)) for line in lines]
    points = dict(noted or ((at, {"loss": loss}) for at, loss in run.curve))
    for at, bpb, _ in run.validation:
        points[at] = {**points.get(at, {}), VALIDATION: bpb}
    for at, figures in sorted(points.items(), key=lambda point: point[0]):
        yield {"log": id, "step": at, "figures": figures}
    scores = {metric: score.value for metric, score in run.measured.items()}
    errors = {
        f"{metric}.standard_error": score.standard_error
        for metric, score in run.measured.items()
        if score.standard_error is not None
    }
    yield {"summary": id, "figures": {**scores, **errors}}
    yield closing(id, ended_well=run.state == "finished")


def closing(run: str, *, ended_well: bool = True) -> Line:
    """That nothing more follows for a run."""
    return {"close": run, "code": 0 if ended_well else 1}


def figures_of(line: StepMetrics) -> dict[str, Any]:
    """The figures of a step."""
    return line.model_dump(exclude={"step"}, exclude_none=True)


def text(lines: Iterable[Line]) -> str:
    """As they are in the file."""
    return "".join(f"{json.dumps(line)}\n" for line in lines)
