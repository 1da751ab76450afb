"""What a design can tell is what it does tell, when it is played."""

import math

import numpy as np
import pytest

from runner.analysis import power, verdicts
from runner.analysis.power import Spread

SPREAD = Spread(deviation=0.01, arms=5, freedom=10)


def played(difference: float, deviation: float, seeds: int, times: int = 2000) -> float:
    """How often the interval of the verdicts' rule leaves zero out."""
    random = np.random.default_rng(seeds)
    shown = 0
    for values in random.normal(difference, deviation, (times, seeds)).tolist():
        interval = verdicts.interval_95(values)
        assert interval
        shown += interval[0] > 0 or interval[1] < 0
    return shown / times


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_smallest_difference_shows_four_times_in_five(seeds: int) -> None:
    smallest = power.smallest_difference(SPREAD, seeds, between_arms=True)
    assert smallest
    assert power.power(smallest, 0.01 * math.sqrt(2), seeds) == pytest.approx(0.8, abs=1e-6)
    assert played(smallest, 0.01 * math.sqrt(2), seeds) == pytest.approx(0.8, abs=0.03)


def test_nothing_shows_one_time_in_twenty_where_there_is_nothing() -> None:
    assert power.power(0.0, 0.01, 4) == pytest.approx(0.05)
    assert played(0.0, 0.01, 4) == pytest.approx(0.05, abs=0.015)


def test_more_seeds_show_smaller_differences_and_one_shows_none() -> None:
    found = [power.smallest_difference(SPREAD, n, between_arms=False) for n in (1, 2, 3, 5, 20)]
    assert found[0] is None
    rest = [x for x in found if x is not None]
    assert rest == sorted(rest, reverse=True)
    assert power.power(1.0, 0.01, 1) == 0.0
    assert power.power(1.0, 0.01, 3) == power.power(1.0, 0.0, 3) == 1.0


def test_a_spread_is_pooled_over_arms_and_unknown_from_few() -> None:
    arms = [[1.0, 1.2], [2.0, 2.1, 2.2], [5.0, 5.3], [9.0]]
    found = power.known_spread(arms)
    assert found
    assert (found.arms, found.freedom) == (3, 4)
    assert found.deviation == pytest.approx(math.sqrt((0.02 + 0.02 + 0.045) / 4))
    assert power.known_spread(arms[:2]) is None
    assert (
        power.smallest_difference(Spread(deviation=0.0, arms=3, freedom=3), 3, between_arms=True)
        == 0.0
    )
