"""What the site shows, as facts: executions read from the records, and the rows they rank as.

A row is an arm of an execution. Rows are compared only within a group, which is one validation
text (by digest) scored over one number of tokens. A rank counts the rows that are better beyond
both spreads, so that what cannot be told apart shares a rank. One seed has no spread, and runs that
are missing may be the bad ones: neither has a rank.
"""

import hashlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from bot.site.base.files import made_from
from bot.site.facts import memory as facts_memory
from bot.site.facts.memory import Facts, Memory
from bot.site.facts.spent import Spent, spent
from runner.analysis import designs, promotion, ranking, registration_review, speedrun_rows
from runner.analysis import verdicts as analysis_verdicts
from runner.analysis.comparability import Scored, scored_on
from runner.analysis.registration_review import Outcome, Registration, Review
from runner.analysis.verdicts import ArmSummary
from runner.history import forecasts
from runner.lib import base_record
from runner.schema import record
from runner.store.store import Store


@dataclass(frozen=True)
class Entry:
    """One execution with everything the records say about it."""

    execution: record.Execution
    state: record.State
    result: record.Result | None
    runs: tuple[record.Run, ...]  # in the plan's order
    seal: record.Preregistration | None = None
    edited: tuple[record.Edit, ...] = ()  # the issue, after the seal
    approval: record.Approval | None = None
    ends: dict[str, record.Ended] = field(default_factory=dict)  # by attempt
    replays: tuple[record.Replayed, ...] = ()
    told: str = ""  # a digest of all of this
    curved: bool = False  # whether a run has a curve, which may be not in memory

    @property
    def plan(self) -> record.Plan:
        """The plan that was executed."""
        return self.execution.plan

    @property
    def question(self) -> str:
        """What the page of its experiment is called."""
        if self.seal:
            return f"{self.seal.repository}-{self.seal.issue}"
        origin = self.execution.origin
        home = str(origin.repository) if origin else "local"
        digest = hashlib.sha256(f"{home} {self.plan.experiment}".encode()).hexdigest()
        return f"{home}-{digest[:12]}"

    @property
    def names(self) -> list[str]:
        """What its runs are called."""
        return [f"{run.execution}.{record.run_name(run.arm, run.seed)}" for run in self.runs]

    @property
    def edits(self) -> int:
        """How often the issue was edited after the seal."""
        return len(self.edited)

    @property
    def outcome(self) -> Outcome:
        """The execution, as it is weighed among those under its preregistration."""
        return Outcome(self.execution, self.result, self.figures)

    @property
    def records(self) -> list[base_record.Record]:
        """All that the records say about it, in a fixed order."""
        known = (self.execution, self.result, self.seal, self.approval)
        every = (*known, *self.ends.values(), *self.runs, *self.replays)
        return [fact for fact in every if fact is not None]

    @cached_property
    def figures(self) -> dict[tuple[str, int], float | None]:
        """The lab's own figure of each run."""
        return analysis_verdicts.figures_of(self.runs)

    def tier(self, arm: str) -> ranking.Tier:
        """Who vouches for an arm's figures."""
        return speedrun_rows.tier(self.execution, self.replays, arm)

    @property
    def competing(self) -> list[ranking.Row]:
        """Its rows on the track that it enters."""
        if self.result is None:
            return []
        return speedrun_rows.rows(self.execution, self.result, self.replays)

    @property
    def has_figures(self) -> bool:
        """Whether at least one run was scored."""
        return any(figure is not None for figure in self.figures.values())

    @cached_property
    def summaries(self) -> dict[str, ArmSummary]:
        """Mean and spread of each arm over its seeds."""
        return {
            arm: analysis_verdicts.arm_summary(self.plan, self.figures, arm)
            for arm in self.plan.arms
        }

    def summary(self, arm: str) -> ArmSummary:
        """Mean and spread of an arm over its seeds."""
        return self.summaries[arm]

    @property
    def gate(self) -> promotion.Gate | None:
        """How its rung of a ladder came out; None where there is none, or no end yet."""
        return promotion.gate(self.plan, self.runs) if self.state == "done" else None

    @property
    def foretold(self) -> list[forecasts.Outcome]:
        """What the lab had foretold of its arms, beside what came."""
        return list(forecasts.outcomes(self.execution, self.figures))

    @property
    def steps(self) -> dict[str, record.StepEnd]:
        """What became of each step, as the last attempt that ended left it."""
        trained = [end for name, end in self.ends.items() if name.startswith("t")]
        return trained[-1].steps if trained else {}

    @property
    def receipt(self) -> dict[str, str]:
        """What the training attempt that counted said it ran on."""
        trained = [end for name, end in self.ends.items() if name.startswith("t")]
        return trained[-1].receipt if trained else {}


