"""The status of an execution: a comment and a check run, which the bot edits. Pure."""

from datetime import datetime

from bot.messages.templating import say, tally
from bot.model.escape import prose
from bot.model.keys import CommandKey
from bot.model.thread import Ran
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
_VIA = {"comment": "", "review": " in a review", "button": " by a button"}  # how an approval came


def status(
    ran: Ran, now: datetime | None = None, head: str | None = None, site: str | None = None
) -> str:
    """The status of an execution. With `now`, also its place in the queue; with `head`, also where
    the branch is now."""
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
        actions=_actions(ran, site),
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
    return tally(ran.result) or headline


def _headline(ran: Ran) -> tuple[str, str]:
    plan = ran.execution.plan
    if ran.life.state == "running" and not plan.data:
        return "🏃", "Running the steps"
    if ran.life.state == "running" and ran.steps.keys() >= set(plan.trained().values()):
        return "🔎", "Scoring the models"
    return HEADLINES[ran.life.state]


def page(ran: Ran, site: str | None) -> str | None:
    """Where all of an execution is shown; None if the lab's site has no address."""
    return f"{site}/executions/{ran.execution.id}/" if site else None


def live_page(ran: Ran, site: str | None) -> str | None:
    """Where an execution can be watched; None if the lab's site has no address."""
    return f"{site}/live/{ran.execution.id}" if site else None


def links(ran: Ran, site: str | None) -> str:
    """Where to read on; nothing if the lab's site has no address."""
    return f"[Full result]({page(ran, site)}) · [leaderboard]({site}/index.html)" if site else ""


def _actions(ran: Ran, site: str | None) -> str:
    """What a reader can do now."""
    if ran.result is None:
        live = f"[Watch live]({live_page(ran, site)}) · " if site else ""
        return f"{live}`/cancel` stops it."
    if ran.result.state == "done":
        return f"The bot posts the result in a new comment on this pull request. {links(ran, site)}"
    details = f"[Details]({page(ran, site)}) · " if site else ""
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
