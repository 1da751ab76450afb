"""Steps as text and as a chart."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from runner.lib.format import duration
from runner.schema import step_graph
from runner.schema.record import PlannedStep, StepEnd


def declared(steps: Mapping[str, PlannedStep]) -> dict[str, PlannedStep]:
    """The steps in the order in which they were declared. Plans have them sorted by name."""
    return dict(sorted(steps.items(), key=lambda item: item[1].turn))


def ordered(steps: Mapping[str, PlannedStep]) -> dict[str, PlannedStep]:
    """The steps, each after its inputs, otherwise as declared."""
    steps = declared(steps)
    place = {name: number for number, name in enumerate(steps)}
    needs = {name: sorted(step.needs, key=place.__getitem__) for name, step in steps.items()}
    return {name: steps[name] for name in step_graph.order(needs)}


RECEIPT = {
    "affinity": "IDs of the CPU cores",
    "code_sha256": "SHA-256 of Regatta's code",
    "environment": "environment variables",
    "options": "JAX options",
    "xla_flags": "XLA_FLAGS",
}
STATUSES = {"made": "done", "being made": "running", "not made": "not run"}


def status(state: str) -> str:
    """A step's state for people. Records have other words for some."""
    return STATUSES.get(state, state)


def receipt(said: Mapping[str, str]) -> dict[str, str]:
    """What a job reports about how it computed, under names for people; without empty values."""
    shown = {name: words for name, words in said.items() if words}
    if shown.get("driver") == shown.get("platform"):
        shown.pop("driver", None)
    return {RECEIPT.get(name, name): words for name, words in shown.items()}


def ended(end: StepEnd) -> str:
    """How a step ended, as text."""
    if end.seconds is None or end.made_at is None:
        return end.why
    took = f"{duration(end.seconds)} on {end.host}"
    return took if end.state == "made" else f"from {end.by}, {took}, {utc(end.made_at)}"


def mermaid(steps: Mapping[str, PlannedStep]) -> Iterator[str]:
    """The lines of a Mermaid flow chart for Markdown."""
    numbers = {name: f"s{number}" for number, name in enumerate(ordered(steps))}
    yield "flowchart LR"
    for name, number in numbers.items():
        yield f'    {number}["{name}<br>{steps[name].do}"]'.replace("'", "")
        yield from (f"    {numbers[other]} --> {number}" for other in steps[name].needs)


def utc(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
