"""The options by which a command names the store, how they open it, and the execution in it that
somebody names."""

from pathlib import Path
from typing import Annotated

import typer

from runner.schema import record
from runner.store.backends import ELSEWHERE
from runner.store.store import NoStore, Store, StoreError

MOST_NAMED = 5  # executions whose ids begin as the one that was given

TheStore = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="REGATTA_STORE",
        help="Where records and work lie: a folder, or gs://bucket/prefix.",
    ),
]
TheExecution = Annotated[str, typer.Argument(help="Its id, or its beginning.")]
TheJobs = Annotated[
    str | None,
    typer.Option(
        "--jobs",
        envvar="REGATTA_JOBS",
        help="Another place for all that jobs read and write, so that they need no right to the "
        "store.",
    ),
]


class NoExecution(StoreError):
    """No execution is meant by an id, or more than one."""


def found(place: str, jobs: str | None) -> Store | None:
    """The store, if there is one. A folder that is there is one. Raises StoreError, also for what
    is there and is no folder."""
    try:
        return Store(place, jobs=jobs, make=Path(place).is_dir())
    except NoStore:
        return None


def opened(place: str, jobs: str | None) -> Store:
    """The store, which has to be there. Raises StoreError."""
    if store := found(place, jobs):
        return store
    raise NoStore(f"there is no store at {place}; {ELSEWHERE}.")


def execution(store: Store, id: str) -> record.Execution:
    """The execution with this id, or the only one whose id begins so. Raises StoreError."""
    known = record.names(store, "executions")
    meant = [one for one in known if id and one.startswith(id)]
    if len(meant) > 1 and id not in meant:
        more = f" and {len(meant) - MOST_NAMED} more" if len(meant) > MOST_NAMED else ""
        listed = ", ".join(meant[:MOST_NAMED])
        raise NoExecution(f"{id} begins the ids of {listed}{more}; write more of the one you mean.")
    if not meant:
        raise NoExecution(f"{store.root} knows no execution {id}; `regatta show` lists them.")
    name = id if id in meant else meant[0]
    return record.require(store, f"executions/{name}/execution", record.Execution)
