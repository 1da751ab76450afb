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
    (verdict,) = verdicts.judge(plan, {"eval/bpb": synthetic.PLAIN})
    assert said in findings.sentence(verdict)


def by(metric: str, expect: str, fast: list[float], slow: list[float]) -> str:
    prediction = synthetic.prediction(expect).model_copy(update={"metric": metric})
    plan = synthetic.plan(predictions=[prediction])
    (verdict,) = verdicts.judge(plan, {metric: synthetic.figures(slow, fast)})
    return findings.sentence(verdict)


HIGH, LOW = [0.52, 0.51, 0.53], [0.31, 0.33, 0.32]


def test_a_higher_accuracy_beats_a_lower_one_and_the_metric_is_named() -> None:
    metric = "task/lexical/accuracy"
    assert by(metric, "> 0.1", HIGH, LOW) == (
        f"fast beats slow by 0.200 in {metric} (95 % CI 0.157 to 0.243, 3 seeds); "
        "predicted by more than 0.1, 80 % sure"
    )
    assert "predicted slow beats fast by more than 0.1" in by(metric, "< -0.1", HIGH, LOW)


def test_of_a_part_of_a_mixture_the_lower_score_is_better() -> None:
    assert by("eval/docs/bpb", "> 0.1", HIGH, LOW).startswith(
        "slow beats fast by 0.200 bits per byte in eval/docs/bpb (95 % CI"
    )


def test_where_neither_side_is_better_none_beats_the_other() -> None:
    assert by("weights/output_norm", "> 0.1", HIGH, LOW) == (
        "fast minus slow is 0.200 in weights/output_norm (95 % CI 0.157 to 0.243, 3 seeds); "
        "predicted weights/output_norm of fast minus slow is > 0.1, 80 % sure"
    )
