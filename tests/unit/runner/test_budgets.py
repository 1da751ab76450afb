"""Device-hour budgets: set aside at approval, released at the end, never broken."""

import pytest

from runner.scheduler.admission import Refused, admit
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
