"""The interval of a forecast holds curves that are almost a power law, and is not much wider where
the law is exact. The family and its full table are in `tests/bench/forecast_coverage.py`."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest

from runner.analysis import bends, scaling
from runner.analysis import forecast as forecasting
from runner.analysis.forecast import Forecast
from tests.bench.forecast_coverage import Judged, Kind, coverage, judged, widening
from tests.unit.analysis.test_forecast import SIZES, point

REACH = (6.0, 100.0)
BOARDS = 60  # a kind; the table has 400


@cache
def at(kind: Kind, reach: float) -> Sequence[Judged]:
    return judged(kind, "outer", BOARDS, reach, seed=2)


@pytest.mark.parametrize("reach", REACH)
def test_curves_that_are_almost_a_power_law_are_held_as_often_as_is_said(reach: float) -> None:
    kinds: tuple[Kind, ...] = ("second", "bend", "falling")
    found = [at(kind, reach) for kind in kinds]
    assert coverage([one for those in found for one in those]) >= 0.85
    assert min(map(coverage, found)) >= 0.75  # of 60 boards each


@pytest.mark.parametrize("reach", REACH)
def test_an_exact_law_is_not_held_by_width_alone(reach: float) -> None:
    found = at("exact", reach)
    assert 0.86 <= coverage(found) <= 0.99
    assert widening(found) <= 2


def test_an_interval_grows_with_the_reach_and_less_on_a_longer_ladder() -> None:
    random = np.random.default_rng(0)

    def width(span: float, reach: float) -> float:
        compute = np.geomspace(1.0, span, 8)
        losses = (0.8 + 2 * compute**-0.2) * (1 + 0.004 * random.standard_normal(8))
        low, high = bends.interval(compute, losses, span * reach, 0.9)
        return high - low

    def widths(span: float, reach: float) -> float:
        return fmean(width(span, reach) for _ in range(20))

    assert widths(100, 2) < widths(100, 10) < widths(100, 100)
    assert widths(1000, 10) < widths(100, 10) < widths(10, 10)


def test_an_interval_of_a_higher_level_holds_the_lower_one() -> None:
    board = [(10.0**n, 1 + 2 * 10.0 ** (-0.2 * n) + 0.002 * (-1) ** n) for n in range(6)]
    ends = [scaling.forecast(board, 1e7, level=level) for level in (0.5, 0.9, 0.99)]
    for inner, outer in pairwise(ends):
        assert outer.low < inner.low < inner.loss < inner.high < outer.high


def test_an_exact_curve_without_noise_has_a_narrow_interval_that_is_not_empty() -> None:
    board = {10.0**n: 1 + 2 * 10.0 ** (-0.2 * n) for n in range(6)}
    found = scaling.forecast(board, 1e7)
    assert found.low < 1 + 2 * 10.0**-1.4 < found.high
    assert found.high - found.low < 0.05


def test_sizes_with_errors_of_their_own_are_not_taken_for_seeds() -> None:
    """An error that is common to the seeds of a size, such as a bad learning rate, counts once."""
    random, held = np.random.default_rng(3), []
    there = 1e6 * 80**4
    for _ in range(60):
        points = []
        for size in SIZES:
            common = 0.006 * random.standard_normal()
            noise = common + 0.001 * random.standard_normal(3)
            points += [
                point(size, seed, point(size).loss * (1 + off)) for seed, off in enumerate(noise)
            ]
        truth = point(80).loss * (1 + 0.006 * random.standard_normal())
        found = forecasting.forecast(points, there)
        if isinstance(found, Forecast):
            held.append(found.low <= truth <= found.high)
    assert len(held) > 30
    assert fmean(held) >= 0.8
