"""The store: one tree of files that are created once and never changed. It is all the state.

Everything the lab knows lies here and can be read with `cat`. The one guarantee that all else
rests on is *create-once*: of several writers of a name exactly one succeeds, and a reader sees a
whole file or none. Replacing is built from it: a lease is a folder of numbered files of which the
highest counts, and replacing n is creating n+1.
"""

import contextlib
import errno
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner import faults

STALE_AFTER = 45.0  # seconds a lease must stand still, on the watcher's own clock
RENEW_EVERY = 15.0  # seconds between two renewals of a lease that is led
BEAT_EVERY = 10.0  # seconds between two heartbeats of an attempt
WITHDRAWN = b'{"withdrawn":true}\n'  # in the place of a worker's word that it begins


class StoreError(Exception):
    """The store cannot do what it promises; the message says what to mend."""


class Store:
    """A store on local disk. Paths are relative, with `/`, and below the root."""

    def __init__(self, root: Path) -> None:
        """Open the store at `root`, making it if it is not there.

        Raises StoreError where the folder cannot be written or its file system has no hard links.
        """
        self.root = root.resolve()  # claims are refused behind links, so ours are resolved
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.create("store.json", to_json({"id": secrets.token_hex(8)}))
        except OSError as error:
            raise StoreError(
                f"The store at {self.root} cannot be used: {error.strerror}. It needs a folder "
                "that can be written, on a file system with hard links; name another one with "
                "--store or REGATTA_STORE."
            ) from error
        self._seen: dict[str, bytes] = {}

    @property
    def id(self) -> str:
        """Sixteen random hexadecimal digits, minted when the store was made."""
        return str(json.loads(self.require("store.json"))["id"])

    def path(self, name: str) -> Path:
        """Where `name` lies on disk. Raises StoreError for a name that leaves the store."""
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise StoreError(f"{name!r} is not a name inside the store.")
        return self.root.joinpath(*parts)

    def create(self, name: str, data: bytes) -> bool:
        """Create the file `name` whole, or not at all. False if it was there already."""
        target = self.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
        with faults.around(f"store.{_kind(name)}"):
            try:
                with draft.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                return self._link(draft, target, data)
            finally:
                draft.unlink(missing_ok=True)
                _sync_folder(target.parent)

    def _link(self, draft: Path, target: Path, data: bytes) -> bool:
        try:
            os.link(draft, target)
        except FileExistsError:
            return False
        except OSError as error:
            # A network file system may do the link and lose the reply.
            with contextlib.suppress(OSError):
                if os.path.samestat(draft.stat(), target.stat()):
                    return target.read_bytes() == data
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise StoreError(f"{target.parent} lies on a file system without links.") from error
            raise
        return True

    def read(self, name: str) -> bytes | None:
        """The bytes of `name`, or None. A file never changes, so each is read from disk once."""
        if name not in self._seen:
            try:
                self._seen[name] = self.path(name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return self._seen[name]

    def require(self, name: str) -> bytes:
        """Like `read`, for what must be there. Raises StoreError."""
        data = self.read(name)
        if data is None:
            raise StoreError(f"{self.root} has no {name}. Was part of the store removed?")
        return data

    def list(self, folder: str) -> list[str]:
        """Names of the finished files and folders directly in `folder`, sorted; [] if none."""
        try:
            names = [entry.name for entry in self.path(folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.startswith("."))

    def remove(self, name: str) -> None:
        """Remove what no one will ask for again (superseded lease files, set-aside work)."""
        target = self.path(name)
        self._seen.pop(name, None)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


def to_json(value: object) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8, no NaN. Equal values have equal bytes."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode() + b"\n"


def _kind(name: str) -> str:
    """The part of a path that names fault points: `records/plans/1/2/3.json` → `plans`."""
    top, *rest = name.split("/")
    return rest[0] if top == "records" and rest else top


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Leadership:
    """Who leads. `leases/<name>/<generation>.json`: the highest generation counts.

    A lease is stale when this watcher has seen the same generation for `STALE_AFTER` seconds of
    its own monotonic clock; clocks of two machines are never compared.
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
        generation, holder = self._current()
        if holder == self._me:
            if now - self._renewed_at < RENEW_EVERY:
                return True
            return self._write(generation + 1, self._me, now)
        if generation != self._watched[0]:
            self._watched = (generation, now)
        if holder is None or now - self._watched[1] >= STALE_AFTER:
            return self._write(generation + 1, self._me, now)
        return False

    def release(self) -> None:
        """Let the next one take over at once."""
        generation, holder = self._current()
        if holder == self._me:
            self._write(generation + 1, None, self._monotonic())

    def _current(self) -> tuple[int, str | None]:
        generations = [int(name.removesuffix(".json")) for name in self._store.list(self._folder)]
        if not generations:
            return 0, None
        newest = max(generations)
        data = self._store.read(f"{self._folder}/{newest:012d}.json")
        # Gone between the listing and the reading: a newer one exists; look again next time.
        return newest, json.loads(data)["holder"] if data else "somebody"

    def _write(self, generation: int, holder: str | None, now: float) -> bool:
        if not self._store.create(
            f"{self._folder}/{generation:012d}.json", to_json({"holder": holder})
        ):
            return False
        self._renewed_at = now
        if generation > 2:
            self._store.remove(f"{self._folder}/{generation - 2:012d}.json")
        return holder == self._me


class AttemptLease:
    """One attempt's sign of life: one start file, heartbeats, a release. Never taken over."""

    def __init__(self, store: Store, attempt: str) -> None:
        """`attempt` is the attempt's folder name, its nonce included."""
        self._store = store
        self._folder = f"leases/{attempt}"
        self._beats = 0

    def start(self, who: dict[str, object]) -> bool:
        """Begin the attempt. False: somebody has begun it before, and the caller must exit."""
        return self._store.create(f"{self._folder}/start.json", to_json(who))

    def withdraw(self) -> bool:
        """See to it that nobody begins the attempt any more. False: somebody has."""
        return self._store.create(f"{self._folder}/start.json", WITHDRAWN)

    def beat(self) -> None:
        """Say that the attempt lives."""
        self._beats += 1
        self._store.create(f"{self._folder}/beat-{self._beats:09d}.json", b"{}\n")
        if self._beats > 3:
            self._store.remove(f"{self._folder}/beat-{self._beats - 2:09d}.json")

    def release(self) -> None:
        """Say that the attempt has written all it will ever write."""
        self._store.create(f"{self._folder}/released.json", b"{}\n")


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
        names = self._store.list(f"leases/{attempt}")
        now = self._monotonic()
        if attempt not in self._last or self._last[attempt][0] != names:
            self._last[attempt] = (names, now)
        withdrawn = self._store.read(f"leases/{attempt}/start.json") == WITHDRAWN
        return LeaseState(
            started="start.json" in names and not withdrawn,
            withdrawn=withdrawn,
            released="released.json" in names,
            still_for=now - self._last[attempt][1],
        )
