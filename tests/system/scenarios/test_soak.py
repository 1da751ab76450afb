"""Many deliveries, and the process ends at every 25th effect; `make soak` has 10,000 of them."""

import pytest

from tests.scenarios.soak import KILL_EVERY, soak


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_hundred_deliveries_and_a_death_at_every_25th_effect() -> None:
    figures = soak(300)
    assert figures["deliveries"] >= 300
    assert figures["kills"] >= figures["effects"] // KILL_EVERY - 5
    assert figures["executions"] >= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(1, 9))
def test_hundreds_of_deliveries_in_the_worst_climate_with_deaths(seed: int) -> None:
    figures = soak(200, seed, climate="worst")
    assert figures["deliveries"] >= 200
    assert figures["kills"] >= 20
    assert {"lag", "failure", "broken", "late", "twice", "too quickly"} <= set(figures["met"])
