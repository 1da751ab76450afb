"""The gate of a rung: what it counts, and when it will not say."""

import math
import random

import pytest

from runner.analysis import promotion
from runner.schema.record import PlannedRung, Run
from tests import synthetic

RUNG = PlannedRung(n=1, of=3, baseline="base", variant="new", floor=0.6, exponent=0.1)
ARMS = {name: synthetic.planned_arm() for name in ("base", "new")}
PLAN = synthetic.plan(arms=ARMS).model_copy(update={"rung": RUNG})


def runs(
    base: list[float | None], new: list[float | None], speeds: tuple[float | None, ...] = (9e3, 9e3)
) -> list[Run]:
    return [
        synthetic.run(PLAN, arm, seed, bpb).model_copy(update={"tokens_per_second": speed})
        for arm, of, speed in zip(("base", "new"), (base, new), speeds, strict=True)
        for seed, bpb in enumerate(of)
    ]


def gate(*args: object) -> promotion.Gate:
    found = promotion.gate(PLAN, runs(*args))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_speed_up_is_the_compute_that_the_baseline_would_need_times_the_speed() -> None:
    found = gate([1.60, 1.61, 1.59], [1.50, 1.51, 1.49], (10_000.0, 8_000.0))
    assert found.speedup is not None
    assert found.speedup.estimate == pytest.approx((1.0 / 0.9) ** 10 * 0.8)
    assert found.speedup.faster == pytest.approx(0.8)
    assert found.outcome == "passed"


def test_a_variant_that_is_better_and_slower_may_fail() -> None:
    found = gate([1.60, 1.601, 1.599], [1.58, 1.581, 1.579], (10_000.0, 7_000.0))
    assert found.outcome == "failed"


def test_a_gain_within_the_noise_is_inconclusive() -> None:
    assert gate([1.60, 1.66, 1.54], [1.59, 1.65, 1.53]).outcome == "inconclusive"


def test_the_noise_of_speeds_is_in_the_interval() -> None:
    same = runs([1.60, 1.601, 1.599], [1.58, 1.581, 1.579])
    noisy = [
        run.model_copy(update={"tokens_per_second": 9_000.0 * (1 + 0.4 * (run.seed - 1))})
        for run in same
    ]
    assert promotion.gate(PLAN, same).outcome == "passed"  # type: ignore[union-attr]
    assert promotion.gate(PLAN, noisy).outcome == "inconclusive"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (([1.6, None, 1.6], [1.5, 1.5, 1.5]), "a run has no score"),
        (([1.6] * 3, [1.5] * 3, (None, 9e3)), "a run reported no tokens per second"),
        (([1.6] * 3, [0.5] * 3), "is not above the floor of 0.6000"),
        (([9.0, 1.6, 1.6], [0.6 + 1e-9] * 3), "give no finite speed-up"),
        (([1.6] * 3, [1.5] * 3, (1e-300, 1e300)), "differ too much"),
    ],
)
def test_a_gate_that_cannot_be_computed_is_inconclusive_with_a_reason(
    given: tuple[object, ...], why: str
) -> None:
    found = gate(*given)
    assert (found.outcome, found.speedup) == ("inconclusive", None)
    assert found.why is not None
    assert why in found.why


def test_equal_seeds_give_a_point_interval_of_the_speed_up() -> None:
    """By Marin's law for mixtures of experts, 1.6 + 95.18 · C^(−0.0941)."""
    rung = RUNG.model_copy(update={"floor": 1.6, "exponent": 0.0941})
    plan = PLAN.model_copy(update={"rung": rung})
    found = promotion.gate(plan, runs([3.0] * 3, [2.9] * 3, (100.0, 90.0)))
    assert found is not None
    assert found.speedup is not None
    assert found.speedup.estimate == pytest.approx((1.4 / 1.3) ** (1 / 0.0941) * 0.9)
    assert found.speedup.low == found.speedup.estimate == found.speedup.high


def test_one_seed_has_no_spread() -> None:
    found = promotion.gate(PLAN.model_copy(update={"seeds": (0,)}), runs([1.6], [1.5]))
    assert found is not None
    assert (found.outcome, found.speedup) == ("inconclusive", None)
    assert "a gate needs two seeds" in (found.why or "")


def test_a_plan_that_is_no_rung_has_no_gate() -> None:
    assert promotion.gate(synthetic.plan(), []) is None


def test_a_variant_that_is_no_better_passes_as_seldom_as_the_interval_says() -> None:
    rng, passed = random.Random(0), 0
    for _ in range(300):
        losses = ([1.6 + rng.gauss(0, 0.01) for _ in range(3)] for _ in range(2))
        found = gate(*losses)
        assert found.speedup is not None
        assert math.isfinite(found.speedup.high)
        passed += found.outcome == "passed"
    assert passed <= 300 * 0.08, "5 % on one side of an interval of 90 %"
