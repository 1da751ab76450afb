"""Small text files that an execution's last steps wrote: what an experiment in steps is for."""

from collections.abc import Iterator
from dataclasses import dataclass

from runner.history import step_runs
from runner.history.provenance import Account
from runner.store.store import Store

MAX_FILES = 6  # listed per output
MAX_BYTES = 4096  # of a file that is shown
READABLE = (".md", ".txt", ".csv", ".json")


@dataclass(frozen=True)
class Excerpt:
    """A file of a last step's output."""

    step: str
    file: str
    text: str | None  # None: too large, or not text
    why: str = ""  # why it was rejected


def of_last_steps(store: Store, account: Account) -> Iterator[Excerpt]:
    """The files of steps that no other step needs, other than those of scores, which are shown as
    scores."""
    plan = account.execution.plan
    needed = {other for step in plan.steps.values() for other in step.needs}
    for name, files in account.files.items():
        if name in needed or name in {*account.scores, *account.measured}:
            continue
        for file, size in list(files.items())[:MAX_FILES]:
            yield _read(store, account, name, file, size)


def _read(store: Store, account: Account, name: str, file: str, size: int) -> Excerpt:
    if size > MAX_BYTES or not file.endswith(READABLE):
        return Excerpt(name, file, None)
    try:
        data = step_runs.file_of(store, account.execution.plan.steps[name], file) or b""
        return Excerpt(name, file, data.decode().rstrip())
    except step_runs.UNBELIEVED as error:
        return Excerpt(name, file, None, str(error))
