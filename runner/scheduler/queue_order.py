"""The rules of sharing: which run starts next, on which devices, and when the others can expect to
start.

- A run takes whole slices of one pool of its kind, so that it holds as few devices as possible. If
  several pools allow that, it takes the first with room, large slices before small ones. Devices
  that are assigned one by one are slices of one device.
- Approval reserves, from the person's budget for that kind, the device-hours that a run is expected
  to need, or is refused (`runner.scheduler.admission`). What it did not need is released when it
  ends.
- First come runs that wait past their date (an hour after approval for debugging, a day for runs, a
  week for sweeps), the earliest date first, so nobody starves. Then debugging comes before runs and
  these before sweeps; then the person who has recently used the least of that kind for their share
  (device-hours, halved each week; current runs count as if they were done); for one person, the
  earliest approval.
- The first run with too few free slices gets a reservation where enough are expected to be free
  soonest. Later runs start there only if that does not delay it: EASY backfilling (Lifka, "The
  ANL/IBM SP scheduling system", 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).

`schedule` and `forecast` read a queue and change nothing; the caller that starts and ends runs
updates the queue (`Queue.begin`, `finish`). Times are whole seconds on one clock.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heapreplace, merge

from runner.scheduler.queue_state import (
    HOUR,
    WEEK,
    Account,
    Entry,
    Lane,
    Priority,
    Queue,
    Start,
)

RANKS: dict[Priority, int] = {"debugging": 0, "run": 1, "sweep": 2}
PATIENCE: dict[Priority, int] = {"debugging": HOUR, "run": 24 * HOUR, "sweep": WEEK}


# ── What there is ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Pool:
    """A number of slices of one size and kind; a slice is taken whole."""

    name: str
    kind: str
    slices: int
    size: int = 1  # devices per slice

    @property
    def devices(self) -> int:
        """In all slices together."""
        return self.slices * self.size

    def held(self, count: int) -> int:
        """The devices in the slices that `count` devices need."""
        return -(-count // self.size) * self.size


@dataclass(frozen=True)
class Cluster:
    """All devices, in pools with different names."""

    pools: tuple[Pool, ...]

    def pools_for(self, kind: str, count: int) -> tuple[Pool, ...]:
        """The pools where a run on `count` devices of `kind` holds the fewest, large slices first;
        empty if no pool has so many."""
        fitting = [pool for pool in self.pools if pool.kind == kind and pool.devices >= count]
        fewest = min((pool.held(count) for pool in fitting), default=0)
        best = [pool for pool in fitting if pool.held(count) == fewest]
        return tuple(sorted(best, key=lambda pool: (-pool.size, pool.name)))


@dataclass(frozen=True)
class Policy:
    """The lab's own settings."""

    patience: Mapping[Priority, int] = field(default_factory=lambda: PATIENCE)
    half_life: int = WEEK  # of past use; see `Queue`
    shares: Mapping[str, float] = field(default_factory=dict)  # per person; 1 if not named
    budgets: Mapping[Account, int] = field(default_factory=dict)  # device-seconds; or unlimited
    lookahead: int = 100  # how many entries of one kind may be skipped in one look

    def date(self, entry: Entry) -> int:
        """Once this time has passed, `entry` goes before all entries whose date is later."""
        return entry.submitted + self.patience[entry.priority]


# ── Starting ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Reservation:
    """Slices that are kept for the first entry with too few."""

    name: str
    pool: str
    at: int  # when enough are expected to be free
    spare: int  # slices that are free then in addition


@dataclass(frozen=True)
class Decision:
    """The entries to start now, and the reservations."""

    starts: tuple[Start, ...]
    reservations: tuple[Reservation, ...]


