"""The bot's condition in four figures: what is left of the budget of writes, which writes wait,
what was set aside, and when GitHub's lists were last read in full. Computed here only: the loop
keeps the newest for `/healthz`, `/readyz` and the metrics, and `regatta doctor` reads it there.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from bot.controller import catch_up
from bot.controller.write_budget import LIMITS, POOL, Rank
from bot.controller.write_log import lately
from bot.github import GitHub
from bot.inbox import deliveries as inbox_deliveries
from bot.inbox import quarantine
from bot.telemetry import metrics
from runner.lib.base_record import Instant, Record
from runner.store.store import Store

FIGURES = {  # and what to do where one is bad
    "writes": "Nothing is lost, and nobody else waits. To stop a flood, block the account, or set "
    "Interaction limits in the repository's settings on GitHub.",
    "waiting writes": "Nothing is lost: they are written as the budget allows. If it stays so, "
    "`regatta_writes_total` says who causes so many.",
    "skipped": "Everything else there continues. Whoever waits there has to repeat what was "
    "asked. The bot's log has the error beside the delivery; please report it. This line is well "
    "again after seven days.",
    "full look": "What GitHub did not deliver is not seen meanwhile. See that a bot runs and "
    "leads; its log says why a full look is put off.",
}
READ_EVERY = 10.0  # seconds between two readings of the store
ASIDE_FOR = timedelta(days=7)  # for which something that was set aside is shown
MAX_SHOWN = 10  # of these, the newest
LATE = 120  # minutes since the last full look


log = logging.getLogger("regatta.operate")


class Condition(Record):
    """The figures as of a moment."""

    at: Instant
    left: dict[str, int]  # writes of this minute, of this hour, and of the hour's for strangers
    pending: int  # deliveries that nobody has dealt with
    # Writes without room in the budget, by rank; None: only the leader knows.
    deferred: dict[str, int] | None = None
    aside: int = 0  # deliveries, within ASIDE_FOR
    newest_aside: tuple[str, ...] = ()  # thread, reason and delivery of each
    full_look: Instant | None = None

    def sentences(self) -> dict[str, tuple[str, str]]:
        """For each of FIGURES a sentence, and what to do if that is bad; "" if it is not."""
        ranks = ", ".join(f"{n} caused by {rank}" for rank, n in (self.deferred or {}).items())
        waiting = f"{ranks or 'none'} for lack of budget."
        minutes = (self.at - (self.full_look or self.at)) // timedelta(minutes=1)
        look = "none yet; the first comes when a bot leads."
        if self.full_look:
            look = f"the last one at {self.full_look:%Y-%m-%d %H:%M} UTC, {minutes} min ago."
        facts = {
            "writes": (
                f"the lab may write {self.left['minute']} times more within this minute and "
                f"{self.left['hour']} times within this hour, {self.left['strangers']} times "
                f"because of strangers; {self.pending} deliveries wait.",
                self.left["strangers"] <= 0,
            ),
            "waiting writes": (
                "only the bot that leads knows." if self.deferred is None else waiting,
                any(rank != Rank.STRANGER.name.lower() for rank in self.deferred or ()),
            ),
            "skipped": (
                f"{self.aside} within seven days: {'; '.join(self.newest_aside) or 'none'}.",
                self.aside > 0,
            ),
            "full look": (look, minutes > LATE),
        }
        return {name: (text, FIGURES[name] if bad else "") for name, (text, bad) in facts.items()}


def read(
    store: Store, repository: int, now: datetime, deferred: dict[str, int] | None = None
) -> Condition:
    """The condition by the records of the bot's store, and by what only the leader knows."""
    left = {"minute": LIMITS[0][1], "hour": LIMITS[1][1]}
    left["strangers"] = int(left["hour"] * POOL[Rank.STRANGER])
    for at, cause in lately(store, repository, now):
        left["minute"] -= now - at < timedelta(seconds=LIMITS[0][0])
        left["hour"] -= 1
        left["strangers"] -= cause.rank is Rank.STRANGER
    aside = quarantine.since(store, repository, now - ASIDE_FOR)
    return Condition(
        at=now,
        left=left,
        pending=sum(1 for _ in inbox_deliveries.waiting(store, repository)),
        deferred=deferred,
        aside=len(aside),
        newest_aside=aside[:MAX_SHOWN],
        full_look=catch_up.last_at(store, repository),
    )


class ConditionWatch:
    """The newest condition."""

    def __init__(self, store: Store, github: GitHub, monotonic: Callable[[], float]) -> None:
        self._store, self._github, self._monotonic = store, github, monotonic
        self._read_at = float("-inf")
        self.newest: Condition | None = None  # None: not read yet

    def look(self, deferred: dict[str, int] | None) -> None:
        """Read it if it is time. If that fails, the bot works on, and the last one counts."""
        if self._monotonic() - self._read_at < READ_EVERY:
            return
        self._read_at = self._monotonic()
        try:
            now = self.newest = read(self._store, self._github.id, self._github.now(), deferred)
        except Exception:  # such as a store that is away, or a record that cannot be read
            log.exception("the bot's condition cannot be read")
            return
        for part, writes in now.left.items():
            metrics.WRITES_LEFT.labels(part).set(writes)
        metrics.ASIDE.set(now.aside)
        metrics.FULL_LOOK.set(now.full_look.timestamp() if now.full_look else 0)
