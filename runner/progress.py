"""How far an execution is, and its curves: a pure reading of what its jobs claim.

A run's curve is the union of its attempts' metrics by step; where two attempts report a step,
the later one counts. What contradicts the plan is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from runner.claims import StepMetrics, read_metrics
from runner.lifecycle import Facts
from runner.record import PlannedArm, run_name
from runner.store import Store


@dataclass(frozen=True)
class RunProgress:
    """One run as its job reports it."""

    arm: str
    seed: int
    step: int
    steps: int
    loss: float | None  # nats a token, of the newest step
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


def curve(
    store: Store, folders: Iterable[str], run: str, arm: PlannedArm, refused: list[str]
) -> list[StepMetrics]:
    """The metrics of `run` over the attempts' `folders` (oldest first), by step."""
    by_step: dict[int, StepMetrics] = {}
    a_step = arm.train.train_batch_size * arm.model.seq_len
    for folder in folders:
        for line in read_metrics(store.path(f"work/{folder}/out/metrics") / run, refused):
            if line.step > arm.train.num_train_steps or line.tokens != line.step * a_step:
                refused.append(
                    f"{folder}/out/metrics/{run}: step {line.step} with {line.tokens} tokens "
                    f"does not fit the plan ({arm.train.num_train_steps} steps of {a_step} tokens)"
                )
                continue
            by_step[line.step] = line
    return [by_step[step] for step in sorted(by_step)]


def progress(store: Store, facts: Facts) -> Progress:
    """How far training is, from the metrics that were written so far."""
    folders = [attempt.folder for attempt in facts.of("t")]
    plan = facts.execution.plan
    runs = []
    for arm, seed in plan.runs():
        planned = plan.arms[arm]
        lines = curve(store, folders, run_name(arm, seed), planned, refused=[])
        speeds = [line.tokens_per_second for line in lines if line.tokens_per_second]
        runs.append(
            RunProgress(
                arm=arm,
                seed=seed,
                step=lines[-1].step if lines else 0,
                steps=planned.train.num_train_steps,
                loss=lines[-1].loss if lines else None,
                tokens_per_second=speeds[-1] if speeds else None,
            )
        )
    speeds = [run.tokens_per_second for run in runs if run.tokens_per_second]
    return Progress(
        runs=tuple(runs),
        tokens=sum(run.step * plan.arms[run.arm].tokens // run.steps for run in runs),
        of_tokens=plan.cost.tokens,
        tokens_per_second=speeds[-1] if speeds else None,
    )
