"""One budget of writes for all threads: a share for each person and thread, the most important
first, without starvation. Pure: the clock is an argument.

GitHub takes 80 writes a minute and 500 an hour and rate-limits clients that write more. So each
write asks here first. Writes that strangers cause have a part of each limit, however many strangers
there are: accounts are free. One person and one thread have a part of that. What is left is for the
lab's own results and for people who may approve. Within its part, less important writes leave room
for more important ones; a waiting write grows in importance, and among equals goes first who wrote
least, then who waits longest. A write that has to wait is told when to ask again, and the bot does
something else until then.

Requests are counted in a second budget of the same form: a look at a thread reads, too.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import NamedTuple

from bot.model.actions import Action, Check, Drive, Label, Picture, React, Say, Show, Write
from bot.model.keys import Key
from bot.model.thread import Thread

LIMITS = ((60.0, 80), (3600.0, 500))  # (seconds, maximum writes in any such span)
REQUESTS = ((60.0, 600), (3600.0, 4000))  # the same for requests; an installation has 5,000
SHARES = (0.5, 0.8, 1.0)  # of a limit, up to which a write of each importance may use it
FIGURES, STATE, ANSWER = range(3)  # levels of importance
GROWS_AFTER = 300.0  # seconds of waiting that raise the importance by one
SHORTEST = 0.05  # minimum wait in seconds
FORGOTTEN_AFTER = 60.0  # seconds after its time; then a write that did not ask again is forgotten
LONGEST_RETRY = timedelta(minutes=5)
PICTURE_WRITES = 4  # a blob, a tree, a commit, a reference


class Rank(IntEnum):
    """Who causes a write."""

    LAB = 0  # an approved execution: its status, results, verdicts
    APPROVER = 1  # people who may approve or stop
    MEMBER = 2  # people with another role, agents; seals of anybody
    STRANGER = 3


# Parts of a limit, by rank. A rank and all ranks below it never write more than its part.
POOL = (1.0, 0.85, 0.6, 0.35)
PERSON = (1.0, 0.3, 0.1, 0.05)  # of one person, of the hour's limit
BURST = 2  # times that of a shorter limit: commands come several at a time
THREAD = (1.0, 1.0, 0.3, 0.15)  # of this rank and those below it, on one thread


class Cause(NamedTuple):
    """Because of whom something is written."""

    rank: Rank
    by: int = 0  # id of the account; 0: nobody's, or unknown
    thread: int = 0  # its number


LAB = Cause(Rank.LAB)


def importance(thread: Thread, action: Action) -> int | None:
    """How soon an action should become visible; None: it writes nothing to GitHub."""
    match action:
        case Write() | Drive():
            return None
        case React() | Say():
            return ANSWER
        case Check() | Label() | Picture():
            return STATE
        case Show(of=of, state=state):
            shown = thread.shown.get(of)
            changed = action.final if shown is None else shown.state != state
            return STATE if changed and state != "folded" else FIGURES


@dataclass
class _Waiting:
    importance: int
    writes: int
    since: float
    cause: Cause
    expected: float = 0.0  # when it was told to ask again

    def grown(self, now: float) -> int:
        """Its importance by now."""
        return min(self.importance + int((now - self.since) // GROWS_AFTER), ANSWER)


class PutOff:
    """Writes that GitHub refused for now. They wait, each time longer, and do not block the rest of
    their thread. `bot.controller.effects` retries open claims; they are not here."""

    def __init__(self) -> None:
        self._until: dict[tuple[Hashable, Key], tuple[float, float]] = {}  # (when, seconds)

    def put(self, of: Hashable, key: Key, wait: timedelta, now: float) -> float:
        """Postpone `key` of a thread for at least `wait`. Returns the seconds."""
        if not wait:  # another thread comes first
            return 0.0
        _, before = self._until.get((of, key), (0.0, 0.0))
        seconds = max(wait.total_seconds(), min(2 * before, LONGEST_RETRY.total_seconds()))
        self._until[of, key] = (now + seconds, seconds)
        return seconds

    def left(self, of: Hashable, now: float) -> dict[Key, float]:
        """The postponed keys of a thread: remaining seconds."""
        return {
            key: until - now
            for (thread, key), (until, _) in self._until.items()
            if thread == of and until > now
        }

    def forget(self, of: Hashable, key: Key) -> None:
        """The write is done."""
        self._until.pop((of, key), None)


class Pace:
    """Recent writes, and who waits to write."""

    def __init__(self, limits: tuple[tuple[float, int], ...] = LIMITS) -> None:
        self._limits = limits
        self._written: deque[tuple[float, Cause, int]] = deque()
        self._waiting: dict[tuple[Hashable, Hashable], _Waiting] = {}
        self.cause = LAB  # of what is written now

    @contextmanager
    def caused(self, cause: Cause) -> Iterator[None]:
        """Count what is written during the `with` body as caused so."""
        self.cause = cause
        try:
            yield
        finally:
            self.cause = LAB

    def wrote(self, now: float, cause: Cause | None = None, writes: int = 1) -> None:
        """Count a write; those of a restart come in the order of their times."""
        self._written.append((now, cause or self.cause, writes))
        longest = max(span for span, _ in self._limits)
        while self._written[0][0] <= now - longest:
            self._written.popleft()

    def forget(self) -> None:
        """Forget all writes, to count them anew."""
        self._written.clear()

    def give_up(self, what: tuple[Hashable, Hashable]) -> None:
        """It will not be written."""
        self._waiting.pop(what, None)

    def waiting(self, now: float) -> dict[tuple[Hashable, Hashable], _Waiting]:
        """What waits. A writer that did not ask again no longer wants to write."""
        late = now - FORGOTTEN_AFTER
        self._waiting = {x: one for x, one in self._waiting.items() if one.expected >= late}
        return self._waiting

    def waits_of(self, thread: Hashable, now: float) -> list[float]:
        """Seconds until each write of a thread that waits should ask again."""
        waits = ((of, one.expected - now) for (of, _), one in self.waiting(now).items())
        return [max(1.0, wait) for of, wait in waits if of == thread]

    def wait(
        self,
        what: tuple[Hashable, Hashable],
        importance: int,
        now: float,
        writes: int = 1,
        cause: Cause = LAB,
    ) -> float:
        """Seconds until `what` should ask again; 0.0: it may write now, and is expected to."""
        mine = self.waiting(now).setdefault(what, _Waiting(importance, writes, now, cause))
        mine.importance, mine.cause = importance, cause
        level = mine.grown(now)
        wrote = Counter[int]()
        for _, earlier, count in self._written:
            wrote[earlier.by] += count if earlier.by else 0

        def order(waiting: _Waiting) -> tuple[int, int, int, float]:
            by = wrote[waiting.cause.by]
            return waiting.cause.rank, -waiting.grown(now), by, waiting.since

        # Who was told to come later does not compete: it may lack room of its own.
        ahead = [
            other
            for name, other in self._waiting.items()
            if name != what and other.expected <= now and order(other) < order(mine)
        ]
        wait = max(
            self._wait_in(span, max(1, int(most * share)), writes, ahead, alike, now)
            for span, most in self._limits
            for share, alike in _parts(cause, level, span)
        )
        if wait <= 0:
            del self._waiting[what]
            return 0.0
        if level < ANSWER:
            grows = GROWS_AFTER - (now - mine.since) % GROWS_AFTER
            wait = max(SHORTEST, min(wait, grows))
        mine.expected = now + wait
        return wait

    def _wait_in(
        self,
        span: float,
        most: int,
        writes: int,
        ahead: list[_Waiting],
        alike: Callable[[Cause], bool],
        now: float,
    ) -> float:
        """Seconds until at most `most` of the writes that are `alike` are in a span, with the next
        ones included."""
        used = [
            at
            for at, cause, count in self._written
            if at > now - span and alike(cause)
            for _ in range(count)
        ]
        wanted = writes + sum(other.writes for other in ahead if alike(other.cause))
        over = len(used) + wanted - most
        if over <= 0 or not used:
            return 0.0
        return max(SHORTEST, used[min(over, len(used)) - 1] + span - now)


def _parts(
    cause: Cause, level: int, span: float
) -> Iterator[tuple[float, Callable[[Cause], bool]]]:
    """What a write has to fit into: (part of a limit, which writes count)."""
    rank, by, thread = cause
    yield SHARES[level], lambda _: True
    yield POOL[rank] * SHARES[level], lambda other: other.rank >= rank
    if by:
        burst = BURST if span < max(LIMITS)[0] else 1
        yield min(1.0, PERSON[rank] * burst), lambda other: other.by == by
    if THREAD[rank] < 1:
        yield THREAD[rank], lambda other: other.rank >= rank and other.thread == thread
