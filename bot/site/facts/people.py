"""People and agents: what each asked, predicted and declared, and how well their confidence fits.
Pure.

Everybody whom a record names as the author of a preregistration or of a pull request is a member. A
member is found by GitHub's id, which stays when the login changes; the newest login is shown.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from bot.site.facts.entries import Entry
from bot.site.facts.forecasts import Forecast, forecasts
from bot.site.facts.lab import Lab
from bot.site.facts.leaderboard import Row
from runner.analysis.calibration import Calibration, calibration
from runner.schema import record
from runner.schema.metrics import BPB


@dataclass
class Member:
    """A person or an agent. Everything newest first, rows best first."""

    id: int  # at GitHub
    login: str = ""
    seen: datetime | None = None  # the newest record that names them
    questions: list[record.Preregistration] = field(default_factory=list)
    forecasts: list[Forecast] = field(default_factory=list)
    executions: list[Entry] = field(default_factory=list)  # that they declared
    rows: list[Row] = field(default_factory=list)  # on the leaderboards of `eval/bpb`

    @property
    def path(self) -> str:
        """The path of their page."""
        return page_of(self.id)

    @cached_property
    def calibration(self) -> Calibration:
        """Of the predictions that count."""
        return calibration(one.verdict for one in self.counted)

    @property
    def counted(self) -> list[Forecast]:
        """The predictions that count."""
        return [one for one in self.forecasts if not one.not_counted]

    @property
    def confirmed(self) -> int:
        """How many of them were confirmed."""
        return sum(one.verdict.outcome == "confirmed" for one in self.counted)

    def named(self, person: record.Person, at: datetime) -> None:
        """Note that a record of that time names them."""
        if self.seen is None or at >= self.seen:
            self.login, self.seen = person.login, at


def page_of(id: int) -> str:
    """The path of a member's page."""
    return f"people/{id}.html"


def members(facts: Lab) -> list[Member]:
    """Everybody, by calibration, the best first; those without a score come last."""
    found: dict[int, Member] = {}

    def of(person: record.Person, at: datetime) -> Member:
        member = found.setdefault(person.id, Member(person.id))
        member.named(person, at)
        return member

    for seal in seals(facts):
        of(seal.author, seal.at).questions.append(seal)
    for entry in facts.entries:
        if entry.by:
            of(entry.by, entry.execution.at).executions.append(entry)
    for forecast in forecasts(facts):
        if forecast.entry.seal:
            of(forecast.entry.seal.author, forecast.entry.seal.at).forecasts.append(forecast)
    for group in facts.groups:
        for row in group.rows if group.metric == BPB else ():
            if row.entry.by:
                found[row.entry.by.id].rows.append(row)
    return sorted(found.values(), key=_order)


def _order(one: Member) -> tuple[bool, float, int, str]:
    of = one.calibration
    return of.brier is None, of.brier or 0.0, -of.n, one.login


def seals(facts: Lab) -> list[record.Preregistration]:
    """Every sealed question, newest first."""
    asked = {entry.asked: entry.seal for entry in facts.entries if entry.seal}
    found: Iterable[record.Preregistration | None] = (*asked.values(), *facts.wishlist)
    return sorted(filter(None, found), key=lambda seal: (seal.at, seal.issue), reverse=True)
