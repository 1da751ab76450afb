"""The status of an execution: a comment and a check run, which the bot edits. Pure."""

from collections.abc import Mapping
from datetime import datetime

from bot.messages.templating import MARKS, say, tally
from bot.model.escape import prose
from bot.model.keys import CommandKey
from bot.model.site import Site
from bot.model.thread import Ran
from runner.analysis import answer, findings
from runner.analysis.comparability import scored_on
from runner.execution.progress import RunProgress
from runner.lib.format import natural
from runner.publish import step_summary
from runner.schema.record import StepEnd, command_of

HEADLINES = {
    "queued": ("🕓", "Queued"),
    "running": ("🏃", "Training"),
    "done": ("🏁", "Done"),
    "failed": ("⚠️", "Failed"),
    "cancelled": ("🛑", "Cancelled"),
    "voided": ("🛑", "Not started"),
}
_VIA = {  # how an approval came
    "comment": "",
    "review": " in a review",
    "button": " by a button",
    "policy": " (by itself, within what it gives the agent)",
}


def status(
    ran: Ran, now: datetime | None = None, head: str | None = None, site: Site | None = None
) -> str:
    """The status of an execution; if it is done, folded, because its result is another comment.
    With `now`, also its place in the queue; with `head`, also where the branch is now."""
    icon, headline = _headline(ran)
    if ran.life.state == "cancelled" and ran.result:
        headline = prose(ran.result.why[:1].upper() + ran.result.why[1:])
    elif why := why_failed(ran):
        headline += f": {prose(why)}"
    steps = ran.execution.plan.steps
    fraction = ran.progress.fraction if ran.progress else len(ran.steps) / max(1, len(steps))
    return say(
        "status",
        link=page(ran, site),
        links=links(ran, site),
        live=lambda run: site and site.watched(ran.execution.id, run.name),
        actions=_actions(ran, site),
        done=ran.result is not None and ran.result.state == "done",
        ran=ran,
        # In the order of the other comments, which is not that in which they run.
        runs=sorted(_shown(ran), key=lambda of: natural(of.name)),
        steps=ends(ran),
        icon=icon,
        headline=headline,
        bar="█" * round(20 * fraction) + "░" * (20 - round(20 * fraction)),
        lost=[a for a in ran.life.attempts if a.ended and a.ended.how == "lost"],
        head=head,
        via=_VIA[CommandKey.parse(command_of(ran.origin.approval)).via],
        place=ran.place and now and prose(ran.place.words(int(now.timestamp()))),
    )


def _shown(ran: Ran) -> list[RunProgress]:
    """The runs of the table: without finished ones of which no loss was read."""
    runs = ran.progress.runs if ran.progress else ()
    return [run for run in runs if run.loss is not None or not run.ended]


def title(ran: Ran) -> str:
    """An execution's state in one line, for a check."""
    headline = _headline(ran)[1]
    if not ran.execution.plan.data and not ran.result:
        return f"{headline}: {len(ran.steps)} of {len(ran.execution.plan.steps)}"
    return finding(ran) if ran.result and ran.result.state == "done" else headline


def finding(ran: Ran) -> str:
    """What an execution found, in one plain line: of several verdicts, how many of each, and the
    first one."""
    assert ran.result
    verdicts = ran.result.verdicts
    words = findings.plain(answer.of(ran.execution.plan, ran.runs, ran.result))
    if len(verdicts) > 1:
        return f"{tally(ran.result)}: {words}"
    return f"{MARKS[verdicts[0].outcome]} {words}" if verdicts else words


def _headline(ran: Ran) -> tuple[str, str]:
    plan = ran.execution.plan
    if ran.life.state == "running" and not plan.data:
        return "🏃", "Running the steps"
    if ran.life.state == "running" and ran.steps.keys() >= set(plan.trained().values()):
        return "🔎", "Scoring the models"
    if ran.life.state == "queued" and any(a.job == "pending" for a in ran.life.attempts):
        return "🕓", "Waiting for devices: Ray has not begun its job yet"
    return HEADLINES[ran.life.state]


def page(ran: Ran, site: Site | None) -> str | None:
    """Where all of an execution is shown: as it runs, then as it ended; None if nowhere."""
    if site is None:
        return None
    id = ran.execution.id
    return site.execution(id) if ran.result else site.watched(id)


def links(ran: Ran, site: Site | None) -> str:
    """Where to read on; nothing if the lab's site has no address. Only the bot's server draws pages
    before it posts."""
    places: dict[str, str | None] = {}
    if site:
        plan, whole = ran.execution.plan, site.execution(ran.execution.id)
        scored = scored_on(plan) if any(run.evaluated for run in ran.runs) else None
        places = {"Full result": whole, "runs": f"{whole}#figures" if plan.arms else None}
        places["leaderboard"] = site.board(scored)
    places["W&B"] = ran.tracked
    later = "" if site is None or site.live else " (the site shows it when it is published next)"
    return _listed(places) + later


def _listed(places: Mapping[str, str | None]) -> str:
    """Links to the places with an address."""
    return " · ".join(f"[{name}]({address})" for name, address in places.items() if address)


def _actions(ran: Ran, site: Site | None) -> str:
    """What a reader can do now."""
    address = page(ran, site)
    if ran.result is None:
        live = _listed({"Watch live": address, "W&B": ran.tracked})
        return f"{live}{' · ' * bool(live)}`/status` shows its progress, and `/cancel` stops it."
    details = f"[Details]({address}) · " if address else ""
    return f"{details}A maintainer can comment `/retry` to run the same plan again."


def why_failed(ran: Ran) -> str | None:
    """Why it did not come to its end. Where no run did, each of them says why itself."""
    if ran.result is None or not ran.result.why:
        return None
    if ran.execution.plan.data and ran.runs and all(run.state == "failed" for run in ran.runs):
        return "no run finished training, so there is nothing to score"
    return ran.result.why


def ends(ran: Ran) -> list[tuple[str, StepEnd | None]]:
    """The steps and how they ended, where they were declared as such."""
    plan = ran.execution.plan
    found = {} if plan.data else step_summary.ordered(plan.steps)
    return [(name, ran.steps.get(name)) for name in found]
