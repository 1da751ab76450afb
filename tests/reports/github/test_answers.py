"""An answer is judged by its status, its headers and whole documented messages."""

from datetime import timedelta
from email.utils import format_datetime

import pytest

from bot.controller.effects import claimed_before
from bot.telemetry import metrics
from tests.reports.github.github_lab import (
    BLOCKED,
    begin,
    checks,
    fail,
    failures,
    is_complete,
    mend,
    push,
    say,
    turn,
    writes,
)
from tests.scenarios.lab import Lab

TOO_QUICKLY = {"resource": "IssueComment", "code": "custom", "message": "was submitted too quickly"}
WRITES = r"^/repos/"


def finish_while(lab: Lab, seconds: float) -> int:
    """The run ends while GitHub is as it is now, for so long. Returns the writes meanwhile."""
    lab.trainer.pace = None
    before = len(lab.sandbox.requests)
    turn(lab, seconds)
    tried = writes(lab, before)
    mend(lab)
    turn(lab, 420)
    return tried


@pytest.mark.parametrize("headers", [{}, {"retry-after": "60"}])
def test_projects_migration_2_a_block_of_content_creation_is_no_locked_thread(
    lab: Lab, headers: dict[str, str]
) -> None:
    begin(lab)
    for method in ("POST", "PATCH", "PUT", "DELETE"):
        fail(lab, method, WRITES, 403, BLOCKED, headers=headers)
    assert finish_while(lab, 60) <= 2
    assert failures(lab) == []
    assert is_complete(lab)


def test_pygithub_810_a_block_right_after_the_approval_loses_nothing(lab: Lab) -> None:
    begin(lab)
    fail(lab, "POST", r"/comments$", 403, BLOCKED, times=1)
    lab.trainer.pace = None
    turn(lab, 420)
    assert is_complete(lab)


def test_thrillhousebot_722_a_reset_in_the_past_is_not_about_the_block(lab: Lab) -> None:
    begin(lab)
    past = str(int(lab.clock.now().timestamp()) - 600)
    headers = {"x-ratelimit-remaining": "4771", "x-ratelimit-reset": past}
    fail(lab, "POST", WRITES, 403, BLOCKED, headers=headers)
    fail(lab, "PATCH", WRITES, 403, BLOCKED, headers=headers)
    assert finish_while(lab, 72) <= 3
    assert is_complete(lab)


def test_thrillhousebot_784_a_refusal_in_new_words_is_tried_again(lab: Lab) -> None:
    begin(lab)
    fail(lab, "POST", WRITES, 403, "Content from this integration is unlocked in a moment.")
    finish_while(lab, 72)
    assert failures(lab) == []
    assert is_complete(lab)


def test_probot_stale_26_a_limit_that_goes_on_is_asked_less_and_less(lab: Lab) -> None:
    begin(lab)
    fail(lab, "POST", WRITES, 403, BLOCKED)
    fail(lab, "PATCH", WRITES, 403, BLOCKED)
    assert finish_while(lab, 3600) <= 8
    turn(lab, 900)
    assert is_complete(lab)


def test_nori_155_a_retry_after_may_be_a_date(lab: Lab) -> None:
    begin(lab)
    date = format_datetime(lab.clock.now() + timedelta(seconds=300), usegmt=True)
    fail(lab, "*", WRITES, 429, "Too many requests", headers={"retry-after": date})
    lab.trainer.pace = None
    before = len(lab.sandbox.requests)
    turn(lab, 290)
    assert len(lab.sandbox.requests) - before <= 2
    mend(lab)
    turn(lab, 420)
    assert is_complete(lab)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (422, "Validation Failed"),
        (400, "Problems parsing JSON"),
        (408, "Request Timeout"),
        (409, "Conflict"),
        (423, "Locked"),
        (451, "Repository access blocked"),
    ],
)
def test_cli_4801_a_comment_that_was_submitted_too_quickly_comes_later(
    lab: Lab, caplog: pytest.LogCaptureFixture, status: int, message: str
) -> None:
    caplog.set_level("INFO")
    begin(lab)
    errors = [TOO_QUICKLY] if status == 422 else None
    fail(lab, "POST", r"/comments$", status, message, errors=errors)
    finish_while(lab, 10)
    assert failures(lab) == []
    assert is_complete(lab)
    assert "POST /api/v3/repos/regatta-lab/lab/issues/2/comments" in caplog.text
    assert status != 422 or "was submitted too quickly" in caplog.text


def test_spec_factory_55_what_follows_too_quickly_comes_later_too(lab: Lab) -> None:
    begin(lab)
    fail(lab, "POST", r"/(comments|check-runs|labels|reactions)$", 422, "Validation Failed",
         errors=[TOO_QUICKLY])  # fmt: skip
    finish_while(lab, 90)
    assert is_complete(lab)


def test_lookout_264_a_comment_that_is_there_in_spite_of_a_502_is_there_once(lab: Lab) -> None:
    begin(lab)
    fail(lab, "POST", r"/comments$", 502, kind="status_after", times=3)
    lab.trainer.pace = None
    turn(lab, 600)
    assert is_complete(lab)


def test_go_github_pr_commenter_8_a_422_without_errors_is_tried_again(lab: Lab) -> None:
    begin(lab)
    fail(lab, "POST", r"/comments$", 422, "Validation Failed")
    finish_while(lab, 10)
    assert is_complete(lab)


def test_what_github_has_not_taken_is_said_by_status_and_doctor_until_it_has(lab: Lab) -> None:
    begin(lab)
    fail(lab, "POST", r"/check-runs$", 403, "Resource not accessible by integration")
    say(lab, "sam", "/retry")  # refused, so it has only an answer
    push(lab)
    turn(lab, 20)
    say(lab, "sam", "/status")
    turn(lab, 660, 5)
    assert "`check.plan.2`: 403: Resource not accessible by integration" in lab.last(2)
    assert metrics.UNPOSTED.collect()[0].samples[0].value == 1
    late = claimed_before(lab.store, lab.clock.now() - timedelta(minutes=10))
    assert [path.rpartition("said/")[2] for path in late] == ["700001/2/check.plan.2/claim.json"]
    mend(lab)
    turn(lab, 420, 5)
    assert ("regatta / plan", "success") in checks(lab)[1:]
    say(lab, "sam", "/status")
    turn(lab, 10)
    assert "check.plan.2" not in lab.last(2)
    assert claimed_before(lab.store, lab.clock.now()) == []
