"""Which executions count under a preregistration, and how they deviate from what was sealed. Pure.

The issue seals hypothesis and predictions. The first approved plan under it seals the design: arms,
seeds, steps, and what is averaged. (An approval that was void before the launch seals nothing,
unless another execution had started meanwhile: nobody has seen a figure.) For each design the first
complete execution counts, and only the sealed design decides the predictions. Later ones are shown
beside it; otherwise one could repeat or vary a run until it gives the desired answer. A ladder is
one design with all of its arms: each rung has a first complete execution, and the highest rung's
counts, which knows the results below. All of this is derived from the records and not stored.

A run that started before the seal, under any plan, cannot test a prediction: its author may have
seen the result. A prediction whose runs all started before is not scored, and if that holds for all
predictions, the execution does not count.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from runner.analysis.designs import design_diff, same_design, same_run
from runner.analysis.estimates import Scores
from runner.analysis.text_diff import bounded, text_diff
from runner.lib.format import first_of, percent
from runner.schema import metrics, record
from runner.spec import measured

RUN_AGAIN = "it is a re-run"
EXPLORATORY = "exploratory: its design is not the sealed one"
LOWER_RUNG = "it is a lower rung of the ladder; the highest rung counts"
OTHERWISE_JUDGED = "its predictions are not the sealed ones"
KNOWN = "its runs began before the seal"
UNFIT = {
    "unfinished": "it has not ended",
    "voided": "it did not start",
    "cancelled": "it was cancelled",
    "failed": "it failed",
    "done": "it is incomplete",
}
MAX_NAMED = 6  # runs without a figure, in a sentence


@dataclass(frozen=True)
class Outcome:
    """An execution under a preregistration, with its results so far."""

    execution: record.Execution
    result: record.Result | None
    scores: Scores

    @property
    def state(self) -> str:
        """How it ended, or that it has not ended."""
        return self.result.state if self.result else "unfinished"

    @property
    def missing(self) -> list[str]:
        """Its runs without a score by a metric that a prediction names and that was planned of
        them; without predictions, by `eval/bpb`. A model that the plan does not score, such as one
        that another step continues, lacks nothing."""
        plan = self.execution.plan
        wanted = dict.fromkeys(one.metric for one in plan.predictions) or [metrics.BPB]
        planned, trained = measured.of_graph(plan.steps), plan.trained()
        scored = any(metrics.BPB in of for of in planned.values())
        return [
            record.run_name(arm, seed)
            for arm, seed in plan.runs()
            if any(
                self.scores.get(metric, {}).get((arm, seed)) is None
                for metric in wanted
                if metric in planned.get(trained.get((arm, seed), ""), ())
                or (metric == metrics.BPB and not scored)
            )
        ]

    @property
    def complete(self) -> bool:
        """Whether it ended with a figure for every run."""
        return self.state == "done" and not self.missing


@dataclass(frozen=True)
class Registration:
    """A preregistration with all records under it."""

    seal: record.Preregistration
    edits: tuple[record.Edit, ...] = ()  # of the issue, after the seal
    outcomes: tuple[Outcome, ...] = ()
    earlier: Mapping[str, str] = field(default_factory=dict)
    """Of the runs that had been begun before the seal, by `same_run`, the execution that did."""


@dataclass(frozen=True)
class Deviation:
    """A deviation from what was sealed. The text is the lab's, with people's words only in code
    spans; the lines of its diff are people's own."""

    what: str  # as a sentence
    diff: tuple[str, ...] = ()


@dataclass(frozen=True)
class Weighed:
    """An execution, and whether it counts."""

    outcome: Outcome
    why_not: str | None  # None: it counts for the predictions
    exploratory: bool  # of another design than the sealed one
    known: frozenset[int]  # predictions, from 0, whose runs started before the seal

    @property
    def counts(self) -> bool:
        """Whether its verdicts are those of the preregistration."""
        return self.why_not is None


