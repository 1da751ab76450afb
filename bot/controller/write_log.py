"""The writes to GitHub of the last hour, as files, so that neither a restart nor another leader nor
the next job of Actions begins with a fresh budget.

    writes/<repository>/<milliseconds>-<rank>-<account>-<thread>-<nonce>.json
"""

import logging
import re
import secrets
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from bot.controller.write_budget import LIMITS, Cause, Rank
from runner.store.store import Store, StoreError

LASTS = timedelta(seconds=max(span for span, _ in LIMITS))
NAME = re.compile(r"(\d+)-([0-3])-(\d+)-(\d+)-[0-9a-f]+\.json")

log = logging.getLogger("regatta.budget")


def lately(store: Store, repository: int, now: datetime) -> list[tuple[datetime, Cause]]:
    """When and because of whom the lab wrote within the last hour, oldest first."""
    found = [(at, cause) for _, at, cause in _kept(store, repository) if at > now - LASTS]
    return sorted(found)


def _kept(store: Store, repository: int) -> Iterator[tuple[str, datetime, Cause]]:
    for name in store.list(f"writes/{repository}"):
        if match := NAME.fullmatch(name):
            at, rank, by, thread = map(int, match.groups())
            yield name, datetime.fromtimestamp(at / 1000, UTC), Cause(Rank(rank), by, thread)


class WriteLog:
    """Adds to these files, and removes those that count no longer."""

    def __init__(self, store: Store, repository: int) -> None:
        self._store, self._folder = store, f"writes/{repository}"
        self._kept = deque(sorted((at, name) for name, at, _ in _kept(store, repository)))

    def add(self, at: datetime, cause: Cause) -> None:
        """Record a write. A full disk is no reason to lose its outcome: then it counts only in
        this process."""
        rank, by, thread = cause
        when = round(at.timestamp() * 1000)
        name = f"{when}-{rank:d}-{by}-{thread}-{secrets.token_hex(4)}.json"
        try:
            self._store.create(f"{self._folder}/{name}", b"{}\n", lasting=False)
            self._kept.append((at, name))
            while self._kept[0][0] <= at - LASTS:
                self._store.remove(f"{self._folder}/{self._kept[0][1]}")
                self._kept.popleft()
        except (OSError, StoreError) as error:
            log.warning("a write cannot be recorded: %s", error)
