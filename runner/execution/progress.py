"""The progress of an execution, as its jobs report it."""

from collections.abc import Collection, Sequence
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
    loss: float | None  # nats per token, of the newest step that has one
    tokens_per_second: float | None
    ended: bool = False  # finished or failed: nothing remains to be done

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
        """The finished fraction of the tokens to train, 0 to 1."""
        return self.tokens / self.of_tokens if self.of_tokens else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The remaining seconds of training at the present speed; None before there is one."""
        if not self.tokens_per_second:
            return None
        return (self.of_tokens - self.tokens) / self.tokens_per_second


def progress(
    store: Store, facts: Facts, ended: Collection[str] = (), failed: Collection[str] = ()
) -> Progress:
    """The progress of training, from the newest metrics of each run, given the steps that have
    `ended`, and those that have `failed`. Skips runs whose inputs are missing and, with declared
    steps, finished ones, because there may be very many."""
    plan = facts.execution.plan
    runs = []
    in_turn = sorted(plan.trained().items(), key=lambda of: plan.steps[of[1]].turn)
    for (arm, seed), name in in_turn:
        made, found = name in ended and name not in failed, Curve()
        if set(ended) >= set(plan.steps[name].needs) and (plan.data or not made):
            found = run_metrics.of_step(store, plan.steps[name], newest=RECENT)
        last = plan.arms[arm].train.num_train_steps
        runs.append(
            RunProgress(
                arm=arm,
                seed=seed,
                step=last if made else found.step,
                steps=last,
                loss=found.losses[-1][1] if found.losses else None,
                tokens_per_second=found.tokens_per_second,
                ended=name in ended,
            )
        )
    return together(plan, runs)


def together(plan: Plan, runs: Sequence[RunProgress]) -> Progress:
    """The progress of all runs of a plan."""
    known = [run for run in runs if run.tokens_per_second]
    going = [run for run in known if not run.ended] or [*known[-1:]]
    return Progress(
        runs=tuple(runs),
        tokens=sum(plan.arms[run.arm].tokens_until(run.step) for run in runs),
        of_tokens=sum(
            plan.arms[run.arm].tokens_until(run.step if run.ended else run.steps) for run in runs
        ),
        tokens_per_second=sum(run.tokens_per_second or 0 for run in going) or None,
    )