@dataclass(frozen=True)
class Row:
    """One arm of an execution on the board."""

    entry: Entry
    arm: str
    summary: ArmSummary
    rank: int | None = None  # None: of one seed, with runs missing, or of what cannot be believed
    shared: bool = False

    @property
    def mean(self) -> float:
        """Bits per byte; there is no row without."""
        if self.summary.mean is None:
            raise AssertionError(f"{self.entry.execution.id} {self.arm} has no figure")
        return self.summary.mean

    @property
    def band(self) -> tuple[float, float]:
        """Mean ± spread."""
        around = self.summary.spread or 0.0
        return self.mean - around, self.mean + around

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
        """The figure of `spent`; None where it is only an estimate."""
        known = self.spent and self.spent.how != "estimated"
        return self.spent.low if self.spent and known else None

    @property
    def planned(self) -> record.PlannedArm:
        """What one run of the arm is and costs."""
        return self.entry.plan.arms[self.arm]

    @property
    def parameters(self) -> int | None:
        """Of its model; of one of its own as the lab counted them in what was trained."""
        counted = (run.evaluated.parameters for run in self._runs if run.evaluated)
        return self.planned.parameters or next(filter(None, counted), None)

    @property
    def model_flops(self) -> int | None:
        """Of one of its runs, by formula; of a model of its own 3 times the forward pass that was
        traced, by that one's word."""
        looked = (run.evaluated.examined for run in self._runs if run.evaluated)
        traced = next((x.forward_flops_per_token for x in looked if x), None)
        by_trace = 3 * traced * self.planned.tokens if traced else None
        return self.planned.model_flops or by_trace

    @property
    def _runs(self) -> list[record.Run]:
        return [run for run in self.entry.runs if run.arm == self.arm]

    @cached_property
    def unranked(self) -> str:
        """Why it has no rank, whatever its figure is; empty where it may have one."""
        plan, ends = self.entry.plan, self.entry.steps
        trained = {name for (arm, _), name in plan.trained().items() if arm == self.arm}
        used = {x for x, step in plan.steps.items() if trained & {x, *step.needs} and step.own}
        loose = [x for x in used if x in ends and not _apart(ends[x])]
        return "its own code did not run in isolation" if loose else ""

    @property
    def verdicts(self) -> list[record.Verdict]:
        """The verdicts that are about this arm."""
        found = self.entry.result.verdicts if self.entry.result else ()
        return [v for v in found if self.arm in v.prediction.arms]


def _apart(end: record.StepEnd) -> bool:
    """Whether own code ran apart from all that says what it came to."""
    return not end.receipt.get("isolation", "none").startswith("none")


@dataclass(frozen=True)
class Group:
    """Rows that may be compared, best first."""

    data: Scored
    rows: tuple[Row, ...]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest figure that a row's spread reaches."""
        return min(row.band[0] for row in self.rows), max(row.band[1] for row in self.rows)


