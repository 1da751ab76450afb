"""IsoFLOP analysis of surfaces of which the truth is known."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from runner.analysis import isoflop
from runner.analysis.isoflop import Cell
from runner.analysis.scaling import Refused

BUDGETS = (1e12, 4e12, 1.6e13)
# A surface in the form of Hoffmann et al. 2022: L = E + S/N^ALPHA + T/D^BETA.
E, S, T, ALPHA, BETA = 1.0, 60.0, 60.0, 0.34, 0.34
RANDOM = np.random.default_rng(0)


TIMES = (0.25, 0.5, 1, 2, 4)  # D as a multiple of the best


def bowl(
    noise: float = 0.0, seeds: int = 1, power: float = 0.5, all_times: tuple[float, ...] = TIMES
) -> list[Cell]:
    """Parabolas in log D around D* = 0.5·C^power."""
    found = []
    for budget in BUDGETS:
        for times in all_times:
            tokens = 0.5 * budget**power * times
            loss = 1.2 + 0.1 * math.log10(times) ** 2
            losses = loss * (1 + noise * RANDOM.standard_normal(seeds))
            size = budget / 6 / tokens
            found.append(Cell(budget, f"n{size:.0f}", int(size), int(tokens), (*losses.tolist(),)))
    return found


def surface(budget: float, tokens: float) -> float:
    return E + S / (budget / 6 / tokens) ** ALPHA + T / tokens**BETA


@pytest.mark.parametrize("power", [0.4, 0.5, 0.6])
def test_parabolas_are_recovered(power: float) -> None:
    found = isoflop.analyse(bowl(power=power), [1e15])
    assert found.tokens
    assert found.parameters
    assert found.tokens.exponent.value == pytest.approx(power, abs=1e-3)
    assert found.parameters.exponent.value == pytest.approx(1 - power, abs=1e-3)
    for one in (*found.optima, *found.ahead):
        assert one.tokens.value == pytest.approx(0.5 * one.budget**power, rel=1e-3)
        assert one.parameters.value == pytest.approx(one.budget ** (1 - power) / 3, rel=1e-3)
    assert found.left_out == ()


def test_a_chinchilla_surface_is_recovered_as_scipy_minimises_it() -> None:
    """Equal exponents make it symmetric in log D, so that a parabola has the same minimum."""
    cells = []
    for budget in BUDGETS:
        best = 10 ** minimize_scalar(lambda x, c=budget: surface(c, 10**x), (4, 6, 8)).x
        for times in np.geomspace(0.5, 2, 5).tolist():
            tokens = best * times
            size = budget / 6 / tokens
            losses = (surface(budget, tokens),)
            cells.append(Cell(budget, f"n{size:.0f}", round(size), round(tokens), losses))
    found = isoflop.analyse(cells)
    assert found.tokens
    assert found.tokens.exponent.value == pytest.approx(ALPHA / (ALPHA + BETA), abs=1e-3)
    for one in found.optima:
        exact = minimize_scalar(lambda x, c=one.budget: surface(c, 10**x), (4, 6, 8))
        assert one.tokens.value == pytest.approx(10**exact.x, rel=1e-3)
        assert one.loss == pytest.approx(exact.fun, abs=1e-3)


def test_an_outlier_moves_the_minimum_less_than_by_least_squares() -> None:
    x = np.linspace(-1, 1, 9)
    y = 1 + x**2
    y[-1] += 1
    huber = isoflop.parabola(x, y)
    squares = np.polynomial.polynomial.polyfit(x, y, 2)
    at, before = (-fit[1] / 2 / fit[2] for fit in (huber, squares))
    assert abs(at) < abs(before) / 2


def test_a_size_gets_the_tokens_that_make_it_the_best() -> None:
    found = isoflop.analyse(bowl())
    for one in found.recipes:  # C = 6·N·D and D = 0.5·√C, so that D = 1.5·N
        assert one.tokens.value == pytest.approx(1.5 * one.parameters, rel=1e-3)
        assert one.flops.value == pytest.approx(9 * one.parameters**2, rel=2e-3)


def test_nineteen_in_twenty_intervals_hold_the_truth() -> None:
    inside = []
    for _ in range(60):
        found = isoflop.analyse(bowl(0.001, 3))
        assert found.tokens
        for truth, figure in (
            (0.5, found.tokens.exponent),
            *((0.5 * one.budget**0.5, one.tokens) for one in found.optima),
        ):
            assert figure.interval
            inside.append(figure.interval[0] <= truth <= figure.interval[1])
    assert 0.9 <= np.mean(inside) <= 1


def test_what_has_no_minimum_says_what_would_help() -> None:
    with pytest.raises(Refused, match="the minimum is beyond the sizes; add smaller ones"):
        isoflop.analyse(bowl(all_times=(0.125, 0.25, 0.5)))
    with pytest.raises(Refused, match="the minimum is beyond the sizes; add larger ones"):
        isoflop.analyse(bowl(all_times=(2, 4, 8)))
    with pytest.raises(Refused, match="2 sizes are too few"):
        isoflop.analyse(bowl()[:2])
    with pytest.raises(Refused, match="no run has a score"):
        isoflop.analyse([])


def test_one_budget_has_an_optimum_and_no_law() -> None:
    found = isoflop.analyse([cell for cell in bowl(0.001, 2) if cell.budget == 1e12])
    assert found.tokens is None
    assert found.optima[0].tokens.interval
    assert found.recipes == ()


def test_one_seed_of_three_sizes_has_no_interval() -> None:
    found = isoflop.analyse(bowl(all_times=(0.5, 1, 2)))
    assert found.optima[0].tokens.interval is None
    assert "nothing to tell the error from" in found.left_out[0]
