"""Buttons of check runs: they do what the commands do, for whoever pressed them, and once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.fake_github.world.state import CheckRun
from bot.model import policy_file
from runner.publish import charts
from tests.scenarios.lab import Lab, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_recovery import results
from tests.system.scenarios.test_story import PIXEL, begun, tell


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose trainer takes steps only when it is told to."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        yield lab


def check(lab: Lab, name: str = "regatta / x") -> CheckRun:
    """The newest check run whose name begins so."""
    return [run for run in lab.sandbox.world.checks.values() if run.name.startswith(name)][-1]


def labels(run: CheckRun) -> list[str]:
    return [button.label for button in run.actions]


def press(lab: Lab, who: str, run: CheckRun, identifier: str) -> None:
    lab.clock.advance(1)
    lab.sandbox.press(who, run.id, identifier)
    lab.look()


def grace(lab: Lab) -> int:
    return lab.sandbox.user("grace").id


def answers(lab: Lab, folder: str = "approvals") -> list[Any]:
    return list(lab.records(folder).values())


def test_cancel_stops_the_execution_for_who_may_and_its_record_is_complete(lab: Lab) -> None:
    begun(lab)
    run = check(lab)
    assert labels(run) == ["Cancel"]
    press(lab, "grace", run, "cancel")
    lab.settle()
    (result,) = results(lab)
    assert (result["state"], result["why"]) == ("cancelled", "cancelled by grace")
    (answer,) = answers(lab, "answers")
    assert (answer["command"], answer["yes"]) == (f"b{run.id}-cancel-{grace(lab)}", True)
    assert labels(check(lab)) == ["Retry", "Re-plan"]


def test_a_press_without_permission_is_refused_and_the_execution_continues(lab: Lab) -> None:
    pull = begun(lab)
    press(lab, "ada", check(lab), "cancel")
    assert "`/cancel` by ada" in lab.last(pull)
    assert results(lab) == []
    lab.trainer.pace = None
    lab.settle()
    assert [result["state"] for result in results(lab)] == ["done"]


def test_a_refused_press_does_not_use_up_the_button(lab: Lab) -> None:
    begun(lab)
    run = check(lab)
    press(lab, "ada", run, "cancel")
    press(lab, "grace", run, "cancel")
    lab.settle()
    (result,) = results(lab)
    assert (result["state"], result["why"]) == ("cancelled", "cancelled by grace")


def test_an_execution_can_be_cancelled_without_a_readable_policy(lab: Lab) -> None:
    pull = begun(lab)
    owner = lab.sandbox.world.owner.login
    lab.sandbox.commit(owner, "main", {policy_file.PATH: b"commands: ["}, "Policy")
    tell(lab, "ada", pull, "/cancel")
    assert "ada has the role `write`" in lab.last(pull)
    tell(lab, "grace", pull, "/cancel")
    lab.settle()
    assert [result["state"] for result in results(lab)] == ["cancelled"]


def test_a_button_that_was_answered_is_not_answered_again(lab: Lab) -> None:
    pull = begun(lab)
    run = check(lab)
    press(lab, "ada", run, "cancel")
    said = len(lab.comments(pull))
    lab.sandbox.set_role("ada", "maintain")
    press(lab, "ada", run, "cancel")
    assert len(lab.comments(pull)) == said
    assert len(answers(lab, "answers")) == 1
    assert results(lab) == []


def test_retry_runs_the_plan_once_more_under_an_approval_of_its_own(lab: Lab) -> None:
    pull = begun(lab)
    press(lab, "grace", check(lab), "cancel")
    lab.settle()
    first = check(lab)
    lab.trainer.pace = None
    press(lab, "grace", first, "retry")
    lab.settle()
    assert [result["state"] for result in results(lab)].count("done") == 1
    assert check(lab).id != first.id
    assert check(lab).conclusion == "success"
    retried = [one for one in answers(lab) if one["what"] == "retry"]
    assert [(one["command"], one["approved"]) for one in retried] == [
        (f"b{first.id}-retry-{grace(lab)}", True)
    ]
    status = next(c for c in lab.comments(pull) if "approved by grace by a button" in c)
    assert "🏁 This execution has ended" in status


def test_retry_is_refused_to_who_may_not_and_after_a_push(lab: Lab) -> None:
    pull = begun(lab)
    press(lab, "grace", check(lab), "cancel")
    lab.settle()
    lab.sandbox.commit("ada", "warm", {"README.md": b"more"}, "More")
    lab.settle()
    press(lab, "grace", check(lab), "retry")
    lab.settle()
    assert "The branch has moved from" in lab.last(pull)
    assert len(results(lab)) == 1


def test_re_plan_looks_at_the_branch_once_more(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    run = check(lab, "regatta / plan")
    assert labels(run) == ["Re-plan"]
    press(lab, "grace", run, "replan")
    lab.settle()
    assert lab.last(pull).startswith("### Plan 2:")
    assert "replaced by plan 2" in lab.comments(pull)[0]
    press(lab, "grace", run, "replan")
    lab.settle()
    assert len(lab.records("plans")) == 2