@dataclass(frozen=True)
class Lab:
    """Everything the site shows."""

    entries: tuple[Entry, ...]  # newest first
    wishlist: tuple[record.Preregistration, ...]  # sealed, and nothing has run for it
    repositories: dict[int, str]  # names by id, as far as executions tell them
    left_out: Mapping[str, str] = field(default_factory=dict)  # executions, with what is wrong

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The rows that may be compared, most rows first."""
        return groups(self.entries)

    @cached_property
    def reviews(self) -> dict[tuple[int, int], Review]:
        """Of each preregistration, by repository and issue, what counts under it."""
        return reviews(self.entries)

    def review(self, entry: Entry) -> Review | None:
        """What counts under this execution's preregistration; None where it has none."""
        seal = entry.seal
        return self.reviews.get((seal.repository, seal.issue)) if seal else None

    def why_not(self, entry: Entry) -> str | None:
        """Why this execution's verdicts are not its preregistration's; None where they are."""
        review = self.review(entry)
        return review.of(entry.execution.id).why_not or None if review else None

    @cached_property
    def told(self) -> str:
        """A digest of all of this."""
        states = (f"{entry.execution.id} {entry.state} {entry.told}" for entry in self.entries)
        wished = (seal.digest() for seal in self.wishlist)
        left = (f"{id} {why}" for id, why in self.left_out.items())
        return made_from("\n".join(states), "\n".join(wished), "\n".join(left))

    def without(self, faults: Mapping[str, str]) -> "Lab":
        """The same without these executions, by id with what is wrong with each."""
        if not faults:
            return self
        stay = tuple(entry for entry in self.entries if entry.execution.id not in faults)
        return replace(self, entries=stay, left_out=dict(self.left_out) | dict(faults))

    @property
    def running(self) -> list[Entry]:
        """Executions that have no result yet."""
        return [entry for entry in self.entries if entry.result is None]

    @property
    def competing(self) -> list[ranking.Row]:
        """What executions have entered for speedruns."""
        return [row for entry in self.entries for row in entry.competing]

    @property
    def without_figures(self) -> list[Entry]:
        """Executions that ended and left nothing to compare."""
        return [entry for entry in self.entries if entry.result and not entry.has_figures]


def reviews(entries: Iterable[Entry]) -> dict[tuple[int, int], Review]:
    """Of each preregistration, by repository and issue, what counts under it."""
    asked: dict[tuple[int, int], list[Entry]] = defaultdict(list)
    every = list(entries)
    for entry in every:
        if entry.seal:
            asked[entry.seal.repository, entry.seal.issue].append(entry)
    found = {}
    begun = _begun(
        every, max((one[0].seal.at for one in asked.values() if one[0].seal), default=None)
    )
    for key, under in asked.items():
        seal, edits = under[0].seal, under[0].edited
        if seal:
            outcomes = tuple(entry.outcome for entry in under)
            earlier = registration_review.begun_before(seal, [entry.plan for entry in under], begun)
            found[key] = registration_review.review(Registration(seal, edits, outcomes, earlier))
    return found


def _begun(entries: Iterable[Entry], until: datetime | None) -> dict[str, tuple[datetime, str]]:
    """When and by which execution each run was first begun, of those that were until then."""
    found: dict[str, tuple[datetime, str]] = {}
    begun = ((one.execution.at, one.execution.id, one) for one in entries if one.state != "voided")
    for at, id, entry in sorted(begun, key=lambda one: one[:2]):
        if until and at < until:
            for run in designs.same_run(entry.plan).values():
                found.setdefault(run, (at, id))
    return found


# ── From records to facts ────────────────────────────────────────────────────────────────────


def read_lab(store: Store, remembered: Memory | None = None) -> Lab:
    """The lab as its records tell it. With a memory, runs come without their curves. An execution
    whose records cannot be read is left out."""
    seals = {
        (int(repository), int(issue)): seal
        for repository in record.names(store, "preregistrations")
        for issue in record.names(store, f"preregistrations/{repository}")
        if (seal := _seal(store, int(repository), int(issue)))
    }
    memory = remembered or Memory()
    every = [_entry(one, seals) for one in memory.facts(store, curves=remembered is None)]
    entries = sorted(
        every, key=lambda entry: (entry.execution.at, entry.execution.id), reverse=True
    )
    origins = [entry.execution.origin for entry in entries if entry.execution.origin]
    asked = {
        (entry.execution.origin.repository, entry.plan.preregistration)
        for entry in entries
        if entry.execution.origin
    }
    return Lab(
        entries=tuple(entries),
        wishlist=tuple(
            sorted(
                (seal for seal, _ in seals.values() if (seal.repository, seal.issue) not in asked),
                key=lambda seal: (seal.at, seal.issue),
                reverse=True,
            )
        ),
        # Entries begin with the newest, and the newest name of a repository counts.
        repositories={origin.repository: origin.repository_name for origin in reversed(origins)},
        left_out=memory.unread,
    )


