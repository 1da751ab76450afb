"""The page of an experiment: question, sealed predictions, design, arms, verdict, discussion.

An experiment is a preregistration with all executions under it; without one it is a folder of a
repository. Refuted predictions are shown in the same place and with the same words as confirmed
ones.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial

from bot.site.base.files import File, made_from
from bot.site.facts.entries import Entry
from bot.site.facts.lab import Lab
from bot.site.pages.executions import knobs, strip
from bot.site.pages.preview import Bar, Line, Preview, spread
from bot.site.pages.templating import Look
from runner.analysis import estimates
from runner.analysis.comparability import scored_on
from runner.analysis.which_runs_count import Review
from runner.lib.format import many
from runner.schema import record

SHOWN = 50  # executions on a page, newest first
JUDGED = 2  # verdicts on a picture
LATER = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Experiment:
    """One question, with its executions."""

    id: str  # of its page
    seal: record.Preregistration | None
    review: Review | None
    entries: tuple[Entry, ...]  # newest first; empty for a preregistration without executions

    @property
    def path(self) -> str:
        """The path of its page."""
        return f"experiments/{self.id}.html"

    @property
    def title(self) -> str:
        """Its title."""
        return self.seal.called if self.seal else self.entries[0].plan.title

    @property
    def by(self) -> record.Person | None:
        """Who asked the question, or declared the oldest execution; None if no record says so."""
        return self.seal.author if self.seal else self.entries[-1].by

    @property
    def at(self) -> datetime:
        """When the lab heard of it: this never changes."""
        known = [self.seal.at] if self.seal else []
        return min(*known, *(one.execution.at for one in self.entries[-1:]), LATER)

    @property
    def repository(self) -> int | None:
        """The id of the repository of its issue."""
        return self.seal.repository if self.seal else None

    @cached_property
    def told(self) -> str:
        """A digest of all that pages show of it."""
        of = [self.seal or "", self.review.told if self.review else "", str(len(self.entries))]
        of += [f"{x.execution.id} {x.state} {x.told}" for x in (*self.shown, self.main) if x]
        return made_from(*of)

    @cached_property
    def main(self) -> Entry | None:
        """The execution whose figures and verdicts the page shows: the one that counts under its
        seal, otherwise the newest completed one, otherwise the newest."""
        counted = self.review.counted if self.review else None
        if counted:
            wanted = counted.outcome.execution.id
            return next(entry for entry in self.entries if entry.execution.id == wanted)
        done = (entry for entry in self.entries if entry.state == "done")
        return next(done, self.entries[0] if self.entries else None)

    @property
    def design(self) -> record.Plan | None:
        """The plan that the page calls the design: the sealed one, otherwise that of `main`."""
        if self.review and self.review.sealed:
            return self.review.sealed.plan
        return self.main.plan if self.main else None

    @property
    def shown(self) -> tuple[Entry, ...]:
        """The executions in the page's list."""
        return self.entries[:SHOWN]

    def why_not(self, entry: Entry) -> str | None:
        """Why an execution's verdicts do not count; None if they do."""
        if self.review is None:
            return "not preregistered"
        return self.review.of(entry.execution.id).why_not


def experiments(facts: Lab) -> list[Experiment]:
    """Every experiment: those with executions, newest first, then those without."""
    under: dict[str, list[Entry]] = defaultdict(list)
    for entry in facts.entries:
        under[entry.question].append(entry)
    ran = [
        Experiment(name, entries[0].seal, facts.review(entries[0]), tuple(entries))
        for name, entries in under.items()
    ]
    waits = [Experiment(f"{one.repository}-{one.issue}", one, None, ()) for one in facts.wishlist]
    return ran + waits


def files(every: Iterable[Experiment], facts: Lab, look: Look) -> Iterator[File]:
    """The page of each, and its picture."""
    for one in every:
        repository = facts.repositories.get(one.repository or 0)
        if look.pages.globals["address"]:
            yield from pictured(one).files(look)
        made = made_from(look.told, repository or "", one.told)
        yield File(one.path, partial(_page, one, repository, look), made)


def _page(one: Experiment, repository: str | None, look: Look) -> str:
    return look.render(
        one.path,
        "experiment.html",
        one=one,
        preview=pictured(one),
        repository=repository,
        strip=strip,
        knobs=knobs,
        scored_on=scored_on,
    )


# ── Its picture ──────────────────────────────────────────────────────────────────────────────


def pictured(one: Experiment) -> Preview:
    """Its verdicts with their intervals; without any, its arms, or what it waits for."""
    page, entry = one.path.removesuffix(".html"), one.main
    foot = f"sealed {one.seal.at:%Y-%m-%d}" if one.seal else "not preregistered"
    if entry is None:
        foot += ", waits for a pull request"
        return Preview(page, "Question", one.title, f"A sealed question: {foot}.", foot=foot)
    foot += f", {many(len(entry.runs), 'run')}" if entry.runs else ""
    found = entry.result.verdicts if entry.result else ()
    if found:
        if (more := len(found) - JUDGED) > 0:
            foot += f", {many(more, 'more verdict')}"
        if one.seal and one.why_not(entry):
            foot += ": these verdicts do not count"
        said = [f"{verdict.prediction.sentence}: {verdict.outcome}" for verdict in found]
        lines = tuple(_judged(verdict) for verdict in found[:JUDGED])
        return Preview(page, "Experiment", one.title, f"{'; '.join(said)}.", lines, foot=foot)
    scored = [(arm, one) for arm, one in entry.summaries.items() if one.mean is not None]
    lines = spread(sorted(scored, key=lambda pair: pair[1].middle))
    ended = entry.state == "done" and not entry.plan.predictions
    state = "no predictions" if ended else entry.state
    told = [state, *(f"{line.words} {line.figure} bits per byte" for line in lines)]
    foot += f", {state}"
    return Preview(page, "Experiment", one.title, f"{'; '.join(told)}.", lines, foot=foot)


def _judged(verdict: record.Verdict) -> Line:
    figure, bar, where = "", None, strip(verdict)
    if where and verdict.estimate is not None and verdict.interval:
        low, high = (estimates.figure(end, 3) for end in verdict.interval)
        figure = f"{estimates.figure(verdict.estimate, 3)} [{low}, {high}]"
        bar = Bar(where["at"], where["from"], where["to"], (where["set_from"], where["set_to"]))
    words = verdict.prediction.sentence.removeprefix("eval/bpb of ")
    return Line(words, figure, verdict.outcome, bar)
