"""The records of an execution as a small store, to keep beside its declaration in a repository."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from runner.analysis import speedrun_rows
from runner.analysis.speedrun_ranking import Row
from runner.lib.paths import LAB
from runner.schema import record
from runner.schema.record import Execution, Result
from runner.store.store import Store, StoreError


def copy(store: Store, execution: str, to: Store) -> int:
    """Copy the records of an execution to another store: its events, runs and replays, and where it
    comes from a pull request its preregistration, plans and approvals. Outputs stay. Returns how
    many files that other store now has of it.

    Raises StoreError if there is no such execution, or the other store has one of these files with
    other bytes.
    """
    found = record.require(store, f"executions/{execution}/execution", record.Execution)
    files = [file.name for folder in _folders(found) for file in store.walk(f"records/{folder}")]
    files += (f"records/runs/{execution}.{record.run_name(*run)}.json" for run in found.plan.runs())
    copied = 0
    for name in files:
        data = store.peek(name)
        if data is None:  # a run that has not ended
            continue
        if not to.create(name, data) and to.peek(name) != data:
            raise StoreError(
                f"{to.root}/{name} is there with other bytes, and no record is ever changed; keep "
                "the records in another folder."
            )
        copied += 1
    return copied


def entries(experiments: Path = LAB / "experiments") -> tuple[Row, ...]:
    """The rows of speedruns in the records that a folder of experiments keeps (`*/records`); of a
    checkout of the lab's code by default. They have no page: the site of a store has only that
    store's executions."""
    found = []
    for place in sorted(experiments.glob("*/records/store.json")):
        store = Store(place.parent, make=False)
        for name in record.names(store, "executions"):
            execution = record.read(store, f"executions/{name}/execution", Execution)
            if execution is None or execution.plan.speedrun is None:
                continue
            if result := record.read(store, f"executions/{name}/result", Result):
                found.append((execution, result, ()))
    return tuple(replace(row, page="") for row in speedrun_rows.together(found))


def copy_search(store: Store, search: str, to: Store) -> int:
    """Copy the records of a search, and those of its executions, likewise."""
    end = record.require(store, f"searches/{search}/end", record.SearchEnd)
    trials = record.numbered(store, f"searches/{search}", record.SearchTrial)
    named = [trial.execution for trial in trials if trial.execution]
    named += end.compared.executions if end.compared else ()
    copied = sum(copy(store, name, to) for name in dict.fromkeys(named))
    for file in store.walk(f"records/searches/{search}"):
        data = store.require(file.name)
        if not to.create(file.name, data) and to.peek(file.name) != data:
            raise StoreError(f"{to.root}/{file.name} is there with other bytes.")
        copied += 1
    return copied


def _folders(execution: record.Execution) -> Iterator[str]:
    yield f"executions/{execution.id}"
    yield f"replays/{execution.id}"
    if origin := execution.origin:
        yield f"plans/{origin.repository}/{origin.pull}"
        yield f"approvals/{origin.repository}/{origin.pull}"
        if execution.plan.preregistration:
            yield f"preregistrations/{origin.repository}/{execution.plan.preregistration}"
