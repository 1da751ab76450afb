"""Whatever people do, in whatever order, and wherever the bot dies: only approved commits run.

Every sequence of events is tried over the real rules, see `world`. A search says how many events
come, how many of them while the bot is at work (the others find it at rest), and how often it dies;
it may die between any two effects, and before and after each.
"""

import multiprocessing
from dataclasses import dataclass
from typing import Any

import pytest

from tests.protocol.explore import Found, explore
from tests.protocol.world import FORK, World


@dataclass(frozen=True)
class Search:
    """One search, and how many states it visited when it was last changed, rounded down."""

    name: str
    events: int
    start: World
    floor: int


def plain(**changes: Any) -> World:
    """Pushes, retargeting, commands of all forms, revoked roles, a changed policy; repetitions.
    With `cancels`, also so many `/cancel`."""
    return World(**{"fine": False, "wide": False, "deaths": 0, "untimely": 0, **changes})


def wide(**changes: Any) -> World:
    """Also reviews and their dismissal, upgrades of the lab, lost attempts, days that pass, roles
    and policies that come back."""
    return plain(wide=True, **changes)


EVERY_DAY = [
    Search("five events, a death anywhere", 5, plain(deaths=1), 140_000),
    Search("three events, one while the bot works, a death anywhere", 3,
           plain(deaths=1, untimely=1), 75_000),
    Search("/cancel: four events, a death anywhere", 4, plain(cancels=1, deaths=1), 70_000),
    Search("/cancel: two events, one while the bot works, a death anywhere", 2,
           plain(cancels=1, deaths=1, untimely=1), 14_000),
    Search(
        "a fork: four events, a death anywhere", 4, plain(deaths=1, head_repository=FORK), 37_000
    ),
    Search("rarer events: three, a death anywhere", 3, wide(deaths=1), 46_000),
    Search("rarer events: three, one while the bot works", 3, wide(untimely=1), 72_000),
    Search("each effect: one event at any time, any deaths", 1,
           World(deaths=9, untimely=1), 21_000),
]  # fmt: skip
SLOW = [
    Search("seven events, a death anywhere", 7, plain(deaths=1), 1_400_000),
    Search("/cancel: four events, one while the bot works", 4,
           plain(cancels=1, untimely=1), 150_000),
    Search("five events, one while the bot works, a death anywhere", 5,
           plain(deaths=1, untimely=1), 1_500_000),
    Search("rarer events: four, one while the bot works", 4, wide(untimely=1), 600_000),
    Search("rarer events: five", 5, wide(), 500_000),
    Search("a fork: rarer events: four, a death anywhere", 4,
           wide(deaths=1, head_repository=FORK), 300_000),
]  # fmt: skip


def searched(search: Search) -> Found:
    return explore(search.start, search.events)


def assert_nothing_is_broken(searches: list[Search]) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for search, found in zip(searches, pool.imap(searched, searches), strict=True):
            print(f"{search.name}: {found.states} states, {found.launches} launches")
            assert not found.violation, f"{search.name}: {found.violation}: {found.trace}"
            assert found.states >= search.floor
            assert found.launches


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_whatever_happens_only_approved_commits_run() -> None:
    assert_nothing_is_broken(EVERY_DAY)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_whatever_happens_in_seven_events_only_approved_commits_run() -> None:
    assert_nothing_is_broken(SLOW)