def schedule(queue: Queue, cluster: Cluster, policy: Policy, now: int) -> Decision:
    """The entries that start now, and where. Changes nothing; equal states give equal answers.

    Call it again after an entry was added or ended.
    """
    books = _Books(queue, policy, now)
    floors = {pool.name: _Floor(pool, queue, now) for pool in cluster.pools}
    shared = {  # the floors that entries for the same pools have in common
        pools: [floors[name] for name in pools if name in floors]
        for pools in {lane[0] for lanes in queue.lanes.values() for lane in lanes}
    }
    starts: list[Start] = []
    for _, lanes in sorted(queue.lanes.items()):
        passed = 0
        for entry in _in_line(lanes, books, shared):
            there = shared[entry.pools]
            for floor in there:
                if floor.has_room(entry):
                    starts.append(books.take(entry, floor.pool.name, floor.give(entry)))
                    break
            else:
                _keep(entry, there)
                passed += 1
                if passed > policy.lookahead:
                    break
    kept_for = (floor.kept for floor in floors.values())
    return Decision(tuple(starts), tuple(kept for kept in kept_for if kept))


def _keep(entry: Entry, floors: Iterable["_Floor"]) -> None:
    """Reserve slices for `entry` where there is no reservation and enough are expected to be free
    soonest."""
    could = [
        (floor.reservation(entry), floor)
        for floor in floors
        if floor.kept is None and floor.pool.devices >= entry.devices
    ]
    if could:
        kept, floor = min(could, key=lambda each: each[0].at)
        floor.kept = kept


class _Floor:
    """The state of one pool during decisions: its free slices, and the reservation."""

    def __init__(self, pool: Pool, queue: Queue, now: int) -> None:
        self.pool, self.now = pool, now
        self.free = pool.slices - queue.taken.get(pool.name, 0)
        self.kept: Reservation | None = None
        self._ends = queue.ends.get(pool.name, [])
        self._begun: list[tuple[int, int]] = []  # expected end, slices

    def has_room(self, entry: Entry) -> bool:
        """Whether `entry` can start without delaying the reservation."""
        slices, kept = entry.devices // self.pool.size, self.kept
        if slices > self.free:
            return False
        return not kept or self.now + entry.seconds <= kept.at or slices <= kept.spare

    def give(self, entry: Entry) -> int:
        """Take slices for `entry`. Returns how many."""
        slices, ends, kept = entry.devices // self.pool.size, self.now + entry.seconds, self.kept
        if kept and ends > kept.at:
            self.kept = replace(kept, spare=kept.spare - slices)
        self._begun.append((ends, slices))
        self.free -= slices
        return slices

    def reservation(self, entry: Entry) -> Reservation:
        """A reservation for `entry`, when enough slices are expected to be free. A run past its
        expected end is expected to end now."""
        needed, free, at = entry.devices // self.pool.size, self.free, self.now
        known = ((end, slices) for end, _, slices in self._ends)
        for end, slices in merge(known, sorted(self._begun)):
            if free >= needed and end > at:
                break
            free += slices
            at = max(self.now, end)
        return Reservation(entry.name, self.pool.name, at, free - needed)


class _Books:
    """What people have used: the queue's figures, and the decisions since."""

    def __init__(self, queue: Queue, policy: Policy, now: int) -> None:
        self.policy, self.now = policy, now
        self._queue = queue
        self._used: dict[Account, float] = {}  # device-seconds divided by the share

    def rank(self, entry: Entry) -> tuple[int, float, int, str]:
        """The lowest goes first."""
        date = self.policy.date(entry)
        if date <= self.now:
            return 0, date, entry.submitted, entry.name
        return 1 + RANKS[entry.priority], self._used_by(entry.account), entry.submitted, entry.name

    def take(self, entry: Entry, pool: str = "", slices: int = 0) -> Start:
        """Count `entry` as started there."""
        share = self.policy.shares.get(entry.person, 1.0)
        used = self._used_by(entry.account)
        self._used[entry.account] = used + entry.seconds * entry.devices / share
        return Start(entry, pool, slices)

    def _used_by(self, account: Account) -> float:
        if account not in self._used:
            share = self.policy.shares.get(account[0], 1.0)
            use = self._queue.use(account)
            self._used[account] = (
                use.lately(self.now, self._queue.half_life) + use.running
            ) / share
        return self._used[account]


