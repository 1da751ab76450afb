"""Everything that is approved and has not ended: waiting entries, runs, and what people have used.

`runner.scheduler.queue_order` needs nothing else. It can be built from records at any time; the
indexes (lanes, taken slices, expected ends) only make reads fast. Times are whole seconds on one
clock, and use is in device-seconds.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

HOUR = 3600
WEEK = 168 * HOUR

Priority = Literal["debugging", "run", "sweep"]
Account = tuple[str, str]  # a person and a kind of device
Lane = tuple[tuple[str, ...], str, Priority]  # pools, a person, a priority


@dataclass(frozen=True, slots=True)
class Request:
    """A run that somebody requests."""

    name: str
    person: str
    priority: Priority
    kind: str
    count: int  # devices
    seconds: int  # expected duration
    submitted: int  # the time of its approval


@dataclass(frozen=True, slots=True)
class Entry(Request):
    """An approved run."""

    pools: tuple[str, ...]  # where it may run, the preferred one first
    devices: int  # in its whole slices, equal in all pools; it pays for all of them
    reserved: int  # device-seconds reserved for it, used ones included

    @property
    def account(self) -> Account:
        """The account that its use counts for."""
        return self.person, self.kind


@dataclass(frozen=True, slots=True)
class Start:
    """An entry that starts."""

    entry: Entry
    pool: str
    slices: int  # of the pool, any of them


@dataclass(frozen=True, slots=True)
class Running:
    """An entry that runs."""

    entry: Entry
    pool: str
    slices: int
    since: int

    @property
    def ends(self) -> int:
        """Its expected end."""
        return self.since + self.entry.seconds

    def used(self, now: int) -> int:
        """Device-seconds since it started."""
        return (now - self.since) * self.entry.devices


@dataclass(slots=True)
class Use:
    """What one person has used, and may still use, of one kind. In device-seconds."""

    committed: int = 0  # used by ended runs, reserved for others
    running: int = 0  # expected use of current runs, from their start to their end
    recent: float = 0.0  # used before `at`, halved with each half-life, as of `at`
    fresh: int = 0  # used and reported at `at`; separate, so that order does not matter
    at: int = 0

    def lately(self, now: int, half_life: int) -> float:
        """The recent use, as of `now`."""
        return (self.recent + self.fresh) * 0.5 ** ((now - self.at) / half_life)


class Queue:
    """Everything that is approved and has not ended. Does not depend on the order of updates."""

    def __init__(self, half_life: int = WEEK) -> None:
        """An empty queue; `half_life` is in seconds."""
        self.half_life = half_life
        self.waiting: dict[str, Entry] = {}
        self.running: dict[str, Running] = {}
        self._uses: dict[Account, Use] = {}
        # By kind: waiting entries for the same pools, of one person and priority, in the order of
        # approval. By pool: how many slices are taken; who holds how many, by expected end.
        self.lanes: dict[str, dict[Lane, list[Entry]]] = {}
        self.taken: dict[str, int] = {}
        self.ends: dict[str, list[tuple[int, str, int]]] = {}

    def use(self, account: Account) -> Use:
        """The use and the reservations of this account."""
        return self._uses.get(account) or Use()

    def add(self, entry: Entry) -> None:
        """Add an approved entry with its reservation."""
        self._use(entry.account).committed += entry.reserved
        self._wait(entry)

    def remember(
        self, account: Account, device_seconds: int, at: int, of_budget: bool = True
    ) -> None:
        """Record the use of a run that ended at `at`; `of_budget`: it counts in the current
        budget."""
        use = self._use(account)
        use.committed += device_seconds if of_budget else 0
        self._spend(use, device_seconds, at)

    def begin(self, start: Start, now: int) -> None:
        """Start a waiting entry."""
        entry = start.entry
        self._unwait(entry.name)
        self._use(entry.account).running += entry.seconds * entry.devices
        self.running[entry.name] = running = Running(entry, start.pool, start.slices, now)
        self._hold(start.pool, entry.name, running.ends, start.slices)

    def finish(self, name: str, now: int) -> None:
        """Remove `name`, which ended or was withdrawn; the rest of its reservation is released."""
        if name in self.waiting:
            entry, used = self._unwait(name), 0
        else:
            entry, used = self._leave(name, now)
        self._use(entry.account).committed += used - entry.reserved

    def copy(self) -> "Queue":
        """A copy, to play forward."""
        other = Queue(self.half_life)
        other.waiting, other.running = dict(self.waiting), dict(self.running)
        other._uses = {account: replace(use) for account, use in self._uses.items()}
        other.lanes = {
            kind: {key: list(lane) for key, lane in lanes.items()}
            for kind, lanes in self.lanes.items()
        }
        other.taken = dict(self.taken)
        other.ends = {pool: list(ends) for pool, ends in self.ends.items()}
        return other

    def pass_to(self, now: int) -> None:
        """Let everything end that was expected to end by `now`."""
        for ends in self.ends.values():
            while ends and ends[0][0] <= now:
                self.finish(ends[0][1], now)

    def expected_ends(self) -> Iterator[int]:
        """The first expected end in each pool."""
        return (ends[0][0] for ends in self.ends.values() if ends)

    # ── Indexes ──────────────────────────────────────────────────────────────────────────────

    def _use(self, account: Account) -> Use:
        return self._uses.setdefault(account, Use())

    def _spend(self, use: Use, device_seconds: int, at: int) -> None:
        if at > use.at:
            use.recent, use.fresh, use.at = use.lately(at, self.half_life), 0, at
        if at == use.at:
            use.fresh += device_seconds
        else:
            use.recent += device_seconds * 0.5 ** ((use.at - at) / self.half_life)

    def _wait(self, entry: Entry) -> None:
        self.waiting[entry.name] = entry
        lanes = self.lanes.setdefault(entry.kind, {})
        insort(lanes.setdefault(_lane(entry), []), entry, key=_place)

    def _unwait(self, name: str) -> Entry:
        entry = self.waiting.pop(name)
        lanes, key = self.lanes[entry.kind], _lane(entry)
        lane = lanes[key]
        del lane[bisect_left(lane, _place(entry), key=_place)]
        if not lane:
            del lanes[key]
        return entry

    def _leave(self, name: str, now: int) -> tuple[Entry, int]:
        """Remove a running entry. Returns it and the device-seconds it used."""
        running = self.running.pop(name)
        entry, held = running.entry, running.used(now)
        use = self._use(entry.account)
        use.running -= entry.seconds * entry.devices
        self._spend(use, held, now)
        self._release(running.pool, name, running.ends, running.slices)
        return entry, held

    def _hold(self, pool: str, name: str, until: int, slices: int) -> None:
        self.taken[pool] = self.taken.get(pool, 0) + slices
        insort(self.ends.setdefault(pool, []), (until, name, slices))

    def _release(self, pool: str, name: str, until: int, slices: int) -> None:
        self.taken[pool] -= slices
        ends = self.ends[pool]
        del ends[bisect_left(ends, (until, name, slices))]


def _lane(entry: Entry) -> Lane:
    return entry.pools, entry.person, entry.priority


def _place(entry: Entry) -> tuple[int, str]:
    """The order of approval; equal times by name."""
    return entry.submitted, entry.name


def device_hours(device_seconds: int) -> str:
    """`0.5 device-hours`."""
    hours = device_seconds / HOUR
    return f"{hours:,.0f} device-hours" if hours >= 100 else f"{hours:.3g} device-hours"
