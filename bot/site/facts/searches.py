"""Searches in which a program proposed declarations, from records alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from bot.site.base.files import made_from
from runner.analysis import search_statistics
from runner.lib import format, yaml_lines
from runner.schema import record
from runner.schema.record import SearchEnd, SearchTerms, SearchTrial, WeighedTrial
from runner.store.store import Store

MAX_KEYS = 12  # that a trial shows


@dataclass(frozen=True)
class Tried:
    """A trial, with its scores as they were measured."""

    trial: SearchTrial
    weighed: WeighedTrial | None
    sign: int
    differs: Mapping[str, str]  # key: value, of what is not as in the baseline

    @property
    def mean(self) -> float | None:
        """Over the seeds; None where one has no score."""
        found = search_statistics.whole(self.trial.scores)
        return fmean(found) if found else None

    @property
    def difference(self) -> float | None:
        """From the baseline's mean; None of the baseline and of a trial without scores."""
        return self.sign * self.weighed.difference if self.weighed else None


@dataclass(frozen=True)
class Search:
    """A search; without an end it is in progress."""

    terms: SearchTerms
    trials: tuple[SearchTrial, ...]
    end: SearchEnd | None

    @cached_property
    def told(self) -> str:
        """A digest of everything here."""
        ended = [self.end.digest()] if self.end else []
        return made_from(*(trial.digest() for trial in self.trials), *ended)

    @cached_property
    def tried(self) -> list[Tried]:
        """Its trials, the baseline first."""
        weighed = {one.n: one for one in self.end.weighed} if self.end else {}
        sign, base = search_statistics.sign(self.terms.metric), _flat(self.terms.declaration)
        return [
            Tried(one, weighed.get(one.n), sign, _differs(base, _flat(one.declaration)))
            for one in self.trials
        ]

    @property
    def executions(self) -> list[str]:
        """Those of its trials, and of the comparison at its end."""
        return record.executions_of(self.trials, self.end)

    @property
    def finding(self) -> str | None:
        """What it found, in a sentence."""
        return search_statistics.finding(self.terms, self.end) if self.end else None


def searches(store: Store) -> list[Search]:
    """Every search, the newest first."""
    found = []
    for name in record.names(store, "searches"):
        folder = f"searches/{name}"
        trials = record.numbered(store, folder, SearchTrial)
        terms = record.read(store, f"{folder}/terms", SearchTerms)
        if terms and trials:
            end = record.read(store, f"{folder}/end", SearchEnd)
            found.append(Search(terms, tuple(trials), end))
    return sorted(found, key=lambda one: (one.trials[0].at, one.terms.id), reverse=True)


def _flat(text: str) -> dict[str, str]:
    """The keys and values of a declaration; nothing of one that cannot be read."""
    try:
        return dict(_leaves(yaml_lines.read(text).value))
    except yaml_lines.BadYaml:
        return {}


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{at}.{key}" if at else str(key))
    else:
        yield at, format.flow(value)


def _differs(base: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    keys = [key for key in dict.fromkeys([*base, *other]) if base.get(key) != other.get(key)]
    return {key: other.get(key, "–") for key in keys[:MAX_KEYS]}
