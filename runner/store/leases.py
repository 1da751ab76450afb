"""Leases: who leads, and which attempts are alive. Numbered files of which the highest counts.

Replacing n is creating n+1, so two can never both succeed. A lease is stale when a watcher has
seen it stand still for `STALE_AFTER` seconds of its own monotonic clock; clocks of two machines
are never compared. One whose process has ended on the watcher's own machine
(`runner.lib.process_owner`) is stale at once. Leases save work; what must happen once is protected
by its key.
"""

import json
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from runner.lib import process_owner
from runner.lib.canonical_json import to_json
from runner.store.store import Store

STALE_AFTER = 45.0  # seconds a lease must stand still, on the watcher's own clock
RENEW_EVERY = 15.0  # seconds between two renewals of a lease that is led
BEAT_EVERY = 10.0  # seconds between two heartbeats of an attempt
WITHDRAWN = b'{"withdrawn":true}\n'  # in the place of a worker's word that it begins


class Leadership:
    """Who leads. `leases/<name>/<generation>.json`: the highest generation counts.

    A lease is stale when this watcher has seen the same generation for `STALE_AFTER` seconds of
    its own monotonic clock; clocks of two machines are never compared. It is stale at once where
    its holder has ended on this machine.
    """

    def __init__(
        self, store: Store, name: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._folder = f"leases/{name}"
        self._me = secrets.token_hex(8)
        self._monotonic = monotonic
        self._watched: tuple[int, float] = (-1, monotonic())
        self._renewed_at = float("-inf")

    def held(self) -> bool:
        """Renew the lease if it is ours, take it if it is free or stale; whether we lead now."""
        now = self._monotonic()
        generation, holder, process = self._current()
        if holder == self._me:
            if now - self._renewed_at < RENEW_EVERY:
                return True
            return self._write(generation + 1, self._me, now)
        if generation != self._watched[0]:
            self._watched = (generation, now)
        stale = now - self._watched[1] >= STALE_AFTER or process_owner.has_ended(process)
        if holder is None or stale:
            return self._write(generation + 1, self._me, now)
        return False

    def release(self) -> None:
        """Let the next one take over at once."""
        generation, holder, _ = self._current()
        if holder == self._me:
            self._write(generation + 1, None, self._monotonic())

    def _current(self) -> tuple[int, str | None, str]:
        """(generation, its holder, the holder's process, which an older lab did not write)."""
        names = self._store.list(self._folder)
        generations = [int(name[:12]) for name in names if re.fullmatch(r"\d{12}\.json", name)]
        if not generations:
            return 0, None, ""
        newest = max(generations)
        data = self._store.read(f"{self._folder}/{newest:012d}.json")
        # Gone between the listing and the reading: a newer one exists; look again next time.
        said = json.loads(data) if data else {"holder": "somebody"}
        return newest, said["holder"], said.get("process", "")

    def _write(self, generation: int, holder: str | None, now: float) -> bool:
        said = to_json({"holder": holder, "process": process_owner.me() if holder else ""})
        if not self._store.create(f"{self._folder}/{generation:012d}.json", said):
            return False
        if self._current()[0] != generation:
            # Long ago others had this number and removed it; we were away between look and write.
            self._store.remove(f"{self._folder}/{generation:012d}.json")
            return False
        self._renewed_at = now
        if generation > 2:
            self._store.remove(f"{self._folder}/{generation - 2:012d}.json")
        return holder == self._me


class AttemptLease:
    """One attempt's sign of life: one start file, heartbeats, a release. Never taken over."""

    def __init__(self, store: Store, attempt: str, *, lasting: bool = True) -> None:
        """`attempt` is the attempt's folder name, its nonce included. One that is not `lasting`
        protects nothing after a power cut, which ends who held it as well, and may be cut off."""
        self._store = store
        self._lasting = lasting
        self._folder = f"leases/{attempt}"
        self._beats = 0

    def start(self, who: dict[str, object]) -> bool:
        """Begin the attempt. False: somebody has begun it before, and the caller must exit."""
        return self._create("start", to_json(who))

    def withdraw(self) -> bool:
        """See to it that nobody begins the attempt any more. False: somebody has."""
        return self._create("start", WITHDRAWN)

    def _create(self, name: str, data: bytes) -> bool:
        return self._store.create(f"{self._folder}/{name}.json", data, lasting=self._lasting)

    def beat(self) -> None:
        """Say that the attempt lives."""
        self._beats += 1
        self._create(f"beat-{self._beats:09d}", b"{}\n")
        if self._beats > 3:
            self._store.remove(f"{self._folder}/beat-{self._beats - 2:09d}.json")

    @contextmanager
    def beating(self, every: float = BEAT_EVERY) -> Iterator[None]:
        """Say so every so many seconds during the `with` body, whatever that is doing."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(every):
                try:
                    self.beat()
                except Exception as error:  # a full disk, say; the next may succeed
                    print(f"heartbeat: {error}", file=sys.stderr)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def release(self) -> None:
        """Say that the attempt has written all it will ever write."""
        self._create("released", b"{}\n")


@dataclass(frozen=True)
class LeaseState:
    """What a watcher sees of an attempt's lease."""

    started: bool = False
    withdrawn: bool = False  # by the lab, before any worker began
    released: bool = False
    still_for: float = 0.0  # seconds since this watcher last saw it move


class LeaseWatch:
    """Watches attempts' leases on the watcher's own monotonic clock."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._last: dict[str, tuple[list[str], float]] = {}

    def look(self, attempt: str) -> LeaseState:
        """The state of the lease of `attempt` (its folder name, nonce included)."""
        try:
            names = self._store.list(f"leases/{attempt}")
        except OSError:  # somebody's leavings; the attempt counts as begun, and as standing still
            names = ["start.json"]
        now = self._monotonic()
        if attempt not in self._last or self._last[attempt][0] != names:
            self._last[attempt] = (names, now)
        withdrawn = "start.json" in names and self._withdrawn(attempt)
        return LeaseState(
            started="start.json" in names and not withdrawn,
            withdrawn=withdrawn,
            released="released.json" in names,
            still_for=now - self._last[attempt][1],
        )

    def _withdrawn(self, attempt: str) -> bool:
        """Whether the start file is the lab's own. Any other one is a job's, whatever it is."""
        try:
            said = self._store.peek(f"leases/{attempt}/start.json", len(WITHDRAWN) + 1)
        except OSError:
            return False
        return said == WITHDRAWN
