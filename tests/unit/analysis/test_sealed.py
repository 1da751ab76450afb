"""A forecast that is sealed before its run: made again from itself, and scored once."""

from typing import Any

import pytest

from runner.analysis import bends, sealed_forecast
from runner.analysis import forecast as forecasting
from runner.analysis.forecast import Design, Forecast, Point
from runner.analysis.sealed_forecast import NoSeal, Seal
from runner.schema.record import StepEnd
from tests.unit.analysis.test_forecast import SIZES, point

END = StepEnd(state="made", host="a-host", seconds=60.0, receipt={"jax": "0.10.2"})


def a_seal() -> Seal:
    points, design = tuple(point(size) for size in SIZES), point(120)
    said = forecasting.forecast(points, design.model_flops)
    assert isinstance(said, Forecast)
    known = {key: getattr(design, key) for key in Design.model_fields}
    return sealed_forecast.seal("x", {"experiment.yaml": "0" * 64}, Design(**known), points, said)


def the_run(**other: Any) -> Point:
    return point(120, **other)


def test_a_seal_is_made_again_from_its_own_points() -> None:
    made = a_seal()
    sealed_forecast.check(Seal.model_validate_json(made.canonical()))


@pytest.mark.parametrize("name", ["loss", "low", "high"])
def test_a_figure_that_the_points_do_not_give_is_refused(name: str) -> None:
    made = a_seal()
    other = made.forecast.model_copy(update={name: getattr(made.forecast, name) + 0.001})
    with pytest.raises(NoSeal, match=f"its points give {name}"):
        sealed_forecast.check(made.model_copy(update={"forecast": other}))


def test_a_point_that_was_changed_is_noticed() -> None:
    made = a_seal()
    first, *others = made.points
    better = first.model_copy(update={"loss": first.loss * 1.01})
    with pytest.raises(NoSeal):
        sealed_forecast.check(made.model_copy(update={"points": (better, *others)}))


def test_a_seal_names_the_curves_that_its_interval_counts() -> None:
    """An older one names none: its interval is of the exact law, and its words say so. It cannot
    pass for a new one, nor a new one's interval be narrowed by leaving the name out."""
    made = a_seal()
    assert made.forecast.family == bends.FAMILY
    unnamed = made.forecast.model_copy(update={"family": None})
    with pytest.raises(NoSeal, match="its points give low"):
        sealed_forecast.check(made.model_copy(update={"forecast": unnamed}))
    unknown = made.forecast.model_copy(update={"family": "two bends"})
    with pytest.raises(NoSeal, match="does not know: two bends"):
        sealed_forecast.check(made.model_copy(update={"forecast": unknown}))
    points, at = made.points, made.forecast.at
    older = forecasting.forecast(points, at, family=None)
    assert isinstance(older, Forecast)
    assert b"family" not in older.canonical()
    assert "that the law has this form is taken as true" in older.words
    sealed_forecast.check(made.model_copy(update={"forecast": older}))


def test_a_point_of_another_ladder_is_refused() -> None:
    made = a_seal()
    first, *others = made.points
    strange = first.model_copy(update={"text": "another"})
    with pytest.raises(NoSeal, match="is not on the ladder"):
        sealed_forecast.check(made.model_copy(update={"points": (strange, *others)}))


def test_the_outcome_says_how_far_off_it_was_and_whether_the_interval_held_it() -> None:
    made = a_seal()
    held = sealed_forecast.outcome(made, "1" * 64, the_run(loss=made.forecast.loss), "x1", END)
    worse = the_run(loss=made.forecast.high * 1.1)
    missed = sealed_forecast.outcome(made, "1" * 64, worse, "x1", END)
    assert held.inside
    assert held.error == pytest.approx(0, abs=1e-9)
    assert not missed.inside
    assert missed.error < 0
    assert (held.host, held.seconds, held.receipt) == ("a-host", 60.0, {"jax": "0.10.2"})


@pytest.mark.parametrize("other", [{"config": "another"}, {"targets": 7}, {"tokens": 7.0}])
def test_another_run_than_the_sealed_one_has_no_outcome(other: dict[str, Any]) -> None:
    with pytest.raises(NoSeal, match="not as it was sealed"):
        sealed_forecast.outcome(a_seal(), "1" * 64, the_run(**other), "x1", END)
