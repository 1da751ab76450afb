"""The records of an execution as a small store, to keep beside its declaration in a repository."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from runner.analysis import speedrun_rows
from runner.analysis.speedrun_ranking import Row
from runner.lib.paths import LAB
from runner.schema import record
from runner.schema.record import Execution, Result
from runner.store.store import Store, StoreError

# What to do where a name is taken.
OTHER_FOLDER = ", and no record is ever changed; keep the records in another folder"
RUN_AGAIN = (
    ", and the site would show only one of the two under this name; run the experiment again, from "
    "another pull request if it came from one, and keep that execution"
)


def copy(store: Store, execution: str, to: Path, beside: Collection[Path] = ()) -> int:
    """Copy the records of an execution to a store in another folder: its events, runs and replays,
    and where it comes from a pull request its preregistration, plans and approvals. Outputs stay.
    Returns how many files that other store now has of it.

    Raises StoreError if there is no such execution, or if the other store, or one of those
    `beside` it, has one of these files with other bytes. Then it copies nothing.
    """
    return _copy(store, _of_execution(store, execution), to, beside)


def copy_search(store: Store, search: str, to: Path, beside: Collection[Path] = ()) -> int:
    """Copy the records of a search, and those of its executions, likewise."""
    end = record.require(store, f"searches/{search}/end", record.SearchEnd)
    trials = record.numbered(store, f"searches/{search}", record.SearchTrial)
    named = record.executions_of(trials, end)
    files = [file for name in named for file in _of_execution(store, name)]
    files += [file.name for file in store.walk(f"records/searches/{search}")]
    return _copy(store, files, to, beside)


def places(experiments: Path) -> list[Path]:
    """The folders with kept records in a folder of experiments."""
    return sorted(path.parent for path in experiments.glob("*/records/store.json"))


def entries(experiments: Path = LAB / "experiments") -> tuple[Row, ...]:
    """The rows of speedruns in the records that a folder of experiments keeps (`*/records`); of a
    checkout of the lab's code by default. They have no page: the site of a store has only that
    store's executions."""
    found = []
    for place in places(experiments):
        store = Store(place, make=False)
        for name in record.names(store, "executions"):
            execution = record.read(store, f"executions/{name}/execution", Execution)
            if execution is None or execution.plan.speedrun is None:
                continue
            if result := record.read(store, f"executions/{name}/result", Result):
                found.append((execution, result, ()))
    return tuple(replace(row, page="") for row in speedrun_rows.together(found))


def _of_execution(store: Store, execution: str) -> list[str]:
    found = record.require(store, f"executions/{execution}/execution", record.Execution)
    files = [file.name for folder in _folders(found) for file in store.walk(f"records/{folder}")]
    return files + [
        f"records/runs/{execution}.{record.run_name(*run)}.json" for run in found.plan.runs()
    ]


def _copy(store: Store, names: Iterable[str], to: Path, beside: Collection[Path]) -> int:
    """Look in all stores first, so that a refusal leaves nothing behind."""
    found = {name: data for name in names if (data := store.peek(name)) is not None}
    together = {place.resolve() for place in beside}  # the site shows these as one store
    for place in (to, *beside):
        if not (place / "store.json").exists():
            continue
        there = Store(place, make=False)
        for name, data in found.items():
            if there.peek(name) not in (None, data):
                advice = RUN_AGAIN if place.resolve() in together else OTHER_FOLDER
                raise StoreError(f"{place}/{name} is there with other bytes{advice}.")
    kept = Store(to)
    for name, data in found.items():
        if not kept.create(name, data) and kept.peek(name) != data:
            raise StoreError(f"{to}/{name} is there with other bytes{OTHER_FOLDER}.")
    return len(found)


def _folders(execution: record.Execution) -> Iterator[str]:
    yield f"executions/{execution.id}"
    yield f"replays/{execution.id}"
    if origin := execution.origin:
        yield f"plans/{origin.repository}/{origin.pull}"
        yield f"approvals/{origin.repository}/{origin.pull}"
        if execution.plan.preregistration:
            yield f"preregistrations/{origin.repository}/{execution.plan.preregistration}"
