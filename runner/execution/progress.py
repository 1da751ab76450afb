"""How far an execution is, and its curves, as its jobs report.

A run's curve is the union of its attempts' metrics by step; where two attempts report a step,
the later one counts. What contradicts the plan is refused.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass

from pydantic import TypeAdapter

from runner.execution.lifecycle import Facts
from runner.lib import bounds, untrusted_files
from runner.lib.bounds import Figure, Step
from runner.schema.job_reports import StepMetrics, read_metrics
from runner.schema.record import Plan, PlannedArm, PlannedStep, run_name
from runner.store import artifacts
from runner.store.scratch_paths import SCRATCH
from runner.store.store import Store

RECENT = 8  # chunks of an attempt that tell its newest step and speed
LOSSES = "curve/losses.jsonl"  # where a `train` step notes [step, loss] line by line, as it trains
NOTED = TypeAdapter(tuple[Step, Figure | None])
LINE = 4096  # bytes; no line of it is longer
MOST_MISFITS = 20  # lines that contradict the plan; then the rest of an attempt's is not read


@dataclass(frozen=True)
class RunProgress:
    """One run as its job reports it."""

    arm: str
    seed: int
    step: int
    steps: int
    loss: float | None  # nats a token, of the newest step that has one
    tokens_per_second: float | None

    @property
    def name(self) -> str:
        """The run's name within its execution."""
        return run_name(self.arm, self.seed)


@dataclass(frozen=True)
class Progress:
    """All runs of an execution."""

    runs: tuple[RunProgress, ...]
    tokens: int
    of_tokens: int
    tokens_per_second: float | None

    @property
    def fraction(self) -> float:
        """Of the tokens to train, 0 to 1."""
        return self.tokens / self.of_tokens if self.of_tokens else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Of training at the present speed; None before a speed is known."""
        if not self.tokens_per_second:
            return None
        return (self.of_tokens - self.tokens) / self.tokens_per_second


@dataclass(frozen=True)
class Curve:
    """A run's metrics by step, and what of them was refused and why."""

    lines: tuple[StepMetrics, ...]
    refused: tuple[str, ...]


def curve(
    store: Store,
    folders: Iterable[str],
    run: str,
    arm: PlannedArm,
    newest: int | None = None,
) -> Curve:
    """The curve of `run` over the attempts' `folders`, oldest first.

    With `newest`, only that many of each attempt's last chunks are read.
    """
    by_step: dict[int, StepMetrics] = {}
    refused: list[str] = []
    for folder in folders:
        metrics, misfits = store.at(f"work/{folder}/out/metrics") / run, 0
        for line in read_metrics(metrics, arm.train.num_train_steps, refused, newest):
            if misfits == MOST_MISFITS:
                refused.append(f"{folder}/out/metrics/{run}: the rest was not read")
                break
            if line.step > arm.train.num_train_steps or (
                line.tokens != line.step * arm.tokens_per_step
            ):
                misfits += 1
                refused.append(
                    f"{folder}/out/metrics/{run}: step {line.step} with {line.tokens} tokens does "
                    f"not fit the plan ({arm.train.num_train_steps} steps of "
                    f"{arm.tokens_per_step} tokens)"
                )
                continue
            by_step[line.step] = line
    return Curve(tuple(by_step[step] for step in sorted(by_step)), tuple(refused))


def progress(store: Store, facts: Facts) -> Progress:
    """How far training is, from the newest metrics of each run."""
    folders = [attempt.folder for attempt in facts.of("t")]
    plan = facts.execution.plan
    runs = []
    for arm, seed in plan.runs():
        lines = curve(store, folders, run_name(arm, seed), plan.arms[arm], newest=RECENT).lines
        losses = [line.loss for line in lines if line.loss is not None]
        speeds = [line.tokens_per_second for line in lines if line.tokens_per_second]
        runs.append(
            RunProgress(
                arm=arm,
                seed=seed,
                step=lines[-1].step if lines else 0,
                steps=plan.arms[arm].train.num_train_steps,
                loss=losses[-1] if losses else None,
                tokens_per_second=speeds[-1] if speeds else None,
            )
        )
    speeds = [run.tokens_per_second for run in runs if run.tokens_per_second]
    return Progress(
        runs=tuple(runs),
        tokens=sum(run.step * plan.arms[run.arm].tokens_per_step for run in runs),
        of_tokens=plan.cost.tokens,
        tokens_per_second=speeds[-1] if speeds else None,
    )


def of_steps(store: Store, plan: Plan, ended: Set[str]) -> Progress:
    """How far the steps are that train on this machine, by what they have noted. Those that have
    `ended` count whole."""
    runs = []
    for (arm, seed), name in plan.trained().items():
        step, last = plan.steps[name], plan.arms[arm].train.num_train_steps
        at, loss = (last, None) if name in ended else (0, None)
        if name not in ended and ended >= set(step.needs):
            at, loss = _noted(store, step)
        runs.append(
            RunProgress(
                arm=arm,
                seed=seed,
                step=min(at, last),
                steps=last,
                loss=loss,
                tokens_per_second=None,
            )
        )
    return Progress(
        runs=tuple(runs),
        tokens=sum(run.step * plan.arms[run.arm].tokens_per_step for run in runs),
        of_tokens=sum(plan.arms[run.arm].tokens for run in runs),
        tokens_per_second=None,
    )


def _noted(store: Store, step: PlannedStep) -> tuple[int, float | None]:
    """The newest step and loss that whoever makes `step` now has noted; 0 if there is none yet."""
    try:
        start, end = artifacts.newest(store, step.store, step.fingerprint)
        if start is None or end:
            return 0, None
        path = store.local(f"{start.folder}{SCRATCH}") / LOSSES
        whole = untrusted_files.ending(path, LINE).rpartition(b"\n")[0]
        return bounds.parse(NOTED, whole.rpartition(b"\n")[2])
    except (artifacts.BadOutput, untrusted_files.Refused, ValueError):
        return 0, None
