"""Predictions, verdicts, and the calibration of people's confidence, from records alone. Includes
the lab's own forecasts of arms, with intervals.

Under one preregistration the first complete execution of the first approved design counts, see
`runner.analysis.which_runs_count`. Later ones are shown beside it and have no score.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from runner.analysis import which_runs_count
from runner.analysis.calibration import Calibration, calibration, wilson
from runner.history import forecasts as history_forecasts
from runner.schema import record


@dataclass(frozen=True)
class Forecast:
    """A sealed prediction with its verdict."""

    entry: Entry
    author: str
    verdict: record.Verdict
    not_counted: str | None = None  # why


def forecasts(facts: Lab) -> list[Forecast]:
    """Every judged prediction, newest first."""
    found: list[Forecast] = []
    for entry in reversed(facts.entries):
        review, result = facts.review(entry), entry.result
        if entry.seal is None or review is None or result is None or result.state != "done":
            continue
        weighed = review.of(entry.execution.id)
        found += [
            Forecast(
                entry,
                entry.seal.author.login,
                verdict,
                weighed.why_not or (which_runs_count.KNOWN if n in weighed.known else None),
            )
            for n, verdict in enumerate(result.verdicts)
        ]
    return found[::-1]


def of_the_lab(told: Iterable[Forecast]) -> Calibration:
    """All people together."""
    return calibration(forecast.verdict for forecast in told if not forecast.not_counted)


# ── The lab's own ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LabForecast:
    """The lab's forecast of an arm, and the measured value."""

    entry: Entry
    outcome: history_forecasts.Outcome
    not_counted: str | None = None  # why


@dataclass(frozen=True)
class Coverage:
    """How many of the lab's intervals contained the measured value, of those that count."""

    level: float  # their intended fraction
    n: int
    inside: int
    interval: tuple[float, float]  # 95 % interval of the fraction


def foretold(facts: Lab) -> list[LabForecast]:
    """Every forecast of the lab with an outcome, newest first. If a plan ran more than once, an
    arm's first outcome counts."""
    found: list[LabForecast] = []
    seen: set[tuple[str, str]] = set()
    for entry in reversed(facts.entries):
        if entry.result is None or entry.result.state not in ("done", "failed"):
            continue
        for outcome in entry.foretold:
            key = entry.plan.fingerprint, outcome.arm
            again = which_runs_count.RUN_AGAIN if key in seen else None
            found.append(LabForecast(entry, outcome, again))
            seen.add(key)
    return found[::-1]


def coverage(told: Iterable[LabForecast]) -> list[Coverage]:
    """The coverage for each level of confidence that the lab has used."""
    by_level: dict[float, list[bool]] = defaultdict(list)
    for one in told:
        if not one.not_counted:
            by_level[one.outcome.foretold.level].append(one.outcome.inside)
    return [
        Coverage(level, len(held), sum(held), wilson(sum(held), len(held)))
        for level, held in sorted(by_level.items())
    ]


def twin(told: Iterable[LabForecast]) -> list[dict[str, Any]]:
    """The lab's forecasts as JSON."""
    return [
        {
            **one.outcome.foretold.model_dump(mode="json"),
            "arm": one.outcome.arm,
            "seed": one.outcome.seed,
            "measured": one.outcome.measured,
            "inside": one.outcome.inside,
            "counts": not one.not_counted,
            "execution": one.entry.execution.id,
        }
        for one in told
    ]
