"""What ends the process, or fails, at each look is set aside, so that the others go on.

Before a thread is looked at, the deliveries of that look are written down; after it, whatever came
of it, that is removed. What is left there ended the process. From then on the deliveries of that
thread are looked at one by one, and one that has ended it three times by itself, at the same point,
is set aside: it counts as dealt with, the operator reads of it in the log and in `records/aside/`,
and a comment tells the thread. Where the thread's records grew in between, or a look at it came to
its end, the process ended for a reason of its own.

A look that only raises leaves no file: it is counted in memory, and after many of them the
thread's deliveries are looked at one by one as well.

    tries/<repository>/<thread>/<n>.json            a look that is going on, or ended the process
    aside/<repository>/<thread>/<delivery>.json     what was set aside
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bot.github import Later
from bot.inbox import deliveries as inbox_deliveries
from bot.inbox.deliveries import Unheard
from bot.inbox.payloads import Delivery
from bot.model.thread import ThreadId
from runner.execution.ray_jobs import RayError
from runner.lib.base_record import Instant, Record
from runner.lib.canonical_json import to_json
from runner.schema import record
from runner.schema.record import Approval
from runner.store.store import Store, StoreError

MAX_ENDS = 3
MAX_FAILURES = 10  # over more than half an hour, before a thread's deliveries are suspected
MAX_ALONE = 3  # of them: looks at one delivery by itself, before that one is set aside
NOT_THEIRS = (Later, RayError, StoreError, OSError)  # what no delivery is to blame for

log = logging.getLogger("regatta.aside")


class Aside(Record):
    """A delivery that was not dealt with."""

    at: Instant
    why: str
    said: Delivery | None


class SetAside(Exception):
    """The delivery that the look failed at was set aside: the next one comes further."""


class Quarantine:
    """The looks that are going on, those that ended a process, and those that failed in this one;
    `now` is GitHub's time."""

    def __init__(self, store: Store, now: Callable[[], Instant]) -> None:
        self._store, self._now = store, now
        self._failures: Counter[ThreadId] = Counter()  # since a look came to its end
        self._alone: Counter[tuple[ThreadId, str]] = Counter()  # of them: at this delivery alone

    def spared(self, id: ThreadId, deliveries: Sequence[Unheard]) -> Sequence[Unheard]:
        """Those that have not ended the process by themselves too often. The others are set
        aside."""
        left = [tried for tried in self._left(id).values() if len(tried) == 2]
        if len(left) < MAX_ENDS:
            return deliveries
        here = str(self._grown(id))  # none of these looks came further
        tries = Counter(name for grown, name in left if grown == here)
        ends = [one for one in deliveries if tries[one.name] >= MAX_ENDS]
        for one in ends:
            put(self._store, id, one, self._now(), f"it ended the process {MAX_ENDS} times")
        return [one for one in deliveries if one not in ends]

    def turn(self, id: ThreadId, deliveries: Sequence[Unheard]) -> Sequence[Unheard]:
        """Which of the deliveries to look at: all, or one where some of them ended the process, or
        failed too often."""
        names = {one.name for one in deliveries}
        suspected = self._failures[id] >= MAX_FAILURES
        for path, tried in self._left(id).items():
            if names.isdisjoint(tried[1:]):
                self._store.remove(path)
            else:
                suspected = True
        return deliveries[:1] if suspected else deliveries

    @contextmanager
    def around(self, id: ThreadId, deliveries: Sequence[Unheard]) -> Iterator[None]:
        """Look at these deliveries in the `with` body. They are written down meanwhile, so that the
        end of the process shows; an exception is no end. Raises SetAside where it fails for the
        last time at the only one."""
        path, tried = None, list[str]()
        if deliveries:  # else nobody need count what the thread has, which reads much of the store
            tried = [str(self._grown(id)), *(one.name for one in deliveries)]
            taken = [int(name) for name in record.names(self._store, _folder(id)) if name.isdigit()]
            path = f"records/{_folder(id)}/{max(taken, default=0) + 1}.json"
            self._store.create(path, to_json(tried), lasting=False)
        try:
            yield
        except Exception as error:
            gives_up = not isinstance(error, NOT_THEIRS) and self._gives_up(id, deliveries)
            self._over(id, path, tried)
            if gives_up:
                raise SetAside from error
            raise
        self._over(id, path, tried)
        if self._failures[id] < MAX_FAILURES or not inbox_deliveries.unhandled(self._store, id):
            del self._failures[id]

    def _gives_up(self, id: ThreadId, deliveries: Sequence[Unheard]) -> bool:
        """Count a failure, and set the delivery aside that was looked at by itself, if that has
        failed often enough: the thread must not stand still for ever, and who is innocent must not
        pay."""
        self._failures[id] += 1
        if len(deliveries) != 1:
            return False
        (one,) = deliveries
        self._alone[id, one.name] += 1
        if self._failures[id] < MAX_FAILURES or self._alone[id, one.name] < MAX_ALONE:
            return False
        why = f"it could not be looked at {self._alone.pop((id, one.name))} times"
        put(self._store, id, one, self._now(), why)
        return True

    def _over(self, id: ThreadId, path: str | None, tried: list[str]) -> None:
        """A look came to its end: this one, and with it others of the same delivery."""
        for other, names in self._left(id).items() if len(tried) == 2 else ():
            if names[1:] == tried[1:]:
                self._store.remove(other)
        if path:
            self._store.remove(path)

    def _grown(self, id: ThreadId) -> int:
        """How many records the thread has; what is done about it shows here."""
        folders = [f"{kind}/{id}" for kind in ("said", "plans", "approvals", "answers")]
        for name in record.names(self._store, f"approvals/{id}"):
            approval = record.require(self._store, f"approvals/{id}/{name}", Approval)
            folders.append(f"executions/{approval.execution}")
        return sum(len(record.names(self._store, folder)) for folder in folders)

    def _left(self, id: ThreadId) -> dict[str, list[str]]:
        """{path: how far the thread was, names of the deliveries} of looks that ended a process."""
        names = record.names(self._store, _folder(id))
        paths = [f"records/{_folder(id)}/{name}.json" for name in names]
        return {path: _names(self._store.peek(path)) for path in paths}


def put(store: Store, id: ThreadId, one: Unheard, at: Instant, why: str) -> None:
    """Set a delivery aside."""
    log.error("delivery %s of thread %s is set aside: %s", one.name, id.number, why)
    record.write(store, f"aside/{id}/{one.name}", Aside(at=at, why=why, said=one.said))
    inbox_deliveries.handle(store, id, one)


def names(store: Store, id: ThreadId) -> tuple[str, ...]:
    """The deliveries of a thread that were set aside."""
    return tuple(record.names(store, f"aside/{id}"))


def _folder(id: ThreadId) -> str:
    return f"tries/{id}"


def _names(data: bytes | None) -> list[str]:
    """The names in a file that a dying machine may have left unfinished."""
    try:
        found = json.loads(data or b"[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []
