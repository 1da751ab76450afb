"""A finished execution → the runs of a `speedrun_results.json`. Pure.

The public schema has one field for quality, named after the text of its leaderboard. It gets the
lab's figure, and the description says which text it is on.
"""

from runner.analysis import speedrun_checks, speedrun_file, speedrun_rows
from runner.analysis.speedrun_file import RunInfo
from runner.lib.format import natural
from runner.schema.record import EnteredRun, Execution, Result


class NoResults(ValueError):
    """There is nothing to write; the message says why, and what to do."""


def runs(execution: Execution, result: Result | None) -> tuple[list[RunInfo], list[str]]:
    """The runs by arm and seed, and for each missing one why. Raises NoResults."""
    if execution.plan.speedrun is None:
        raise NoResults(
            f"{execution.id} enters no speedrun: write "
            "`speedrun: {track: …, author: {name: …}}` into its experiment, and run it"
        )
    if result is None:
        raise NoResults(f"{execution.id} has not ended; wait for its result")
    found, left = [], []
    for run in sorted(result.entered, key=lambda run: (natural(run.arm), run.seed)):
        if why := _lacking(run):
            left.append(f"{run.arm}, seed {run.seed}: {why}")
        else:
            found.append(_run(execution, result, run))
    if not found:
        raise NoResults(f"{execution.id} has no run that can be written: {'; '.join(left)}")
    return found, left


def _lacking(run: EnteredRun) -> str:
    if run.evaluated is None:
        return run.why or "it has no figure"
    if failed := speedrun_checks.of_run(run):
        return str(failed)
    wanted = {
        "parameters": run.parameters,
        "model FLOPs": run.model_flops,
        "time": run.seconds,
        "hardware FLOPs": run.hardware_flops,
    }
    unknown = [name for name, value in wanted.items() if not value]
    return f"not known: {', '.join(unknown)}" if unknown else ""


def _run(execution: Execution, result: Result, run: EnteredRun) -> RunInfo:
    plan = execution.plan
    assert plan.speedrun
    assert run.evaluated
    assert run.model_flops
    arm, author = plan.arms.get(run.arm), plan.speedrun.author
    scored, source = speedrun_rows.on(plan), plan.data.source if plan.data else ""
    text = f"SHA-256 {scored.validation_sha256}" if scored else "not known"
    return RunInfo.model_validate(
        {
            "author": author.model_dump(),
            "description": (
                f"{plan.title}: {run.arm}, seed {run.seed}. Its bits per byte are of the "
                f"validation text {text}, not of Paloma's c4_en; execution {execution.id}."
            ),
            "device_flops": plan.kinds[run.resources.kind].peak_flops,
            "eval/paloma/c4_en/bpb": run.evaluated.bpb,
            "model_config": arm.model.model_dump(mode="json") if arm else {},
            "train_config": arm.train.model_dump(mode="json") if arm else {},
            "model_flops": run.model_flops,
            "model_flops_per_token": run.model_flops / 3 / run.tokens,
            "model_size": run.parameters,
            "num_chips": run.resources.count,
            "num_devices": run.resources.count,
            "resources": run.resources.model_dump(mode="json"),
            "run_completion_timestamp": result.at.strftime(speedrun_file.TIMESTAMP),
            "tokenized_dataset": source or plan.experiment,
            "total_tokens": run.tokens,
            "training_hardware_flops": run.hardware_flops,
            "training_time": run.seconds,
            "wandb_run_link": None,
        }
    )
