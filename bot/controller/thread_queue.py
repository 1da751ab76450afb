"""Whose turn it is: the threads that are due, and their order.

Threads with commands of people who may approve go first, then those with executions, then all
others; within each the one that has been due for longest. Every fourth turn is the oldest thread's,
so that nothing starves.
"""

import threading
from collections.abc import Callable
from datetime import timedelta

from bot.model.thread import ThreadId

OLDEST_EVERY = 4  # turns


class ThreadQueue:
    """The threads that are due now or later."""

    def __init__(
        self, monotonic: Callable[[], float], comes_first: Callable[[ThreadId], bool]
    ) -> None:
        """`comes_first`: whether a thread's deliveries have commands of people who may approve."""
        self._monotonic, self._comes_first = monotonic, comes_first
        self.changed = threading.Condition()
        self._due: dict[ThreadId, float] = {}
        self._fresh: set[ThreadId] = set()  # with deliveries that nobody looked at
        self._first: set[ThreadId] = set()
        self._live: set[ThreadId] = set()  # with executions, or about one
        self._is_first = False  # the present turn
        self._turns = 0

    def put(self, id: ThreadId, after: timedelta | None = None, *, live: bool = False) -> None:
        """Look at a thread: later, or now, because something may have happened to it."""
        with self.changed:
            at = self._monotonic() + (after or timedelta(0)).total_seconds()
            self._due[id] = min(at, self._due.get(id, at))
            if not after:
                self._fresh.add(id)
            if live:
                self._live.add(id)
            self.changed.notify()

    def put_all(self) -> None:
        """Look at all of them now."""
        for id in list(self._due):
            self.put(id)

    def take(self) -> ThreadId | None:
        """The thread whose turn it is; None if none is due."""
        self._look_through()
        self._is_first = False
        self._turns += 1
        with self.changed:
            now = self._monotonic()
            due = [id for id, at in self._due.items() if at <= now]
            by_age = self._turns % OLDEST_EVERY == 0
            id = min(due, key=lambda id: (by_age or self._place(id), self._due[id]), default=None)
            if id is not None:
                del self._due[id]
            return id

    def begin(self, id: ThreadId, *, live: bool, first: bool) -> None:
        """A thread's turn begins, for commands of people who may approve (`first`) or not; it has
        executions that are `live`, or not."""
        self._is_first = first
        self._first.discard(id)
        (self._live.add if live else self._live.discard)(id)

    def is_outranked(self) -> bool:
        """Whether this turn has to end, because another one comes first, perhaps of its thread."""
        self._look_through()
        now = self._monotonic()
        with self.changed:
            waits = any(self._due.get(id, now + 1) <= now for id in self._first)
        return waits and not self._is_first

    def waits(self) -> list[float]:
        """Seconds until each thread is due."""
        with self.changed:
            return [at - self._monotonic() for at in self._due.values()]

    def _place(self, id: ThreadId) -> int:
        return 0 if id in self._first else 1 if id in self._live else 2

    def _look_through(self) -> None:
        """Find those that come first among the threads with new deliveries."""
        with self.changed:
            fresh, self._fresh = self._fresh, set()
        self._first.update(id for id in fresh if self._comes_first(id))
