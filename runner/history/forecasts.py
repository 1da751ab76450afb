"""Forecasts of a plan's arms from the lab's own records, and their outcomes.

An arm has a forecast if the records contain a ladder of smaller runs that it continues, by the
rules of `runner.analysis.forecast`: scored on the same text, with the same recipe except for the
size. Runs with the arm's own learning rates come first; if these are not enough, all runs are used.
Runs that exist already get no forecast, which would only flatter. The interval is for one run, so
an arm's first seed decides the outcome.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.config.schema import TrainConfig
from runner.analysis import forecast
from runner.analysis.estimates import Figures
from runner.analysis.forecast import Design, Point, Refusal, design_of
from runner.history.execution_index import Past
from runner.schema.prediction_forms import Axis
from runner.schema.record import Execution, Foretold, Plan, PlannedArm

AXIS: Axis = "model_flops"
Rates = tuple[float | None, ...]
_TOLD = Foretold.model_fields.keys() - {"law"}


@dataclass(frozen=True)
class Forecasts:
    """The forecasts of a plan's arms; for the other arms, why there is none."""

    forecasts: dict[str, Foretold]
    without: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """A forecast and the measured value."""

    arm: str
    foretold: Foretold
    seed: int
    measured: float

    @property
    def inside(self) -> bool:
        """Whether the measured value is within the interval."""
        return self.foretold.low <= self.measured <= self.foretold.high

    @property
    def error(self) -> float:
        """Measured over forecast, less 1."""
        return self.measured / self.foretold.loss - 1


def foretell(past: Past, plan: Plan) -> Forecasts:
    """For each arm the forecast of its first run, or why there is none."""
    designs = {arm: design_of(plan, arm) for arm in plan.arms}
    scored = past.of_ladders({design.ladder for design in designs.values() if design})
    seen = [(point, _rates(train)) for point, train in scored]
    found = {arm: _one(designs[arm], plan.arms[arm], seen) for arm in plan.arms}
    return Forecasts(
        {arm: one for arm, one in found.items() if isinstance(one, Foretold)},
        {arm: one for arm, one in found.items() if isinstance(one, str)},
    )


def _one(
    design: Design | None, arm: PlannedArm, seen: Sequence[tuple[Point, Rates]]
) -> Foretold | str:
    rates = _rates(arm.train)
    if design is None:
        if arm.labs is None:
            return "the lab knows the size of a model of the experiment's own only when it has run"
        return "the plan does not say on which text it is scored"
    for point, _ in seen:
        if (point.ladder, point.config) == (design.ladder, design.config):
            return f"the lab has already run it, as {point.run}"
    at = design.on(AXIS)
    if at is None:
        return "its size is not known before it runs"
    alike = forecast.ladder_of((point for point, of in seen if of == rates), design, AXIS)
    found = forecast.forecast(alike, at, axis=AXIS)
    if isinstance(found, Refusal):
        everything = forecast.ladder_of((point for point, _ in seen), design, AXIS)
        other = forecast.forecast(everything, at, axis=AXIS)
        if isinstance(other, Refusal):
            return found.words if alike else other.words
        found = other
    return Foretold(law=found.law.words, **found.model_dump(include=_TOLD))


def _rates(train: TrainConfig) -> Rates:
    """Settings that may vary with the size, and mostly do not."""
    return tuple(getattr(train, name) for name in sorted(forecast.RATES))


def outcomes(execution: Execution, figures: Figures) -> Iterable[Outcome]:
    """The outcome of each arm that had a forecast and whose first run has a figure."""
    first: dict[str, int] = {}
    for arm, seed in execution.plan.runs():
        first.setdefault(arm, seed)
    for arm, told in execution.forecasts.items():
        measured = figures.get((arm, first[arm])) if arm in first else None
        if measured is not None:
            yield Outcome(arm, told, first[arm], measured)