@dataclass(frozen=True)
class Review:
    """What counts under a preregistration. All executions, in the order of their approvals."""

    registration: Registration
    sealed: record.Execution | None  # the execution whose plan is the sealed design
    weighed: tuple[Weighed, ...]

    @property
    def counted(self) -> Weighed | None:
        """The execution whose verdicts are those of the preregistration; None if there is none
        yet."""
        return next((one for one in self.weighed if one.counts), None)

    @cached_property
    def told(self) -> str:
        """A text that changes whenever anything that pages show of it changes."""
        lines = [f"{edit.at} {edit.text_sha256}" for edit in self.registration.edits]
        for one in self.weighed:
            of, result = one.outcome, one.outcome.result
            outcomes = [verdict.outcome for verdict in result.verdicts] if result else []
            told = (of.execution.id, of.state, one.why_not or "", outcomes, sorted(one.known))
            lines.append(repr(told))
        return "\n".join(lines)

    def of(self, execution: str) -> Weighed:
        """The entry of the execution with this id. Raises KeyError."""
        return self._by_id[execution]

    @cached_property
    def _by_id(self) -> dict[str, Weighed]:
        return {one.outcome.execution.id: one for one in self.weighed}

    def deviations(self, execution: str) -> tuple[Deviation, ...]:
        """All deviations that concern this execution."""
        outcome = self.of(execution).outcome
        found = [_edits(self.registration), _predictions(self.registration, outcome.execution.plan)]
        found.append(_begun(self.registration, self.of(execution)))
        if self.sealed:
            found.append(_design(self.sealed, outcome.execution))
        found += [Deviation(sentence) for sentence in outcome.execution.deviations]
        found.append(_missing(outcome))
        return tuple(one for one in found if one)


def review(registration: Registration) -> Review:
    """Which of the executions under a preregistration counts, and why the others do not."""
    ordered = sorted(registration.outcomes, key=lambda one: _when(one.execution))
    sealed = next((one.execution for one in ordered if _seals(one, ordered)), None)
    predicted = registration.seal.predictions
    first = _first_complete(x for x in ordered if x.execution.plan.predictions == predicted)
    others = {
        one.execution.id
        for one in ordered
        if sealed is not None and not same_design(sealed.plan, one.execution.plan)
    }
    highest = max((rung for id, rung in first.items() if id not in others), default=0)
    weighed = []
    for one in ordered:
        other = one.execution.id in others
        why = [EXPLORATORY] if other else []
        seen = known(registration, one.execution.plan)
        if one.execution.plan.predictions != predicted:
            why.append(OTHERWISE_JUDGED)
        elif predicted and len(seen) == len(predicted):
            why.append(KNOWN)
        elif not one.complete:
            why.append(UNFIT[one.state])
        elif one.execution.id not in first:
            why.append(RUN_AGAIN)
        elif first[one.execution.id] < highest and not other:
            why.append(LOWER_RUNG)
        weighed.append(Weighed(one, ", ".join(why) or None, other, seen))
    return Review(registration, sealed, tuple(weighed))


def _seals(one: Outcome, approved: list[Outcome]) -> bool:
    """Whether this execution would seal the design, if no earlier one has."""
    if one.result is None or one.state != "voided":
        return True
    then = one.result.at
    # As known then: what was queued and voided later must not change what was sealed.
    begun = [x for x in approved if x.state != "voided" or (x.result and x.result.at > then)]
    return any(x.execution.at <= then for x in begun)


def _rung(execution: record.Execution) -> int:
    return execution.plan.rung.n if execution.plan.rung else 0


