"""Leaderboards: rows, and the groups in which they are ranked.

A row is an arm of an execution. Rows are compared only within a group: one validation text (by
digest) scored over one number of tokens. A rank counts the rows that are better beyond both
spreads, so rows without a significant difference share a rank. A row with one seed has no spread,
and missing runs may be the bad ones: neither gets a rank.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from bot.site.facts.entries import Entry
from bot.site.facts.spent import Spent, spent
from runner.analysis.comparability import Scored, scored_on
from runner.analysis.verdicts import ArmSummary
from runner.schema import record


@dataclass(frozen=True)
class Row:
    """An arm of an execution on the leaderboard."""

    entry: Entry
    arm: str
    rank: int | None = None  # None: with one seed, missing runs, or a rejected figure
    tied: int = 1  # rows with this rank

    @property
    def summary(self) -> ArmSummary:
        """Bits per byte; every row has some."""
        return self.entry.summaries[self.arm]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return self.summary.middle

    @property
    def place(self) -> str:
        """Its rank as text: `2`, `=2` if others share it, `–` for none."""
        return "–" if self.rank is None else f"{'=' if self.tied > 1 else ''}{self.rank}"

    @property
    def ended(self) -> datetime:
        """When its figures were known."""
        return self.entry.result.at if self.entry.result else self.entry.execution.at

    @cached_property
    def spent(self) -> Spent | None:
        """Hardware FLOPs of one of its runs, and how they are known."""
        entry = self.entry
        entered = entry.result.entered if entry.result else ()
        return spent(entry.plan, self.arm, entry.runs, entered)

    @property
    def hardware_flops(self) -> float | None:
        """The value of `spent`; None if it is only an estimate."""
        known = self.spent and self.spent.how != "estimated"
        return self.spent.low if self.spent and known else None

    @property
    def planned(self) -> record.PlannedArm:
        """The arm in the plan."""
        return self.entry.plan.arms[self.arm]

    @property
    def parameters(self) -> int | None:
        """Of its model; for an own model as the lab counted them in the trained parameters."""
        counted = (run.evaluated.parameters for run in self._runs if run.evaluated)
        return self.planned.parameters or next(filter(None, counted), None)

    @property
    def model_flops(self) -> int | None:
        """Of one run, by formula; for an own model 3 times the forward pass of its trace, which is
        a claim."""
        looked = (run.evaluated.examined for run in self._runs if run.evaluated)
        traced = next((x.forward_flops_per_token for x in looked if x), None)
        by_trace = 3 * traced * self.planned.tokens if traced else None
        return self.planned.model_flops or by_trace

    @property
    def _runs(self) -> list[record.Run]:
        return [run for run in self.entry.runs if run.arm == self.arm]

    @cached_property
    def unranked(self) -> str | None:
        """Why it has no rank, whatever its figure is; None if it may have one."""
        plan, ends = self.entry.plan, self.entry.steps
        trained = {name for (arm, _), name in plan.trained().items() if arm == self.arm}
        used = {x for x, step in plan.steps.items() if trained & {x, *step.needs} and step.own}
        loose = [x for x in used if x in ends and not _apart(ends[x])]
        return "its own code did not run in isolation" if loose else None

    @property
    def verdicts(self) -> list[record.Verdict]:
        """The verdicts about this arm."""
        found = self.entry.result.verdicts if self.entry.result else ()
        return [v for v in found if self.arm in v.prediction.arms]


def _apart(end: record.StepEnd) -> bool:
    """Whether own code ran isolated from everything that scores it."""
    return not end.receipt.get("isolation", "none").startswith("none")


@dataclass(frozen=True)
class Group:
    """Comparable rows, best first."""

    data: Scored
    rows: tuple[Row, ...]


def groups(entries: Iterable[Entry]) -> tuple[Group, ...]:
    """The arms with a figure, ranked among those scored on the same text."""
    comparable: dict[tuple[str, int], list[Row]] = defaultdict(list)
    texts: dict[tuple[str, int], Scored] = {}
    for entry in entries:
        scored = scored_on(entry.plan)
        if entry.state not in ("done", "failed") or scored is None:
            continue
        key = scored.text
        texts.setdefault(key, scored)
        for arm in entry.plan.arms:
            if entry.summaries[arm].mean is not None:
                comparable[key].append(Row(entry, arm))
    found = [Group(texts[key], ranked(rows)) for key, rows in comparable.items()]
    return tuple(sorted(found, key=lambda g: (-len(g.rows), g.data.text)))


def ranked(rows: list[Row]) -> tuple[Row, ...]:
    """Best first. A rank is one more than the number of rows whose whole band is better than this
    one's."""
    ordered = sorted(rows, key=lambda row: (row.mean, row.entry.execution.at, row.arm))
    certain = [row for row in ordered if row.summary.certain and not row.unranked]
    highs = sorted(row.summary.band[1] for row in certain)
    ranks = {id(row): bisect_left(highs, row.summary.band[0]) + 1 for row in certain}
    tied = Counter(ranks.values())
    return tuple(
        replace(row, rank=rank, tied=tied[rank]) if (rank := ranks.get(id(row))) else row
        for row in ordered
    )
