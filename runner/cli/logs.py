"""`logs`: what the steps of an execution printed."""

import time
from typing import Annotated

import typer

from runner.cli import options
from runner.cli.ending import remark, stop, stopping
from runner.cli.options import TheExecution, TheJobs, TheStore
from runner.history import provenance, step_logs
from runner.lib.problems import near
from runner.publish.step_summary import ordered
from runner.schema import record
from runner.schema.record import Execution
from runner.store import artifacts
from runner.store.store import Store

POLL = 0.5  # seconds between two looks

TheStep = Annotated[
    str | None,
    typer.Argument(
        metavar="STEP",
        help="A step, or one point of its sweep, such as train/fast,seed=0; all if left out.",
    ),
]


def command(
    execution: TheExecution,
    step: TheStep = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Continue until the execution ends.")
    ] = False,
    store: TheStore = "store",
    jobs: TheJobs = None,
) -> None:
    """Print what the steps of an execution printed.

    What an execution took from the cache printed nothing in it.
    """
    opened = options.opened(store, jobs)
    meant = options.execution(opened, execution)
    names = _steps(meant, step)
    read: dict[str, tuple[str, int]] = {}  # {step: its log, and the bytes that were printed}
    while True:
        over = record.read(opened, f"executions/{meant.id}/result", record.Ending) is not None
        for name in names:
            _print(opened, meant, name, read, named=len(names) > 1, whole=over or not follow)
        if over or not follow:
            break
        time.sleep(POLL)
    if not read:
        cached = provenance.step_ends(opened, meant, names)
        by = sorted({end.by for end in cached.values() if end.by and end.by != meant.id})
        there = f"; `regatta logs {by[0]}` has what made them" if by else " yet"
        remark(f"{meant.id} printed nothing{there}", "dim")


def _steps(execution: Execution, step: str | None) -> list[str]:
    """The steps that are meant, in the order in which they run."""
    names = list(ordered(execution.plan.steps))
    if not step:
        return names
    meant = [name for name in names if name == step or name.partition("/")[0] == step]
    return meant or stop(f"{execution.id} has no step `{step}`{near(step, names)}")


def _print(
    store: Store,
    execution: Execution,
    step: str,
    read: dict[str, tuple[str, int]],
    *,
    named: bool,
    whole: bool,
) -> None:
    """Print what is new in the log of a step, each line after its name if it is `named`."""
    with stopping(artifacts.BadOutput):
        log = step_logs.place(store, execution, step)
    before, start = read.get(step, (log, 0))
    if log is None:
        return
    start = start if log == before else 0  # another maker goes on
    while True:
        lines, end = step_logs.lines(store, log, start, whole=whole)
        for line in lines:
            print(f"{step} | {line}" if named else line, flush=True)
        if end == start:
            break
        start, read[step] = end, (log, end)
