"""The metrics that jobs report about a run, step by step, during and after training. They are
claims: lines of another form, or that contradict the plan, are refused."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import harmonic_mean

from engine.config.schema import BatchSizes
from runner.history.progress_left import scratch_of
from runner.lib.untrusted_files import short
from runner.schema.job_reports import StepMetrics, read_metrics
from runner.schema.record import PlannedStep
from runner.store import artifacts
from runner.store.scratch_paths import CURVE, STOPPED
from runner.store.store import Remote, Store

RECENT = 8  # chunks that are enough for a run's newest step and speed
MAX_MISFITS = 20  # lines that contradict the plan; after these, the rest of a folder is not read


@dataclass(frozen=True)
class Curve:
    """A run's metrics by step, and what was refused and why."""

    lines: tuple[StepMetrics, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """The newest step; 0 before the first."""
        return self.lines[-1].step if self.lines else 0

    @property
    def losses(self) -> list[tuple[int, float]]:
        """(step, training loss in nats per token) of each step that has one."""
        return [(line.step, line.loss) for line in self.lines if line.loss is not None]

    @property
    def tokens_per_second(self) -> float | None:
        """The newest speed; None before there is one."""
        speeds = (line.tokens_per_second for line in reversed(self.lines))
        return next(filter(None, speeds), None)

    @property
    def mean_tokens_per_second(self) -> float | None:
        """The speed over all steps that have one: of so many tokens, in all their time."""
        speeds = [line.tokens_per_second for line in self.lines if line.tokens_per_second]
        return harmonic_mean(speeds) if speeds else None


def curve(
    folders: Iterable[Path | Remote],
    steps: int,
    tokens_until: Callable[[int], int],
    newest: int | None = None,
) -> Curve:
    """The curve of a run of so many `steps` from `folders` with chunks, the oldest first: if two
    contain a step, the later one counts. `tokens_until` says the tokens of its first so many steps.
    With `newest`, reads only that many of each folder's last chunks."""
    by_step: dict[int, StepMetrics] = {}
    refused: list[str] = []
    for folder in folders:
        misfits = 0
        for line in read_metrics(folder, steps, refused, newest):
            if misfits == MAX_MISFITS:
                refused.append(f"{short(folder.as_posix())}: the rest was not read")
                break
            if line.step > steps or line.tokens != tokens_until(line.step):
                misfits += 1
                refused.append(
                    f"{short(folder.as_posix())}: step {line.step} with {line.tokens} tokens does "
                    f"not fit the plan ({steps} steps, {tokens_until(steps)} tokens)"
                )
                continue
            by_step[line.step] = line
    return Curve(tuple(by_step[step] for step in sorted(by_step)), tuple(refused))


def of_step(store: Store, step: PlannedStep, newest: int | None = None) -> Curve:
    """The curve of a `train` step over all of its makers, also running, failed and lost ones."""
    recipe, model = step.config["train"], step.config["model"]
    windows, seq_len = BatchSizes.of(recipe).until, model["seq_len"]
    steps = recipe["num_train_steps"]
    return curve(_places(store, step), steps, lambda step: windows(step) * seq_len, newest)


def _places(store: Store, step: PlannedStep) -> Iterable[Path | Remote]:
    with suppress(artifacts.BadOutput):
        for start, _ in artifacts.history(store, step.store, step.fingerprint):
            for scratch in sorted(scratch_of(store, start.folder)):
                yield from (store.at(f"{scratch}/{name}") for name in (STOPPED, CURVE))
