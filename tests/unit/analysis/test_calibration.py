"""Confidence is scored by what happened."""

from typing import Literal

import pytest

from runner.analysis.calibration import calibration
from runner.schema.record import Prediction, Verdict

Outcome = Literal["confirmed", "refuted", "inconclusive"]


def verdict(confidence: float, outcome: Outcome) -> Verdict:
    prediction = Prediction(metric="eval/bpb", arm="a", expect="< 1", confidence=confidence)
    return Verdict(prediction=prediction, outcome=outcome, why="", n=3)


def test_the_brier_score_is_the_mean_square() -> None:
    found = calibration([verdict(0.9, "confirmed"), verdict(0.6, "refuted")])
    assert found.brier == pytest.approx((0.1**2 + 0.6**2) / 2)
    assert found.n == 2
    assert calibration([verdict(0.5, "refuted")] * 7).brier == 0.25


def test_an_inconclusive_verdict_is_counted_without_a_score() -> None:
    found = calibration([verdict(0.9, "inconclusive")] * 3)
    assert (found.n, found.inconclusive, found.brier, found.bins) == (0, 3, None, ())


def test_bins_show_how_often_what_was_said_came_true() -> None:
    said = [verdict(0.85, "confirmed")] * 8 + [verdict(0.85, "refuted")] * 2
    found = calibration([*said, verdict(0.99, "confirmed"), verdict(0.2, "refuted")])
    low, middle, high = found.bins
    assert (low.low, low.high, low.share) == (0.0, 0.5, 0.0)
    assert (middle.low, middle.n, middle.share) == (0.8, 10, 0.8)
    assert middle.confidence == pytest.approx(0.85)
    assert middle.interval == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Wilson's, of 8 in 10
    assert (high.low, high.high, high.n) == (0.9, 1.0, 1)