def _first_complete(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """For each design (on a ladder, each of its rungs) the first complete execution, with its
    rung."""
    done = [(one.result.at, one.execution) for one in outcomes if one.result and one.complete]
    first: list[record.Execution] = []
    for _, execution in sorted(done, key=lambda pair: (pair[0], _when(pair[1]))):
        alike = (before for before in first if _rung(before) == _rung(execution))
        if not any(same_design(execution.plan, before.plan) for before in alike):
            first.append(execution)
    return {execution.id: _rung(execution) for execution in first}


def _when(execution: record.Execution) -> tuple[Any, ...]:
    """The order of approvals; at equal times, the order of the commands in the thread."""
    command = execution.origin.approval.rpartition("/")[2] if execution.origin else ""
    return execution.at, [int(number) for number in re.findall(r"\d+", command)], execution.id


def begun_before(
    seal: record.Preregistration,
    plans: Iterable[record.Plan],
    begun: Mapping[str, tuple[datetime, str]],
) -> dict[str, str]:
    """`Registration.earlier` for the runs of these plans, given when and by which execution each
    run was first started."""
    runs = {run for plan in plans for run in same_run(plan).values()}
    found = {run: begun[run] for run in runs & begun.keys()}
    return {run: id for run, (at, id) in found.items() if at < seal.at}


def known(registration: Registration, plan: record.Plan) -> frozenset[int]:
    """The plan's predictions whose runs had all started before the seal."""
    if not registration.earlier:
        return frozenset()
    runs = same_run(plan)
    late = {arm for (arm, _), run in runs.items() if run not in registration.earlier}
    return frozenset(
        n
        for n, prediction in enumerate(plan.predictions)
        if not late & set(prediction.arms) and {arm for arm, _ in runs} >= set(prediction.arms)
    )


# ── Deviations ───────────────────────────────────────────────────────────────────────────────


def _edits(registration: Registration) -> Deviation | None:
    seal, edits = registration.seal, registration.edits
    if not edits:
        return None
    last, times = edits[-1], "once" if len(edits) == 1 else f"{len(edits)} times"
    when = f"{last.at:%Y-%m-%d %H:%M:%S} UTC"
    words = f"the issue was edited {times} after it was sealed (last edit: {when})"
    between = {edit.text_sha256 for edit in edits} - {last.text_sha256, seal.text_sha256}
    also = " There were other versions in between; the records have them." if between else ""
    if last.text_sha256 == seal.text_sha256:
        return Deviation(f"{words}. Its text is again the sealed one.{also}")
    if seal.text is None or last.text is None:
        return Deviation(
            f"{words}. The records have only the digest of one of the two texts.{also}"
        )
    return Deviation(
        f"{words}. The verdict uses the sealed text.{also}",
        text_diff(seal.text, last.text) or _UNSEEN,
    )


_UNSEEN = ("! only invisible characters differ, for example line ends",)


def _predictions(registration: Registration, plan: record.Plan) -> Deviation | None:
    seal = registration.seal
    if plan.predictions == seal.predictions:
        if plan.seal == seal.seal:
            return None
        return Deviation(
            f"the plan names the seal `{(plan.seal or 'none')[:16]}`, but the preregistration has "
            f"`{seal.seal[:16]}`. The predictions are the same."
        )
    before, after = ("\n".join(_said(of.predictions)) for of in (seal, plan))
    words = "the predictions of the plan are not the sealed ones."
    return Deviation(words, text_diff(before, after) or _UNSEEN)


def _said(predictions: Iterable[record.Prediction]) -> list[str]:
    return [f"{one.sentence}, {percent(one.confidence)} sure" for one in predictions]


def _begun(registration: Registration, weighed: Weighed) -> Deviation | None:
    runs = same_run(weighed.outcome.execution.plan)
    by = {
        run: registration.earlier[key] for run, key in runs.items() if key in registration.earlier
    }
    if not by:
        return None
    names = ", ".join(f"`{id}`" for id in list(dict.fromkeys(by.values()))[:MAX_NAMED])
    words = f"{len(by)} of {len(runs)} runs began before the seal, in {names}"
    told = [str(n + 1) for n in sorted(weighed.known)]
    if not told:
        return Deviation(f"{words}. Their results may have been known.")
    numbers = ("prediction " if len(told) == 1 else "predictions ") + ", ".join(told)
    return Deviation(f"{words}. So the result of {numbers} may have been known; it does not count.")


def _design(sealed: record.Execution, execution: record.Execution) -> Deviation | None:
    if same_design(sealed.plan, execution.plan):
        return None
    found = design_diff(sealed.plan, execution.plan)
    if not found:
        return None
    return Deviation(f"the design is not that of `{sealed.id}`.", bounded(found))


def _missing(outcome: Outcome) -> Deviation | None:
    missing = outcome.missing
    if outcome.state not in ("done", "failed") or not missing:
        return None
    names = first_of([f"`{name}`" for name in missing], MAX_NAMED)
    runs = len(outcome.execution.plan.runs())
    return Deviation(f"{len(missing)} of {runs} runs have no score: {names}.")
