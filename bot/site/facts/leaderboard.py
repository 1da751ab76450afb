"""Leaderboards: rows, and the groups in which they are ranked.

A row is an arm of an execution. Rows are compared only within a group: one metric, measured on the
same. For `eval/bpb` that is one validation text (by digest) scored over one number of tokens. Rows
without a significant difference share a rank: a rank's first row is its best, and the rank has all
further rows that are not worse beyond the sum of both spreads. The rank is the place of the first
one. A row with one seed has no spread, and missing runs may be the bad ones: neither gets a rank. A
re-run is not a row; it counts for the row of what it reproduces.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, cached_property

from scipy.special import stdtrit

from bot.site.facts.entries import Entry
from bot.site.facts.reproductions import Again
from bot.site.facts.spent import Spent, spent
from runner.analysis import estimates, verdicts
from runner.analysis.comparability import Scored, measured_on, scored_on
from runner.analysis.estimates import Interval
from runner.analysis.verdicts import ArmSummary
from runner.schema import metrics, record
from runner.schema.metrics import BPB


@dataclass(frozen=True)
class Row:
    """An arm of an execution on the leaderboard of a metric."""

    entry: Entry
    arm: str
    metric: str = BPB
    again: Again = field(default_factory=Again)
    rank: int | None = None  # None: with one seed, missing runs, or a rejected figure
    tied: int = 1  # rows with this rank
    leads: bool = True  # the first row of its rank

    @cached_property
    def summary(self) -> ArmSummary:
        """Its score; every row has some."""
        if self.metric == BPB:
            return self.entry.summaries[self.arm]
        figures = self.entry.scores[self.metric]
        return verdicts.arm_summary(self.entry.plan, figures, self.arm)

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return self.summary.middle

    @cached_property
    def turned(self) -> ArmSummary:
        """The score so that lower is better."""
        return turned(self.summary, self.metric)

    @cached_property
    def interval(self) -> Interval | None:
        """The 95 % interval of the mean over seeds; None without a spread."""
        one = self.summary
        if one.spread is None:
            return None
        around = _quantile(one.n) * one.spread / math.sqrt(one.n)
        return one.middle - around, one.middle + around

    @property
    def place(self) -> str:
        """Its rank as text: `2`, `2 tied` if others share it, `–` for none."""
        return "–" if self.rank is None else f"{self.rank}{' tied' if self.tied > 1 else ''}"

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
        return self.entry.parameters(self.arm)

    @property
    def model_flops(self) -> int | None:
        """Of one run, by formula; for an own model 3 times the forward pass of its trace, which is
        a claim."""
        if self.planned.model_flops:
            return self.planned.model_flops
        looked = (run.evaluated.examined for run in self._runs if run.evaluated)
        traced = next((x.forward_flops_per_token for x in looked if x), None)
        return 3 * traced * self.planned.tokens if traced else None

    @property
    def _runs(self) -> list[record.Run]:
        return [run for run in self.entry.runs if run.arm == self.arm]

    @cached_property
    def unranked(self) -> str | None:
        """Why it has no rank, whatever its figure is; None if it may have one."""
        plan, ends = self.entry.plan, self.entry.steps
        if not plan.own_code():
            return None
        trained = {name for (arm, _), name in plan.trained().items() if arm == self.arm}
        used = {x for x, step in plan.steps.items() if trained & {x, *step.needs} and step.own}
        loose = [x for x in used if x in ends and not _apart(ends[x])]
        return "its own code did not run in isolation" if loose else None

    @property
    def verdicts(self) -> list[record.Verdict]:
        """The verdicts about this arm."""
        found = self.entry.result.verdicts if self.entry.result else ()
        return [v for v in found if self.arm in v.prediction.arms]


@cache
def _quantile(seeds: int) -> float:
    """Of the t distribution, as in `estimates.interval_of`."""
    return float(stdtrit(seeds - 1, (1 + estimates.LEVEL) / 2))


def _apart(end: record.StepEnd) -> bool:
    """Whether own code ran isolated from everything that scores it."""
    return not end.receipt.get("isolation", "none").startswith("none")


def turned(summary: ArmSummary, metric: str) -> ArmSummary:
    """A score by a metric so that lower is better."""
    if metrics.better(metric) != "higher" or summary.mean is None:
        return summary
    return replace(summary, mean=-summary.mean)


@dataclass(frozen=True)
class Void:
    """An arm whose score does not count, with the reason."""

    entry: Entry
    arm: str
    why: str


@dataclass(frozen=True)
class Group:
    """Comparable rows, best first."""

    data: Scored | None  # the text; None for a metric that is not measured on one
    metric: str
    identity: str  # equal for scores that may be compared
    rows: tuple[Row, ...]
    void: tuple[Void, ...] = ()


def groups(
    entries: Iterable[Entry],
    without: Iterable[str] = (),
    again: Mapping[str, Mapping[str, Again]] | None = None,
) -> tuple[Group, ...]:
    """The arms with a score, ranked among those with the same metric on the same. The boards of
    `eval/bpb` come first, then those with a rank, then those with most rows. `without`: the
    re-runs; `again`: what they say by execution and arm."""
    comparable: dict[tuple[str, str], list[Row]] = defaultdict(list)
    texts: dict[tuple[str, str], Scored | None] = {}
    void: dict[tuple[str, str], list[Void]] = defaultdict(list)
    apart = {*without}
    for entry in entries:
        if entry.state not in ("done", "failed") or entry.execution.id in apart:
            continue
        runs = (again or {}).get(entry.execution.id, {})
        for metric, identity, scored in measured(entry):
            key = metric, identity
            texts.setdefault(key, scored)
            for arm in entry.plan.arms:
                row = Row(entry, arm, metric, runs.get(arm, Again()))
                if row.summary.mean is not None:
                    comparable[key].append(row)
        for run in entry.runs:
            looked = run.evaluated and run.evaluated.examined
            if looked and looked.void and (scored := scored_on(entry.plan)):
                key = BPB, "{}-{}".format(*scored.text)
                void[key].append(Void(entry, run.arm, f"seed {run.seed}: {looked.void}"))
    found = [
        Group(texts[key], *key, ranked(rows), tuple(void[key])) for key, rows in comparable.items()
    ]
    return tuple(sorted(found, key=_importance))


def _importance(group: Group) -> tuple[bool, bool, int, str, str]:
    unranked = all(row.rank is None for row in group.rows)
    return group.metric != BPB, unranked, -len(group.rows), group.metric, group.identity


def measured(entry: Entry) -> Iterator[tuple[str, str, Scored | None]]:
    """The metrics by which an entry can be ranked, each with an identity of what it is measured
    on."""
    scored = scored_on(entry.plan)
    if scored and entry.has_figures:
        yield BPB, "{}-{}".format(*scored.text), scored
    others = [x for x in entry.scores if x != BPB and metrics.better(x)]
    on = measured_on(entry.plan) if others else {}
    for metric in others:
        if metric in on:
            yield metric, on[metric], scored


def ranked(rows: list[Row]) -> tuple[Row, ...]:
    """Best first, with ranks as groups of ties."""
    ordered = sorted(rows, key=lambda row: (row.turned.middle, row.entry.execution.at, row.arm))
    ranks: dict[int, tuple[int, bool]] = {}
    rank, high = 0, float("-inf")  # of the group, and the end of its first row's band
    certain = [row for row in ordered if row.summary.certain and not row.unranked]
    for place, row in enumerate(certain, 1):
        low, end = row.turned.band
        if leads := low > high or not rank:
            rank, high = place, end
        ranks[id(row)] = rank, leads
    tied = Counter(rank for rank, _ in ranks.values())
    return tuple(
        replace(row, rank=of[0], tied=tied[of[0]], leads=of[1])
        if (of := ranks.get(id(row)))
        else row
        for row in ordered
    )
