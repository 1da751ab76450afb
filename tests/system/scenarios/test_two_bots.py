"""Two bots on one store: one leads, either takes deliveries, and nothing is said twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.controller.reconciler import Reconciler
from bot.github import GitHub, Made
from bot.inbox import webhook
from runner.store.store import Store
from tests.scenarios.lab import SECRET, Lab, a_lab
from tests.stub_trainer import StubRay


class Second:
    """Another process on the same store and repository."""

    def __init__(self, lab: Lab) -> None:
        store = Store(lab.root / "store")
        github = GitHub(
            "regatta-lab/lab",
            lambda: "installation-token",
            api=f"{lab.sandbox.url}/api/v3",
            seconds_between_writes=0,
            monotonic=lab.monotonic,
            sleep=lab.sleep,
        )
        self.bot = Reconciler(store, github, lab.trainer, monotonic=lab.monotonic)
        self.gate = webhook.Gate(store, SECRET, github.id, self.bot.wake)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with a_lab(tmp_path, StubRay(pace=48)) as lab:
        lab.preregister()
        lab.propose()
        yield lab


def both(lab: Lab, second: Second, seconds: int) -> None:
    for _ in range(seconds):
        assert lab.bot
        lab.bot.work()
        second.bot.work()
        lab.sleep(1)


def test_the_leader_acts_on_deliveries_of_a_follower(lab: Lab) -> None:
    second = Second(lab)
    assert second.bot.work() == 1.0  # it waits for its turn
    lab.gate = second.gate
    lab.clock.advance(1)
    lab.sandbox.comment("sam", 2, "/help")
    both(lab, second, 10)
    assert sum("what it does" in body for body in lab.comments(2)) == 1
    assert lab.records("inbox") == {}


def test_the_second_takes_over_within_a_minute(lab: Lab) -> None:
    second = Second(lab)
    second.bot.work()
    assert lab.bot
    lab.bot.work()
    lab.bot = None  # without a word
    lab.gate = second.gate
    lab.clock.advance(1)
    lab.sandbox.comment("sam", 2, "/help")
    began = lab.clock.now()
    while not any("what it does" in body for body in lab.comments(2)):
        second.bot.work()
        lab.sleep(1)
        assert (lab.clock.now() - began).total_seconds() <= 60


def test_an_execution_is_carried_on_by_who_takes_over(lab: Lab) -> None:
    lab.trainer.pace = 0
    lab.clock.advance(30)
    lab.sandbox.comment("grace", 2, "/run")
    assert lab.bot
    for _ in range(20):
        lab.bot.work()
        lab.sleep(1)
    assert len(lab.trainer.submissions) == 1
    second = Second(lab)
    lab.bot, lab.gate = None, second.gate
    lab.trainer.pace = None
    for _ in range(120):
        second.bot.work()
        lab.sleep(1)
    assert lab.labels(1) == ["experiment: done"]
    assert sum("regatta: result." in body for body in lab.comments(2)) == 1


@pytest.mark.parametrize("pause", [20, 60, 130, 200])
def test_a_leader_that_was_away_between_claim_and_word_leaves_one_comment(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, pause: int
) -> None:
    second, first = Second(lab), lab.bot
    assert isinstance(first, Reconciler)
    second.bot.work()
    real, away = first._github.create_comment, []

    def create(number: int, body: str) -> Made:
        if not away:
            away.append(number)
            for _ in range(pause):
                second.bot.work()
                lab.sleep(1)
        return real(number, body)

    monkeypatch.setattr(first._github, "create_comment", create)
    lab.clock.advance(1)
    lab.sandbox.comment("sam", 2, "/help")
    both(lab, second, 200)
    assert away
    assert sum("what it does" in body for body in lab.comments(2)) == 1


def test_two_bots_side_by_side_post_everything_once(lab: Lab) -> None:
    second = Second(lab)
    for n, who in enumerate(["sam", "grace", "sam", "ada"]):
        lab.gate = second.gate if n % 2 else lab.gate
        lab.clock.advance(1)
        lab.sandbox.comment(who, 2, f"/retry x{n}")
        both(lab, second, 7)
    assert sum("**Not done:** `/retry`" in body for body in lab.comments(2)) == 4
