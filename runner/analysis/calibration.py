"""Whether people's confidence matches the outcomes. Pure.

For each prediction that was confirmed or refuted: the sealed confidence p, and whether it came
true. The Brier score is the mean of (p − outcome)² (Brier 1950): 0 is perfect, and always saying 50
% gives 0.25. An inconclusive verdict has no score and is only counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from scipy.stats import binomtest

from runner.schema.record import Verdict

EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # bins of confidence


@dataclass(frozen=True)
class Bin:
    """Predictions with similar confidence."""

    low: float
    high: float
    n: int
    confidence: float  # their mean
    share: float  # the fraction that came true
    interval: tuple[float, float]  # its 95 % interval (Wilson 1927)


@dataclass(frozen=True)
class Calibration:
    """The calibration of one person, or of all."""

    n: int  # confirmed or refuted predictions
    inconclusive: int
    brier: float | None  # None: there are none
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Rate:
    """How many of the decided predictions were confirmed."""

    confirmed: int
    decided: int  # confirmed or refuted
    expected: float  # the mean of their confidences
    interval: tuple[float, float]  # the 95 % interval of the share (Wilson 1927)

    @property
    def share(self) -> float:
        """The fraction that was confirmed."""
        return self.confirmed / self.decided


def rate(verdicts: Iterable[Verdict]) -> Rate | None:
    """The rate of confirmed predictions; None if none is decided."""
    decided = [one for one in verdicts if one.outcome != "inconclusive"]
    if not decided:
        return None
    confirmed, n = sum(one.outcome == "confirmed" for one in decided), len(decided)
    expected = sum(one.prediction.confidence for one in decided) / n
    return Rate(confirmed, n, expected, wilson(confirmed, n))


def calibration(verdicts: Iterable[Verdict]) -> Calibration:
    """Score predictions by their verdicts."""
    told, open_ = [], 0
    for verdict in verdicts:
        if verdict.outcome == "inconclusive":
            open_ += 1
        else:
            told.append((verdict.prediction.confidence, verdict.outcome == "confirmed"))
    brier = sum((p - came) ** 2 for p, came in told) / len(told) if told else None
    return Calibration(len(told), open_, brier, tuple(_bins(told)))


def _bins(told: list[tuple[float, bool]]) -> Iterable[Bin]:
    for low, high in pairwise(EDGES):
        these = [(p, came) for p, came in told if low <= p < high or p == high == 1.0]
        if these:
            true, n = sum(came for _, came in these), len(these)
            mean = sum(p for p, _ in these) / n
            yield Bin(low, high, n, mean, true / n, wilson(true, n))


def wilson(true: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a fraction, from `true` of `n` (Wilson 1927)."""
    found = binomtest(true, n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)
