"""The options by which a command names the store, and how they open it."""

from pathlib import Path
from typing import Annotated

import typer

from runner.store import NoStore, Store

TheStore = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="REGATTA_STORE",
        help="Where records and work lie: a folder, or gs://bucket/prefix.",
    ),
]
TheJobs = Annotated[
    str | None,
    typer.Option(
        "--jobs",
        envvar="REGATTA_JOBS",
        help="Another place for all that jobs read and write, so that they need no right to the "
        "store.",
    ),
]


def found(place: str, jobs: str | None) -> Store | None:
    """The store, if there is one. A folder that is there is one. Raises StoreError, also for what
    is there and is no folder."""
    try:
        return Store(place, jobs=jobs, make=Path(place).is_dir())
    except NoStore:
        return None
