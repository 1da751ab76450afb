"""Leases: who leads, and which attempts are alive. Numbered files; the highest counts.

To replace n is to create n+1, so two processes never both succeed. A lease is stale when a watcher
has seen no change for `STALE_AFTER` seconds of its own monotonic clock; clocks of two machines are
never compared. A lease whose process has ended on the watcher's machine
(`runner.lib.process_owner`) is stale at once. Leases only save work; what must happen once is
protected by its key.
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
from runner.lib.threads import meanwhile
from runner.store.store import Store

STALE_AFTER = 45.0  # seconds without change, by the watcher's own clock
RENEW_EVERY = 15.0  # seconds between two renewals by the leader
BEAT_EVERY = 10.0  # seconds between two heartbeats of an attempt
WITHDRAWN = b'{"withdrawn":true}\n'  # replaces the start file that a worker would write


class Leadership:
    """The leader. `leases/<name>/<generation>.json`: the highest generation counts.

    A lease is stale when this watcher has seen the same generation for `STALE_AFTER` seconds of its
    own monotonic clock; clocks of two machines are never compared. It is stale at once if its
    holder has ended on this machine.
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
        """Renew the lease if it is ours, take it if it is free or stale. Returns whether we lead
        now."""
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
        """Let the next leader take over at once."""
        generation, holder, _ = self._current()
        if holder == self._me:
            self._write(generation + 1, None, self._monotonic())

    def _current(self) -> tuple[int, str | None, str]:
        """(generation, its holder, the holder's process, which old records do not have)."""
        names = self._store.list(self._folder)
        generations = [int(name[:12]) for name in names if re.fullmatch(r"\d{12}\.json", name)]
        if not generations:
            return 0, None, ""
        newest = max(generations)
        data = self._store.read(f"{self._folder}/{newest:012d}.json")
        # Deleted after the listing: a newer one exists; the next look finds it.
        said = json.loads(data) if data else {"holder": "somebody"}
        return newest, said["holder"], said.get("process", "")

    def _write(self, generation: int, holder: str | None, now: float) -> bool:
        said = to_json({"holder": holder, "process": process_owner.me() if holder else ""})
        if not self._store.create(f"{self._folder}/{generation:012d}.json", said):
            return False
        if self._current()[0] != generation:
            # Others had this number long ago and deleted it, while we slept between look and write.
            self._store.remove(f"{self._folder}/{generation:012d}.json")
            return False
        self._renewed_at = now
        if generation > 2:
            self._store.remove(f"{self._folder}/{generation - 2:012d}.json")
        return holder == self._me


class AttemptLease:
    """An attempt's sign of life: one start file, heartbeats, a release. Never taken over."""

    def __init__(self, store: Store, attempt: str, *, lasting: bool = True) -> None:
        """`attempt` is the attempt's folder name, nonce included. A lease that is not `lasting` may
        be truncated by a power cut, which also ends its holder; it protects nothing afterwards."""
        self._store = store
        self._lasting = lasting
        self._folder = f"leases/{attempt}"
        self._beats = 0

    def start(self, who: dict[str, object]) -> bool:
        """Start the attempt. False: another worker has started it, and the caller must exit."""
        return self._create("start", to_json(who))

    def withdraw(self) -> bool:
        """Prevent the attempt from starting. False: it has started."""
        return self._create("start", WITHDRAWN)

    def _create(self, name: str, data: bytes) -> bool:
        return self._store.create(f"{self._folder}/{name}.json", data, lasting=self._lasting)

    def beat(self) -> None:
        """Write a heartbeat."""
        self._beats += 1
        self._create(f"beat-{self._beats:09d}", b"{}\n")
        if self._beats > 3:
            self._store.remove(f"{self._folder}/beat-{self._beats - 2:09d}.json")

    @contextmanager
    def beating(self, every: float = BEAT_EVERY) -> Iterator[None]:
        """Write a heartbeat every so many seconds during the `with` body, from a thread."""

        def beat(over: threading.Event) -> None:
            while not over.wait(every):
                try:
                    self.beat()
                except Exception as error:  # such as a full disk; the next one may succeed
                    print(f"heartbeat: {error}", file=sys.stderr)

        with meanwhile(beat):
            yield

    def release(self) -> None:
        """Declare that the attempt will write nothing more."""
        self._create("released", b"{}\n")


@dataclass(frozen=True)
class LeaseState:
    """An attempt's lease as a watcher sees it."""

    started: bool = False
    withdrawn: bool = False  # by the lab, before a worker started
    released: bool = False
    still_for: float = 0.0  # seconds since this watcher last saw a change


class LeaseWatch:
    """Watches attempts' leases on the watcher's own monotonic clock."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._last: dict[str, tuple[list[str], float]] = {}

    def look(self, attempt: str, job: str = "") -> LeaseState:
        """The state of the lease of `attempt` (its folder name, nonce included). Before it starts,
        a change of the state of its `job` is a sign of life, too."""
        try:
            names = self._store.list(f"leases/{attempt}")
        except OSError:  # odd files; the attempt counts as started, and without heartbeats
            names = ["start.json"]
        now, signs = self._monotonic(), names or [job]
        if attempt not in self._last or self._last[attempt][0] != signs:
            self._last[attempt] = (signs, now)
        withdrawn = "start.json" in names and self._withdrawn(attempt)
        return LeaseState(
            started="start.json" in names and not withdrawn,
            withdrawn=withdrawn,
            released="released.json" in names,
            still_for=now - self._last[attempt][1],
        )

    def _withdrawn(self, attempt: str) -> bool:
        """Whether the lab wrote the start file. Any other content is a job's."""
        try:
            said = self._store.peek(f"leases/{attempt}/start.json", len(WITHDRAWN) + 1)
        except OSError:
            return False
        return said == WITHDRAWN
