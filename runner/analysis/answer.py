"""The first thing to say about an execution that has ended, in a sentence of parts. Pure."""

from collections.abc import Sequence

from runner.analysis import findings, promotion, study_results
from runner.lib.format import many
from runner.schema.prediction_forms import Part
from runner.schema.record import Plan, Result, Run, Verdict


def first_of(result: Result) -> Verdict | None:
    """The verdict that is the answer; None without predictions, and if it failed before there was
    an estimate."""
    first = next(iter(result.verdicts), None)
    return first if first and (result.state == "done" or findings.found(first)) else None


def of(plan: Plan, runs: Sequence[Run], result: Result) -> list[Part]:
    """The result for the first prediction; without predictions the gate of a rung, what a study
    found, or how the best arms compare; without scores only that it has ended, or failed."""
    if verdict := first_of(result):
        why = verdict.why.removeprefix("inconclusive: ")
        return findings.found(verdict) or [("", why[:1].upper() + why[1:])]
    if result.state != "done":
        return [("", result.state.capitalize())]
    if gate := promotion.gate(plan, runs):
        return [("", gate.head)]
    for study in study_results.of(plan, runs):
        if study.finding:
            return spans(study.finding.removesuffix("."))
    return findings.best(plan, runs) or [("", f"Done: {many(len(plan.steps), 'step')}")]


def spans(sentence: str) -> list[Part]:
    """A sentence with names between backticks in parts."""
    parts = enumerate(sentence.split("`"))
    return [("arm" if n % 2 else "", words) for n, words in parts if words]
