"""How far an attempt got that was lost."""

from collections.abc import Mapping

from runner.execution.lifecycle import Attempt, Facts
from runner.history.progress_left import of_runs, of_steps
from runner.schema.record import StepEnd
from runner.store.store import Store


def saved(
    store: Store, facts: Facts, attempt: Attempt, ended: Mapping[str, StepEnd]
) -> dict[str, int]:
    """What the attempt after a lost one goes on from: of each run, and of each step that has not
    `ended`, how far it is. An evaluation begins anew. Raises StoreError."""
    if attempt.name.startswith("e"):
        return {}
    if facts.execution.plan.steps:
        return of_steps(store, facts.execution, ended)
    return of_runs(store, facts.execution.plan, [one.folder for one in facts.of("t")])
