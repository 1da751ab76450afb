"""Named points at which a test may end this process: before and after every effect.

Code with an effect on the outside world (a record, a request to GitHub, a job) wraps it in
`around(name)`. That does nothing unless a test has installed a hook or the environment names a
point: `REGATTA_FAULT=github.create_comment.after:2` ends the process, without any clean-up, the
second time it reaches that point.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_hook: Callable[[str], None] | None = None
_counts: Counter[str] = Counter()


class Ended(BaseException):
    """Simulates the end of the process in tests that run the bot in their own process.

    A BaseException, so that no `except Exception` catches it.
    """


@contextmanager
def around(name: str) -> Iterator[None]:
    """Mark the effect in the `with` body as `name`: reaches `name.before` and `name.after`."""
    _reach(f"{name}.before")
    yield
    _reach(f"{name}.after")


@contextmanager
def hooked(hook: Callable[[str], None]) -> Iterator[None]:
    """While in the `with` body, call `hook(point)` at every point; it may raise `Ended`."""
    global _hook
    previous, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = previous


def _reach(point: str) -> None:
    if _hook is not None:
        _hook(point)
    chosen = os.environ.get("REGATTA_FAULT")
    if chosen:
        name, _, count = chosen.rpartition(":")
        _counts[point] += 1
        if point == name and _counts[point] == int(count):
            os._exit(137)
