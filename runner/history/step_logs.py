"""What the steps of an execution printed, as plain text: without colours, without secrets that are
known here, and without anything that controls a terminal."""

import re

from runner.lib import redact
from runner.lib.untrusted_files import printable
from runner.schema.record import Execution
from runner.store import artifacts
from runner.store.scratch_paths import LOG, SCRATCH
from runner.store.store import Store, StoreError

MAX_READ = 4 << 20  # bytes at a time
MAX_LINE = 4_000  # characters that are shown
# Colours, cursors and titles, as terminals understand them.
CODES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def place(store: Store, execution: Execution, step: str) -> str | None:
    """Where in the store the newest log of a step is, if this execution made the step; None if
    nobody has, or another execution did. Raises BadOutput."""
    planned = execution.plan.steps[step]
    start, _ = artifacts.newest(store, planned.store, planned.fingerprint)
    return f"{start.folder}{SCRATCH}/{LOG}" if start and start.by == execution.id else None


def lines(store: Store, log: str, start: int, *, whole: bool) -> tuple[list[str], int]:
    """The lines of a log from byte `start` on, and the byte after them. Unless it is `whole`, a
    last line without its end is left for the next time."""
    try:
        printed = store.peek(log, MAX_READ, start) or b""
    except StoreError:  # what a job left in its place is no file
        return [], start
    if not whole and not printed.endswith(b"\n"):
        printed = printed[: printed.rfind(b"\n") + 1]
    text = redact.clean(printed.decode("utf-8", "replace"))
    found = text.removesuffix("\n").split("\n") if text else []
    return [plain(line) for line in found], start + len(printed)


def plain(line: str) -> str:
    """A line as it would be read: without codes, and of a progress bar its last state."""
    shown = CODES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return printable(shown.expandtabs()[:MAX_LINE])
