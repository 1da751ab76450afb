"""GitHub stumbles, people act at the worst moment, and the lab still ends where it should."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.fake_github.world.faults import Fault
from bot.model.actions import Show
from bot.model.thread import ThreadId
from runner.lib import fault_points
from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, Lab, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_faults import PIXEL

FILE = "experiments/warm/experiment.yaml"
OTHER = EXPERIMENT.replace("0.003,", "0.004,")
COMMENTS = r"/issues/\d+/comments"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab with a plan on pull request 2 and a trainer that waits to be told."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        lab.preregister()
        lab.propose()
        yield lab


def turn(lab: Lab, seconds: float, step: float = 5) -> None:
    """Let the bot work for a while; an execution that lives keeps it from coming to rest."""
    for _ in range(int(seconds / step)):
        if lab.bot is None:
            lab.start()
        lab.bot.work()
        lab.sleep(step)


def begun(lab: Lab) -> None:
    lab.clock.advance(1)
    lab.sandbox.comment("grace", 2, "/run")
    turn(lab, 20, 1)


def results(lab: Lab) -> list[Any]:
    return [
        fact for path, fact in lab.records("executions").items() if path.endswith("result.json")
    ]


def answers(lab: Lab, words: str) -> int:
    return sum(words in body for body in lab.comments(2))


def test_a_push_while_the_bot_looks_is_not_taken_for_handled(lab: Lab) -> None:
    assert lab.bot
    asked = lab.bot._asked
    real, pushed = asked.answer, []

    def answer(id: ThreadId, question: Any) -> Any:
        found = real(id, question)
        if question == ("pull",) and not pushed:
            pushed.append(lab.sandbox.commit("ada", "warm", {FILE: OTHER.encode()}, "Other"))
        return found

    asked.answer = answer  # type: ignore[method-assign]
    lab.say("sam", 2, "Nice.")
    assert [plan["commit"] for plan in lab.records("plans").values()][-1] == pushed[0]


@pytest.mark.parametrize("what", [r"/issues/comments/\d+$", r"/check-runs/\d+$"])
@pytest.mark.parametrize("kind", ["status_before", "drop_before"])
def test_a_last_look_that_github_did_not_take_is_shown_again(
    lab: Lab, what: str, kind: str
) -> None:
    begun(lab)
    assert lab.bot
    real, hit = lab.bot._actor._show, []

    def show(thread: Any, action: Show) -> None:
        if action.final and (action.of.kind == "check") == ("check" in what) and not hit:
            hit.append(action)
            lab.sandbox.faults.add(Fault(kind, "PATCH", what))
        real(thread, action)

    lab.bot._actor._show = show  # type: ignore[method-assign]
    lab.trainer.pace = None
    lab.settle()
    assert hit
    assert "🏁 This execution has ended" in next(
        body for body in lab.comments(2) if "regatta: status." in body
    )
    checks = lab.sandbox.world.checks.values()
    assert {check.conclusion for check in checks} == {"success"}


def test_a_launch_rests_on_facts_of_its_own_moment(lab: Lab) -> None:
    lab.trainer.reachable = False
    lab.clock.advance(1)
    lab.sandbox.comment("grace", 2, "/run")
    turn(lab, 20)
    lab.clock.advance(1)
    for n in range(5):
        lab.sandbox.comment("sam", 2, f"/retry x{n}")  # each has an answer of its own
    lab.trainer.reachable = True
    assert lab.bot
    real, said = lab.bot._github.create_comment, []

    def create(*given: Any) -> Any:
        said.append(given)
        if len(said) == 2:
            lab.sandbox.commit("ada", "warm", {FILE: OTHER.encode()}, "Other")
        return real(*given)

    lab.bot._github.create_comment = create  # type: ignore[method-assign]
    lab.settle()
    assert lab.trainer.submissions == []
    assert [result["state"] for result in results(lab)] == ["voided"]


def test_two_lost_answers_and_stale_lists_leave_one_comment(lab: Lab) -> None:
    for _ in range(2):
        lab.sandbox.faults.add(Fault("status_after", "POST", COMMENTS))
    lab.sandbox.faults.add(Fault("stale", "GET", COMMENTS, times=12, seconds=90))
    lab.say("sam", 2, "/run")
    assert answers(lab, "`/run` by sam") == 1


def test_githubs_clocks_may_differ(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab.bot
    github = lab.bot._github
    real = github.now
    monkeypatch.setattr(github, "now", lambda: real() + timedelta(seconds=2))
    lab.sandbox.faults.add(Fault("status_after", "POST", COMMENTS))
    lab.say("sam", 2, "/help")
    assert answers(lab, "what it does") == 1


def test_a_death_after_a_second_try_leaves_one_comment(lab: Lab) -> None:
    lab.sandbox.faults.add(Fault("status_after", "POST", COMMENTS))
    lab.sandbox.faults.add(Fault("stale", "GET", COMMENTS, times=8, seconds=90))
    reached = []

    def dies(point: str) -> None:
        if point == "github.create_comment.after" and not reached:
            reached.append(point)
            raise fault_points.Ended(point)

    with fault_points.hooked(dies):
        lab.say("sam", 2, "/run")
    assert reached
    assert answers(lab, "`/run` by sam") == 1


def test_a_list_that_is_gone_for_good_ends_the_action_and_not_the_thread(lab: Lab) -> None:
    begun(lab)
    lab.sandbox.faults.add(Fault("drop_before", "POST", r"/issues/2/comments"))
    gone = Fault("status_before", "GET", r"/issues/2/comments", times=10**6, status=410, body="{}")
    lab.sandbox.faults.add(gone)
    lab.clock.advance(1)
    lab.sandbox.comment("sam", 2, "/status")
    lab.trainer.pace = None
    lab.settle()
    assert [result["state"] for result in results(lab)] == ["done"]
    assert lab.records("inbox") == {}


@pytest.mark.parametrize("message", ["issue is locked", "Resource not accessible by integration"])
def test_training_goes_on_while_a_comment_is_refused(lab: Lab, message: str) -> None:
    begun(lab)
    body = f'{{"message": "{message}"}}'
    refused = Fault("status_before", "POST", r"/issues/2/comments", 10**6, 403, body=body)
    lab.sandbox.faults.add(refused)
    lab.clock.advance(1)
    lab.sandbox.comment("sam", 2, "/status")
    lab.trainer.pace = None
    turn(lab, 300)
    assert [result["state"] for result in results(lab)] == ["done"]


def test_github_is_left_alone_for_as_long_as_it_asks(lab: Lab) -> None:
    limited = Fault(
        "status_before",
        "*",
        ".*",
        times=10**6,
        status=429,
        body='{"message": "secondary rate limit"}',
        headers={"retry-after": "3600"},
    )
    lab.sandbox.faults.add(limited)
    before = len(lab.sandbox.requests)
    for n in range(5):
        lab.clock.advance(1)
        lab.sandbox.comment("sam", 2, f"/status {n}")
    turn(lab, 3500, 20)
    assert len(lab.sandbox.requests) - before <= 3
    lab.sandbox.faults.clear()
    lab.settle()
    assert answers(lab, "Nothing has run here yet") == 1  # which is an answer to all five
    assert lab.records("inbox") == {}


def test_a_thread_that_always_fails_neither_ends_nor_starves_the_others(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lab.bot
    real = lab.bot._look

    def look(id: ThreadId) -> timedelta | None:
        if id.number == 1:
            raise RuntimeError("this thread is cursed")
        return real(id)

    monkeypatch.setattr(lab.bot, "_look", look)
    cursed = ThreadId(lab.bot._github.id, 1)
    for _ in range(60):
        lab.bot.wake(cursed)
        lab.bot.work()
    lab.clock.advance(1)
    lab.sandbox.comment("sam", 2, "/help")
    lab.bot.work()
    assert answers(lab, "what it does") == 1


def test_a_flood_on_one_thread_lets_another_have_its_turn(lab: Lab) -> None:
    lab.clock.advance(1)
    for n, login in enumerate(lab.strangers(12)):
        lab.sandbox.comment(login, 2, f"/retry x{n}\n\n/retry y{n}")
    lab.sandbox.comment("sam", 1, "/help")
    lab.settle()
    order = [
        request.path.rpartition("/issues/")[2]
        for request in lab.sandbox.requests
        if request.method == "POST" and request.path.endswith("/comments")
    ]
    flood = [place for place, path in enumerate(order) if path.startswith("2/")]
    assert len(flood) >= 24
    last_on_1 = max(place for place, path in enumerate(order) if path.startswith("1/"))
    assert last_on_1 < flood[-5]
