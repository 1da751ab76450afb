"""Which steps' outputs have a page, and where it lies. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from runner.schema import record


@dataclass(frozen=True)
class Output:
    """What one step made. However many executions use it, it has one page, on which the first of
    them is named; all of them link there."""

    entry: Entry  # the first execution that uses it
    called: str  # what this one calls the step

    @property
    def step(self) -> record.PlannedStep:
        """The step as it was planned."""
        return self.entry.plan.steps[self.called]

    @property
    def end(self) -> record.StepEnd:
        """What became of it, as its records tell."""
        return self.entry.steps[self.called]

    @property
    def place(self) -> str:
        """Where in the store it lies, with its manifest."""
        return f"steps/{self.step.store}/{self.step.fingerprint[:16]}"


def page_of(fingerprint: str) -> str:
    """Where in the site the output with this fingerprint has its page."""
    return f"data/{fingerprint[:16]}.html"


def pages_of(entry: Entry, only: Iterable[str] | None = None) -> dict[str, str]:
    """{step: the page of its output}, for those that have one, or for some of them."""
    ends, steps = entry.steps, entry.plan.steps
    return {
        name: page_of(steps[name].fingerprint)
        for name in (steps if only is None else only)
        if name in ends and ends[name].output_sha256
    }


def outputs(facts: Lab) -> dict[str, Output]:
    """Every output that a record names, by its page."""
    found: dict[str, Output] = {}
    for entry in reversed(facts.entries):  # which begin with the newest
        for name, path in pages_of(entry).items():
            found.setdefault(path, Output(entry, name))
    return found
