"""Simulates a described cluster on a virtual clock: what `schedule` would do, without hardware.

It uses the lab's own `schedule` for every start. Runs arrive, take their given time, and are
preempted at random times that depend only on the seed, the run's name and its attempt; so equal
input gives an equal trace, and two policies can be compared under the same faults.

A preempted run keeps the progress in its last checkpoint. One of its slices is taken away, for as
long as its pool says. Times are whole seconds.
"""

import heapq
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from runner.scheduler.admission import Refused, admit
from runner.scheduler.queue_order import RANKS, Cluster, Policy, Pool, forecast, schedule
from runner.scheduler.queue_state import HOUR, Queue, Request, Start

How = Literal["finished", "preempted", "spent"]
State = Literal["finished", "refused", "failed", "held"]


@dataclass(frozen=True, slots=True)
class Job:
    """A run that arrives, with what only the simulator knows about it."""

    request: Request
    seconds: int  # how long it takes without interruption
    checkpoint: int  # seconds of training between two checkpoints


@dataclass(frozen=True)
class Submission:
    """An experiment: its runs arrive together and are approved or refused together."""

    name: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Faults:
    """The faults of a cluster."""

    preemptions: Mapping[str, float] = field(default_factory=dict)  # by pool, per device-hour
    away: Mapping[str, int] = field(default_factory=dict)  # by pool: seconds without the slice
    attempts: int = 3  # after so many preempted attempts a run has failed
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Spell:
    """One attempt of a run: how many slices it held, and for how long."""

    pool: str
    slices: int
    start: int
    end: int
    how: How
    lost: int = 0  # seconds of training after the last checkpoint


@dataclass(slots=True)
class Fate:
    """The outcome of a run."""

    request: Request
    experiment: str
    state: State = "held"
    why: str = ""
    devices: int = 0
    spells: list[Spell] = field(default_factory=list)
    progress: int = 0  # seconds of training in the last checkpoint

    @property
    def started(self) -> int | None:
        """When it first had devices."""
        return self.spells[0].start if self.spells else None

    @property
    def ended(self) -> int | None:
        """When it last had devices."""
        return self.spells[-1].end if self.spells else None

    def device_seconds(self, pool: str | None = None) -> int:
        """The device-seconds of all its spells, or of those in one pool."""
        return self.devices * sum(
            spell.end - spell.start for spell in self.spells if pool in (None, spell.pool)
        )

    def lost_device_seconds(self, pool: str | None = None) -> int:
        """The part of them for training that was lost."""
        return self.devices * sum(spell.lost for spell in self.spells if pool in (None, spell.pool))

    def waits(self) -> list[tuple[int, int]]:
        """When it waited (from, to), without a last wait that never ended."""
        begins = [self.request.submitted, *(spell.end for spell in self.spells)]
        return [(begin, spell.start) for begin, spell in zip(begins, self.spells, strict=False)]


STOP, BACK, SUBMIT = 0, 1, 2  # the order of events in the same second


def simulate(
    submissions: Iterable[Submission], cluster: Cluster, policy: Policy, faults: Faults
) -> dict[str, Fate]:
    """The fate of each run, by name. Raises ValueError if two runs have one name."""
    return _Simulation(submissions, cluster, policy, faults).play()


