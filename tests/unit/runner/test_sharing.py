"""The rules of sharing over time: what holds under any load, and two stories."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.scheduler.admission import Refused, admit
from runner.scheduler.queue_order import Cluster, Policy, Pool, forecast, schedule
from runner.scheduler.queue_state import HOUR, WEEK, Queue, Request
from tests.unit.runner.test_schedule import ANY, FOUR, request


@dataclass(frozen=True)
class Spell:
    """What a run held, and when."""

    pool: str
    slices: int
    devices: int
    start: int
    end: int


@dataclass(frozen=True)
class Load:
    """Requests, each with the seconds that its run really takes."""

    requests: dict[Request, int]
    cluster: Cluster
    policy: Policy


def spells(
    requests: dict[Request, int], cluster: Cluster, policy: Policy = ANY
) -> dict[str, Spell]:
    """What each admitted run held, by name, if the queue is asked at every arrival and end."""
    queue, held = Queue(policy.half_life), dict[str, Spell]()
    wanted = {each.name: each for each in requests}
    events = [(each.submitted, True, each.name) for each in requests]  # ends come before arrivals
    heapify(events)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, arrives, name = heappop(events)
            if not arrives:
                queue.finish(name, now)
                continue
            try:
                (entry,) = admit([wanted[name]], queue, cluster, policy)
            except Refused:
                continue
            queue.add(entry)
        for start in schedule(queue, cluster, policy, now).starts:
            queue.begin(start, now)
            name, ends = start.entry.name, now + requests[wanted[start.entry.name]]
            held[name] = Spell(start.pool, start.slices, start.entry.devices, now, ends)
            heappush(events, (ends, False, name))
    assert not queue.waiting, "what is approved comes to its turn"
    return held


def as_expected(requests: Iterable[Request]) -> dict[Request, int]:
    """Each run takes as long as is expected of it."""
    return {each: each.seconds for each in requests}


# ── Whatever happens ─────────────────────────────────────────────────────────────────────────


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """A small cluster under a load of runs that take at most what is expected of them."""
    pools = tuple(
        Pool(f"p{n}", draw(st.sampled_from(["h100", "v5p"])), draw(st.integers(1, 6)), size)
        for n, size in enumerate(draw(st.lists(st.sampled_from([1, 4]), min_size=1, max_size=3)))
    )
    kinds = sorted({pool.kind for pool in pools})
    requests, people = {}, ["ada", "bob", "cyd"]
    for n in range(draw(st.integers(1, 14))):
        person, kind = draw(st.sampled_from(people)), draw(st.sampled_from(kinds))
        count, submitted = draw(st.integers(1, 26)), draw(st.integers(0, 5000))
        priority = draw(st.sampled_from(["debugging", "run", "sweep"]))
        for m in range(draw(st.integers(1, 4))):
            expected = draw(st.integers(1, 3000))
            wanted = Request(f"e{n}.{m}", person, priority, kind, count, expected, submitted)
            requests[wanted] = draw(st.integers(1, expected))
    patience = {"debugging": 500, "run": 2000, "sweep": 6000}
    accounts = st.tuples(st.sampled_from(people), st.sampled_from(kinds))
    budgets = draw(st.dictionaries(accounts, st.integers(0, 80_000)))
    half_life, lookahead = draw(st.integers(60, WEEK)), draw(st.integers(0, 9))
    policy = Policy(patience, half_life, {"ada": 2.0}, budgets, lookahead)
    return Load(requests, Cluster(pools), policy)


@settings(deadline=None)
@given(loads())
def test_no_device_is_used_twice(load: Load) -> None:
    held = spells(load.requests, load.cluster, load.policy)
    for pool in load.cluster.pools:
        mine = [spell for spell in held.values() if spell.pool == pool.name]
        assert all(spell.slices * pool.size == spell.devices for spell in mine)
        starts = [(spell.start, spell.slices) for spell in mine]
        changes = sorted([*starts, *((spell.end, -spell.slices) for spell in mine)])
        assert all(taken <= pool.slices for taken in accumulate(more for _, more in changes))


@settings(deadline=None)
@given(loads())
def test_no_budget_is_exceeded(load: Load) -> None:
    held = spells(load.requests, load.cluster, load.policy)
    for account, limit in load.policy.budgets.items():
        mine = {each.name for each in load.requests if (each.person, each.kind) == account}
        used = (
            spell.devices * (spell.end - spell.start)
            for name, spell in held.items()
            if name in mine
        )
        assert sum(used) <= limit


@settings(deadline=None)
@given(loads())
def test_no_run_waits_long_after_its_date(load: Load) -> None:
    """From its date on, a run waits at most for those of an earlier date, one longest run each,
    and one more: whatever else arrives meanwhile."""
    held = spells(load.requests, load.cluster, load.policy)
    wanted = {each.name: each for each in load.requests}
    dates = {
        name: (load.policy.patience[each.priority] + each.submitted, name)
        for name, each in wanted.items()
    }
    for name, spell in held.items():
        if spell.start == wanted[name].submitted:
            continue
        date = dates[name][0]
        mine = [other for other in held if wanted[other].kind == wanted[name].kind]
        longest = max(wanted[other].seconds for other in mine)
        before = sum(
            date <= held[other].start < spell.start and dates[other] < dates[name] for other in mine
        )
        assert spell.start <= date + longest * (1 + before)


@settings(deadline=None)
@given(loads())
def test_a_forecast_comes_true_where_nothing_comes_between(load: Load) -> None:
    """Everybody is there from the start, and takes as long as expected."""
    queue, free = Queue(), Policy()
    there = [replace(each, submitted=0) for each in load.requests]
    for each in there:
        try:
            (entry,) = admit([each], queue, load.cluster, free)
        except Refused:
            continue
        queue.add(entry)
    foreseen = forecast(queue, load.cluster, free, 0)
    assert {name: place.start for name, place in foreseen.items()} == {
        name: spell.start for name, spell in spells(as_expected(there), load.cluster, free).items()
    }


# ── Stories ──────────────────────────────────────────────────────────────────────────────────


def test_a_stream_of_debugging_holds_a_wide_sweep_up_until_its_date_only() -> None:
    stream = [
        request(f"d{n}", "bob", "debugging", seconds=900, submitted=n * 225)
        for n in range(2000)  # as much as four devices can do
    ]
    wide = request("wide", "ada", "sweep", count=4, submitted=1)
    policy = Policy(patience={"debugging": HOUR, "run": 2 * HOUR, "sweep": 24 * HOUR})
    held = spells(as_expected([wide, *stream]), FOUR, policy)
    assert 24 * HOUR <= held["wide"].start - 1 <= 24 * HOUR + 900
    assert len(held) == 2001


def test_a_sweep_does_not_hold_debugging_up() -> None:
    sweep = [request(f"s{n}", "ada", "sweep", seconds=600) for n in range(100)]
    debugging = request("d", "bob", "debugging", seconds=60, submitted=10)
    assert spells(as_expected([*sweep, debugging]), FOUR)["d"].start == 600  # the first four end