Seals = Mapping[tuple[int, int], tuple[record.Preregistration, tuple[record.Edit, ...]]]


def read_entry(store: Store, name: str) -> Entry:
    """The execution of this name, as its records tell it, with the curves of its runs."""
    facts = facts_memory.read(store, name, record.names(store, f"executions/{name}"))
    origin, issue = facts.execution.origin, facts.execution.plan.preregistration
    seal = _seal(store, origin.repository, issue) if origin and issue else None
    return _entry(facts, {(origin.repository, issue): seal} if origin and issue and seal else {})


def whole(store: Store, entry: Entry) -> Entry:
    """An entry with the curves of its runs, out of the records."""
    events = record.names(store, f"executions/{entry.execution.id}")
    return replace(entry, runs=facts_memory.read(store, entry.execution.id, events).runs)


def _entry(facts: Facts, seals: Seals) -> Entry:
    execution = facts.execution
    origin, issue = execution.origin, execution.plan.preregistration
    seal, edited = None, tuple[record.Edit, ...]()
    if origin and issue:
        seal, edited = seals.get((origin.repository, issue), (seal, edited))
    return Entry(
        execution=execution,
        state=facts.result.state if facts.result else _state(facts.events),
        result=facts.result,
        runs=facts.runs,
        seal=seal,
        edited=edited,
        approval=facts.approval,
        ends=facts.ends,
        replays=facts.replays,
        told=made_from(facts.told, *([seal, *edited] if seal else [])),
        curved=facts.curved,
    )


def _state(events: Sequence[str]) -> record.State:
    """The state of an execution that has no result, as far as records alone tell it."""
    return "running" if any(event.endswith(".started") for event in events) else "queued"


def _seal(
    store: Store, repository: int, issue: int
) -> tuple[record.Preregistration, tuple[record.Edit, ...]] | None:
    """A preregistration and the edits of its issue."""
    path = f"preregistrations/{repository}/{issue}/1"
    seal = record.read(store, path, record.Preregistration)
    return (seal, _edits(store, seal)) if seal else None


def _edits(store: Store, seal: record.Preregistration) -> tuple[record.Edit, ...]:
    folder = f"preregistrations/{seal.repository}/{seal.issue}"
    numbers = sorted(int(name) for name in record.names(store, folder))
    return tuple(record.require(store, f"{folder}/{n}", record.Edit) for n in numbers if n > 1)


# ── From facts to rows ───────────────────────────────────────────────────────────────────────


def groups(entries: Iterable[Entry]) -> tuple[Group, ...]:
    """The arms that have a figure, ranked among those scored on the same text."""
    comparable: dict[tuple[str, int], list[Row]] = defaultdict(list)
    texts: dict[tuple[str, int], Scored] = {}
    for entry in entries:
        scored = scored_on(entry.plan)
        if entry.state not in ("done", "failed") or scored is None:
            continue
        key = scored.text
        texts.setdefault(key, scored)
        for arm in entry.plan.arms:
            summary = entry.summary(arm)
            if summary.mean is not None:
                comparable[key].append(Row(entry, arm, summary))
    found = [Group(texts[key], ranked(rows)) for key, rows in comparable.items()]
    return tuple(sorted(found, key=lambda g: (-len(g.rows), g.data.text)))


def ranked(rows: list[Row]) -> tuple[Row, ...]:
    """Best first. A rank is one more than the rows whose whole band is better than this one's."""
    ordered = sorted(rows, key=lambda row: (row.mean, row.entry.execution.at, row.arm))
    certain = [
        row
        for row in ordered
        if row.summary.spread is not None and row.summary.n == row.summary.of and not row.unranked
    ]
    highs = sorted(row.band[1] for row in certain)
    ranks = [bisect_left(highs, row.band[0]) + 1 for row in certain]
    sharing = Counter(ranks)
    by_row = {id(row): (rank, sharing[rank] > 1) for row, rank in zip(certain, ranks, strict=True)}
    return tuple(
        Row(row.entry, row.arm, row.summary, *by_row.get(id(row), (None, False))) for row in ordered
    )
