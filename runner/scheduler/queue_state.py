"""What is approved and has not ended: entries that wait, runs, and what people have used.

This is all that `runner.scheduler.queue_order` decides from. It can be built anew from records at
any time; the indexes beside the facts (lanes, taken slices, expected ends) only keep a look at it
cheap. Times are whole seconds on one clock, and use is counted in device-seconds.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

HOUR = 3600
WEEK = 168 * HOUR
AWAY = ""  # who holds a slice that has been taken away

Priority = Literal["debugging", "run", "sweep"]
Account = tuple[str, str]  # a person and a kind of device
Lane = tuple[tuple[str, ...], str, Priority]  # pools, a person, a priority


@dataclass(frozen=True, slots=True)
class Request:
    """A run that somebody wants."""

    name: str
    person: str
    priority: Priority
    kind: str
    count: int  # devices
    seconds: int  # it is expected to take, of one that was preempted: still
    submitted: int  # when it is approved


@dataclass(frozen=True, slots=True)
class Entry(Request):
    """A run that was approved."""

    pools: tuple[str, ...]  # where it may run, the preferred one first
    devices: int  # of the slices it takes whole, in any of these: it is charged for all of them
    reserved: int  # device-seconds set aside for it, those used included
    used: int = 0  # device-seconds, before it was preempted

    @property
    def account(self) -> Account:
        """Whose use of what it counts as."""
        return self.person, self.kind

    @property
    def short(self) -> int:
        """Device-seconds that it is expected to need beyond what is set aside."""
        return self.used + self.seconds * self.devices - self.reserved


@dataclass(frozen=True, slots=True)
class Start:
    """An entry that begins to run."""

    entry: Entry
    pool: str
    slices: int  # of the pool, any of them
    until: int | None  # when what is set aside will be spent; None: nobody counts


@dataclass(frozen=True, slots=True)
class Running:
    """An entry that runs."""

    entry: Entry
    pool: str
    slices: int
    since: int

    @property
    def ends(self) -> int:
        """When it is expected to end."""
        return self.since + self.entry.seconds

    def used(self, now: int) -> int:
        """Device-seconds since it started."""
        return (now - self.since) * self.entry.devices


@dataclass(slots=True)
class Use:
    """What one person has used, and may still use, of one kind. In device-seconds."""

    committed: int = 0  # used by what has ended, set aside for what has not
    short: int = 0  # that is not set aside, and what waits after preemption needs besides
    running: int = 0  # what now runs is expected to use, from its start to its end
    recent: float = 0.0  # used before `at`, halved with each half-life, as it counted at `at`
    fresh: int = 0  # used, and told at `at`; apart, so that the order of telling does not matter
    at: int = 0

    def lately(self, now: int, half_life: int) -> float:
        """What was used, as it counts now."""
        return (self.recent + self.fresh) * 0.5 ** ((now - self.at) / half_life)


class Queue:
    """What is approved and has not ended. The order in which it is told of entries is forgotten."""

    def __init__(self, half_life: int = WEEK) -> None:
        """Empty; `half_life` is the seconds in which use comes to count half."""
        self.half_life = half_life
        self.waiting: dict[str, Entry] = {}
        self.running: dict[str, Running] = {}
        self._uses: dict[Account, Use] = {}
        # By kind: what waits for the same pools, of one person and priority, in the order of
        # approval. By pool: how many slices are taken; what holds how many, or AWAY, by when it is
        # expected to end.
        self.lanes: dict[str, dict[Lane, list[Entry]]] = {}
        self.taken: dict[str, int] = {}
        self.ends: dict[str, list[tuple[int, str, int]]] = {}

    def use(self, account: Account) -> Use:
        """What this account has used and set aside."""
        return self._uses.get(account) or Use()

    def add(self, entry: Entry) -> None:
        """`entry` was approved, and what it needs is set aside. One that was preempted before is
        added with what it has used."""
        self._use(entry.account).committed += entry.reserved
        self._wait(entry)

    def remember(
        self, account: Account, device_seconds: int, at: int, of_budget: bool = True
    ) -> None:
        """So much was used by what ended at `at`; of the budget that counts now, or of another."""
        use = self._use(account)
        use.committed += device_seconds if of_budget else 0
        self._spend(use, device_seconds, at)

    def begin(self, start: Start, now: int) -> None:
        """What waited runs now."""
        entry = start.entry
        before = self._unwait(entry.name)
        use = self._use(entry.account)
        use.committed += entry.reserved - before.reserved
        use.running += entry.seconds * entry.devices
        self.running[entry.name] = running = Running(entry, start.pool, start.slices, now)
        self._hold(start.pool, entry.name, running.ends, start.slices)

    def finish(self, name: str, now: int) -> None:
        """`name` is over, whether it ran or was withdrawn; what it did not need is free again."""
        if name in self.waiting:
            entry = self._unwait(name)
            used = entry.used
        else:
            entry, held = self._leave(name, now)
            used = entry.used + held
        self._use(entry.account).committed += used - entry.reserved

    def preempt(self, name: str, now: int, seconds: int) -> None:
        """`name` lost its devices and waits again, in its old place; it still needs `seconds`."""
        entry, held = self._leave(name, now)
        self._wait(replace(entry, used=entry.used + held, seconds=seconds))

    def lose(self, pool: str, until: int) -> None:
        """A slice that nobody holds is away, and expected back at `until`."""
        self._hold(pool, AWAY, until, 1)

    def regain(self, pool: str, until: int) -> None:
        """A slice is back that was away, and expected then."""
        self._release(pool, AWAY, until, 1)

    def copy(self) -> "Queue":
        """One that can be played forward."""
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
        """Let all that was expected to end by `now` end now."""
        for pool, ends in self.ends.items():
            while ends and ends[0][0] <= now:
                until, name, _ = ends[0]
                if name == AWAY:
                    self.regain(pool, until)
                else:
                    self.finish(name, now)

    def expected_ends(self) -> Iterator[int]:
        """The first expected end of each pool."""
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
        self._use(entry.account).short += max(0, entry.short)
        lanes = self.lanes.setdefault(entry.kind, {})
        insort(lanes.setdefault(_lane(entry), []), entry, key=_place)

    def _unwait(self, name: str) -> Entry:
        entry = self.waiting.pop(name)
        self._use(entry.account).short -= max(0, entry.short)
        lanes, key = self.lanes[entry.kind], _lane(entry)
        lane = lanes[key]
        del lane[bisect_left(lane, _place(entry), key=_place)]
        if not lane:
            del lanes[key]
        return entry

    def _leave(self, name: str, now: int) -> tuple[Entry, int]:
        """What ran and does not now, and the device-seconds it held."""
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
    """The order of approval; what is approved at the same time goes by name."""
    return entry.submitted, entry.name


def device_hours(device_seconds: int) -> str:
    """`0.5 device-hours`."""
    hours = device_seconds / HOUR
    return f"{hours:,.0f} device-hours" if hours >= 100 else f"{hours:.3g} device-hours"
