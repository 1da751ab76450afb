"""Of `test_scaling.py` what needs a process, a socket or a compilation."""

import pytest

from tests.unit.analysis.test_scaling import CELLS, covered


@pytest.mark.slow
@pytest.mark.parametrize(("points", "noise"), CELLS)
def test_nine_in_ten_intervals_hold_the_truth_to_three_in_a_hundred(
    points: int, noise: float
) -> None:
    share, refused = covered(points, noise, 1000)
    print(f"\n{points} points, {noise:.1%} noise: {share:.1%} covered, {refused:.1%} refused")
    assert 0.87 <= share <= 0.93
    if points >= 8 and noise == 0.003:
        assert refused <= 0.2
