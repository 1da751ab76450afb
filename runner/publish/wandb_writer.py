"""The child that writes runs for W&B: `python -m runner.publish.wandb_writer <store> <execution>
<run> …`.

`runner.publish.wandb_upload` starts it when an execution is over. It writes each run as an offline
run below WANDB_DIR, from the lab's own figures, without a key and without network. It is a child so
that W&B's threads, hooks and errors stay out of the lab.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import wandb

from runner.history import run_metrics
from runner.publish.wandb_upload import PROJECT, run_id
from runner.schema import record
from runner.schema.job_reports import StepMetrics
from runner.store.store import Store

# Not eval/bpb: W&B shows the last value of a curve as the run's score.
VALIDATION = "validation/bpb"


def main(root: Path, execution: str, names: Sequence[str]) -> None:
    """Write the runs `names` of a finished execution."""
    store = Store(root)
    plan = record.require(store, f"executions/{execution}/execution", record.Execution).plan
    trained = plan.trained()
    for name in names:
        run = record.require(store, f"runs/{execution}.{name}", record.Run)
        step = plan.steps.get(trained.get((run.arm, run.seed), ""))
        lines = run_metrics.of_step(store, step).lines if step else ()
        noted = [(line.step, _figures(line)) for line in lines]
        points = dict(noted or ((step, {"loss": loss}) for step, loss in run.curve))
        for at, bpb, _ in run.validation:
            points[at] = {**points.get(at, {}), VALIDATION: bpb}
        _write(plan, run, sorted(points.items(), key=lambda point: point[0]))


def _figures(line: StepMetrics) -> dict[str, Any]:
    return line.model_dump(exclude={"step"}, exclude_none=True)


def _write(
    plan: record.Plan, run: record.Run, points: Iterable[tuple[int, dict[str, Any]]]
) -> None:
    name, planned = record.run_name(run.arm, run.seed), plan.arms[run.arm]
    logged = wandb.init(
        id=run_id(run.execution, name),
        project=PROJECT,
        group=run.execution,
        name=name,
        config={
            "experiment": plan.experiment,
            "arm": run.arm,
            "seed": run.seed,
            "model": planned.model.model_dump(mode="json"),
            "train": planned.train.model_dump(mode="json"),
            "data": plan.data.model_dump(mode="json") if plan.data else None,
        },
        settings=wandb.Settings(
            mode="offline",
            host=PROJECT,  # not this machine's name
            console="off",
            silent=True,
            symlink=False,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        ),
    )
    for step, figures in points:
        logged.log(figures, step=step)
    for metric, score in run.measured.items():  # the lab's own scores of the trained model
        logged.summary.update({metric: score.value})
        if score.standard_error is not None:
            logged.summary.update({f"{metric}.standard_error": score.standard_error})
    logged.finish(exit_code=0 if run.state == "finished" else 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
