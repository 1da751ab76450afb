"""What the lab foretells of a plan's arms, from its own records, and how that came out.

An arm is foretold where the records hold a ladder of smaller runs that it continues, as
`runner.analysis.forecast` says which do: scored on the same text, and of the same recipe but for
its size. What has been run before is not foretold again: that would only flatter. The interval is
of one run, so an arm's first seed decides whether it held.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from runner import record
from runner.analysis import forecast
from runner.analysis.estimates import Figures, finite
from runner.analysis.forecast import Design, Point, Refusal
from runner.analysis.scored import scored_on
from runner.record import Execution, Foretold, Plan, Result, Run
from runner.store import Store

AXIS: forecast.Axis = "model_flops"


@dataclass(frozen=True)
class Words:
    """What the lab can say of a plan's arms, and of which it can say nothing, with the reason."""

    forecasts: dict[str, Foretold]
    without: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """A forecast beside what came."""

    arm: str
    foretold: Foretold
    seed: int
    measured: float

    @property
    def inside(self) -> bool:
        """Whether it came out within the interval."""
        return self.foretold.low <= self.measured <= self.foretold.high

    @property
    def error(self) -> float:
        """Measured over foretold, less 1."""
        return self.measured / self.foretold.loss - 1


def foretell(store: Store, plan: Plan) -> Words:
    """Of each arm what its first run will score, or why that cannot be said."""
    scored = scored_on(plan)
    if scored is None:
        return Words({}, {})
    points = points_on(store, scored.validation_sha256)
    found = {arm: _one(forecast.design_of(plan, arm), points) for arm in plan.arms}
    return Words(
        {arm: one for arm, one in found.items() if isinstance(one, Foretold)},
        {arm: one for arm, one in found.items() if isinstance(one, str)},
    )


def _one(design: Design | None, points: list[Point]) -> Foretold | str:
    if design is None:
        return "the plan does not say on what it would be scored"
    for point in points:
        if (point.ladder, point.config) == (design.ladder, design.config):
            return f"it has been run, as {point.run}"
    ladder, at = forecast.ladder_of(points, design, AXIS), design.on(AXIS)
    if at is None:
        return "its size is not known beforehand"
    found = forecast.forecast(ladder, at, axis=AXIS)
    if isinstance(found, Refusal):
        return found.words
    return Foretold(
        axis=found.axis,
        at=found.at,
        loss=found.loss,
        low=found.low,
        high=found.high,
        level=found.level,
        law=found.law.words,
        rungs=found.rungs,
        runs=found.runs,
        reach=found.reach,
        words=found.words,
    )


def points_on(store: Store, text: str) -> list[Point]:
    """The runs that ended with a figure on the text with this digest, oldest first."""
    by_execution = defaultdict(list)
    for name in record.names(store, "runs"):
        by_execution[name.partition(".")[0]].append(name)
    found = []
    for id, names in by_execution.items():
        told = store.read(f"records/executions/{id}/execution.json")
        if told is None or text.encode() not in told:
            continue  # most are on another text, and to read one whole costs a thousand times more
        execution = Execution.model_validate_json(told)
        result = record.read(store, f"executions/{id}/result", Result)
        if result and result.state in ("done", "failed"):
            runs = [record.require(store, f"runs/{name}", Run) for name in sorted(names)]
            found.append((execution.at, id, forecast.points_of(execution, runs)))
    return [point for _, _, points in sorted(found, key=lambda one: one[:2]) for point in points]


def outcomes(execution: Execution, figures: Figures) -> Iterable[Outcome]:
    """Of each arm that was foretold, and whose first run has a figure, how that came out."""
    first: dict[str, int] = {}
    for arm, seed in execution.plan.runs():
        first.setdefault(arm, seed)
    for arm, told in execution.forecasts.items():
        measured = finite(figures.get((arm, first[arm]))) if arm in first else None
        if measured is not None:
            yield Outcome(arm, told, first[arm], measured)
