"""One budget of writes for all threads: the most important first, without starvation. Pure: the
clock is an argument.

GitHub takes 80 writes a minute and 500 an hour and rate-limits clients that write more. So each
write asks here first. Less important writes leave a share of the budget to more important ones; a
waiting write grows in importance, and among equals the one that waits longest is first. A write
that has to wait is told when to ask again, and the bot does something else until then.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta

from bot.model.actions import Action, Check, Drive, Label, Picture, React, Say, Show, Write
from bot.model.keys import Key
from bot.model.thread import Thread

LIMITS = ((60.0, 80), (3600.0, 500))  # (seconds, maximum writes in any such span)
SHARES = (0.5, 0.8, 1.0)  # of a limit, up to which a write of each importance may use it
FIGURES, STATE, ANSWER = range(3)  # levels of importance
GROWS_AFTER = 300.0  # seconds of waiting that raise the importance by one
SHORTEST = 0.05  # minimum wait in seconds
FORGOTTEN_AFTER = 60.0  # seconds after its time; then a write that did not ask again is forgotten
LONGEST_RETRY = timedelta(minutes=5)
PICTURE_WRITES = 4  # a blob, a tree, a commit, a reference


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
        self._written: deque[float] = deque()
        self._waiting: dict[Hashable, _Waiting] = {}

    def wrote(self, now: float) -> None:
        """Count a write."""
        self._written.append(now)
        longest = max(span for span, _ in self._limits)
        while self._written[0] <= now - longest:
            self._written.popleft()

    def wait(self, what: Hashable, importance: int, now: float, writes: int = 1) -> float:
        """Seconds until `what` should ask again; 0.0: it may write now, and is expected to."""
        # A writer that does not ask again no longer wants to write.
        soon = now - FORGOTTEN_AFTER
        self._waiting = {x: one for x, one in self._waiting.items() if one.expected >= soon}
        mine = self._waiting.setdefault(what, _Waiting(importance, writes, since=now))
        mine.importance = importance
        level = mine.grown(now)
        ahead = sum(
            other.writes
            for name, other in self._waiting.items()
            if name != what and (-other.grown(now), other.since) < (-level, mine.since)
        )
        wait = max(
            self._wait_in(span, max(1, int(most * SHARES[level])), ahead + writes, now)
            for span, most in self._limits
        )
        if wait <= 0:
            del self._waiting[what]
            return 0.0
        if level < ANSWER:
            grows = GROWS_AFTER - (now - mine.since) % GROWS_AFTER
            wait = max(SHORTEST, min(wait, grows))
        mine.expected = now + wait
        return wait

    def _wait_in(self, span: float, most: int, wanted: int, now: float) -> float:
        """Seconds until at most `most` writes are in a span, with the next `wanted` ones
        included."""
        used = [at for at in self._written if at > now - span]
        over = len(used) + wanted - most
        if over <= 0 or not used:
            return 0.0
        return max(SHORTEST, used[min(over, len(used)) - 1] + span - now)
