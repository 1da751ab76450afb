"""Commands and manners on the sandbox: what is asked for is heard, answered once, and seen."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.controller import write_budget
from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, READING, Lab, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_recovery import answers, results, turn
from tests.system.scenarios.test_story import PIXEL, begun, finish, push, reactions, tell


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose trainer takes steps only when it is told to."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        yield lab


def replay(lab: Lab, word: str) -> None:
    """What GitHub once sent arrives again, under another delivery id."""
    sent = [one for one in lab.sandbox.webhooks.deliveries if word.encode() in one.body]
    lab.deliver({**sent[-1].headers, "X-GitHub-Delivery": f"replayed-{len(lab.answers)}"},
                sent[-1].body)  # fmt: skip


def test_each_of_several_commands_has_its_answer(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.say("sam", pull, "/status\n/cancel\nand\n/help")
    said = "".join(lab.comments(pull)[-3:])
    assert "Nothing has run here yet" in said
    assert "`/cancel` by sam" in said
    assert "what it does" in said
    assert reactions(lab, pull)[-1][1] == ["eyes", "rocket", "confused"]


def test_the_eyes_reaction_comes_before_any_other_request(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.clock.advance(READING)
    before = len(lab.sandbox.requests)
    lab.sandbox.comment("grace", pull, "/run")
    lab.look()
    asked = [f"{one.method} {one.path}" for one in list(lab.sandbox.requests)[before:]]
    assert "/reactions" in asked[0], asked[:5]


def test_a_refused_cancel_that_comes_again_after_a_promotion_stops_nothing(lab: Lab) -> None:
    pull = begun(lab)
    tell(lab, "sam", pull, "/cancel")
    said = len(lab.comments(pull))
    lab.sandbox.set_role("sam", "admin")
    replay(lab, "/cancel")
    lab.look()
    finish(lab)
    assert [result["state"] for result in results(lab)] == ["done"]
    assert sum("`/cancel` by sam" in body for body in lab.comments(pull)[:said]) == 1


def test_a_plan_is_made_anew_when_somebody_who_may_asks(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.say("ada", pull, "/plan")
    assert "`/plan` by ada" in lab.last(pull)
    lab.say("grace", pull, "/plan")
    assert lab.last(pull).startswith("### Plan 2:")
    assert reactions(lab, pull)[-1][1] == ["eyes", "rocket"]
    replay(lab, "/plan")
    lab.settle()
    assert len(lab.records("plans")) == 2


def test_only_the_newest_plan_lies_open(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    push(lab, EXPERIMENT.replace("0.003,", "0.004,"))
    push(lab, EXPERIMENT.replace("0.003,", "0.005,"))
    first, second, third = lab.comments(pull)
    assert first.startswith("<details><summary>Plan 1, for ")
    assert second.startswith("<details><summary>Plan 2, for ")
    assert third.startswith("### Plan 3:")
    edits = [one for one in lab.sandbox.requests if one.method == "PATCH"]
    lab.look()
    assert len([one for one in lab.sandbox.requests if one.method == "PATCH"]) == len(edits)


def test_a_push_while_it_runs_is_shown_and_stops_nothing(lab: Lab) -> None:
    pull = begun(lab)
    lab.clock.advance(5)
    moved = lab.sandbox.commit("ada", "warm", {"README.md": b"more"}, "More")
    turn(lab, 60)
    status = next(c for c in lab.comments(pull) if "regatta: status." in c)
    assert f"The branch has moved to `{moved[:12]}`" in status
    finish(lab)
    assert [result["state"] for result in results(lab)] == ["done"]


def test_a_finished_execution_can_be_reproduced_and_is_compared(lab: Lab) -> None:
    pull = begun(lab)
    finish(lab)
    lab.say("grace", pull, "/reproduce")
    found = results(lab)
    assert [result["state"] for result in found] == ["done", "done"]
    assert len(lab.records("runs")) == 12
    told = next(body for body in lab.comments(pull) if "Compared with `x" in body)
    assert "| `fast.s0` | " in told


def test_a_review_is_answered_in_the_status_comment(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.clock.advance(READING)
    lab.sandbox.submit_review("grace", pull, "APPROVE", "Looks right.\n\n/run")
    lab.look(20)
    status = next(c for c in lab.comments(pull) if "regatta: status." in c)
    assert "approved by grace in a review" in status
    finish(lab)
    assert [result["state"] for result in results(lab)] == ["done"]


def test_a_spent_budget_holds_up_neither_training_nor_its_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    limits = ((60.0, 8), (3600.0, 400))
    monkeypatch.setattr(write_budget.Pace.__init__, "__defaults__", (limits,))
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        lab.preregister()
        pull = lab.propose()
        lab.clock.advance(READING)
        lab.sandbox.comment("grace", pull, "/run")
        for n in range(8):
            lab.sandbox.comment("sam", pull, f"/retry x{n}")
        before = lab.clock.now()
        while not lab.trainer.submissions:
            turn(lab, 2, 2)
            assert (lab.clock.now() - before).total_seconds() < 120
        lab.trainer.pace = None
        while not results(lab):
            turn(lab, 5)
            assert (lab.clock.now() - before).total_seconds() < 300
        assert answers(lab, "There is no execution `x") < 8  # most of that is still to be said
        lab.settle(4000)
        assert answers(lab, "There is no execution `x") == 8
        assert answers(lab, "<summary>Receipt</summary>") == 1
        assert len(lab.records("handled")) >= 9
