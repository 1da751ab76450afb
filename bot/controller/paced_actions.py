"""Does actions within the budget of writes: each write has its cause, and those without room wait.
What waits is shown in metrics and in the log, and is due again at the next look."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from bot.controller.causes import Causes
from bot.controller.effects import Actor
from bot.controller.write_budget import LAB, PICTURE_WRITES, Pace, PutOff, Rank, importance
from bot.controller.write_log import WriteLog, lately
from bot.github import GitHub, Later, RefusedForNow
from bot.model.actions import Action, Check, Drive, Picture, React, Say, Show, Write
from bot.model.keys import Key
from bot.model.thread import Thread, ThreadId
from bot.telemetry import metrics
from runner.store.store import Store

MAX_AT_ONCE = 10  # actions of one thread before others have their turn
TELL_EVERY = 60.0  # seconds between two lines of the log about what waits

log = logging.getLogger("regatta.reconcile")


class PacedActions:
    """Recent writes, what waits, and who does what may be done."""

    def __init__(
        self,
        store: Store,
        github: GitHub,
        actor: Actor,
        pace: Pace,
        causes: Causes,
        *,
        is_outranked: Callable[[], bool],
        monotonic: Callable[[], float],
        draw_site: Callable[[], None],
    ) -> None:
        """`is_outranked` says whether this turn has to end; `draw_site` draws the pages of what was
        `added`."""
        self.actor, self._pace, self._causes = actor, pace, causes
        self._store, self._github = store, github
        self._is_outranked, self._monotonic = is_outranked, monotonic
        self._draw_site = draw_site
        self._log = WriteLog(store, github.id)
        self._put_off = PutOff()
        self._told_at = float("-inf")
        self.added = False  # whether a record was added
        self.deferred: dict[str, int] = {}  # writes that wait for room, by rank
        github.on_write, github.gives_way = self._wrote, is_outranked

    def load(self) -> None:
        """Count what was written lately, by whichever process."""
        now = self._github.now()
        self._pace.forget()
        for at, cause in lately(self._store, self._github.id, now):
            self._pace.wrote(self._monotonic() - (now - at).total_seconds(), cause)

    def retry(self) -> None:
        """GitHub answers again: nothing that it refused waits any longer."""
        self._put_off = PutOff()
        self.actor.retry()

    def postponed(self, id: ThreadId) -> dict[Key, float]:
        """The keys of a thread that GitHub refused for now: seconds to wait."""
        return self._put_off.left(id, self._monotonic())

    def waits(self, id: ThreadId) -> list[float]:
        """Seconds until each write of a thread that has no room should ask again."""
        return self._pace.waits_of(id, self._monotonic())

    def is_late(self, id: ThreadId) -> bool:
        """Whether something that people caused on a thread has no room yet."""
        waiting = self._pace.waiting(self._monotonic()).values()
        return any(one.cause.thread == id.number for one in waiting)

    def do(
        self, thread: Thread, actions: Sequence[Action], postponed: dict[Key, float]
    ) -> tuple[int, bool]:
        """Do some of the actions. Returns how many, and whether the turn has to end; those that
        have to wait are `postponed`."""
        done = 0
        for action in actions:
            done += self._act(thread, action, postponed)
            # Also asking who somebody is takes time.
            if done >= MAX_AT_ONCE or self._is_outranked():
                return done, True
        return done, False

    def _act(self, thread: Thread, action: Action, postponed: dict[Key, float]) -> bool:
        """Do an action. False: it has to wait, see `postponed`."""
        level, key, cause = importance(thread, action), getattr(action, "key", None), LAB
        if level is not None and not isinstance(action, Write | Drive):
            writes = PICTURE_WRITES if isinstance(action, Picture) else 1
            cause, wait = self._causes.wait(thread, action, level, writes)
            if wait and isinstance(action, React) and action.optional:
                self.actor.leave_out(thread, action)
                self._pace.give_up((thread.id, action.key))
                return True
            if wait:
                postponed[action.key] = wait
                return False
        text = action.body if isinstance(action, Say | Show) else ""
        if self.added and thread.site and f"{thread.site.url}/executions/" in text:
            self._draw_site()  # no link leads to a page that is not there yet
        try:
            with self._pace.caused(cause):
                self.actor.act(thread, action)
        except Later as error:
            # The actor finishes open claims.
            if key and not isinstance(action, Say | Check):
                postponed[key] = self._put_off.put(thread.id, key, error.wait, self._monotonic())
            if isinstance(error, RefusedForNow) or isinstance(action, Picture):
                level = logging.WARNING if error.wait else logging.INFO
                log.log(level, "%s has to wait, and nothing else for it: %s", key, error)
                return False
            raise
        if key:
            self._put_off.forget(thread.id, key)
        _tell(action)
        self.added = self.added or isinstance(action, Write | Drive)
        return True

    def _wrote(self, now: float) -> None:
        """Count a write to GitHub."""
        cause = self._pace.cause
        self._pace.wrote(now)
        self._log.add(self._github.now(), cause)
        metrics.WRITES.labels(cause.rank.name.lower()).inc()

    def tell_what_waits(self) -> None:
        """Show what waits for room; in the log once a minute."""
        ranks = (one.cause.rank for one in self._pace.waiting(self._monotonic()).values())
        self.deferred = waiting = Counter(rank.name.lower() for rank in ranks)
        for rank in Rank:
            metrics.DEFERRED.labels(rank.name.lower()).set(waiting[rank.name.lower()])
        if waiting and self._monotonic() - self._told_at >= TELL_EVERY:
            self._told_at = self._monotonic()
            each = ", ".join(f"{n} caused by {rank}" for rank, n in sorted(waiting.items()))
            log.warning("the budget of writes to GitHub makes these writes wait: %s", each)


def _tell(action: Action) -> None:
    """Log and count an action, without its text, which may be a stranger's."""
    kind = type(action).__name__.lower()
    metrics.EFFECTS.labels(kind).inc()
    match action:
        case Drive(execution=execution, action=step):
            log.info("%s %s of %s", kind, type(step).__name__.lower(), execution)
        case Write(path=path):
            log.info("%s %s", kind, path)
        case _:
            log.info("%s %s", kind, action.key)
