"""Scaling laws on boards of which the truth is known."""

import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.optimize import least_squares

from runner.analysis import scaling
from runner.analysis.scaling import Law, Refused

CELLS = [(points, noise) for noise in (0.003, 0.02) for points in (5, 8, 20)]
Board = list[tuple[float, float]]


def boards(points: int, noise: float, count: int) -> Iterator[tuple[Board, float, float]]:
    """Boards over two decades of compute with b from 0.05 to 0.5, c from 0 to 2 and a loss of 0.5
    to 3 above it at the smallest C; each with a C ten times the largest and the true loss there."""
    random = np.random.default_rng([points, int(noise * 1000)])
    compute = np.geomspace(1e18, 1e20, points)
    for _ in range(count):
        b, c, above = random.uniform(0.05, 0.5), random.uniform(0, 2), random.uniform(0.5, 3)
        truth = above * (np.append(compute, 1e21) / 1e18) ** -b + c
        measured = truth[:-1] * (1 + noise * random.standard_normal(points))
        yield list(zip(compute.tolist(), measured.tolist(), strict=True)), 1e21, float(truth[-1])


def covered(points: int, noise: float, count: int, bent: bool) -> tuple[float, float]:
    """Of the forecasts that are made, the share whose interval holds the truth; and the share of
    boards for which none is."""
    inside, refused = [], 0
    for board, at, truth in boards(points, noise, count):
        try:
            found = scaling.forecast(board, at, bent=bent)
        except Refused:
            refused += 1
        else:
            inside.append(found.low <= truth <= found.high)
    return sum(inside) / len(inside), refused / count


@pytest.mark.parametrize(("points", "noise"), CELLS)
def test_nine_in_ten_intervals_hold_the_truth(points: int, noise: float) -> None:
    share, refused = covered(points, noise, 200, bent=False)
    assert 0.83 <= share <= 0.97
    with_bends, _ = covered(points, noise, 200, bent=True)
    # Five quiet runs do not rule out a bend where there is none.
    assert 0.83 <= with_bends <= (1 if points == 5 else 0.97)
    if points >= 8 and noise == 0.003:
        assert refused <= 0.2


@pytest.mark.parametrize(("points", "noise"), CELLS)
def test_no_start_of_scipys_finds_a_better_curve(points: int, noise: float) -> None:
    for board, _, _ in boards(points, noise, 1):
        ours = scaling.fit(board)
        compute, losses = np.array(board).T
        random = np.random.default_rng(7)
        most = losses.max()
        best = math.inf
        for _ in range(200):
            start = [
                random.uniform(0, 3 * most),
                random.uniform(*scaling.B),
                random.uniform(0, most),
            ]
            found = least_squares(
                lambda p, x=compute / ours.at, y=losses: (p[0] * x ** -p[1] + p[2]) / y - 1,
                start,
                bounds=([0, scaling.B[0], 0], [np.inf, scaling.B[1], np.inf]),
            )
            best = min(best, 2 * float(found.cost))
        assert ours.squares <= best * (1 + 1e-6)
        left = sum((ours.loss(x) / y - 1) ** 2 for x, y in board)
        assert ours.squares == pytest.approx(left, rel=1e-9)


def test_a_curve_without_noise_is_found_as_it_is() -> None:
    """Marin's law for mixtures of experts: 1.6 + 95.18 · C^(−0.0941)."""
    compute = np.geomspace(1e18, 1e20, 6)
    law = scaling.fit({x: 1.6 + 95.18 * x**-0.0941 for x in compute.tolist()})
    assert law.b == pytest.approx(0.0941, rel=1e-4)
    assert law.c == pytest.approx(1.6, rel=1e-4)
    assert law.a * law.at**law.b == pytest.approx(95.18, rel=1e-3)
    assert law.loss(1e23) == pytest.approx(1.6 + 95.18 * 1e23**-0.0941, rel=1e-6)
    assert law.sentence == "L = 95.18 · C^(−0.0941) + 1.6000"


def test_hubers_curve_is_not_moved_by_one_bad_run() -> None:
    truth = Law(a=1.0, b=0.2, c=1.0, at=1e19, squares=0.0, n=8)
    compute = np.geomspace(1e18, 1e20, 12).tolist()
    random = np.random.default_rng(1)
    board = {x: truth.loss(x) * (1 + 0.001 * random.standard_normal()) for x in compute}
    board[compute[6]] *= 1.2
    robust, squares = (fit(board).loss(1e21) for fit in (scaling.fit_huber, scaling.fit))
    assert abs(robust - truth.loss(1e21)) < 0.3 * abs(squares - truth.loss(1e21))


@pytest.mark.parametrize(
    ("board", "words"),
    [
        ({1e18: 2.0, 1e19: 1.9}, "2 different C are too few"),
        ([(1e18, 2.0), (1e18, 2.1), (1e19, 1.9)], "2 different C are too few"),
        ({}, "0 different C are too few"),
        ({1e18: 2.0, 2e18: 2.1, 4e18: 2.2, 8e18: 2.4}, "do not fall"),
        ({1e18: 2.0, 2e18: 1.9, 4e18: 1.8, 8e18: 1.6, 16e18: 1.2}, "on its bound"),
        ({1e18: 2.0, 2e18: math.nan, 4e18: 1.8, 8e18: 1.7}, "no finite loss"),
    ],
)
def test_points_that_show_no_law_are_refused_with_a_reason(
    board: dict[float, float], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        scaling.forecast(board, 1e21)


@pytest.mark.parametrize(
    ("board", "at", "words"),
    [
        ({1e15: 3.0, 1e16: 2.6, 1e17: 2.3, 1e18: 2.1, 1e19: 0.0}, 1e20, "no finite loss above 0"),
        ({1e15: 3.0, 1e16: 2.6, 1e17: 2.3, 1e18: 2.1, 1e19: -1.0}, 1e20, "no finite loss above 0"),
        (
            {10.0**k: 1 + 5 * 0.99**k for k in (1, 100, 200, 280, 300)},
            1e303,
            "differ by more than a factor",
        ),
        ({10.0**k: 1 + 9 * 0.8**k for k in range(6)}, 0.0, "nothing can be forecast"),
        ({10.0**k: 1 + 9 * 0.8**k for k in range(6)}, float("inf"), "nothing can be forecast"),
        ({10.0**k: 1 + 9 * 0.8**k for k in range(6)}, 1e200, "nothing can be forecast"),
        ({1e15: 0.5, 1e16: 0.45, 1e17: 0.42}, 1e18, "0.4200 is not above the stated floor of 0.6"),
    ],
)
def test_points_that_overflow_floats_are_refused_with_a_reason(
    board: dict[float, float], at: float, words: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Refused, match=words):
            scaling.forecast(board, at)


def test_with_three_points_the_floor_is_given_and_the_interval_says_so() -> None:
    found = scaling.forecast({1e18: 1.19, 1e19: 1.0, 1e20: 0.89}, 1e21)
    assert found.law.c == scaling.FLOOR
    assert found.law.sentence.endswith("+ 0.6000 (c stated)")
    assert found.words == "the floor is taken as 0.6 and its own error is not in the interval"
    assert found.low < found.loss < found.high
