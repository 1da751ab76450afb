"""What an execution lost because machines were taken away from its steps: training steps that were
done again, seconds of devices, and dollars.

A lost maker worked for some seconds. Of these, the ones between its first step and the checkpoint
that its successor continued from were not lost. All others were: the start, which the successor
repeats, and the time after the checkpoint. The time of a step and of a checkpoint is in the curve,
which a job reports. The last seconds of a killed maker's curve may be missing, so that a few more
steps may have been done again than are counted here."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from engine.config.schema import BatchSizes
from runner.history import run_metrics
from runner.history.progress_left import scratch_of
from runner.lib.format import dollars, duration, many
from runner.schema.job_reports import StepMetrics
from runner.schema.record import Execution, Lost, PlannedStep
from runner.store import artifacts, checkpoint_sync
from runner.store.scratch_paths import CURVE
from runner.store.store import Store


class Maker(NamedTuple):
    """One maker of a step."""

    end: artifacts.End | None
    lines: Sequence[StepMetrics]  # of its own steps, in order
    saved: int  # its newest checkpoint, 0 if there is none


def of_execution(
    store: Store, execution: Execution, stopped: datetime | None = None
) -> tuple[Lost, ...]:
    """What each step of the execution has lost; nothing of those that lost nothing. `stopped`: when
    the lab or a person stopped it; a maker that ended after that was not lost."""
    found = (_of_step(store, execution, name, stopped) for name in execution.plan.steps)
    return tuple(lost for lost in found if lost)


def _of_step(
    store: Store, execution: Execution, name: str, stopped: datetime | None
) -> Lost | None:
    step = execution.plan.steps[name]
    try:
        history = artifacts.history(store, step.store, step.fingerprint)
    except artifacts.BadOutput:
        return None
    mine = [
        (start, None if stopped and end and end.at and end.at >= stopped else end)
        for start, end in history
        if start.by == execution.id
    ]
    ends = [end for _, end in mine if end and end.how == "lost"]
    if not ends:
        return None
    makers = [_maker(store, step, start, end) for start, end in mine]
    repeated, seconds = lost_by(makers)
    on = step.resources
    kind = execution.plan.kinds.get(on.kind)
    price = kind.price_of(on.spot) if kind else None
    return Lost(
        step=name,
        times=len(ends),
        preempted=sum(end.preempted for end in ends),
        steps=repeated,
        seconds=round(seconds, 3),
        price=None if price is None else round(seconds * on.count * price / 3600, 6),
    )


def _maker(
    store: Store, step: PlannedStep, start: artifacts.Start, end: artifacts.End | None
) -> Maker:
    if step.do != "train":
        return Maker(end, (), 0)
    recipe = step.config["train"]
    windows, seq_len = BatchSizes.of(recipe).until, step.config["model"]["seq_len"]
    places = [store.at(f"{x}/{CURVE}") for x in scratch_of(store, start.folder)]
    steps = recipe["num_train_steps"]
    curve = run_metrics.curve(places, steps, lambda n: windows(n) * seq_len)
    saves = (store.at(f"{x}/checkpoints") for x in scratch_of(store, start.folder))
    return Maker(end, curve.lines, max(checkpoint_sync.saved(x, steps) for x in saves))


def lost_by(makers: Sequence[Maker]) -> tuple[int, float]:
    """(training steps that were done again, seconds that were lost) by the lost ones of these
    makers, which are in order. Pure."""
    repeated, seconds = 0, 0.0
    for number, maker in enumerate(makers):
        if maker.end is None or maker.end.how != "lost":
            continue
        next_one = next((x.lines[0].step for x in makers[number + 1 :] if x.lines), None)
        kept = maker.saved if next_one is None else next_one - 1
        last = maker.lines[-1] if maker.lines else None
        took = maker.end.seconds or (last and last.seconds) or 0.0
        if last:
            repeated += max(0, last.step - kept)
        seconds += max(0.0, took - _between(maker.lines, kept))
    return repeated, seconds


def _between(lines: Sequence[StepMetrics], kept: int) -> float:
    """The seconds from the first of these steps to the step `kept`; 0 if that came before."""
    done = [line.seconds for line in lines if line.step <= kept and line.seconds is not None]
    return done[-1] - done[0] if done else 0.0


def told(lost: Sequence[Lost]) -> Iterator[str]:
    """One sentence for each."""
    for one in lost:
        times = "once" if one.times == 1 else f"{one.times} times"
        others = one.times - one.preempted
        how = f", {others} of them without a notice" if others and one.preempted else ""
        words = [f"{duration(one.seconds)} on its devices"]
        words += [dollars(one.price)] if one.price is not None else []
        again = f"{many(one.steps, 'training step')} done again, " if one.steps else ""
        yield f"`{one.step}` lost its machines {times}{how}: {again}{', '.join(words)} lost"
