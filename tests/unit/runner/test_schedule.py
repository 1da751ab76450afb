"""The rules of sharing, one by one: who goes next, where, and what the others are told."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.scheduler.admission import Refused, admit, priority_of
from runner.scheduler.queue_order import Cluster, Place, Policy, Pool, forecast, schedule
from runner.scheduler.queue_state import HOUR, WEEK, Priority, Queue, Request

FOUR = Cluster((Pool("nodes", "h100", 4),))
ANY = Policy()
ADAS_TEN = Policy(budgets={("ada", "h100"): 10 * HOUR})


def request(
    name: str,
    person: str = "ada",
    priority: Priority = "run",
    count: int = 1,
    seconds: int = HOUR,
    submitted: int = 0,
    kind: str = "h100",
) -> Request:
    return Request(name, person, priority, kind, count, seconds, submitted)


def queue_of(
    *requests: Request, cluster: Cluster = FOUR, policy: Policy = ANY, queue: Queue | None = None
) -> Queue:
    """What was approved, one by one."""
    queue = queue or Queue(policy.half_life)
    for each in requests:
        (entry,) = admit([each], queue, cluster, policy)
        queue.add(entry)
    return queue


def started(
    queue: Queue, now: int = 0, cluster: Cluster = FOUR, policy: Policy = ANY
) -> dict[str, int]:
    """What starts now, in its order, and how many slices it gets."""
    decision = schedule(queue, cluster, policy, now)
    return {start.entry.name: start.slices for start in decision.starts}


def go(queue: Queue, now: int = 0, cluster: Cluster = FOUR, policy: Policy = ANY) -> list[str]:
    """Start what is to start now, and say what that was."""
    starts = schedule(queue, cluster, policy, now).starts
    for start in starts:
        queue.begin(start, now)
    return [start.entry.name for start in starts]


# ── Where ────────────────────────────────────────────────────────────────────────────────────

TPUS = Cluster(
    (
        Pool("large", "v5p", 2, 64),
        Pool("small", "v5p", 8, 16),
        Pool("nodes", "h100", 16),
    )
)


@pytest.mark.parametrize(
    ("kind", "count", "pools", "devices"),
    [
        ("v5p", 16, ("small",), 16),
        ("v5p", 17, ("small",), 32),  # several slices are spanned before a larger one is wasted
        ("v5p", 64, ("large", "small"), 64),  # as many devices either way
        ("v5p", 65, ("small",), 80),
        ("v5p", 128, ("large", "small"), 128),
        ("h100", 3, ("nodes",), 3),
    ],
)
def test_a_run_takes_whole_slices_where_it_holds_the_fewest_devices(
    kind: str, count: int, pools: tuple[str, ...], devices: int
) -> None:
    (entry,) = admit([request("a", kind=kind, count=count)], Queue(), TPUS, ANY)
    assert (entry.pools, entry.devices) == (pools, devices)
    assert entry.reserved == devices * HOUR  # for all it holds, used or not


def test_a_run_that_fits_no_pool_is_refused_with_a_reason() -> None:
    words = "^the experiment needs 129 devices of kind `v5p` in one pool; the largest pool has 128$"
    with pytest.raises(Refused, match=words):
        admit([request("a", kind="v5p", count=129)], Queue(), TPUS, ANY)
    with pytest.raises(Refused, match=r"kind `v4`.*the cluster has none"):
        admit([request("a", kind="v4")], Queue(), TPUS, ANY)


def test_slices_are_free_again_when_who_held_them_has_ended() -> None:
    queue = queue_of(request("a"), request("b", count=2), request("c"))
    assert started(queue) == {"a": 1, "b": 2, "c": 1}
    go(queue)
    queue = queue_of(request("d"), queue=queue)
    assert started(queue, HOUR // 2) == {}
    queue.finish("b", HOUR // 2)
    assert started(queue, HOUR // 2) == {"d": 1}


# ── Who ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("runs", "seconds", "priority"),
    [
        (1, 900, "debugging"),
        (2, 60, "debugging"),
        (1, 901, "run"),
        (3, 60, "run"),
        (12, 9000, "run"),
        (13, 1, "sweep"),
    ],
)
def test_size_makes_the_priority(runs: int, seconds: int, priority: str) -> None:
    assert priority_of(runs, seconds) == priority


def test_debugging_goes_before_runs_and_these_before_sweeps() -> None:
    queue = queue_of(
        request("s", "ada", "sweep", submitted=0),
        request("r", "bob", "run", submitted=1),
        request("d", "cyd", "debugging", submitted=2),
    )
    assert list(started(queue, 2)) == ["d", "r", "s"]


def test_one_persons_runs_start_in_the_order_of_approval() -> None:
    queue = queue_of(request("late", submitted=5), request("early", submitted=4))
    assert list(started(queue, 5)) == ["early", "late"]


def test_the_person_with_the_least_recent_use_goes_first() -> None:
    queue = queue_of(request("a", "ada"), request("b", "bob", submitted=9))
    queue.remember(("ada", "h100"), 5 * HOUR, at=0)
    queue.remember(("bob", "h100"), 4 * HOUR, at=0)
    assert list(started(queue, 9)) == ["b", "a"]


def test_use_of_another_kind_does_not_count() -> None:
    queue = queue_of(request("a", "ada"), request("b", "bob", submitted=9))
    queue.remember(("ada", "v5p"), 5 * HOUR, at=0)
    assert list(started(queue, 9)) == ["a", "b"]


def test_use_counts_half_after_each_half_life() -> None:
    queue = queue_of(request("a", "ada", submitted=WEEK), request("b", "bob", submitted=WEEK))
    queue.remember(("ada", "h100"), 10 * HOUR, at=0)
    queue.remember(("bob", "h100"), 6 * HOUR, at=WEEK)
    assert list(started(queue, WEEK)) == ["a", "b"]
    queue.remember(("bob", "h100"), -2 * HOUR, at=WEEK)
    assert list(started(queue, WEEK)) == ["b", "a"]


def test_twice_the_share_allows_twice_the_use() -> None:
    queue = queue_of(request("a", "ada"), request("b", "bob"))
    queue.remember(("ada", "h100"), 9 * HOUR, at=0)
    queue.remember(("bob", "h100"), 5 * HOUR, at=0)
    assert list(started(queue)) == ["b", "a"]
    assert list(started(queue, policy=Policy(shares={"ada": 2}))) == ["a", "b"]


def test_people_take_turns_since_what_runs_counts_as_used() -> None:
    queue = queue_of(
        *(request(f"a{n}", "ada", submitted=0) for n in range(9)),
        *(request(f"b{n}", "bob", submitted=1) for n in range(9)),
    )
    assert go(queue, 1) == ["a0", "b0", "a1", "b1"]
    for name in ("a0", "a1"):  # free slices go to whoever now uses less
        queue.finish(name, 2)
    assert go(queue, 2) == ["a2", "a3"]


def test_overdue_runs_go_first_by_date() -> None:
    """Of a run of yesterday, a sweep of last week and fresh debugging."""
    queue = queue_of(
        request("sweep", "ada", "sweep", submitted=0),
        request("run", "bob", "run", submitted=WEEK - 24 * HOUR - 1),
        request("fresh", "cyd", "debugging", submitted=WEEK - 1),
    )
    assert list(started(queue, WEEK - 2)) == ["fresh", "run", "sweep"]
    assert list(started(queue, WEEK - 1)) == ["run", "fresh", "sweep"]
    assert list(started(queue, WEEK)) == ["run", "sweep", "fresh"]


# ── Backfilling ──────────────────────────────────────────────────────────────────────────────


def waiting_behind(*others: Request) -> Queue:
    """Two of four slices are held for an hour; `wide`, who wants three, is the first in line."""
    queue = queue_of(request("holds", "zoe", count=2))
    go(queue)
    return queue_of(request("wide", "ada", count=3, submitted=1), *others, queue=queue)


def test_slices_are_kept_for_the_first_that_finds_too_few() -> None:
    queue = waiting_behind(request("long", "bob", "sweep", count=2, seconds=HOUR, submitted=2))
    decision = schedule(queue, FOUR, ANY, 2)
    assert decision.starts == ()
    (kept,) = decision.reservations
    assert (kept.name, kept.pool, kept.at) == ("wide", "nodes", HOUR)


@pytest.mark.parametrize(
    ("count", "seconds", "starts"),
    [
        (2, HOUR - 2, True),  # over when the reservation begins
        (2, HOUR - 1, False),  # a second too long
        (1, 9 * HOUR, True),  # the reservation leaves one of four slices
        (3, 60, False),  # there are two
    ],
)
def test_backfilling_delays_nobody(count: int, seconds: int, starts: bool) -> None:
    behind = request("behind", "bob", "sweep", count, seconds, submitted=2)
    assert ("behind" in started(waiting_behind(behind), 2)) is starts


def test_a_spare_slice_is_given_once() -> None:
    queue = waiting_behind(
        request("one", "bob", "sweep", seconds=9 * HOUR, submitted=2),
        request("two", "bob", "sweep", seconds=9 * HOUR, submitted=2),
    )
    assert list(started(queue, 2)) == ["one"]


def test_reservations_count_what_starts_now() -> None:
    queue = queue_of(
        request("short", "ada", count=3, seconds=60),
        request("wide", "ada", count=4, submitted=1),
        request("behind", "ada", "sweep", seconds=60, submitted=1),
        request("longer", "ada", "sweep", seconds=61, submitted=1),
    )
    decision = schedule(queue, FOUR, ANY, 1)
    assert [start.entry.name for start in decision.starts] == ["short", "behind"]
    assert decision.reservations[0].at == 61


def test_all_that_ends_in_the_same_second_is_free_then() -> None:
    """`wide` waits for the end of one of two, which end together: the other's slices are spare."""
    queue = queue_of(
        *(request(name, "zoe") for name in "ab"),
        request("c", "zoe", seconds=60),
        request("d", "zoe", seconds=9 * HOUR),
    )
    go(queue)
    wide = request("wide", "ada", count=2, submitted=1)
    long = request("long", "bob", "sweep", seconds=9 * HOUR, submitted=2)
    queue = queue_of(wide, long, queue=queue)
    assert list(started(queue, 2)) == []
    queue.finish("c", 3)
    assert list(started(queue, 3)) == ["long"]
    (kept,) = schedule(queue, FOUR, ANY, 3).reservations
    assert (kept.name, kept.at, kept.spare) == ("wide", HOUR, 0)


