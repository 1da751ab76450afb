"""Steps as people see them in a terminal: how they stand before a run, how they ended, what each
was made of, and who takes what from whom."""

import json
from collections.abc import Iterator, Mapping

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from runner import graph
from runner.figures import duration
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
    """The steps, each after its inputs."""
    return {name: steps[name] for name in graph.order({x: y.needs for x, y in steps.items()})}


def standings(steps: Mapping[str, PlannedStep], found: Mapping[str, Standing]) -> Table:
    """How each step stands, and why it would be made again."""
    table = Table("step", "do", "stands", "why", box=None, pad_edge=False, padding=NARROW)
    for name, step in ordered(steps).items():
        one = found[name]
        state = Text(one.state, STATES[one.state])
        table.add_row(escape(name), escape(step.do), state, escape(one.why))
    return table


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
    return took if end.state == "made" else f"{took}, {end.made_at:%Y-%m-%d %H:%M} UTC by {end.by}"


def step_table(step: PlannedStep, end: StepEnd | None, folder: str) -> Table:
    """What a step was made of, and what became of it; `folder` is where its output lies."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for key, these in step.inputs.items():
        table.add_row(f"input {key}", escape(", ".join(these)))
    for key, value in graph.leaves(step.config).items():
        if value not in (None, {}):
            table.add_row(escape(key), escape(json.dumps(value)))
    own = [name for name in step.code if not name.startswith("lab:")]
    lab = f"{len(step.code) - len(own)} files of the lab" if len(own) < len(step.code) else ""
    code = ", ".join(filter(None, [*own, lab]))
    table.add_row("code", f"{graph.code_sha256(step.code)[:16]}… ({escape(code)})")
    table.add_row("fingerprint", step.fingerprint)
    if end:
        table.add_row(end.state, escape(ended(end)))
    if end and end.output_sha256:
        table.add_row("output", end.output_sha256)
        table.add_row("folder", escape(folder))
    return table


def drawing(steps: Mapping[str, PlannedStep]) -> Table:
    """One line a step: what it does, and what it takes from where."""
    table = Table("step", "do", "takes", box=None, pad_edge=False, padding=NARROW)
    for name, step in ordered(steps).items():
        takes = "; ".join(f"{key} ← {', '.join(these)}" for key, these in step.inputs.items())
        table.add_row(escape(name), escape(step.do), escape(takes))
    return table


def mermaid(steps: Mapping[str, PlannedStep]) -> Iterator[str]:
    """The lines of a flow chart for a Markdown page."""
    numbers = {name: f"s{number}" for number, name in enumerate(ordered(steps))}
    yield "flowchart LR"
    for name, number in numbers.items():
        yield f'    {number}["{name}<br>{steps[name].do}"]'.replace("'", "")
        yield from (f"    {numbers[other]} --> {number}" for other in steps[name].needs)
