"""An execution with all of its records, and how to read it."""

import hashlib
from collections.abc import Iterable
from functools import cached_property

from bot.site.base.files import made_from
from bot.site.facts.tags import tags
from runner.analysis import promotion, speedrun_ranking, speedrun_rows, verdicts
from runner.analysis.estimates import Figures, Scores
from runner.analysis.verdicts import ArmSummary
from runner.history import forecasts
from runner.lib.base_record import Record
from runner.lib.format import natural
from runner.schema import record
from runner.schema.metrics import BPB
from runner.store.store import Store

UNKNOWN, LOCAL = "unknown", "local"  # authors of older records, and of local runs
Seal = tuple[record.Preregistration, tuple[record.Edit, ...]]  # with later edits of the issue


class Entry(Record):
    """One execution with all of its records."""

    seen: str = ""  # names, sizes and times of its records when they were read
    told: str  # SHA-256 over their bytes, and over the seal
    tags: tuple[str, ...] = ()
    curved: bool  # whether a run has a curve, which may not be in memory
    events: tuple[str, ...]
    execution: record.Execution
    result: record.Result | None
    runs: tuple[record.Run, ...]  # in the plan's order
    approval: record.Approval | None
    ends: dict[str, record.Ended]  # by attempt
    replays: tuple[record.Replayed, ...]
    seal: record.Preregistration | None = None
    edited: tuple[record.Edit, ...] = ()  # edits of the issue after the seal

    @property
    def plan(self) -> record.Plan:
        """The executed plan."""
        return self.execution.plan

    @property
    def state(self) -> record.State:
        """How it ended; until then, its state from the records alone."""
        if self.result:
            return self.result.state
        return "running" if any(event.endswith(".started") for event in self.events) else "queued"

    @property
    def asked(self) -> tuple[int, int] | None:
        """Repository and issue of the preregistration in its plan."""
        origin, issue = self.execution.origin, self.plan.preregistration
        return (origin.repository, issue) if origin and issue else None

    @property
    def question(self) -> str:
        """The title of its experiment's page."""
        if self.seal:
            return f"{self.seal.repository}-{self.seal.issue}"
        origin = self.execution.origin
        home = str(origin.repository) if origin else "local"
        digest = hashlib.sha256(f"{home} {self.plan.experiment}".encode()).hexdigest()
        return f"{home}-{digest[:12]}"

    @property
    def by(self) -> record.Person | None:
        """Who declared it: the author of the pull request, otherwise of the issue. Never who
        approved it; None if no record names an author."""
        origin = self.execution.origin
        return (origin and origin.author) or (self.seal and self.seal.author) or None

    @property
    def author(self) -> str:
        """The same as text."""
        if self.by:
            return self.by.login
        if self.plan.speedrun:
            return self.plan.speedrun.author.name
        return UNKNOWN if self.execution.origin else LOCAL

    @property
    def names(self) -> list[str]:
        """The names of its runs."""
        return [name_of(run) for run in self.runs]

    @property
    def figures(self) -> Figures:
        """The lab's own score of each run by `eval/bpb`."""
        return self.scores[BPB]

    @cached_property
    def scores(self) -> Scores:
        """The lab's own scores of each run, by metric."""
        return verdicts.scores_of(self.runs)

    def tier(self, arm: str) -> speedrun_ranking.Tier:
        """Who has verified an arm's figures."""
        return speedrun_rows.tier(self.execution, self.replays, arm)

    def parameters(self, arm: str) -> int | None:
        """Of its model; for an own model as the lab counted them in the trained parameters."""
        scored = (run.evaluated for run in self.runs if run.arm == arm and run.evaluated)
        counted = (one.parameters for one in scored if one.parameters)
        return self.plan.arms[arm].parameters or next(counted, None)

    @property
    def has_figures(self) -> bool:
        """Whether at least one run was scored."""
        return any(figure is not None for figure in self.figures.values())

    @cached_property
    def summaries(self) -> dict[str, ArmSummary]:
        """Mean and spread of each arm by `eval/bpb`, over its seeds."""
        return {arm: verdicts.arm_summary(self.plan, self.figures, arm) for arm in self.plan.arms}

    @property
    def gate(self) -> promotion.Gate | None:
        """The gate of its rung of a ladder; None if there is none, or it has not ended."""
        return promotion.gate(self.plan, self.runs) if self.state == "done" else None

    @property
    def foretold(self) -> list[forecasts.Outcome]:
        """The lab's forecasts of its arms, with the outcomes."""
        return list(forecasts.outcomes(self.execution, self.figures))

    @property
    def steps(self) -> dict[str, record.StepEnd]:
        """How each step ended, from the last attempt that ended."""
        return self._last.steps if self._last else {}

    @property
    def receipt(self) -> dict[str, str]:
        """The receipt of that attempt."""
        return self._last.receipt if self._last else {}

    @property
    def _last(self) -> record.Ended | None:
        # Old records also have attempts to evaluate, `e1` and so on.
        trained = [end for name, end in self.ends.items() if name.startswith("t")]
        return trained[-1] if trained else None

    def under(self, seal: Seal | None) -> "Entry":
        """The same entry with its preregistration, if there is one."""
        if seal is None:
            return self
        told = made_from(self.told, seal[0], *seal[1])
        return self.model_copy(update={"seal": seal[0], "edited": seal[1], "told": told})

    def without_curves(self) -> "Entry":
        """The same entry without curves, as memory keeps it."""
        runs = tuple(run.model_copy(update={"curve": ()}) for run in self.runs)
        return self.model_copy(update={"runs": runs})