def _in_line(
    lanes: Mapping[Lane, list[Entry]],
    books: _Books,
    floors: Mapping[tuple[str, ...], list[_Floor]] | None = None,
) -> Iterator[Entry]:
    """The waiting entries for one kind, in order; with `floors`, only those that have a free slice
    in some pool.

    Each lane is sorted, so only its first entry is compared with other lanes'. A decision moves its
    person back while this generator runs: a rank is computed again before it counts (ranks only
    grow).
    """

    def open_to(entry: Entry) -> bool:
        return floors is None or any(floor.free for floor in floors[entry.pools])

    heap = [(books.rank(lane[0]), 0, lane) for lane in lanes.values() if open_to(lane[0])]
    heapify(heap)
    while heap:
        rank, at, lane = heap[0]
        entry = lane[at]
        if not open_to(entry):
            heappop(heap)
            continue
        if rank != (fresh := books.rank(entry)):
            heapreplace(heap, (fresh, at, lane))
            continue
        if at + 1 < len(lane):
            heapreplace(heap, (books.rank(lane[at + 1]), at + 1, lane))
        else:
            heappop(heap)
        yield entry


# ── What can be expected ─────────────────────────────────────────────────────────────────────


MINUTES = (1, 2, 3, 4, 5, 10, 15, 20, 30, 45, 60, 90)  # how an expected start is rounded


@dataclass(frozen=True)
class Place:
    """An entry's position in the queue for its kind, and its expected start."""

    entry: Entry
    position: int  # 1 is next
    of: int  # length of that queue
    start: int | None  # None: none can be expected
    why: str = ""  # the reason for that

    def words(self, now: int) -> str:
        """`2nd in the queue for 8 devices of h100, starts in about 4 min`: in coarse
        steps of time, so that a displayed text seldom changes."""
        line = f"{_ordinal(self.position)} in the queue for {_devices(self.entry)}"
        if self.start is None:
            return f"{line}; {self.why}"
        if self.start <= now:
            return f"{line}, starts soon"
        minutes = (self.start - now) / 60
        if steps := [step for step in MINUTES if minutes <= step]:
            about = f"{steps[0]} min"
        else:
            hours = math.ceil(minutes / 60)
            about = f"{hours} hours" if hours <= 48 else f"{math.ceil(hours / 24)} days"
        return f"{line}, starts in about {about}"


def forecast(queue: Queue, cluster: Cluster, policy: Policy, now: int) -> dict[str, Place]:
    """The place of each waiting entry, by name.

    Plays `schedule` forward, as if runs took their expected time, and without new entries.
    """
    starts: dict[str, int] = {}
    ahead, at = queue.copy(), now
    while ahead.waiting:
        for start in schedule(ahead, cluster, policy, at).starts:
            ahead.begin(start, at)
            starts[start.entry.name] = at
        following = min(ahead.expected_ends(), default=None)
        if following is None:
            break
        at = max(at, following)
        ahead.pass_to(at)
    places = {}
    for lanes in queue.lanes.values():
        books = _Books(queue, policy, now)
        line = []
        for entry in _in_line(lanes, books):
            line.append(entry)
            books.take(entry)
        for position, entry in enumerate(line, start=1):
            begins = starts.get(entry.name)
            why = "" if begins is not None else _why_not(entry)
            places[entry.name] = Place(entry, position, len(line), begins, why)
    return places


def _why_not(entry: Entry) -> str:
    had = f"; {', '.join(entry.pools)} had" if entry.pools else ""
    devices = "1 device" if entry.devices == 1 else f"{entry.devices} devices"
    return f"no pool has {devices} any more{had}"


def _devices(entry: Entry) -> str:
    return f"{entry.devices} devices of {entry.kind}" if entry.devices > 1 else entry.kind


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
