"""How far an execution is, as its jobs report."""

from collections.abc import Collection
from dataclasses import dataclass

from runner.execution.lifecycle import Facts
from runner.history import run_metrics
from runner.history.run_metrics import RECENT, Curve
from runner.schema.record import Plan, run_name
from runner.store.store import Store


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


def progress(store: Store, facts: Facts, ended: Collection[str] = ()) -> Progress:
    """How far training is, from the newest metrics of each run. What steps that have `ended` train
    counts whole, and no other is looked at whose inputs are not there."""
    plan = facts.execution.plan
    runs = []
    for (arm, seed), name in plan.trained().items():
        last, found = plan.arms[arm].train.num_train_steps, Curve()
        if name not in ended and set(ended) >= set(plan.steps[name].needs):
            found = run_metrics.of_step(store, plan.steps[name], newest=RECENT)
        runs.append(
            RunProgress(
                arm=arm,
                seed=seed,
                step=last if name in ended else found.step,
                steps=last,
                loss=found.losses[-1][1] if found.losses else None,
                tokens_per_second=found.tokens_per_second,
            )
        )
    return _together(plan, runs)


def _together(plan: Plan, runs: list[RunProgress]) -> Progress:
    known = [run for run in runs if run.tokens_per_second]
    going = [run for run in known if run.step < run.steps] or known[-1:]
    return Progress(
        runs=tuple(runs),
        tokens=sum(run.step * plan.arms[run.arm].tokens_per_step for run in runs),
        of_tokens=sum(plan.arms[run.arm].tokens for run in runs),
        tokens_per_second=sum(run.tokens_per_second or 0 for run in going) or None,
    )
