"""Device-hour budgets: set aside at approval, released at the end, never broken."""

import pytest

from runner.scheduler.admission import Refused, admit
from runner.scheduler.queue_order import schedule
from runner.scheduler.queue_state import HOUR, Queue
from tests.unit.runner.test_schedule import ADAS_TEN, FOUR, go, queue_of, request, started


def test_approval_sets_aside_what_is_expected_and_the_end_gives_the_rest_back() -> None:
    queue = queue_of(request("a", count=2, seconds=3 * HOUR), policy=ADAS_TEN)
    assert queue.use(("ada", "h100")).committed == 6 * HOUR
    go(queue, policy=ADAS_TEN)
    queue.finish("a", HOUR)
    assert queue.use(("ada", "h100")).committed == 2 * HOUR


def test_a_withdrawn_run_releases_its_whole_reservation() -> None:
    queue = queue_of(request("a", seconds=3 * HOUR))
    queue.finish("a", HOUR)
    assert queue.use(("ada", "h100")).committed == 0
    assert started(queue, HOUR) == {}


def test_a_run_over_budget_is_refused_with_a_reason() -> None:
    queue = queue_of(request("a", seconds=7 * HOUR), policy=ADAS_TEN)
    with pytest.raises(Refused) as refused:
        admit([request("b", seconds=4 * HOUR)], queue, FOUR, ADAS_TEN)
    assert str(refused.value) == (
        "the experiment needs 4 device-hours of `h100`, but ada may use 10 device-hours, and 7 "
        "device-hours of these are used or reserved; ask for more, or wait until a reservation ends"
    )
    assert admit([request("b", seconds=3 * HOUR)], queue, FOUR, ADAS_TEN)
    assert admit([request("b", "bob", seconds=4 * HOUR)], queue, FOUR, ADAS_TEN)


def test_an_experiment_is_approved_whole_or_not_at_all() -> None:
    runs = [request(f"r{n}", seconds=4 * HOUR) for n in range(3)]
    with pytest.raises(Refused, match="needs 12 device-hours"):
        admit(runs, Queue(), FOUR, ADAS_TEN)
    assert len(admit(runs[:2], Queue(), FOUR, ADAS_TEN)) == 2


def test_a_run_is_told_until_when_its_budget_lasts() -> None:
    queue = queue_of(request("a", count=2, seconds=3 * HOUR), request("b", "bob"), policy=ADAS_TEN)
    untils = {s.entry.name: s.until for s in schedule(queue, FOUR, ADAS_TEN, 60).starts}
    assert untils == {"a": 60 + 3 * HOUR, "b": None}


def test_a_preempted_run_takes_from_the_budget_what_it_lost() -> None:
    queue = queue_of(request("a", seconds=6 * HOUR), policy=ADAS_TEN)
    go(queue, policy=ADAS_TEN)
    queue.preempt("a", 3 * HOUR, seconds=5 * HOUR)  # of three hours, one is kept
    (start,) = schedule(queue, FOUR, ADAS_TEN, 3 * HOUR).starts
    assert (start.entry.used, start.entry.reserved) == (3 * HOUR, 8 * HOUR)
    assert start.until == 8 * HOUR
    queue.begin(start, 3 * HOUR)
    assert queue.use(("ada", "h100")).committed == 8 * HOUR


def test_a_preempted_run_waits_where_the_budget_lacks_what_it_lost() -> None:
    queue = queue_of(
        request("a", seconds=6 * HOUR), request("b", seconds=3 * HOUR), policy=ADAS_TEN
    )
    go(queue, policy=ADAS_TEN)
    queue.preempt("a", 2 * HOUR, seconds=6 * HOUR)
    assert started(queue, 2 * HOUR, policy=ADAS_TEN) == {}
    # What `b` does not need makes room, and goes to nobody who is approved later.
    with pytest.raises(Refused):
        admit([request("c", seconds=HOUR)], queue, FOUR, ADAS_TEN)
    queue.finish("b", 2 * HOUR)
    assert go(queue, 2 * HOUR, policy=ADAS_TEN) == ["a"]


def test_two_runs_short_of_budget_do_not_both_take_its_rest() -> None:
    queue = queue_of(
        request("a", seconds=4 * HOUR), request("b", seconds=4 * HOUR), policy=ADAS_TEN
    )
    go(queue, policy=ADAS_TEN)
    for name in ("a", "b"):
        queue.preempt(name, 2 * HOUR, seconds=4 * HOUR)
    assert list(started(queue, 2 * HOUR, policy=ADAS_TEN)) == ["a"]


def test_a_person_without_budget_blocks_nobody() -> None:
    queue = queue_of(request("a", seconds=10 * HOUR, count=1), policy=ADAS_TEN)
    go(queue, policy=ADAS_TEN)
    queue.preempt("a", HOUR, seconds=10 * HOUR)
    queue = queue_of(request("b", "bob", "sweep", submitted=HOUR), queue=queue)
    assert list(started(queue, HOUR, policy=ADAS_TEN)) == ["b"]
