"""What agents did: proposals, what the policy and people decided about them, spending, and how
their predictions came out. From records alone."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bot.site.facts.entries import Entry
from bot.site.facts.forecasts import Forecast
from bot.site.facts.lab import Lab
from runner.analysis.calibration import Calibration, Rate, calibration, rate
from runner.schema import record
from runner.schema.record import Agent


@dataclass(frozen=True)
class Member:
    """An agent of the lab."""

    agent: Agent  # as its newest proposal names it
    entries: tuple[Entry, ...]  # the executions of its proposals, newest first
    refused: tuple[record.Approval, ...]  # by the policy
    predictions: tuple[Forecast, ...]  # judged, newest first

    @property
    def login(self) -> str:
        """Its login, as the author of predictions."""
        return self.agent.login

    @property
    def by_policy(self) -> int:
        """How many executions the policy approved."""
        return len(self.entries) - self.by_people

    @property
    def by_people(self) -> int:
        """How many executions people approved: those after the first gate, and others that the
        policy leaves to them."""
        return sum(bool(_origin(one).approved_by.id) for one in self.entries)

    @property
    def promoted(self) -> int:
        """How many executions are of a higher rung of a ladder than the first."""
        return sum(bool(one.plan.rung and one.plan.rung.n > 1) for one in self.entries)

    @property
    def counted(self) -> list[record.Verdict]:
        """The verdicts that count."""
        return [one.verdict for one in self.predictions if not one.not_counted]

    @property
    def calibration(self) -> Calibration:
        """How its confidence matches the outcomes."""
        return calibration(self.counted)

    @property
    def rate(self) -> Rate | None:
        """How many of its decided predictions were confirmed; None if none is decided."""
        return rate(self.counted)

    @property
    def device_hours(self) -> dict[str, float]:
        """The device-hours that its executions used, by kind of device."""
        found: dict[str, float] = defaultdict(float)
        for entry in self.entries:
            for used in entry.result.used if entry.result else ():
                found[used.kind] += used.device_seconds / 3600
        return dict(sorted(found.items()))


def members(facts: Lab, told: Iterable[Forecast]) -> list[Member]:
    """The lab's agents, by login. `told`: every judged prediction."""
    agents: dict[int, Agent] = {}
    entries: dict[int, list[Entry]] = defaultdict(list)
    refused: dict[int, list[record.Approval]] = defaultdict(list)
    for entry in facts.entries:
        origin = entry.execution.origin
        if origin and (agent := origin.agent):
            agents.setdefault(agent.id, agent)
            entries[agent.id].append(entry)
    for decided in facts.refused:
        if decided.agent:
            agents.setdefault(decided.agent.id, decided.agent)
            refused[decided.agent.id].append(decided)
    predictions: dict[int, list[Forecast]] = defaultdict(list)
    for one in told:
        if one.entry.seal:
            predictions[one.entry.seal.author.id].append(one)
    return [
        Member(agent, tuple(entries[id]), tuple(refused[id]), tuple(predictions[id]))
        for id, agent in sorted(agents.items(), key=lambda one: one[1].login.lower())
    ]


def twin(members: Iterable[Member]) -> list[dict[str, Any]]:
    """The agents as JSON."""
    return [
        {
            "login": one.login,
            "sponsor": one.agent.sponsor,
            "executions": [entry.execution.id for entry in one.entries],
            "approved_by_policy": one.by_policy,
            "approved_by_people": one.by_people,
            "promoted": one.promoted,
            "refused": [
                {"pull": decided.pull, "plan": decided.plan, "why": decided.why}
                for decided in one.refused
            ],
            "device_hours": one.device_hours,
            "brier": one.calibration.brier,
            "decided": one.calibration.n,
            "inconclusive": one.calibration.inconclusive,
            "confirmed": one.rate and one.rate.confirmed,
            "expected_share": one.rate and one.rate.expected,
            "confirmed_interval": one.rate and list(one.rate.interval),
            "bins": [vars(bin) for bin in one.calibration.bins],
        }
        for one in members
    ]


def _origin(entry: Entry) -> record.Origin:
    assert entry.execution.origin
    return entry.execution.origin
