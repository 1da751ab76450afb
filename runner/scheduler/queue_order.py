"""Who goes next and on which devices, and when the others can expect to: the rules of sharing.

- A run takes whole slices of one pool of its kind, so that it holds as few devices as it can; where
  several pools allow that, the first of them that has room, large slices before small ones. Devices
  handed out one by one are slices of one device.
- Approval sets aside, from its person's budget for that kind, the device-hours that a run is
  expected to need, or is refused (`runner.scheduler.admission`). A run that has spent them is
  ended; what it did not need is free again when it ends.
- Next is, first, whatever waits past its date (an hour after approval for debugging, a day for
  runs, a week for sweeps), the earliest date first: so nobody starves. Else debugging goes before
  runs and these before sweeps; then the person goes first who has lately used the least of that
  kind for their share (device-hours, halved each week, those of what runs now counted as if they
  were done); of one person, what was approved first.
- The first that finds too few free slices has them reserved where enough are expected to be free
  soonest. Those behind it start there only if that does not delay it: EASY backfilling (Lifka, "The
  ANL/IBM SP scheduling system", 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).
- A preempted run goes back to its place, and goes on from its last checkpoint.

`schedule` and `forecast` read a queue and change nothing; whoever starts and ends runs tells the
queue (`Queue.begin`, `finish`, `preempt`). Times are whole seconds on one clock.
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
    device_hours,
)

RANKS: dict[Priority, int] = {"debugging": 0, "run": 1, "sweep": 2}
PATIENCE: dict[Priority, int] = {"debugging": HOUR, "run": 24 * HOUR, "sweep": WEEK}


# ── What there is ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Pool:
    """So many slices of one size and kind; a slice is taken whole."""

    name: str
    kind: str
    slices: int
    size: int = 1  # devices of one slice

    @property
    def devices(self) -> int:
        """Of all slices together."""
        return self.slices * self.size

    def held(self, count: int) -> int:
        """The devices of the slices that `count` devices take."""
        return -(-count // self.size) * self.size


@dataclass(frozen=True)
class Cluster:
    """All devices, in pools with different names."""

    pools: tuple[Pool, ...]

    def pools_for(self, kind: str, count: int) -> tuple[Pool, ...]:
        """Where a run on `count` devices of `kind` holds the fewest, large slices first; none if no
        pool has so many."""
        fitting = [pool for pool in self.pools if pool.kind == kind and pool.devices >= count]
        fewest = min((pool.held(count) for pool in fitting), default=0)
        best = [pool for pool in fitting if pool.held(count) == fewest]
        return tuple(sorted(best, key=lambda pool: (-pool.size, pool.name)))


@dataclass(frozen=True)
class Policy:
    """What a lab decides for itself."""

    patience: Mapping[Priority, int] = field(default_factory=lambda: PATIENCE)
    half_life: int = WEEK  # in which what somebody used comes to count half; see `Queue`
    shares: Mapping[str, float] = field(default_factory=dict)  # of a person; 1 if not named
    budgets: Mapping[Account, int] = field(default_factory=dict)  # device-seconds; else no bound
    lookahead: int = 100  # entries for one kind that may be passed over in one look

    def date(self, entry: Entry) -> int:
        """When `entry` goes before all whose date is later or has not come."""
        return entry.submitted + self.patience[entry.priority]


# ── Starting ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Reservation:
    """Slices kept for the first entry that found too few."""

    name: str
    pool: str
    at: int  # when enough are expected to be free
    spare: int  # slices that are free then besides


@dataclass(frozen=True)
class Decision:
    """What to do now: start these. And for whom slices are kept."""

    starts: tuple[Start, ...]
    reservations: tuple[Reservation, ...]


def schedule(queue: Queue, cluster: Cluster, policy: Policy, now: int) -> Decision:
    """What starts now, and where. Changes nothing; the same state has the same answer.

    To be asked again when something was added, has ended or was preempted.
    """
    books = _Books(queue, policy, now)
    floors = {pool.name: _Floor(pool, queue, now) for pool in cluster.pools}
    shared = {  # the floors of what waits for the same pools
        pools: [floors[name] for name in pools if name in floors]
        for pools in {lane[0] for lanes in queue.lanes.values() for lane in lanes}
    }
    starts: list[Start] = []
    for _, lanes in sorted(queue.lanes.items()):
        passed = 0
        for entry in _in_line(lanes, books, shared):
            if books.lacks(entry):
                continue
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
    """Keep slices for `entry` where none are kept and enough are expected to be free soonest."""
    could = [
        (floor.reservation(entry), floor)
        for floor in floors
        if floor.kept is None and floor.pool.devices >= entry.devices
    ]
    if could:
        kept, floor = min(could, key=lambda each: each[0].at)
        floor.kept = kept


class _Floor:
    """One pool while decisions are made: its free slices, and for whom they are kept."""

    def __init__(self, pool: Pool, queue: Queue, now: int) -> None:
        self.pool, self.now = pool, now
        self.free = pool.slices - queue.taken.get(pool.name, 0)
        self.kept: Reservation | None = None
        self._ends = queue.ends.get(pool.name, [])
        self._begun: list[tuple[int, int]] = []  # expected end, slices

    def has_room(self, entry: Entry) -> bool:
        """Whether `entry` can start without delaying whom slices are kept for."""
        slices, kept = entry.devices // self.pool.size, self.kept
        if slices > self.free:
            return False
        return not kept or self.now + entry.seconds <= kept.at or slices <= kept.spare

    def give(self, entry: Entry) -> int:
        """How many slices `entry` takes, which are taken now."""
        slices, ends, kept = entry.devices // self.pool.size, self.now + entry.seconds, self.kept
        if kept and ends > kept.at:
            self.kept = replace(kept, spare=kept.spare - slices)
        self._begun.append((ends, slices))
        self.free -= slices
        return slices

    def reservation(self, entry: Entry) -> Reservation:
        """Enough slices for `entry`, when they are expected to be free. One that should have ended
        is expected to end at any moment."""
        needed, free, at = entry.devices // self.pool.size, self.free, self.now
        known = ((end, slices) for end, _, slices in self._ends)
        for end, slices in merge(known, sorted(self._begun)):
            if free >= needed and end > at:
                break
            free += slices
            at = max(self.now, end)
        return Reservation(entry.name, self.pool.name, at, free - needed)


class _Books:
    """What people have used and set aside: the queue's figures, and what was decided since."""

    def __init__(self, queue: Queue, policy: Policy, now: int) -> None:
        self.policy, self.now = policy, now
        self._queue = queue
        self._used: dict[Account, float] = {}  # device-seconds for each share
        self._more: dict[Account, int] = {}  # device-seconds that were set aside since

    def rank(self, entry: Entry) -> tuple[int, float, int, str]:
        """Lower goes first."""
        date = self.policy.date(entry)
        if date <= self.now:
            return 0, date, entry.submitted, entry.name
        return 1 + RANKS[entry.priority], self._used_by(entry.account), entry.submitted, entry.name

    def lacks(self, entry: Entry) -> int:
        """Device-seconds by which the budget is too small for `entry` to go on to its end.

        What it lost to preemption was used too, so that it may need more than was set aside.
        """
        if entry.short <= 0 or (limit := self.policy.budgets.get(entry.account)) is None:
            return 0
        committed = self._queue.use(entry.account).committed + self._more.get(entry.account, 0)
        return max(0, committed + entry.short - limit)

    def take(self, entry: Entry, pool: str = "", slices: int = 0) -> Start:
        """Count `entry` as started, there."""
        account, more = entry.account, max(0, entry.short)
        self._more[account] = self._more.get(account, 0) + more
        share = self.policy.shares.get(entry.person, 1.0)
        self._used[account] = self._used_by(account) + entry.seconds * entry.devices / share
        started = replace(entry, reserved=entry.reserved + more) if more else entry
        bound = account in self.policy.budgets
        room = (started.reserved - started.used) // started.devices
        return Start(started, pool, slices, self.now + room if bound else None)

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
    """The waiting entries for one kind, who goes first first; with `floors`, those alone for whose
    pools any slice is free.

    Each lane is in order by itself, so that only its first is compared with the others'. Whoever
    gets something goes further back in the middle of it: a rank is looked at again before it counts
    (it never gets lower).
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


MINUTES = (1, 2, 3, 4, 5, 10, 15, 20, 30, 45, 60, 90)  # in which an expected start is told


@dataclass(frozen=True)
class Place:
    """Where an entry stands in the line for its kind, and when it can expect to start."""

    entry: Entry
    position: int  # 1 is next
    of: int  # waiting for that kind
    start: int | None  # None: not as things stand
    why: str = ""  # there is no start to expect

    def words(self, now: int) -> str:
        """`2nd in the queue for 8 devices of h100, starts in about 4 min`: in coarse
        steps of time, so that words that are on show seldom change."""
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

    It is `schedule` played forward, as if runs took as long as is expected, nothing were preempted
    and nobody else came.
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
            why = "" if begins is not None else _why_not(entry, cluster, ahead, policy, at)
            places[entry.name] = Place(entry, position, len(line), begins, why)
    return places


def _why_not(entry: Entry, cluster: Cluster, queue: Queue, policy: Policy, now: int) -> str:
    here = [pool for pool in cluster.pools if pool.name in entry.pools]
    if all(pool.devices < entry.devices for pool in here):
        had = f"; {', '.join(entry.pools)} had" if entry.pools else ""
        devices = "1 device" if entry.devices == 1 else f"{entry.devices} devices"
        return f"no pool has {devices} any more{had}"
    lacks = device_hours(_Books(queue, policy, now).lacks(entry))
    return f"the budget of {entry.person} lacks {lacks}, because preemption used some of it"


def _devices(entry: Entry) -> str:
    return f"{entry.devices} devices of {entry.kind}" if entry.devices > 1 else entry.kind


def _ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
