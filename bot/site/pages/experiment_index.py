"""The list of all experiments: `experiments.html`, with tags and a search, and the same in pages of
fixed content for who has no script.

Experiments keep their place: the oldest is the first. So one more changes the last script and the
last page, and no other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bot.site.base.files import File, made_from
from bot.site.base.rows import Rows
from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from bot.site.pages.experiments import Experiment
from bot.site.pages.headlines import Headline, headline, main_verdict
from bot.site.pages.templating import Look
from runner.schema import record

PAGE = 100  # experiments on a page without a script
WAITS = "waits for a pull request"


@dataclass(frozen=True)
class Line:
    """An experiment in the list."""

    one: Experiment
    number: int  # the oldest is 0

    @property
    def entry(self) -> Entry | None:
        """The execution that it is about."""
        return self.one.main

    @property
    def by(self) -> record.Person | None:
        """Who asked, or declared it."""
        return self.one.by

    @property
    def author(self) -> str:
        """The same as text."""
        return self.by.login if self.by else self.entry.author if self.entry else ""

    @cached_property
    def found(self) -> Headline | None:
        """What it found."""
        return headline(self.entry, self.one.why_not(self.entry)) if self.entry else None

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        return self.entry.tags if self.entry else ()

    @property
    def outcome(self) -> str:
        """What a filter calls its result."""
        if self.entry is None:
            return "open question"
        if self.entry.result is None:
            return "running"
        if self.entry.result.state != "done":
            return self.entry.result.state
        verdict = main_verdict(self.entry)
        return verdict.outcome if verdict else "no prediction"


def keys(line: Line) -> dict[str, Any]:
    """A row's keys for sorting and filtering."""
    plan = line.entry.plan if line.entry else None
    ended = line.entry.result.at if line.entry and line.entry.result else None
    words = [line.one.title, line.author, *line.tags, line.outcome]
    if plan:
        words += [plan.title, plan.experiment.rpartition("/")[2], *plan.arms]
    if line.one.seal:
        words += [f"#{line.one.seal.issue}", line.one.seal.hypothesis[:300]]
    return {
        "newest": -line.number,
        "ended": -round(ended.timestamp()) if ended else None,
        "outcome": line.outcome,
        "tag": list(line.tags),
        "author": line.author,
        "text": " ".join(words).lower(),
    }


def files(every: Sequence[Experiment], facts: Lab, look: Look) -> Iterator[File]:
    """The list, its scripts, and its pages."""
    ordered = sorted(every, key=lambda one: (one.at, one.id))
    lines = [Line(one, number) for number, one in enumerate(ordered)]
    told = [made_from(one.told, facts.repositories.get(one.repository or 0, "")) for one in ordered]
    rows = Rows(
        "list/experiments",
        "experiments",
        lines,
        keys,
        "experiment_row.html",
        {},
        newest_first=True,
        told=told,
    )
    yield from rows.files(look.pages, look.told)
    whole = made_from(look.told, *told)
    pages = -(-len(lines) // PAGE)
    for n in range(pages):
        part = slice(n * PAGE, (n + 1) * PAGE)
        yield look.page(
            f"list/page-{n + 1}.html",
            "experiment_list.html",
            made_from(look.told, str(n + 1 == pages), *told[part]),
            lines=lines[part][::-1],
            n=n + 1,
            last=n + 1 == pages,
        )
    yield look.page(
        "experiments.html", "experiments.html", whole, rows=rows, total=len(lines), pages=pages
    )
