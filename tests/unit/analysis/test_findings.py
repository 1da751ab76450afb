"""A verdict as a sentence: which arm is better and by how much, then what was predicted."""

import pytest

from runner.analysis import findings, verdicts
from runner.schema.metrics import Score
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


# ── Without predictions ──────────────────────────────────────────────────────────────────────


def found(**scores: list[float | None]) -> str | None:
    """What arms with these scores by seed find."""
    seeds = range(len(next(iter(scores.values()))))
    plan = synthetic.plan(arms={arm: synthetic.planned_arm() for arm in scores}, seeds=seeds)
    runs = [synthetic.run(plan, arm, n, of[n]) for arm, of in scores.items() for n in seeds]
    said = findings.best(plan, runs)
    return said and findings.plain(said)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"a": [None, None]}, None),
        (
            {"a": [2.2, 2.3, 2.4]},
            "a scores 2.30 bits per byte (95 % CI 2.05 to 2.55, 3 seeds)",
        ),
        ({"a": [2.2]}, "a scores 2.2000 bits per byte (1 seed, so there is no interval)"),
        (
            {"slow": [3.41, 3.47, 3.38], "fast": [2.58, 2.66, 2.62]},
            BEATS,
        ),
        (
            {"a": [2.0], "b": [2.1]},
            "a scores 2.0000 bits per byte; b has 2.1000 (1 seed each, so there is no interval)",
        ),
        (
            {"a": [2.0, 2.0], "b": [2.1, 2.1], "c": [2.2, 2.2]},
            "a scores 2.0000 bits per byte; b, the next of 3 arms, has 2.1000 "
            "(the seed changes no score, so there is no interval)",
        ),
        (
            {"a": [2.0, 2.1], "b": [2.2, None]},
            "a scores 2.0500 bits per byte; b has 2.2000 "
            "(not every seed has a score, so there is no interval)",
        ),
        (
            {"a": [2.0, 2.1], "b": [2.1, 2.06]},
            "No clear difference between a and b: a minus b is −0.03 bits per byte "
            "(95 % CI −0.92 to 0.86, 2 seeds)",
        ),
    ],
)
def test_without_predictions_the_two_best_arms_are_compared(
    scores: dict[str, list[float | None]], said: str | None
) -> None:
    assert found(**scores) == said


def test_the_two_best_of_several_arms_were_chosen_after_the_run_so_their_interval_is_wider() -> (
    None
):
    a, b = [2.00, 2.05, 2.02, 2.07], [2.10, 2.16, 2.13, 2.15]
    assert found(a=a, b=b) == "a beats b by 0.100 bits per byte (95 % CI 0.077 to 0.123, 4 seeds)"
    more = {arm: [3.0, 3.1, 3.2, 3.3] for arm in "cde"}
    assert found(a=a, b=b, **more) == (
        "a beats the next of 5 arms, b, by 0.100 bits per byte "
        "(95 % CI 0.047 to 0.153 for all 10 comparisons, 4 seeds)"
    )


def test_arms_without_bits_per_byte_are_compared_by_the_metric_that_they_have() -> None:
    plan = synthetic.plan(seeds=[0])
    scores = {"fast": 0.4, "slow": 0.6}
    runs = [
        synthetic.run(plan, arm, 0, None).model_copy(
            update={
                "scores": {"weights/norm": Score(value=9.0), "task/cloze/accuracy": Score(value=x)}
            }
        )
        for arm, x in scores.items()
    ]
    said = findings.best(plan, runs)
    assert said
    assert findings.plain(said).startswith("slow scores 0.6000 in task/cloze/accuracy; fast has")