def test_a_run_that_should_have_ended_is_expected_to_end_at_any_moment() -> None:
    late = 2 * HOUR
    queue = waiting_behind(request("behind", "bob", count=2, seconds=60, submitted=late))
    decision = schedule(queue, FOUR, ANY, late)
    assert (decision.starts, decision.reservations[0].at) == ((), late)


def test_a_look_skips_at_most_lookahead_entries() -> None:
    behind = [request(f"b{n}", "bob", "run", 2, 9 * HOUR, submitted=2) for n in range(3)]
    queue = waiting_behind(*behind, request("short", "bob", "sweep", seconds=60, submitted=2))
    assert "short" in started(queue, 2, policy=Policy(lookahead=4))
    assert "short" not in started(queue, 2, policy=Policy(lookahead=3))


def test_pools_do_not_wait_for_each_other() -> None:
    queue = queue_of(
        request("a", count=17, kind="v5p"),
        request("b", count=128, kind="v5p", seconds=2 * HOUR),  # finds all of `large`
        request("c", count=128, kind="v5p"),  # finds neither pool free
        request("d", count=16, kind="v5p"),
        request("e", kind="h100"),
        cluster=TPUS,
    )
    decision = schedule(queue, TPUS, ANY, 0)
    assert [(start.entry.name, start.pool, start.slices) for start in decision.starts] == [
        ("e", "nodes", 1),
        ("a", "small", 2),
        ("b", "large", 2),
        ("d", "small", 1),
    ]
    (kept,) = decision.reservations
    assert (kept.name, kept.pool, kept.at) == ("c", "small", HOUR)  # where it is free sooner


