"""All scores of an execution by metric and arm, with two intervals of 95 %. Pure.

*By seeds*: of the mean over seeds, by the t distribution (`estimates.interval_of`): how it would
vary if the arm were trained again. *By items*: value ± 1.96 standard errors over the items that
were scored (windows, questions): how it would vary on other items. Seeds are scored on the same
items, so their mean gets the mean of their standard errors and not a smaller one. Verdicts use the
interval by seeds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.special import ndtri

from runner.analysis import estimates, verdicts
from runner.analysis.estimates import Interval, figure
from runner.analysis.verdicts import ArmSummary
from runner.lib.format import count
from runner.schema import metrics
from runner.schema.metrics import Score
from runner.schema.record import Plan, Run

NONE = "–"
HEAD = ("metric", "arm", "mean ± SD", "unit", "seeds", "items", "95 % by seeds", "95 % by items")
SHORT = (*HEAD[:3], *HEAD[5:])  # for the terminal


@dataclass(frozen=True)
class Row:
    """One arm by one metric."""

    metric: str
    arm: str
    summary: ArmSummary
    by_seeds: Interval | None
    by_items: Interval | None
    score: Score  # of its first run

    @property
    def chance(self) -> float | None:
        """What guessing gives."""
        return self.score.chance

    @property
    def items(self) -> int | None:
        """What a run's score is a mean over."""
        return self.score.items

    @property
    def cells(self) -> tuple[str, ...]:
        """As text, one cell per entry of HEAD."""
        return (
            self.metric,
            self.arm,
            str(self.summary),
            metrics.what(self.metric).unit or NONE,
            f"{self.summary.n} of {self.summary.of}",
            NONE if self.items is None else count(self.items),
            _beside_chance(self.by_seeds, self.score),
            _beside_chance(self.by_items, self.score),
        )

    @property
    def short(self) -> tuple[str, ...]:
        """The same for SHORT."""
        return (*self.cells[:3], *self.cells[5:])


def rows(plan: Plan, runs: Sequence[Run]) -> list[Row]:
    """Every arm by every metric that a run has, metric by metric."""
    return [
        row
        for metric, scores in verdicts.scores_of(runs).items()
        for arm in plan.arms
        if (row := _row(plan, runs, metric, arm, scores))
    ]


def worth_showing(plan: Plan, runs: Sequence[Run]) -> list[Row]:
    """The same; empty if there is only `eval/bpb` without items, which the table of arms shows."""
    found = rows(plan, runs)
    return found if any(row.metric != metrics.BPB or row.by_items for row in found) else []


def _row(
    plan: Plan, runs: Iterable[Run], metric: str, arm: str, scores: estimates.Figures
) -> Row | None:
    summary = verdicts.arm_summary(plan, scores, arm)
    found = [
        run.measured[metric]
        for run in runs
        if run.arm == arm and scores.get((run.arm, run.seed)) is not None
    ]
    if not found:
        return None
    values = [score.value for score in found]
    errors = [score.standard_error for score in found if score.standard_error is not None]
    return Row(
        metric=metric,
        arm=arm,
        summary=summary,
        by_seeds=estimates.interval_of(values) if len({*values}) > 1 else None,
        by_items=around(fmean(values), fmean(errors)) if len(errors) == len(found) else None,
        score=found[0],
    )


@dataclass(frozen=True)
class OfRun:
    """One score of one run, as text."""

    metric: str
    score: Score
    interval: str  # by items

    @property
    def unit(self) -> str:
        """What the value counts; a dash for a share or a norm."""
        return metrics.what(self.metric).unit or NONE

    @property
    def value(self) -> str:
        """With four decimals."""
        return figure(self.score.value, 4)


def of_run(run: Run) -> list[OfRun]:
    """The scores of one run, whose interval says when it includes chance."""
    found = []
    for metric, score in run.measured.items():
        error = score.standard_error
        interval = None if error is None else around(score.value, error)
        found.append(OfRun(metric, score, _beside_chance(interval, score)))
    return found


def around(value: float, error: float) -> Interval:
    """The interval of 95 % by the normal distribution."""
    wide = float(ndtri((1 + estimates.LEVEL) / 2)) * error
    return value - wide, value + wide


def _beside_chance(interval: Interval | None, score: Score) -> str:
    """The interval, and whether it includes what guessing gives."""
    if interval is None or score.chance is None or not metrics.at_chance(score, interval):
        return words(interval)
    return f"{words(interval)}, includes chance ({figure(score.chance, 3)})"


def words(interval: Interval | None) -> str:
    """`1.9812 to 2.0231`; a dash for none."""
    if interval is None:
        return NONE
    decimals = min(estimates.two_digits(interval[1] / 2 - interval[0] / 2), 6)
    return " to ".join(figure(end, max(3, decimals)) for end in interval)
