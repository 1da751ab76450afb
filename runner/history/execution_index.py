"""Queries over earlier executions: those under a preregistration, the spread between seeds of runs
like the planned ones, and which runs form a ladder. Reads the store and changes nothing.

Each execution is read once, and only the relevant ones completely; their runs once, after they have
ended.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from engine.config.schema import TrainConfig
from runner.analysis import (
    designs,
    power,
    speedrun_position,
    speedrun_rows,
    verdicts,
    which_runs_count,
)
from runner.analysis.comparability import measured_on, scored_on
from runner.analysis.forecast import Point, design_of, points_of
from runner.analysis.power import Seen
from runner.analysis.speedrun_position import Position
from runner.analysis.speedrun_ranking import Row
from runner.analysis.which_runs_count import Outcome, Registration
from runner.history import overhead, own_modules
from runner.history.provenance import runs_of
from runner.schema import record
from runner.schema.metrics import BPB
from runner.schema.record import (
    Edit,
    Ending,
    Execution,
    Plan,
    Prediction,
    Preregistration,
    Result,
    Run,
    Spread,
)
from runner.store.store import Store

MAX_SEEN = 100  # executions in the estimate of the spread, the newest
Ladder = tuple[str, int, str]  # `forecast.Design.ladder`
Scored = tuple[Point, TrainConfig]  # a run with a figure, and how it was trained


@dataclass(frozen=True)
class _Known:
    """The parts of an execution that never change."""

    at: datetime
    asked: tuple[int, int] | None  # repository and issue of its preregistration
    scored: tuple[str, int] | None  # digest of the text, number of tokens scored
    runs: frozenset[str]  # by `designs.same_run`
    measured: Mapping[str, str]  # `comparability.measured_on`
    track: str  # that it enters; empty if it enters none


class Past:
    """Reads a store's records, and caches them."""

    def __init__(self, store: Store, others: Iterable[Row] = ()) -> None:
        """`others`: rows of speedruns that the store has not, see `kept_records.entries`."""
        self._store = store
        self._known: dict[str, _Known] = {}
        self._seen: dict[tuple[str, str], tuple[Seen, ...]] = {}  # of ended ones, by metric
        self._ladders: dict[str, frozenset[Ladder]] = {}  # of those on a requested text
        self._scored: dict[str, tuple[Scored, ...]] = {}  # of those that have ended
        self._others = tuple(others)
        self._entered: dict[str, tuple[Execution, Result, tuple[()]]] = {}  # of tracks, likewise

    def registration(self, repository: int, issue: int | None) -> Registration | None:
        """All records under a preregistration; None if there is none."""
        folder = f"preregistrations/{repository}/{issue}"
        seal = record.read(self._store, f"{folder}/1", Preregistration) if issue else None
        if seal is None:
            return None
        numbers = sorted(int(name) for name in record.names(self._store, folder))
        self._look()
        outcomes = tuple(
            self._outcome(id)
            for id, known in self._known.items()
            if known.asked == (repository, issue)
        )
        return Registration(
            seal=seal,
            edits=tuple(
                record.require(self._store, f"{folder}/{n}", Edit) for n in numbers if n > 1
            ),
            outcomes=outcomes,
            earlier=self._earlier(seal, [one.execution.plan for one in outcomes]),
        )

    def begun(self, repository: int, plan: Plan) -> str:
        """The execution that had started everything the plan's predictions are about before they
        were sealed; empty if there is none."""
        found = self.registration(repository, plan.preregistration)
        if found is None or not plan.predictions:
            return ""
        earlier = self._earlier(found.seal, [plan])
        seen = which_runs_count.known(Registration(found.seal, earlier=earlier), plan)
        return next(iter(earlier.values())) if len(seen) == len(plan.predictions) else ""

    def _earlier(self, seal: Preregistration, plans: Sequence[Plan]) -> dict[str, str]:
        """The runs of these plans that had started before the seal, and the execution of each."""
        mine = {run for plan in plans for run in designs.same_run(plan).values()}
        found: dict[str, str] = {}
        for at, id in sorted((known.at, id) for id, known in self._known.items()):
            runs = mine & self._known[id].runs - found.keys()
            if at < seal.at and runs:
                result = self._result(id)
                if result is None or result.state != "voided":
                    found |= dict.fromkeys(runs, id)
        return found

    def other_design(self, repository: int, plan: Plan) -> str:
        """The execution that sealed another design than the plan's; empty if there is none."""
        found = self.registration(repository, plan.preregistration)
        sealed = which_runs_count.review(found).sealed if found else None
        return "" if sealed is None or designs.same_design(sealed.plan, plan) else sealed.id

    def predictions(self, plan: Plan) -> tuple[Prediction, ...]:
        """The predictions sealed in the issue that the plan names, if only one repository is
        possible."""
        issue, repositories = plan.preregistration, record.names(self._store, "preregistrations")
        if issue is None or len(repositories) != 1:
            return ()
        path = f"preregistrations/{repositories[0]}/{issue}/1"
        seal = record.read(self._store, path, Preregistration)
        return seal.predictions if seal else ()

    def spread(self, plan: Plan) -> Spread | None:
        """The spread between seeds of runs like the plan's; None if it is unknown."""
        if (wanted := scored_on(plan)) is None:
            return None
        self._look()
        alike = [(known.at, id) for id, known in self._known.items() if known.scored == wanted.text]
        newest = [id for _, id in sorted(alike, reverse=True)[:MAX_SEEN]]
        return power.of_such_runs(plan, [arm for id in newest for arm in self._arms(id)])

    def spreads(self, plan: Plan, predictions: Iterable[Prediction]) -> dict[str, Spread]:
        """The same by every metric other than `eval/bpb` that a prediction names, where it is
        known."""
        found, here = {}, measured_on(plan)
        for metric in dict.fromkeys(one.metric for one in predictions if one.metric != BPB):
            if metric not in here:
                continue
            self._look()
            alike = [
                (known.at, id)
                for id, known in self._known.items()
                if known.measured.get(metric) == here[metric]
            ]
            newest = [id for _, id in sorted(alike, reverse=True)[:MAX_SEEN]]
            seen = [arm for id in newest for arm in self._arms(id, metric)]
            if spread := power.of_such_runs(plan, seen):
                found[metric] = spread
        return found

    def of_ladders(self, ladders: AbstractSet[Ladder]) -> list[Scored]:
        """The runs with a figure in the finished executions that have runs of these ladders, the
        oldest execution first."""
        self._look()
        texts = {(text, targets) for text, targets, _ in ladders}
        alike = [(known.at, id) for id, known in self._known.items() if known.scored in texts]
        return [
            one
            for _, id in sorted(alike)
            if not ladders.isdisjoint(self._ladders_of(id))
            for one in self._scored_of(id)
        ]

    def competing(self) -> list[Row]:
        """The rows of all ended executions that enter a track, and of the others."""
        self._look()
        for id, known in self._known.items():
            if known.track and id not in self._entered:
                result = record.read(self._store, f"executions/{id}/result", Result)
                if result and (execution := self._execution(id)):
                    self._entered[id] = execution, result, ()
        return speedrun_rows.beside(self._others, speedrun_rows.together(self._entered.values()))

    def positions(self, execution: str) -> list[Position]:
        """Where the arms of an ended execution stand on the track that its plan enters."""
        found = self._execution(execution)
        if found is None or (track := found.plan.enters) is None:
            return []
        return speedrun_position.positions(
            track,
            self.competing(),
            partial(own_modules.changed_in, self._store),
            lambda row: row.execution == execution,
            elsewhere=True,
        )

    def per_step(self) -> float:
        """The seconds that a step takes besides training, by the newest executions."""
        self._look()
        newest = sorted(((known.at, id) for id, known in self._known.items()), reverse=True)
        found = (self._execution(id) for _, id in newest[:MAX_SEEN])
        return overhead.over(self._store, filter(None, found)).per_step

    def _look(self) -> None:
        for id in record.names(self._store, "executions"):
            if id not in self._known and (found := self._execution(id)):
                origin, issue = found.origin, found.plan.preregistration
                asked = (origin.repository, issue) if origin and issue is not None else None
                runs = frozenset(designs.same_run(found.plan).values())
                scored = scored_on(found.plan)
                text, by_metric = scored.text if scored else None, measured_on(found.plan)
                track = found.plan.speedrun.track if found.plan.speedrun else ""
                self._known[id] = _Known(found.at, asked, text, runs, by_metric, track)

    def _execution(self, id: str) -> Execution | None:
        return record.read(self._store, f"executions/{id}/execution", Execution)

    def _result(self, id: str) -> Ending | None:
        return record.read(self._store, f"executions/{id}/result", Ending)

    def _outcome(self, id: str) -> Outcome:
        execution = record.require(self._store, f"executions/{id}/execution", Execution)
        result = self._result(id)
        runs = runs_of(self._store, execution) if result else []
        return Outcome(execution, result, verdicts.scores_of(runs))

    def _ladders_of(self, id: str) -> frozenset[Ladder]:
        if id not in self._ladders:
            plan = record.require(self._store, f"executions/{id}/execution", Execution).plan
            designs = (design_of(plan, arm) for arm in plan.arms)
            self._ladders[id] = frozenset(one.ladder for one in designs if one)
        return self._ladders[id]

    def _scored_of(self, id: str) -> tuple[Scored, ...]:
        """The runs of an execution that have figures; empty until it has ended."""
        if id not in self._scored and (ended := self._ended(id, ("done", "failed"))):
            arms = ended[0].plan.arms
            self._scored[id] = tuple((one, arms[one.arm].train) for one in points_of(*ended))
        return self._scored.get(id, ())

    def _arms(self, id: str, metric: str = BPB) -> tuple[Seen, ...]:
        """The arms of an execution that have scores by a metric; empty until it has ended."""
        if (id, metric) not in self._seen and (ended := self._ended(id)):
            execution, runs = ended
            figures = defaultdict[str, list[float]](list)
            for run in runs:
                score = run.measured.get(metric)
                figures[run.arm] += [score.value] if score else []
            self._seen[id, metric] = tuple(
                Seen(flops, tuple(figures[arm]))
                for arm, planned in execution.plan.arms.items()
                if (flops := planned.model_flops) is not None
            )
        return self._seen.get((id, metric), ())

    def _ended(
        self, id: str, states: Container[str] = record.FINAL_STATES
    ) -> tuple[Execution, list[Run]] | None:
        """An execution and its runs, without runs if it ended in none of these `states`; None until
        it has ended."""
        result = self._result(id)
        execution = self._execution(id) if result else None
        if result is None or execution is None:
            return None
        return execution, runs_of(self._store, execution) if result.state in states else []