# ── Pure ─────────────────────────────────────────────────────────────────────────────────────

entries = st.lists(
    st.builds(
        request,
        name=st.uuids().map(str),
        person=st.sampled_from(["ada", "bob", "cyd"]),
        priority=st.sampled_from(["debugging", "run", "sweep"]),
        count=st.integers(1, 4),
        seconds=st.integers(1, 3 * HOUR),
        submitted=st.integers(0, 3 * HOUR),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(entries, st.randoms(use_true_random=False), st.integers(3 * HOUR, 40 * HOUR))
def test_the_order_in_which_the_queue_is_told_does_not_matter(
    requests: list[Request], chance: object, now: int
) -> None:
    shuffled = list(requests)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = queue_of(*requests), queue_of(*shuffled)
    assert schedule(one, FOUR, ANY, now) == schedule(other, FOUR, ANY, now)
    assert forecast(one, FOUR, ANY, now) == forecast(other, FOUR, ANY, now)


@settings(deadline=None)
@given(entries)
def test_schedule_and_forecast_change_nothing(requests: list[Request]) -> None:
    queue = queue_of(*requests)
    go(queue, 3 * HOUR)
    before = copy.deepcopy(vars(queue))
    schedule(queue, FOUR, ANY, 3 * HOUR)
    forecast(queue, FOUR, ANY, 3 * HOUR)
    assert vars(queue) == before


@settings(deadline=None)
@given(entries)
def test_runs_that_start_together_fit_together(requests: list[Request]) -> None:
    decision = schedule(queue_of(*requests), FOUR, ANY, 3 * HOUR)
    assert sum(start.slices for start in decision.starts) <= 4
    assert all(start.slices == start.entry.devices for start in decision.starts)


# ── What can be quoted ───────────────────────────────────────────────────────────────────────


def test_everybody_waiting_has_a_place_and_an_expected_start() -> None:
    queue = queue_of(
        request("a", "ada", count=4),
        request("b", "ada", count=4, submitted=1),
        request("c", "bob", count=3, submitted=1),
        request("d", "cyd", "sweep", submitted=1),
    )
    go(queue, 0)
    places = forecast(queue, FOUR, ANY, 60)
    found = {name: (place.position, place.of, place.start) for name, place in places.items()}
    assert found == {"c": (1, 3, HOUR), "b": (2, 3, 2 * HOUR), "d": (3, 3, HOUR)}
    said = places["c"].words(60)
    assert said == "1st in the queue for 3 devices of h100, starts in about 60 min"
    assert places["d"].words(HOUR) == "3rd in the queue for h100, starts soon"


def test_a_run_that_cannot_start_is_told_why() -> None:
    queue = queue_of(request("wide", "bob", count=4))
    shrunk = forecast(queue, Cluster((Pool("nodes", "h100", 3),)), ANY, HOUR)
    assert shrunk["wide"].words(HOUR).endswith("; no pool has 4 devices any more; nodes had")


@pytest.mark.parametrize(
    ("position", "seconds", "said"),
    [
        (1, 0, "1st in the queue for h100, starts soon"),
        (2, 181, "2nd in the queue for h100, starts in about 4 min"),
        (3, 240, "3rd in the queue for h100, starts in about 4 min"),
        (4, 301, "4th in the queue for h100, starts in about 10 min"),
        (11, 3500, "11th in the queue for h100, starts in about 60 min"),
        (22, 5401, "22nd in the queue for h100, starts in about 2 hours"),
        (23, 72 * HOUR, "23rd in the queue for h100, starts in about 3 days"),
    ],
)
def test_an_expected_start_is_told_in_coarse_steps(position: int, seconds: int, said: str) -> None:
    (entry,) = admit([request("a")], Queue(), FOUR, ANY)
    assert Place(entry, position, 30, HOUR + seconds).words(HOUR) == said
