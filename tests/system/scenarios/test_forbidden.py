"""GitHub forbids one thing for good, or hides everything for a while: the rest of a thread goes on,
and what could only not be seen is not taken for gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.fake_github.world.faults import Fault
from runner.publish import charts
from tests.scenarios.lab import EXPERIMENT, TEXT, Lab, a_lab
from tests.stub_trainer import StubRay
from tests.system.scenarios.test_faults import PIXEL
from tests.system.scenarios.test_recovery import begun, results, turn

NO_APP = "You must authenticate via a GitHub App."
NOT_PERMITTED = "Resource not accessible by integration"
OTHERS = (
    "Invalid app_id `15368` - check run can only be modified by the GitHub App that created it."
)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab with a preregistration and a trainer that waits to be told."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, StubRay(pace=0)) as lab:
        lab.preregister()
        yield lab


def always(lab: Lab, method: str, path: str, message: str, status: int = 403) -> None:
    body = f'{{"message": "{message}"}}'
    lab.sandbox.faults.add(Fault("status_before", method, path, 10**6, status, body=body))


def propose(lab: Lab) -> None:
    """As `Lab.propose`, where the bot need not come to rest."""
    files = {
        "experiments/warm/experiment.yaml": EXPERIMENT.encode(),
        "experiments/warm/text.txt": TEXT.encode(),
    }
    lab.sandbox.commit("ada", "warm", files, "Declare an experiment")
    lab.sandbox.open_pull("ada", "Warmer learning rate", "Tests #1.", "warm")
    turn(lab, 60)


def say(lab: Lab, who: str, body: str, seconds: float = 60, step: float = 5) -> None:
    lab.clock.advance(31)
    lab.sandbox.comment(who, 2, body)
    turn(lab, seconds, step)


def told(lab: Lab, words: str, number: int = 2) -> int:
    return sum(words in body for body in lab.comments(number))


@pytest.mark.parametrize("message", [NO_APP, NOT_PERMITTED])
def test_without_check_runs_everything_else_is_done(lab: Lab, message: str) -> None:
    always(lab, "POST", r"/check-runs$", message)
    propose(lab)
    say(lab, "sam", "/help")
    say(lab, "grace", "/run")
    assert told(lab, "### Plan 1") == told(lab, "what it does") == 1
    assert len(lab.trainer.submissions) == 1
    assert lab.records("inbox") == {}
    lab.trainer.pace = None
    turn(lab, 600)
    assert told(lab, "<summary>Receipt</summary>") == 1
    assert lab.labels(1) == ["experiment: done"]


def test_a_forbidden_request_is_retried_with_growing_pauses(lab: Lab) -> None:
    always(lab, "POST", r"/check-runs$", NOT_PERMITTED)
    propose(lab)
    turn(lab, 600)
    before = len(lab.sandbox.requests)
    turn(lab, 3600)
    assert len(lab.sandbox.requests) - before <= 60


def test_a_permission_that_was_missing_and_is_given_is_used(lab: Lab) -> None:
    always(lab, "POST", r"/check-runs$", NOT_PERMITTED)
    propose(lab)
    assert not lab.sandbox.world.checks
    lab.sandbox.faults.clear()
    turn(lab, 900)
    assert {check.name for check in lab.sandbox.world.checks.values()} == {"regatta / plan"}


@pytest.mark.parametrize("first", [403, 502])
def test_a_run_can_be_stopped_while_comments_are_refused(lab: Lab, first: int) -> None:
    lab.propose()
    begun(lab)
    always(lab, "POST", r"/issues/2/comments$", NOT_PERMITTED, first)
    say(lab, "sam", "/help")
    say(lab, "grace", "/cancel", 300)
    assert [result["state"] for result in results(lab)] == ["cancelled"]


@pytest.mark.parametrize("message", [OTHERS, NOT_PERMITTED])
def test_a_check_run_that_another_app_made_keeps_no_result_back(lab: Lab, message: str) -> None:
    lab.propose()
    begun(lab)
    always(lab, "PATCH", r"/check-runs/", message)
    lab.die()
    lab.trainer.pace = None
    turn(lab, 300)
    assert told(lab, "<summary>Receipt</summary>") == told(lab, "🏁 This execution has ended") == 1
    assert lab.labels(1) == ["experiment: done"]
    say(lab, "sam", "/status")
    assert told(lab, "| execution | state |") == 1


def test_a_failing_picture_upload_does_not_delay_an_answer(lab: Lab) -> None:
    lab.propose()
    begun(lab)
    always(lab, "POST", r"/git/blobs$", "Server Error", 502)
    lab.trainer.pace = None
    turn(lab, 300)
    say(lab, "sam", "/help")
    assert told(lab, "what it does") == 1
    lab.sandbox.faults.clear()
    turn(lab, 900)
    assert told(lab, "<summary>Receipt</summary>") == 1


# ── Nothing can be seen ──


def test_results_are_posted_after_a_period_of_404s(lab: Lab) -> None:
    lab.propose()
    begun(lab)
    always(lab, "*", r"^/repos/", "Not Found", 404)
    lab.trainer.pace = None
    turn(lab, 600)
    lab.sandbox.faults.clear()
    turn(lab, 600)
    assert told(lab, "<summary>Receipt</summary>") == told(lab, "🏁 This execution has ended") == 1
    assert told(lab, "erdict", 1) == 1
    assert lab.labels(1) == ["experiment: done"]
    notes = [str(said.get("note", "")) for said in lab.records("said").values()]
    assert not [note for note in notes if note.startswith("failed")]


def test_a_person_github_hides_is_not_treated_as_a_stranger(lab: Lab) -> None:
    lab.propose()
    lab.clock.advance(31)
    lab.sandbox.comment("grace", 2, "/run")
    always(lab, "*", r"^/repos/", "Not Found", 404)
    turn(lab, 120)
    lab.sandbox.faults.clear()
    turn(lab, 120)
    assert len(lab.trainer.submissions) == 1


def test_a_proxys_login_page_is_no_answer_of_githubs(lab: Lab) -> None:
    elsewhere = {"location": "https://portal.example/login"}
    fault = Fault("status_before", "POST", r"/issues/1/comments", 1, 302, "{}", elsewhere)
    lab.sandbox.faults.add(fault)
    lab.say("sam", 1, "/help")
    assert told(lab, "what it does", 1) == 1
