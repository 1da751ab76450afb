"""Quarantine: deliveries that crash or fail each look are set aside, so that the others continue.

Before a look at a thread, the names of its deliveries are written to a file, which is removed after
the look, whatever the result. A file that is left means a crash. From then on the thread's
deliveries are looked at one by one, and one that has crashed five times alone, at the same point,
is set aside: it counts as handled, the operator sees it in the log and in `records/aside/`, and a
comment tells the thread. If the thread's records grew in between, or a look at it was completed,
the crash had another reason.

A look that only raises leaves no file: it is counted in memory, and after it the thread's
deliveries are looked at one by one as well.

    tries/<repository>/<thread>/<n>.json            a current look, or one that crashed
    aside/<repository>/<thread>/<delivery>.json     what was set aside
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

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

MAX_ENDS = 5  # fewer can befall an innocent delivery where the process is killed often
MAX_FAILURES = 10  # over more than half an hour, before a thread's deliveries are suspected
MAX_ALONE = 3  # of these: looks at one delivery alone, before that one is set aside
NOT_THEIRS = (Later, RayError, StoreError, OSError)  # errors that are no delivery's fault

log = logging.getLogger("regatta.aside")


class Aside(Record):
    """A delivery that was set aside."""

    at: Instant
    why: str
    said: Delivery | None


class SetAside(Exception):
    """The delivery that made the look fail was set aside: the next look gets further."""


class Quarantine:
    """Current looks, looks that crashed, and looks that failed in this process; `now` is GitHub's
    time."""

    def __init__(self, store: Store, now: Callable[[], Instant]) -> None:
        self._store, self._now = store, now
        self._failures: Counter[ThreadId] = Counter()  # since the last complete look
        self._alone: Counter[tuple[ThreadId, str]] = Counter()  # of these: at this delivery alone

    def spared(self, id: ThreadId, deliveries: Sequence[Unheard]) -> Sequence[Unheard]:
        """The deliveries that have not crashed alone too often. The others are set aside."""
        left = [tried for tried in self._left(id).values() if len(tried) == 2]
        if len(left) < MAX_ENDS:
            return deliveries
        here = str(self._grown(id))  # none of these looks got further
        tries = Counter(name for grown, name in left if grown == here)
        ends = [one for one in deliveries if tries[one.name] >= MAX_ENDS]
        for one in ends:
            put(self._store, id, one, self._now(), f"it ended the process {MAX_ENDS} times")
        return [one for one in deliveries if one not in ends]

    def turn(self, id: ThreadId, deliveries: Sequence[Unheard]) -> Sequence[Unheard]:
        """The deliveries to look at: all, or one if some of them crashed or failed: first of those
        that failed least, so that nothing waits behind one that always fails."""
        names = {one.name for one in deliveries}
        suspected = self._failures[id] > 0
        for path, tried in self._left(id).items():
            if names.isdisjoint(tried[1:]):
                self._store.remove(path)
            else:
                suspected = True
        one_by_one = sorted(deliveries, key=lambda one: self._alone[id, one.name])
        return one_by_one[:1] if suspected else deliveries

    @contextmanager
    def around(self, id: ThreadId, deliveries: Sequence[Unheard]) -> Iterator[None]:
        """Record these deliveries during the `with` body, so that a crash leaves a trace; an
        exception is no crash. Raises SetAside if it failed for the last time at a single
        delivery."""
        path, tried = None, list[str]()
        if deliveries:  # otherwise no count is needed, which reads much of the store
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
        if self._failures[id] and not inbox_deliveries.unhandled(self._store, id):
            del self._failures[id]

    def _gives_up(self, id: ThreadId, deliveries: Sequence[Unheard]) -> bool:
        """Count a failure, and set aside a delivery that has failed alone often enough: the thread
        must not be blocked forever, and other deliveries must not suffer."""
        self._failures[id] += 1
        if len(deliveries) != 1:
            return False
        (one,) = deliveries
        self._alone[id, one.name] += 1
        if self._failures[id] < MAX_FAILURES or self._alone[id, one.name] < MAX_ALONE:
            return False
        why = f"it could not be handled {self._alone.pop((id, one.name))} times"
        put(self._store, id, one, self._now(), why)
        return True

    def _over(self, id: ThreadId, path: str | None, tried: list[str]) -> None:
        """A look was completed: remove its file, and those of earlier looks at the same
        delivery."""
        for other, names in self._left(id).items() if len(tried) == 2 else ():
            if names[1:] == tried[1:]:
                self._store.remove(other)
        if path:
            self._store.remove(path)

    def _grown(self, id: ThreadId) -> int:
        """How many records the thread has, as a measure of progress."""
        folders = [f"{kind}/{id}" for kind in ("said", "plans", "approvals", "answers")]
        for name in record.names(self._store, f"approvals/{id}"):
            approval = record.require(self._store, f"approvals/{id}/{name}", Approval)
            folders.append(f"executions/{approval.execution}")
        return sum(len(record.names(self._store, folder)) for folder in folders)

    def _left(self, id: ThreadId) -> dict[str, list[str]]:
        """{path: progress of the thread, names of the deliveries} of looks that crashed."""
        names = record.names(self._store, _folder(id))
        paths = [f"records/{_folder(id)}/{name}.json" for name in names]
        return {path: _names(self._store.peek(path)) for path in paths}


def put(store: Store, id: ThreadId, one: Unheard, at: Instant, why: str) -> None:
    """Set a delivery aside."""
    log.error("delivery %s of thread %s is skipped: %s", one.name, id.number, why)
    record.write(store, f"aside/{id}/{one.name}", Aside(at=at, why=why, said=one.said))
    inbox_deliveries.handle(store, id, one)


def names(store: Store, id: ThreadId) -> tuple[str, ...]:
    """The deliveries of a thread that were set aside."""
    return tuple(record.names(store, f"aside/{id}"))


def since(store: Store, repository: int, at: datetime) -> tuple[str, ...]:
    """The deliveries that were set aside since then, newest first: thread, reason and name."""
    found = list[tuple[datetime, str]]()
    for number in filter(str.isdigit, record.names(store, f"aside/{repository}")):
        for name in names(store, ThreadId(repository, int(number))):
            one = record.require(store, f"aside/{repository}/{number}/{name}", Aside)
            found.append((one.at, f"#{number}, {one.why} (delivery {name})"))
    return tuple(text for when, text in sorted(found, reverse=True) if when > at)


def _folder(id: ThreadId) -> str:
    return f"tries/{id}"


def _names(data: bytes | None) -> list[str]:
    """The names in a file that a crash may have truncated."""
    try:
        found = json.loads(data or b"[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []
