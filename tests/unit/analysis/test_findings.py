"""A verdict as a sentence: which arm is better and by how much, then what was predicted."""

import pytest

from runner.analysis import findings, verdicts
from tests import synthetic

BEATS = "fast beats slow by 0.800 bits per byte (95 % CI 0.710 to 0.890, 3 seeds)"


@pytest.mark.parametrize(
    ("expect", "versus", "said"),
    [
        ("< -0.05", "slow", f"{BEATS}; predicted by more than 0.05, 80 % sure"),
        ("<= -0.05", "slow", f"{BEATS}; predicted by at least 0.05, 80 % sure"),
        ("< 0", "slow", f"{BEATS}; predicted fast beats slow, 80 % sure"),
        ("> 0.1", "slow", f"{BEATS}; predicted slow beats fast by more than 0.1, 80 % sure"),
        ("> -0.9", "slow", "predicted eval/bpb of fast minus slow is > -0.9, 80 % sure"),
        ("< 2.0", None, "predicted below 2, 80 % sure"),
        ("< -0.8", "slow", "only a part of the interval is in the predicted range; predicted"),
    ],
)
def test_a_verdict_says_which_arm_is_better_and_what_was_predicted(
    expect: str, versus: str | None, said: str
) -> None:
    plan = synthetic.plan(predictions=[synthetic.prediction(expect, versus=versus)])
    (verdict,) = verdicts.judge(plan, synthetic.PLAIN)
    assert said in findings.sentence(verdict)
