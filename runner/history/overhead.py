"""How long executions take besides training: the start of Ray and of the job, and for each step its
process, compilation and scoring. Learned from earlier executions of the same store."""

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from runner.history import provenance
from runner.schema import record
from runner.schema.record import Ending, Execution, Plan, Run
from runner.store.store import Store

# Seconds for each step that is made, before a store has an execution: on two quiet cores the 6
# steps of `experiments/wide-or-deep` took 49 s with the start of Ray; 4 s of it were training.
PER_STEP = 7.5
MAX_EXECUTIONS = 10  # the newest, from which it is learned
MAX_STEPS = 200  # of one of them


class Overhead(NamedTuple):
    """What a step that is made takes besides training."""

    per_step: float = PER_STEP  # seconds
    learned_from: int = 0  # executions; 0: it is the measured one


def learned(store: Store | None) -> Overhead:
    """What the newest executions of a store took."""
    if store is None:
        return Overhead()
    known = sorted(provenance.executions(store), key=lambda one: one.at, reverse=True)
    return over(store, known)


def over(store: Store, newest: Iterable[Execution]) -> Overhead:
    """The median over the first of these that are done and whose training time is known."""
    found: list[float] = []
    for execution in newest:
        if len(found) == MAX_EXECUTIONS:
            break
        if (seconds := _per_step(store, execution)) is not None:
            found.append(seconds)
    return Overhead(median(found), len(found)) if found else Overhead()


def _per_step(store: Store, execution: Execution) -> float | None:
    result = record.read(store, f"executions/{execution.id}/result", Ending)
    if not result or result.state != "done" or not result.seconds:
        return None
    if len(execution.plan.steps) > MAX_STEPS:
        return None
    ends = provenance.step_ends(store, execution)
    made = {name for name, end in ends.items() if end.state == "made" and end.by == execution.id}
    trained = _training_seconds(store, execution.plan, execution.id, made)
    if not made or trained is None:
        return None
    return max(0.0, result.seconds - trained) / len(made)


def _training_seconds(store: Store, plan: Plan, execution: str, made: set[str]) -> float | None:
    """How long the steps that were made have trained, one after the other; None where one of them
    did not measure its speed."""
    seconds = 0.0
    for run, name in plan.trained().items():
        if name in made:
            found = record.read(store, f"runs/{execution}.{record.run_name(*run)}", Run)
            if not found or not found.tokens_per_second:
                return None
            seconds += found.tokens / found.tokens_per_second
    return seconds
