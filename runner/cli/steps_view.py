"""Steps as people see them in a terminal: how they stand before a run, how they ended, and who
takes what from whom."""

from collections.abc import Mapping

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from runner.execution import aliases
from runner.lib.format import natural
from runner.publish.step_summary import ended, ordered
from runner.schema.record import PlannedStep, Standing, StepEnd

STATES = {
    "cached": "green",
    "made": "green",
    "new": "cyan",
    "changed": "yellow",
    "being made": "cyan",
    "failed before": "red",
    "failed": "red",
}
NARROW = (0, 3, 0, 0)  # between columns


def standings(steps: Mapping[str, PlannedStep], found: Mapping[str, Standing]) -> Table:
    """How each step stands, and why it would be made again."""
    table = Table("step", "do", "stands", "why", box=None, pad_edge=False, padding=NARROW)
    for name, step in ordered(steps).items():
        one = found[name]
        state = Text(one.state, STATES[one.state])
        table.add_row(called(name, step), escape(step.do), state, escape(one.why))
    return table


def called(name: str, step: PlannedStep) -> str:
    """A step's name in a table, with its alias."""
    return escape(name) + (f" [cyan]as {step.alias}[/cyan]" if step.alias else "")


def ends(steps: Mapping[str, PlannedStep], found: Mapping[str, StepEnd]) -> Table:
    """What became of each step."""
    table = Table("step", "do", "is", "", box=None, pad_edge=False, padding=NARROW)
    for name, step in ordered(steps).items():
        end = found.get(name)
        state = Text(end.state, STATES[end.state]) if end else Text("not made", "red")
        table.add_row(escape(name), escape(step.do), state, escape(ended(end)) if end else "")
    return table


def says(why: str, ends: Mapping[str, StepEnd]) -> bool:
    """Whether `why` an execution failed is what its steps say of themselves, and nothing else."""
    for name, end in ends.items():
        if end.state == "failed":
            why = why.replace(f"{name}: {end.why}", "", 1)
    return not why.strip("; ")


def drift_view(drift: aliases.Drift, folder: str) -> Group:
    """An alias that would mean something else: what is wrong, and what differs."""
    table = Table("step", "what differs", box=None, pad_edge=False, padding=NARROW)
    for name, why in drift.why:
        table.add_row(escape(name), escape(why))
    return Group(Text(aliases.sentence(drift, folder), style="red"), table)


def drawing(steps: Mapping[str, PlannedStep]) -> Table:
    """One line a step: what it does, and what it takes from which other steps."""
    table = Table("step", "do", "takes (input ← steps)", box=None, pad_edge=False, padding=NARROW)
    for name, step in ordered(steps).items():
        named = {key: ", ".join(sorted(these, key=natural)) for key, these in step.inputs.items()}
        takes = "; ".join(f"{key} ← {these}" for key, these in named.items())
        table.add_row(called(name, step), escape(step.do), escape(takes))
    return table
