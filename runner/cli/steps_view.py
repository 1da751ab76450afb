"""Shows steps in a terminal: their status before a run, how they ended, and their inputs."""

from collections.abc import Iterator, Mapping

from rich.console import Group
from rich.table import Table
from rich.text import Text

from runner.cli.tables import Cell, table
from runner.execution import aliases
from runner.lib.format import natural
from runner.publish.step_summary import declared, ended, ordered, status
from runner.schema.record import Plan, PlannedStep, Standing, StepEnd

STATES = {
    "cached": "green",
    "made": "green",
    "new": "cyan",
    "changed": "yellow",
    "being made": "cyan",
    "failed before": "red",
    "failed": "red",
    "not made": "red",
}


def in_turn(plan: Plan) -> Plan:
    """The plan as people read it: its arms and steps in the order in which they were declared."""
    steps = declared(plan.steps)
    trained = plan.model_copy(update={"steps": steps}).trained()
    names = dict.fromkeys([*(arm for arm, _ in trained), *plan.arms])
    return plan.model_copy(
        update={"steps": steps, "arms": {name: plan.arms[name] for name in names}}
    )


def standings(steps: Mapping[str, PlannedStep], found: Mapping[str, Standing]) -> Table:
    """The status of each step, and why it would run again."""
    rows = (
        (_called(name, step), step.do, _state(found[name].state), found[name].why)
        for name, step in ordered(steps).items()
    )
    return table(("step", "function", "status", "reason"), rows)


def ends(steps: Mapping[str, PlannedStep], found: Mapping[str, StepEnd]) -> Table:
    """How each step ended."""

    def rows() -> Iterator[tuple[Cell, ...]]:
        for name, step in ordered(steps).items():
            end = found.get(name)
            yield name, step.do, _state(end.state if end else "not made"), ended(end) if end else ""

    return table(("step", "function", "status", ""), rows())


def says(why: str, ends: Mapping[str, StepEnd]) -> bool:
    """Whether `why` an execution failed is only what its steps report themselves."""
    for name, end in ends.items():
        if end.state == "failed":
            why = why.replace(f"{name}: {end.why}", "", 1)
    return not why.strip("; ")


def drift_view(drift: aliases.Drift, folder: str) -> Group:
    """An alias that would change its meaning: the problem, and what differs."""
    words = Text(aliases.sentence(drift, folder), style="red")
    return Group(words, table(("step", "what differs"), drift.why))


def drawing(steps: Mapping[str, PlannedStep]) -> Table:
    """One line per step: what it does, and its inputs from other steps."""

    def rows() -> Iterator[tuple[Cell, ...]]:
        for name, step in ordered(steps).items():
            takes = (
                f"{key} ← {', '.join(sorted(these, key=natural))}"
                for key, these in step.inputs.items()
            )
            yield _called(name, step), step.do, "; ".join(takes)

    return table(("step", "function", "inputs (input ← steps)"), rows())


def _called(name: str, step: PlannedStep) -> Text:
    alias = (f" as {step.alias}", "cyan") if step.alias else ""
    return Text.assemble(name, alias)


def _state(state: str) -> Text:
    return Text(status(state), STATES[state])