class _Simulation:
    def __init__(
        self, submissions: Iterable[Submission], cluster: Cluster, policy: Policy, faults: Faults
    ) -> None:
        self.cluster, self.policy, self.faults = cluster, policy, faults
        self.queue = Queue(policy.half_life)
        self.jobs: dict[str, Job] = {}
        self.fates: dict[str, Fate] = {}
        self.spells: dict[str, Spell] = {}  # of current runs, with their future end
        self.events: list[tuple[int, int, str]] = []  # time, kind of event, name of a run or pool
        self.submissions: dict[str, Submission] = {}
        for submission in submissions:
            self._expect(submission)

    def _expect(self, submission: Submission) -> None:
        for job in submission.jobs:
            name = job.request.name
            if name in self.fates:
                raise ValueError(f"two runs are called {name}; each needs a name of its own")
            self.jobs[name] = job
            self.fates[name] = Fate(job.request, submission.name)
        first = submission.jobs[0].request
        self.submissions[first.name] = submission
        self.events.append((first.submitted, SUBMIT, first.name))

    def play(self) -> dict[str, Fate]:
        """Run from the first arrival until no event is left."""
        events, now = self.events, 0
        heapq.heapify(events)
        while events:
            now = events[0][0]
            while events and events[0][0] == now:
                _, what, name = heapq.heappop(events)
                if what == STOP:
                    self._stop(name, now)
                elif what == BACK:
                    self.queue.regain(name, now)
                else:
                    self._submit(self.submissions[name])
            for start in schedule(self.queue, self.cluster, self.policy, now).starts:
                self.queue.begin(start, now)
                self._start(start, now)
        for name, place in forecast(self.queue, self.cluster, self.policy, now).items():
            self.fates[name].why = place.why
        return self.fates

    def _submit(self, submission: Submission) -> None:
        requests = [job.request for job in submission.jobs]
        try:
            entries = admit(requests, self.queue, self.cluster, self.policy)
        except Refused as refused:
            for request in requests:
                self.fates[request.name].state = "refused"
                self.fates[request.name].why = str(refused)
            return
        for entry in entries:
            self.queue.add(entry)
            self.fates[entry.name].devices = entry.devices

    def _start(self, start: Start, now: int) -> None:
        """Determine how and when this attempt will end."""
        entry = start.entry
        job, fate = self.jobs[entry.name], self.fates[entry.name]
        left = job.seconds - fate.progress
        # The random numbers of one attempt: independent of everything else.
        chance = random.Random(f"{self.faults.seed}/{entry.name}/{len(fate.spells)}")
        luck = chance.expovariate(1.0)
        rate = self.faults.preemptions.get(start.pool, 0.0) * entry.devices / HOUR
        until_preempted = math.ceil(min(luck / rate, left)) if rate else left
        until_spent = left if start.until is None else start.until - now
        lasts = min(left, max(1, until_preempted), until_spent)
        how: How = "finished" if lasts == left else "spent" if lasts == until_spent else "preempted"
        progress = fate.progress + lasts
        kept = job.seconds if how == "finished" else progress // job.checkpoint * job.checkpoint
        self.spells[entry.name] = Spell(
            start.pool, start.slices, now, now + lasts, how, progress - kept
        )
        heapq.heappush(self.events, (now + lasts, STOP, entry.name))

    def _stop(self, name: str, now: int) -> None:
        job, fate, spell = self.jobs[name], self.fates[name], self.spells.pop(name)
        fate.spells.append(spell)
        fate.progress += spell.end - spell.start - spell.lost
        if spell.how == "finished":
            fate.state = "finished"
            self.queue.finish(name, now)
            return
        if spell.how == "spent":
            fate.state, fate.why = "failed", "what was reserved for it is spent"
            self.queue.finish(name, now)
            return
        if len(fate.spells) >= self.faults.attempts:
            fate.state, fate.why = "failed", f"it was preempted {len(fate.spells)} times"
            self.queue.finish(name, now)
        else:
            share = (job.seconds - fate.progress) / job.seconds
            self.queue.preempt(name, now, max(1, math.ceil(job.request.seconds * share)))
        if away := self.faults.away.get(spell.pool, 0):
            self.queue.lose(spell.pool, now + away)
            heapq.heappush(self.events, (now + away, BACK, spell.pool))


# ── Figures ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Group:
    """Statistics of a group of runs. Waiting is in seconds until a run first had devices, for runs
    that had any."""

    name: str
    runs: int
    finished: int
    preemptions: int
    mean_wait: float | None
    median_wait: float | None
    p95_wait: float | None
    longest_wait: float | None
    done_after: int | None  # seconds from the first arrival to the last end
    device_hours: float
    cost: float | None  # US$; None if a pool they used has no price


