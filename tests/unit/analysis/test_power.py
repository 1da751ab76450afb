"""What a design can tell is what it does tell, when it is played."""

import math

import numpy as np
import pytest

from runner.analysis import estimates, power
from runner.schema.record import Spread
from tests import synthetic

SPREAD = Spread(deviation=0.01, arms=5, freedom=10)


def played(difference: float, deviation: float, seeds: int, times: int = 2000) -> float:
    """How often the interval of the verdicts' rule leaves zero out."""
    random = np.random.default_rng(seeds)
    shown = 0
    for values in random.normal(difference, deviation, (times, seeds)).tolist():
        interval = estimates.interval_of(values)
        shown += interval[0] > 0 or interval[1] < 0
    return shown / times


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_smallest_difference_shows_four_times_in_five(seeds: int) -> None:
    smallest = power.smallest_difference(0.01, seeds)
    assert power.power(smallest / 0.01, seeds) == pytest.approx(0.8, abs=1e-6)
    assert played(smallest, 0.01, seeds) == pytest.approx(0.8, abs=0.03)


def test_the_power_without_an_effect_is_one_in_twenty() -> None:
    assert power.power(0.0, 4) == pytest.approx(0.05)
    assert played(0.0, 0.01, 4) == pytest.approx(0.05, abs=0.015)


def test_more_seeds_show_smaller_differences() -> None:
    found = [power.smallest_difference(0.01, seeds) for seeds in (2, 3, 5, 20)]
    assert found == sorted(found, reverse=True)
    assert power.power(100.0, 3) == 1.0


def test_a_spread_is_pooled_over_arms_and_unknown_from_few() -> None:
    arms = [[1.0, 1.2], [2.0, 2.1, 2.2], [5.0, 5.3], [9.0]]
    found = power.known_spread(arms)
    assert found
    assert (found.arms, found.freedom) == (3, 4)
    assert found.deviation == pytest.approx(math.sqrt((0.02 + 0.02 + 0.045) / 4))
    assert power.known_spread(arms[:2]) is None
    assert power.known_spread([*arms, [7.0] * 3]) == found, "whose seeds change nothing"


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_the_smallest_tolerance_is_confirmed_four_times_in_five(seeds: int) -> None:
    smallest = power.smallest_tolerance(0.01, seeds)
    random, inside = np.random.default_rng(seeds), 0
    for values in random.normal(0.0, 0.01, (2000, seeds)).tolist():
        interval = estimates.interval_of(values)
        inside += -smallest <= interval[0] and interval[1] <= smallest
    assert inside / 2000 == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("expect", "versus", "too_little", "words"),
    [
        ("< -0.2", "slow", False, "below −0.246, refuted if it is above −0.154"),
        ("> 0.01", "slow", True, "too small an effect (0.010)"),
        ("< 0", "slow", False, "if the true difference is below −0.046"),
        ("< 2.0", None, False, "if the true mean is below 1.967"),
        ("1.9 ± 0.1", None, False, "if the true mean is 1.9, ± 0.037 is enough"),
        ("1.9 ± 0.01", None, True, "too narrow for this design"),
    ],
)
def test_the_detectable_difference_is_stated_per_prediction(
    expect: str, versus: str | None, too_little: bool, words: str
) -> None:
    prediction = synthetic.prediction(expect, versus=versus)
    found = power.of_prediction(prediction, SPREAD, 3)
    assert found
    assert found.too_little == too_little
    assert words in found.words
    assert power.of_prediction(prediction, None, 3) is None
    assert power.of_prediction(prediction, SPREAD, 1) is None


def test_an_unknown_power_is_stated() -> None:
    assert "Statistical power unknown" in power.known(None, 3)
    assert "no prediction about a mean can be confirmed" in power.known(SPREAD, 1)
    plan = synthetic.plan()
    assert power.of_such_runs(plan, []) is None
    assert len(power.told(plan, [synthetic.prediction()], None)) == 1


def test_the_power_by_another_metric_is_that_of_its_own_spread() -> None:
    metric = "task/lexical/accuracy"
    plan = synthetic.plan()
    prediction = synthetic.prediction("> 0.01").model_copy(update={"metric": metric})
    wide = SPREAD.model_copy(update={"deviation": 10 * SPREAD.deviation})
    general, of_it = power.told(plan, [prediction], SPREAD, {metric: wide})
    assert general == f"By `{metric}`: {power.known(wide, 3)}"
    assert of_it.startswith("⚠️ Prediction 1: too small an effect")
    both = power.told(plan, [prediction, synthetic.prediction()], SPREAD, {})
    assert both[0] == power.known(SPREAD, 3), "bits per byte first"
    assert both[1].startswith(f"By `{metric}`: Statistical power unknown")


def test_what_is_true_of_several_metrics_is_said_once() -> None:
    named = [f"eval/{part}/bpb" for part in ("words", "java")]
    predictions = [synthetic.prediction().model_copy(update={"metric": one}) for one in named]
    plan = synthetic.plan()
    assert power.told(plan, predictions, SPREAD, {}) == [power.known(None, 3)]
    first, second, *_ = power.told(plan, [synthetic.prediction(), *predictions], SPREAD, {})
    assert first == power.known(SPREAD, 3)
    assert second == f"By `eval/words/bpb`, `eval/java/bpb`: {power.known(None, 3)}"
