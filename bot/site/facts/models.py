"""How a trained model is taken home. Pure."""

from dataclasses import dataclass

from bot.site.facts.entries import Entry, name_of
from runner.schema import record


@dataclass(frozen=True)
class Home:
    """The name by which a model is found, and what can be done with it."""

    name: str  # for `regatta export` and `regatta chat`
    exports: bool  # the lab's own decoder; own code cannot leave in a format of others
    hub: str | None = None  # the repository at the Hugging Face Hub to which the lab sent it


def of_run(entry: Entry, run: record.Run) -> Home | None:
    """The model of a run; None if it has none."""
    if run.state != "finished" or run.checkpoint_sha256 is None:
        return None
    plan, trained = entry.plan, entry.plan.trained().get((run.arm, run.seed))
    sent = (
        str(step.config["upload"])
        for name, step in plan.steps.items()
        if step.do == "export" and step.config.get("upload") and trained in step.needs
        if name in entry.steps and entry.steps[name].state != "failed"
    )
    arm = plan.arms[run.arm]
    exports = arm.labs is not None and not arm.labs.moe
    return Home(name_of(run), exports, next(sent, None))
