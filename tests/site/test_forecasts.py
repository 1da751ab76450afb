"""Predictions beside their outcomes; running again changes no score."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from bot.site import forecasts
from bot.site.board import read_lab
from bot.site.pages import build
from runner.store import Store
from tests import synthetic
from tests.site.test_pages import Page


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def told(store: Store, command: str, issue: int = 1, **plan: object) -> None:
    """An execution of a sealed question has ended; its predictions came true, and did not."""
    predictions = [synthetic.prediction(), synthetic.prediction("2.0 ± 0.2", versus=None)]
    seal = synthetic.preregister(store, issue, predictions=predictions)
    found = synthetic.plan(preregistration=issue, predictions=predictions, **plan)
    found = found.model_copy(update={"seal": seal.seal})
    at = synthetic.START + timedelta(hours=int(command))
    synthetic.finish(store, synthetic.execution(found, command, at=at), synthetic.PLAIN)


def test_a_prediction_stands_with_its_author_its_confidence_and_its_outcome(
    store: Store, tmp_path: Path
) -> None:
    told(store, "1")
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "forecasts.html").text
    assert "eval/bpb of fast minus slow is below −0.05 80 % ✓ confirmed ada" in text
    assert "✗ refuted ada" in text
    assert "ada 0.340 2 0" in text, "((0.8 − 1)² + (0.8 − 0)²) / 2"
    assert "The whole lab 0.340 2 0" in text
    assert "80 % to 90 % 80 % 50 %" in text
    twin = json.loads((tmp_path / "site" / "api" / "forecasts.json").read_bytes())
    assert [one["counts"] for one in twin] == [True, True]


def test_running_again_and_another_design_are_shown_and_score_nothing(store: Store) -> None:
    told(store, "1")
    told(store, "2")
    told(store, "3", seeds=(0, 1))
    found = forecasts.forecasts(read_lab(store).entries)
    counted = [one for one in found if not one.not_counted]
    assert len(found) == 6
    assert len(counted) == 2
    first = min(read_lab(store).entries, key=lambda e: (e.execution.at, e.execution.id))
    assert {one.entry.execution.id for one in counted} == {first.execution.id}
    assert {one.not_counted for one in found} == {
        "",
        "run again",
        "exploratory: another design than the sealed one",
    }
    (ada,) = forecasts.forecasters(found)
    assert ada.calibration.n == 2


def test_another_question_counts_for_itself(store: Store) -> None:
    told(store, "1")
    told(store, "2", issue=5)
    found = forecasts.forecasts(read_lab(store).entries)
    assert not any(one.not_counted for one in found)
    assert forecasts.of_the_lab(found).n == 4


def test_a_lab_without_predictions_says_so(store: Store, tmp_path: Path) -> None:
    build(store, tmp_path / "site")
    text = Page(tmp_path / "site" / "forecasts.html").text
    assert "Nothing has been predicted and judged yet." in text
