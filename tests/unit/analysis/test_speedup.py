"""Speed-ups on curves of which the truth is known."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import curve_fit

from runner.analysis import speedup
from runner.analysis.scaling import Refused
from runner.analysis.speedup import Pair, Speedup

C, A, B = 0.6, 30.0, 0.1
RANDOM = np.random.default_rng(0)


def law(flops: float) -> float:
    return C + A * flops**-B


def drawn(
    truth: float, sizes: int, seeds: int, noise: float
) -> tuple[list[tuple[float, float]], list[Pair], float]:
    """A baseline on the law, and a variant that is worth `truth` times its FLOPs."""
    points, pairs = list[tuple[float, float]](), list[Pair]()
    for flops in np.geomspace(1e12, 1e12 * 4 ** (sizes - 1), sizes).tolist():
        off = 1 + noise * RANDOM.standard_normal((2, seeds))
        baseline, variant = law(flops) * off[0], law(flops * truth) * off[1]
        points += [(flops, loss) for loss in baseline.tolist()]
        losses = tuple(zip(baseline.tolist(), variant.tolist(), strict=True))
        pairs.append(Pair((flops, flops), losses, ((10.0, 20.0),) * seeds))
    return points, pairs, min(loss for pair in pairs for _, loss in pair.losses)


def of(points: Sequence[tuple[float, float]], pairs: Sequence[Pair], below: float) -> Speedup:
    return speedup.speedup(speedup.laws(points, below), pairs, "flops")


@pytest.mark.parametrize("truth", [0.5, 1.0, 1.3, 4.0])
def test_a_known_speed_up_is_recovered(truth: float) -> None:
    points, pairs, below = drawn(truth, 4, 3, 0.0)
    laws = speedup.laws(points, below)
    assert laws.floors[laws.best] == pytest.approx(C, abs=1e-3)
    assert laws.exponents[laws.best] == pytest.approx(B, abs=1e-3)
    assert speedup.speedup(laws, pairs, "flops").estimate == pytest.approx(truth, rel=1e-3)


def test_more_flops_per_token_and_more_time_are_counted() -> None:
    points, pairs, below = drawn(2.0, 4, 3, 0.0)
    laws = speedup.laws(points, below)
    # The variant takes twice the seconds; with half as many FLOPs more, it pays 2 / 1.5.
    assert speedup.speedup(laws, pairs, "seconds").estimate == pytest.approx(1.0, rel=1e-3)
    dearer = [pair._replace(flops=(pair.flops[0], 1.5 * pair.flops[0])) for pair in pairs]
    assert speedup.speedup(laws, dearer, "flops").estimate == pytest.approx(2 / 1.5, rel=1e-3)


@pytest.mark.parametrize(("sizes", "seeds", "noise"), [(3, 3, 0.003), (4, 3, 0.001), (2, 4, 0.003)])
def test_nineteen_in_twenty_intervals_hold_the_truth(sizes: int, seeds: int, noise: float) -> None:
    """With two sizes every floor fits, and the interval is wider than it needs to be."""
    found = [of(*drawn(1.3, sizes, seeds, noise)) for _ in range(200)]
    share = np.mean([one.low <= 1.3 <= one.high for one in found if one.low and one.high])
    assert 0.9 <= share <= (1 if sizes == 2 else 0.99)


def test_what_makes_no_difference_is_a_tie_in_nineteen_of_twenty_cases() -> None:
    found = [of(*drawn(1.0, 3, 3, 0.002)) for _ in range(200)]
    assert np.mean([one.outcome == "tie" for one in found]) >= 0.9
    assert np.mean([of(*drawn(1.5, 3, 3, 0.002)).outcome == "gain" for _ in range(50)]) >= 0.9


def test_the_interval_includes_the_floors_that_scipy_finds_likely() -> None:
    points, _, below = drawn(1.0, 4, 3, 0.002)
    flops, losses = np.array(points).T
    (floor, _, _), covariance = curve_fit(
        lambda at, c, a, b: c + a * (at / 1e12) ** -b, flops, losses, p0=[C, law(1e12) - C, B]
    )
    laws = speedup.laws(points, below)
    assert laws.floors[laws.best] == pytest.approx(floor, abs=0.2 * covariance[0, 0] ** 0.5)
    assert laws.floors.min() <= floor - covariance[0, 0] ** 0.5


def test_the_inverse_is_seen_from_the_other_side() -> None:
    one = Speedup(2.0, 1.6, 2.5)
    assert one.inverse == Speedup(0.5, 0.4, 0.625)
    assert (one.outcome, one.inverse.outcome, Speedup(2.0).outcome) == ("gain", "loss", "tie")


def test_one_seed_has_no_interval() -> None:
    found = of(*drawn(1.3, 3, 1, 0.001))
    assert found.low is None
    assert found.outcome == "tie"


def test_what_has_no_speed_up_says_why() -> None:
    points, pairs, below = drawn(1.3, 3, 3, 0.001)
    with pytest.raises(Refused, match="one size has no slope"):
        speedup.laws(points[:3], below)
    with pytest.raises(Refused, match="does not fall"):
        speedup.laws([(flops, 4 - loss) for flops, loss in points], below)
    laws = speedup.laws(points, below)
    with pytest.raises(Refused, match="no seed has a score of both"):
        speedup.speedup(laws, [], "flops")
    with pytest.raises(Refused, match="time of a run is not known"):
        speedup.speedup(laws, [pair._replace(seconds=()) for pair in pairs], "seconds")
