"""Who predicted what, how it came out, and how well people's confidence fits. From records alone.

Under one preregistration the first complete execution of the first approved design counts, see
`runner.analysis.preregistered`. What came later is shown beside it and scores nothing.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from bot.site.board import Entry, reviews
from runner import record
from runner.analysis.calibration import Calibration, calibration


@dataclass(frozen=True)
class Forecast:
    """A sealed prediction with its verdict."""

    entry: Entry
    author: str
    verdict: record.Verdict
    not_counted: str = ""  # why


@dataclass(frozen=True)
class Forecaster:
    """A person's predictions."""

    login: str
    calibration: Calibration


def forecasts(entries: Iterable[Entry]) -> list[Forecast]:
    """Every prediction that was judged, newest first."""
    found: list[Forecast] = []
    ordered = sorted(entries, key=lambda entry: (entry.execution.at, entry.execution.id))
    asked = reviews(ordered)
    for entry in ordered:
        if entry.seal is None or entry.result is None or entry.result.state != "done":
            continue
        review = asked[entry.seal.repository, entry.seal.issue]
        why = review.of(entry.execution.id).why_not
        found += [
            Forecast(entry, entry.seal.author.login, verdict, why)
            for verdict in entry.result.verdicts
        ]
    return found[::-1]


def forecasters(told: Iterable[Forecast]) -> list[Forecaster]:
    """People by how well their confidence fits, best first; who has no score comes last."""
    by_login: dict[str, list[record.Verdict]] = defaultdict(list)
    for forecast in told:
        if not forecast.not_counted:
            by_login[forecast.author].append(forecast.verdict)
    found = [Forecaster(login, calibration(verdicts)) for login, verdicts in by_login.items()]
    return sorted(
        found,
        key=lambda who: (
            who.calibration.brier is None,
            who.calibration.brier or 0.0,
            -who.calibration.n,
            who.login,
        ),
    )


def of_the_lab(told: Iterable[Forecast]) -> Calibration:
    """All people together."""
    return calibration(forecast.verdict for forecast in told if not forecast.not_counted)
