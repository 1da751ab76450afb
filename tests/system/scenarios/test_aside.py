"""A delivery that ends the process each time is set aside, and the others are dealt with."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.controller import reconciler
from bot.controller.reconciler import Reconciler
from bot.inbox import quarantine
from runner.execution.lifecycle import Job
from runner.execution.ray_jobs import RayError
from runner.lib import fault_points
from runner.store.backends import StoreFault
from tests.scenarios.lab import Lab, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_recovery import begun, results, turn
from tests.system.scenarios.test_story import reactions


class Poison:
    """Ends the process, or raises, whenever a decision is made on a message with that word."""

    def __init__(self, error: type[BaseException] = fault_points.Ended) -> None:
        self.error = error
        self.times = 0
        self.real = reconciler.decide

    def __call__(self, thread: Any, *more: Any) -> Any:
        if any("poison" in message.body for message in thread.messages):
            self.times += 1
            raise self.error("poison")
        return self.real(thread, *more)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with a_lab(tmp_path) as lab:
        lab.preregister()
        yield lab


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Poison:
    poison = Poison()
    monkeypatch.setattr(reconciler, "decide", poison)
    return poison


def helped(lab: Lab) -> int:
    done = [("/help" in body and "rocket" in told) for body, told in reactions(lab, 1)]
    return sum(done)


def test_a_delivery_that_ends_the_process_five_times_is_set_aside_and_told(
    lab: Lab, poison: Poison, caplog: pytest.LogCaptureFixture
) -> None:
    lab.say("sam", 1, "poison")
    assert poison.times == quarantine.MAX_ENDS
    (found,) = lab.records("aside").values()
    assert found["said"]["message"]["body"] == "poison"
    assert "ended the process 5 times" in found["why"]
    assert "is skipped: it ended the process 5 times" in caplog.text
    assert sum("### ⚠️ Skipped" in body for body in lab.comments(1)) == 1
    lab.say("sam", 1, "/help")
    assert helped(lab) == 1
    assert poison.times == quarantine.MAX_ENDS
    assert lab.records("inbox") == lab.records("tries") == {}


def test_the_innocent_that_came_along_are_dealt_with(lab: Lab, poison: Poison) -> None:
    for body in ("/help", "poison", "/help"):
        lab.clock.advance(1)
        lab.sandbox.comment("sam", 1, body)
    lab.settle()
    assert helped(lab) == 2
    assert len(lab.records("aside")) == 1
    assert poison.times == 1 + quarantine.MAX_ENDS  # once together, then by itself


def test_a_process_that_ends_for_other_reasons_sets_nothing_aside(lab: Lab) -> None:
    counts = {"n": 0}

    def dies(point: str) -> None:
        counts["n"] += 1
        if counts["n"] % 17 == 0:
            raise fault_points.Ended(point)

    with fault_points.hooked(dies):
        for _ in range(6):
            lab.say("sam", 1, "/help")
    assert helped(lab) == 6
    assert lab.records("aside") == {}


def test_a_look_that_came_further_before_the_process_ended_is_not_counted(lab: Lab) -> None:
    ends = ["github.react.before", "github.react.before", "github.create_comment.after"]

    def dies(point: str) -> None:
        if ends and point == ends[0]:
            raise fault_points.Ended(ends.pop(0))

    with fault_points.hooked(dies):
        lab.say("sam", 1, "/help")
    assert ends == []
    assert helped(lab) == 1
    assert lab.records("aside") == lab.records("tries") == {}


@pytest.mark.parametrize(
    ("error", "times"),
    [(RuntimeError, quarantine.MAX_FAILURES), (SystemExit, quarantine.MAX_ENDS)],
)
def test_a_delivery_that_always_raises_does_not_hold_its_thread_for_ever(
    lab: Lab, poison: Poison, error: type[BaseException], times: int
) -> None:
    poison.error = error
    lab.say("sam", 1, "poison")
    assert poison.times == times
    lab.say("sam", 1, "/help")
    assert helped(lab) == 1


def test_only_the_raising_delivery_is_set_aside(lab: Lab, poison: Poison) -> None:
    poison.error = RuntimeError
    for body in ("/help", "poison", "/help"):
        lab.clock.advance(1)
        lab.sandbox.comment("sam", 1, body)
    lab.settle()
    assert helped(lab) == 2
    (found,) = lab.records("aside").values()
    assert found["said"]["message"]["body"] == "poison"


def test_a_failing_push_does_not_block_the_answer_to_a_command(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = reconciler.decide

    def bad(thread: Any, *more: Any) -> Any:
        if any(push.before for push in thread.pushes):  # not of the opening
            raise RuntimeError("a rule that cannot take this push")
        return real(thread, *more)

    monkeypatch.setattr(reconciler, "decide", bad)
    pull = lab.propose()
    lab.sandbox.commit("ada", "warm", {"README.md": b"more"}, "More")
    lab.clock.advance(1)
    lab.sandbox.comment("grace", pull, "/cancel")
    for _ in range(200):
        assert lab.bot is not None
        lab.sleep(lab.bot.work() or 30)
    (answer,) = lab.records("answers").values()
    assert (answer["what"], answer["by"]["login"]) == ("cancel", "grace")
    asides = [found["said"] for found in lab.records("aside").values()]
    assert [(said["event"], said["message"]) for said in asides] == [("pull_request", None)]


def test_a_command_behind_a_delivery_that_fails_is_answered_soon(lab: Lab, poison: Poison) -> None:
    poison.error = RuntimeError
    lab.sandbox.comment("sam", 1, "poison")
    lab.clock.advance(1)
    lab.sandbox.comment("sam", 1, "/help")
    began = lab.clock.now()
    while not helped(lab):
        assert lab.bot is not None
        lab.sleep(lab.bot.work() or 30)
    assert (lab.clock.now() - began).total_seconds() < 60
    lab.settle()
    assert len(lab.records("aside")) == 1, "what fails is set aside later"


def test_an_exit_from_inside_does_not_end_the_loop(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, bot = threading.Event(), lab.bot
    assert isinstance(bot, reconciler.Reconciler)

    def leaves() -> float:
        stop.set()
        raise SystemExit

    monkeypatch.setattr(bot, "work", leaves)
    bot.run(stop)


@pytest.mark.parametrize(
    "error", [RayError("Ray does not take it"), StoreFault("the disk is full")]
)
def test_no_delivery_is_set_aside_for_a_failure_of_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        lab.preregister()
        lab.propose()
        begun(lab)

        def look(_: str) -> Job:
            raise error

        with monkeypatch.context() as broken:
            broken.setattr(lab.trainer, "look", look)
            lab.clock.advance(31)
            lab.sandbox.comment("grace", 2, "/cancel")
            turn(lab, 4 * 3600, 60)
        assert lab.records("aside") == {}
        turn(lab, 600)
        assert [result["state"] for result in results(lab)] == ["cancelled"]


def test_a_thread_whose_delivery_cannot_be_set_aside_is_looked_at_again(
    lab: Lab, poison: Poison, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison.error = RuntimeError

    def full(*_: object) -> None:
        raise StoreFault("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(quarantine, "put", full)
        lab.clock.advance(31)
        lab.sandbox.comment("sam", 1, "poison")
        assert isinstance(lab.bot, Reconciler)
        for _ in range(120):
            lab.bot.come_around()
            lab.sleep(60)
    lab.settle()
    assert len(lab.records("aside")) == 1


def test_a_delivery_that_comes_again_after_it_was_set_aside_stays_there(
    lab: Lab, poison: Poison
) -> None:
    lab.say("sam", 1, "poison")
    for delivery in list(lab.sandbox.webhooks.deliveries):
        lab.sandbox.webhooks.redeliver(delivery)
    lab.settle()
    assert poison.times == quarantine.MAX_ENDS
