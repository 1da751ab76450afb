"""Many deliveries, and the process ends at every 25th effect; `make soak` has 10,000 of them."""

import pytest

from tests.scenarios.soak import KILL_EVERY, soak


def soaked(deliveries: int) -> None:
    figures = soak(deliveries)
    print(figures)
    assert figures["deliveries"] >= deliveries
    assert figures["kills"] >= figures["effects"] // KILL_EVERY - 5
    assert figures["executions"] >= 1


@pytest.mark.timeout(300)
def test_sixty_deliveries_and_a_death_at_every_25th_effect() -> None:
    soaked(60)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_hundred_deliveries_and_a_death_at_every_25th_effect() -> None:
    soaked(300)
