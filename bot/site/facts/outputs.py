"""Which steps' outputs have a page, and its path. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from runner.schema import record


@dataclass(frozen=True)
class Output:
    """The output of one step. It has one page, even if many executions use it; the page names the
    first of them."""

    entry: Entry  # the first execution that uses it
    called: str  # the step's name there

    @property
    def step(self) -> record.PlannedStep:
        """The planned step."""
        return self.entry.plan.steps[self.called]

    @property
    def end(self) -> record.StepEnd:
        """How it ended, from its records."""
        return self.entry.steps[self.called]

    @property
    def place(self) -> str:
        """Its folder in the store, with its manifest."""
        return f"steps/{self.step.store}/{self.step.fingerprint[:16]}"


def page_of(fingerprint: str) -> str:
    """The path of the page of the output with this fingerprint."""
    return f"data/{fingerprint[:16]}.html"


def pages_of(entry: Entry, only: Iterable[str] | None = None) -> dict[str, str]:
    """{step: the page of its output}, for steps that have one, or only for some of them."""
    ends, steps = entry.steps, entry.plan.steps
    return {
        name: page_of(steps[name].fingerprint)
        for name in (steps if only is None else only)
        if name in ends and ends[name].output_sha256
    }


def outputs(facts: Lab) -> dict[str, Output]:
    """Every output that a record names, by its page."""
    found: dict[str, Output] = {}
    for entry in reversed(facts.entries):  # the newest is first
        for name, path in pages_of(entry).items():
            found.setdefault(path, Output(entry, name))
    return found