def name_of(run: record.Run) -> str:
    """The name of a run on the site."""
    return f"{run.execution}.{record.run_name(run.arm, run.seed)}"


# ── From the records ─────────────────────────────────────────────────────────────────────────


def read(store: Store, name: str, events: Iterable[str], seen: str = "") -> Entry:
    """All records of one execution, without its issue's. Raises StoreError, and BadRecord for a
    record of another form."""
    folder, digest = f"executions/{name}", hashlib.sha256()

    def take(path: str, kind: type[record.R]) -> record.R | None:
        data = store.peek(f"records/{path}.json")  # `peek` caches nothing
        digest.update(f"{path} {-1 if data is None else len(data)}\n".encode() + (data or b""))
        return None if data is None else record.parse(store, path, kind, data)

    execution = take(f"{folder}/execution", record.Execution)
    if execution is None:  # it existed when the folder was listed
        execution = record.require(store, f"{folder}/execution", record.Execution)
    runs = [
        take(f"runs/{name}.{record.run_name(arm, seed)}", record.Run)
        for arm, seed in execution.plan.runs()
    ]
    approval = None
    if origin := execution.origin:
        command = record.command_of(origin.approval)
        path = f"approvals/{origin.repository}/{origin.pull}/{command}"
        approval = take(path, record.Approval)
    # `t` before `e`, each by number.
    ordered = sorted(events, key=lambda event: (event.startswith("e"), natural(event)))
    ends = {
        event.partition(".")[0]: end
        for event in ordered
        if event.endswith(".ended") and (end := take(f"{folder}/{event}", record.Ended))
    }
    result = take(f"{folder}/result", record.Result)
    numbers = sorted(int(number) for number in record.names(store, f"replays/{name}"))
    replays = [take(f"replays/{name}/{number}", record.Replayed) for number in numbers]
    recorded = tuple(run for run in runs if run)
    return Entry(
        seen=seen,
        told=digest.hexdigest(),
        tags=tags(execution.plan),
        curved=any(run.curve for run in recorded),
        events=tuple(ordered),
        execution=execution,
        result=result,
        runs=recorded,
        approval=approval,
        ends=ends,
        replays=tuple(replay for replay in replays if replay),
    )


def read_entry(store: Store, name: str) -> Entry:
    """The execution with this name, with the curves of its runs and its preregistration."""
    entry = read(store, name, record.names(store, f"executions/{name}"))
    return entry.under(read_seal(store, *entry.asked) if entry.asked else None)


def whole(store: Store, entry: Entry) -> Entry:
    """An entry with the curves of its runs, from the records."""
    name = entry.execution.id
    found = read(store, name, record.names(store, f"executions/{name}"))
    return entry.model_copy(update={"runs": found.runs})


def read_seal(store: Store, repository: int, issue: int) -> Seal | None:
    """A preregistration and the edits of its issue."""
    folder = f"preregistrations/{repository}/{issue}"
    seal = record.read(store, f"{folder}/1", record.Preregistration)
    if seal is None:
        return None
    numbers = sorted(int(name) for name in record.names(store, folder))
    edits = (record.require(store, f"{folder}/{n}", record.Edit) for n in numbers if n > 1)
    return seal, tuple(edits)