@dataclass(frozen=True)
class PoolUse:
    """Statistics of a pool from the first arrival to the last end."""

    name: str
    kind: str
    devices: int
    utilisation: float  # fraction of its device-hours that runs held
    lost: float  # fraction of these for training that was lost
    device_hours: float  # held
    cost: float | None  # US$ of these


@dataclass(frozen=True)
class Summary:
    """All statistics of a simulation."""

    makespan: int  # seconds from the first arrival to the last end
    all: Group
    pools: tuple[PoolUse, ...]
    priorities: tuple[Group, ...]
    people: tuple[Group, ...]  # the largest use first
    experiments: tuple[Group, ...]  # in the order of arrival
    troubles: Mapping[str, int]  # {why runs did not finish: how many}


def summarise(
    fates: Mapping[str, Fate], cluster: Cluster, prices: Mapping[str, float | None]
) -> Summary:
    """The statistics of a simulation; `prices` are US$ per device-hour, by pool."""
    every = list(fates.values())
    began, ended = span(every)
    pools = tuple(
        _pool_use(pool, every, prices.get(pool.name), ended - began) for pool in cluster.pools
    )

    def groups(key: Callable[[Fate], str]) -> list[Group]:
        found = defaultdict[str, list[Fate]](list)
        for fate in every:
            found[key(fate)].append(fate)
        return [_group(name, mine, prices, began) for name, mine in found.items()]

    people = groups(lambda fate: fate.request.person)
    by_priority = {group.name: group for group in groups(lambda fate: fate.request.priority)}
    return Summary(
        makespan=ended - began,
        all=_group("all", every, prices, began),
        pools=pools,
        priorities=tuple(by_priority[name] for name in RANKS if name in by_priority),
        people=tuple(sorted(people, key=lambda group: (-group.device_hours, group.name))),
        experiments=tuple(groups(lambda fate: fate.experiment)),
        troubles=Counter(fate.why for fate in every if fate.state != "finished"),
    )


def span(fates: Iterable[Fate]) -> tuple[int, int]:
    """The first arrival, and the last end (or the first arrival, if nothing ran)."""
    fates = list(fates)
    began = min((fate.request.submitted for fate in fates), default=0)
    return began, max((fate.ended for fate in fates if fate.ended is not None), default=began)


def _pool_use(pool: Pool, fates: list[Fate], price: float | None, seconds: int) -> PoolUse:
    held = sum(fate.device_seconds(pool.name) for fate in fates)
    lost = sum(fate.lost_device_seconds(pool.name) for fate in fates)
    return PoolUse(
        name=pool.name,
        kind=pool.kind,
        devices=pool.devices,
        utilisation=held / (pool.devices * seconds) if seconds else 0.0,
        lost=lost / held if held else 0.0,
        device_hours=held / HOUR,
        cost=None if price is None else held / HOUR * price,
    )


def _group(name: str, fates: list[Fate], prices: Mapping[str, float | None], began: int) -> Group:
    waits = [fate.started - fate.request.submitted for fate in fates if fate.started is not None]
    ends = [fate.ended for fate in fates if fate.ended is not None]
    costs = [_cost(fate, prices) for fate in fates if fate.spells]
    known = [cost for cost in costs if cost is not None]
    told = (np.mean(waits), *np.percentile(waits, (50, 95, 100))) if waits else (None,) * 4
    mean, median, p95, longest = (None if one is None else float(one) for one in told)
    return Group(
        name=name,
        runs=len(fates),
        finished=sum(fate.state == "finished" for fate in fates),
        preemptions=sum(spell.how == "preempted" for fate in fates for spell in fate.spells),
        mean_wait=mean,
        median_wait=median,
        p95_wait=p95,
        longest_wait=longest,
        done_after=max(ends) - began if ends else None,
        device_hours=sum(fate.device_seconds() for fate in fates) / HOUR,
        cost=sum(known) if len(known) == len(costs) else None,
    )


def _cost(fate: Fate, prices: Mapping[str, float | None]) -> float | None:
    cost = 0.0
    for pool in {spell.pool for spell in fate.spells}:
        price = prices.get(pool)
        if price is None:
            return None
        cost += fate.device_seconds(pool) / HOUR * price
    return cost
