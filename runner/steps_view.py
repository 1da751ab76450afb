"""Steps as people see them in a terminal: how they stand before a run, how they ended, and who
takes what from whom."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from runner import aliases, graph
from runner.figures import duration, natural
from runner.record import PlannedStep, Standing, StepEnd

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


def ordered(steps: Mapping[str, PlannedStep]) -> dict[str, PlannedStep]:
    """The steps, each after its inputs, otherwise as they stand."""
    place = {name: number for number, name in enumerate(steps)}
    needs = {name: sorted(step.needs, key=place.__getitem__) for name, step in steps.items()}
    return {name: steps[name] for name in graph.order(needs)}


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


def ended(end: StepEnd) -> str:
    """How a step ended, in words."""
    if end.seconds is None or end.made_at is None:
        return end.why
    took = f"in {duration(end.seconds)} on {end.host}"
    return took if end.state == "made" else f"{end.by} made it {took}, {_time(end.made_at)}"


def says(why: str, ends: Mapping[str, StepEnd]) -> bool:
    """Whether `why` an execution failed is what its steps say of themselves, and nothing else."""
    for name, end in ends.items():
        if end.state == "failed":
            why = why.replace(f"{name}: {end.why}", "", 1)
    return not why.strip("; ")


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


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


def mermaid(steps: Mapping[str, PlannedStep]) -> Iterator[str]:
    """The lines of a flow chart for a Markdown page."""
    numbers = {name: f"s{number}" for number, name in enumerate(ordered(steps))}
    yield "flowchart LR"
    for name, number in numbers.items():
        yield f'    {number}["{name}<br>{steps[name].do}"]'.replace("'", "")
        yield from (f"    {numbers[other]} --> {number}" for other in steps[name].needs)
