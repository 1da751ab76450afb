"""What no delivery told of is found by a sweep, and each thing is dealt with once."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.controller import catch_up
from bot.fake_github.world.faults import Fault
from bot.github import Attempt, Later
from bot.inbox import payloads as inbox_payloads
from bot.model.thread import ThreadId
from runner.store.store import Store
from tests.scenarios.lab import EXPERIMENT, Lab, a_lab
from tests.stub_trainer import StubRay


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab with a plan, which sweeps every ten minutes."""
    with a_lab(tmp_path, StubRay(pace=48)) as lab:
        lab.preregister()
        lab.propose()
        lab.sweep_every = catch_up.EVERY
        lab.die()
        lab.settle()
        yield lab


def away(lab: Lab, *happens: Any, hours: float = 2) -> None:
    """The bot is away, its deliveries are lost, and these things happen meanwhile."""
    lab.die()
    for each in happens:
        lab.clock.advance(60)
        each()
    lab.clock.advance(hours * 3600)
    lab.undelivered.clear()


def back(lab: Lab) -> None:
    lab.settle()


def said(lab: Lab, words: str, number: int = 2) -> int:
    return sum(words in body for body in lab.comments(number))


def messages(lab: Lab) -> list[dict[str, Any]]:
    return [
        fact["message"]
        for path, fact in lab.records("handled").items()
        if "swept-" in path and fact["message"]
    ]


def test_a_command_that_was_missed_is_found_and_answered_once(lab: Lab) -> None:
    away(lab, lambda: lab.sandbox.comment("sam", 2, "/help"))
    back(lab)
    assert said(lab, "what it does") == 1
    assert [(one["heard"], one["edited"]) for one in messages(lab)] == [("sweep", False)]
    away(lab)
    back(lab)
    assert said(lab, "what it does") == 1


def test_a_known_comment_is_not_found_again_by_a_sweep(lab: Lab) -> None:
    lab.say("sam", 2, "/help")
    away(lab)
    back(lab)
    assert messages(lab) == []


def test_a_comment_that_was_heard_and_edited_later_is_no_new_command(lab: Lab) -> None:
    lab.say("grace", 2, "Looks good.")
    comment = lab.sandbox.issue(2).comments[-1]
    away(lab, lambda: lab.sandbox.edit_comment("grace", comment.id, "/run"))
    back(lab)
    assert lab.trainer.submissions == []
    assert messages(lab) == []


def test_a_missed_comment_that_was_edited_says_so(lab: Lab) -> None:
    def write() -> None:
        comment = lab.sandbox.comment("grace", 2, "Looks good.")
        lab.clock.advance(60)
        lab.sandbox.edit_comment("grace", comment.id, "/status")

    away(lab, write)
    back(lab)
    assert [one["edited"] for one in messages(lab)] == [True]


def test_the_bots_own_words_and_those_of_other_bots_are_not_swept(lab: Lab) -> None:
    away(lab, lambda: None)
    back(lab)
    assert messages(lab) == []


def test_a_pull_request_that_was_missed_gets_its_plan(lab: Lab) -> None:
    other = EXPERIMENT.replace("0.003,", "0.004,")
    path = "experiments/warm/experiment.yaml"
    away(lab, lambda: lab.sandbox.commit("ada", "warm", {path: other.encode()}, "Other"))
    back(lab)
    assert len(lab.records("plans")) == 2


def test_a_sweep_while_github_stumbles_is_made_up_for(lab: Lab) -> None:
    away(lab, lambda: lab.sandbox.comment("sam", 2, "/help"))
    lab.sandbox.faults.add(Fault("status_before", "GET", r"/issues(/comments)?$", times=4))
    back(lab)
    for _ in range(5):
        assert lab.bot
        lab.bot.work()
        lab.clock.advance(61)
    lab.settle()
    assert said(lab, "what it does") == 1


# ── The App's list ──


class Listing:
    """A GitHub whose App's list has these attempts, and nothing else to tell."""

    id, bot = 7, "lab[bot]"

    def __init__(self, attempts: list[Attempt], payloads: dict[int, tuple[str, Any]]) -> None:
        self.attempts, self.payloads = attempts, payloads
        self.asked: list[int] = []

    def app_deliveries(self) -> Iterator[Attempt]:
        return iter(self.attempts)

    def app_delivery(self, id: int) -> tuple[str, str, Any]:
        self.asked.append(id)
        guid = next(attempt.guid for attempt in self.attempts if attempt.id == id)
        return guid, *self.payloads[id]

    def comments_since(self, _: datetime) -> list[Any]:
        return []

    def threads_since(self, _: datetime) -> list[Any]:
        return []


NOW = datetime.fromisoformat("2026-01-02T12:00:00+00:00")


def attempt(id: int, guid: str, minutes: float, *, taken: bool, event: str = "issues") -> Attempt:
    at = NOW - timedelta(minutes=minutes)
    return Attempt(id, guid, at, event, "opened", 7, taken)


def opened(number: int) -> tuple[str, Any]:
    sender = {"login": "ada", "id": 1, "type": "User"}
    issue = {"number": number, "updated_at": "2026-01-02T11:00:00Z"}
    return "issues", {
        "action": "opened",
        "sender": sender,
        "repository": {"id": 7},
        "issue": issue,
    }


def sweep_once(store: Store, github: Any) -> list[int]:
    sweeper = catch_up.Sweeper(store, github, catch_up.EVERY, StubRay())  # type: ignore[arg-type]
    return [thread.number for thread in sweeper.look(NOW)]


def test_only_deliveries_that_nobody_ever_took_are_fetched(tmp_path: Path) -> None:
    attempts = [
        attempt(9, "taken-later", 1, taken=True),
        attempt(8, "never-taken", 2, taken=False),
        attempt(7, "never-taken", 3, taken=False),
        attempt(6, "taken-later", 4, taken=False),
        attempt(5, "not-ours", 5, taken=False, event="push"),
        attempt(4, "long-ago", 60 * 48, taken=False),
    ]
    github = Listing(attempts, {8: opened(5)})
    store = Store(tmp_path)
    assert sweep_once(store, github) == [5]
    assert github.asked == [8]
    (name,) = store.list("records/inbox/7/5")
    assert name == "never-taken.json"
    said = inbox_payloads.Delivery.model_validate_json(store.require(f"records/inbox/7/5/{name}"))
    assert said.thread == ThreadId(7, 5)
    assert sweep_once(store, github) == []


def test_a_sweep_that_breaks_off_is_not_taken_for_done(tmp_path: Path) -> None:
    class Breaking(Listing):
        def threads_since(self, _: datetime) -> list[Any]:
            raise Later("502")

    store = Store(tmp_path)
    with pytest.raises(Later):
        sweep_once(store, Breaking([], {}))
    assert catch_up.last_at(store, 7) is None
    sweep_once(store, Listing([], {}))
    assert catch_up.last_at(store, 7) == NOW
