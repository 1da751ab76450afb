"""The result of an execution: verdicts on the predictions, scores, receipt. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from bot.messages import for_programs, loss_curves
from bot.messages.status_comment import ends, links, page, why_failed
from bot.messages.templating import listed, say
from bot.model.site import Site
from bot.model.thread import Ran, Thread
from runner.analysis import (
    answer,
    promotion,
    run_comparison,
    score_table,
    study_results,
    verdicts,
    which_runs_count,
)
from runner.analysis.speedrun_position import Position
from runner.analysis.which_runs_count import Registration, Review
from runner.history import forecasts
from runner.history.excerpts import Excerpt
from runner.lib import format
from runner.publish import step_summary
from runner.schema.record import run_name

MAX_EXCERPTS = 3


def result(
    thread: Thread,
    ran: Ran,
    review: Review | None = None,
    excerpts: Sequence[Excerpt] = (),
    *,
    pictured: bool = True,
) -> str:
    """The finding first, then scores, curves and the receipt. `review`: of what is under its
    preregistration, if it has one. `excerpts`: texts that its last steps wrote. Not `pictured`:
    without the line about the picture, for a text that is not edited later."""
    assert ran.result, f"{ran.execution.id} has no result yet"
    plan, scores = ran.execution.plan, verdicts.figures_of(ran.runs)
    table = score_table.worth_showing(plan, ran.runs)
    under = _under(ran, review)
    counts = _counts(under)
    return say(
        "result",
        lambda most: for_programs.result(ran, counts, most),
        link=page(ran, thread.site),
        links=links(ran, thread.site),
        by=review.registration.seal.author.login if review else None,
        ran=ran,
        finding=answer.of(plan, ran.runs, ran.result),
        excerpts=[one for one in excerpts if one.text][:MAX_EXCERPTS],
        **under,
        positions=_positions(thread, ran),
        again=_again(thread, ran),
        steps=ends(ran),
        cached=_cached(ran),
        why=why_failed(ran),
        failed=[run for run in ran.runs if run.state == "failed"],
        scored=[run for run in ran.runs if run.evaluated],
        summary=lambda arm: str(verdicts.arm_summary(plan, scores, arm)),
        seeds=lambda arm: _seeds(ran, arm, thread.site),
        studies=study_results.of(plan, ran.runs),
        head=score_table.HEAD,
        scores=table,
        measured=list(dict.fromkeys(row.metric for row in table)),
        picture=loss_curves.line(thread, ran) if pictured else None,
        receipt=step_summary.receipt(_receipt(ran)),
        forecasts=list(forecasts.outcomes(ran.execution, scores)),
        gate=promotion.gate(plan, ran.runs) if ran.result.state == "done" else None,
    )


def verdict(thread: Thread, ran: Ran, earlier: Mapping[str, str] | None = None) -> str:
    """How the predictions came out, for the issue that made them. `earlier` as a `Registration` has
    it."""
    assert ran.result
    assert thread.seal
    outcomes = tuple(one.outcome for one in thread.executions)
    registration = Registration(thread.seal, thread.edits, outcomes, earlier or {})
    under = _under(ran, which_runs_count.review(registration))
    return say(
        "verdict",
        lambda most: for_programs.result(ran, _counts(under), most),
        link=page(ran, thread.site),
        by=thread.seal.author.login,
        ran=ran,
        finding=answer.of(ran.execution.plan, ran.runs, ran.result),
        **under,
        why=why_failed(ran),
        seal=thread.seal.seal[:16],
    )


def _under(ran: Ran, review: Review | None) -> dict[str, Any]:
    """What the template `under` says: what counts under the preregistration, and what of this
    execution is not as it was sealed."""
    if review is None or ran.execution.id not in {x.outcome.execution.id for x in review.weighed}:
        return {"review": None, "deviations": (), "beside": ""}
    weighed = review.of(ran.execution.id)
    beside = "Re-run: " if review.counted and not weighed.counts else ""
    if which_runs_count.KNOWN in (weighed.why_not or ""):
        beside = "Began before the seal: "
    if weighed.exploratory:
        beside = "Exploratory: "
    deviations = review.deviations(ran.execution.id)
    return {"review": review, "weighed": weighed, "beside": beside, "deviations": deviations}


def _positions(thread: Thread, ran: Ran) -> list[Position]:
    """Where an execution's arms stand on the track that it enters; a reproduction is not an entry
    of its own."""
    enters = ran.execution.plan.speedrun and not ran.execution.reproduces
    done = ran.result and ran.result.state in ("done", "failed")
    return thread.positions(ran.execution.id) if enters and done else []


def _counts(under: Mapping[str, Any]) -> bool | None:
    return under["weighed"].counts if under["review"] else None


def _cached(ran: Ran) -> str | None:
    """How many of an execution's runs were cached, and from which executions; None where none was,
    and where a table of steps says it."""
    plan = ran.execution.plan
    names = plan.trained().values() if plan.data else ()
    made = [ran.steps[name] for name in names if name in ran.steps]
    cached = [end for end in made if end.state == "cached"]
    if not cached:
        return None
    by = listed([one for one in dict.fromkeys(end.by for end in cached) if one])
    whole = format.many(len(plan.runs()), "run")
    verb = "was" if len(cached) == 1 else "were"
    return f"{len(cached)} of {whole} {verb} cached" + (f" (from {by})" if by else "")


def _again(thread: Thread, ran: Ran) -> dict[str, Any] | None:
    """How a re-run compares with the execution that it reproduces; None for another execution."""
    known = {one.execution.id: one for one in thread.executions}
    first = known.get(ran.execution.reproduces)
    if first is None or ran.result is None or ran.result.state != "done":
        return None
    before, now = ({run_name(run.arm, run.seed): run for run in one.runs} for one in (first, ran))
    found = run_comparison.compare(before, now)
    same = run_comparison.whole(found) in ("bit for bit", "within the tolerance")
    return {
        "headline": _headline(found),
        "same": same,
        "link": thread.site and thread.site.execution(first.execution.id),
        "runs": found,
        "differing": run_comparison.differing(_receipt(first), _receipt(ran)),
    }


def _receipt(ran: Ran) -> dict[str, str]:
    training = [a.ended for a in ran.life.attempts if a.ended and a.ended.how == "finished"]
    return training[-1].receipt if training else {}


def _headline(found: Mapping[str, run_comparison.Comparison]) -> str:
    """Whether a re-run reproduced the runs, and how many of them."""
    whole, of = run_comparison.whole(found), format.many(len(found), "run")
    same = sum(one.how == whole for one in found.values())
    match whole:
        case "bit for bit":
            return f"♻️ Reproduced bit for bit: {same} of {of}"
        case "within the tolerance":
            return f"♻️ Reproduced within {run_comparison.TOLERANCE:.0%}: {len(found)} of {of}"
        case "differs":
            return f"⚠️ Not reproduced: {same} of {of} differ{'s' * (same == 1)}"
        case _:
            return f"◻️ Not comparable: {same} of {of}"


def _seeds(ran: Ran, arm: str, site: Site | None) -> str:
    """The scores of an arm's runs, linked to their pages if the site has an address."""
    shown = []
    for run in ran.runs:
        if run.arm == arm:
            words: str = "not scored" if run.state == "finished" else run.state
            words = f"{run.evaluated.bpb:.4f}" if run.evaluated else words
            page = site.run(ran.execution.id, run_name(arm, run.seed)) if site else ""
            shown.append(f"[{words}]({page})" if page else words)
    return ", ".join(shown)
