"""Reads are repeated, writes are not guessed, and after an outage nothing waits."""

import random
import time

import pytest

from bot.fake_github.world.climate import UNICORN
from bot.fake_github.world.faults import Fault, Faults, Kind
from tests.reports.github.github_lab import (
    begin,
    checks,
    count,
    fail,
    is_complete,
    mend,
    open_issue,
    open_pull,
    plans,
    say,
    turn,
    writes,
)
from tests.scenarios.lab import Lab

MINUTES = 60


class SomeReads(Faults):
    """A share of the reads fails, in one way."""

    def __init__(self, share: float, kind: Kind = "status_before", body: str = UNICORN) -> None:
        super().__init__()
        self.share, self.kind, self.body = share, kind, body
        self.chance = random.Random(3)

    def take(self, method: str, path: str) -> Fault | None:
        if method == "GET" and self.chance.random() < self.share:
            return Fault(self.kind, status=502, body=self.body)
        return super().take(method, path)


def seconds_to(lab: Lab, words: str, most: int) -> int:
    """The seconds until the bot says this on the pull request."""
    for second in range(most):
        if count(lab, words):
            return second
        turn(lab, 1)
    raise AssertionError(f"not in {most} s")


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_pygithub_2047_a_plan_comes_though_many_reads_answer_502_with_html(
    lab: Lab, share: float
) -> None:
    open_issue(lab)
    lab.settle()
    lab.sandbox.faults = SomeReads(share)
    open_pull(lab)
    assert seconds_to(lab, "### Plan 1", 2 * MINUTES) <= 60


@pytest.mark.parametrize("kind", ["cut", "drop_before"])
def test_perceval_471_a_plan_comes_though_many_reads_break_off(lab: Lab, kind: Kind) -> None:
    open_issue(lab)
    lab.settle()
    lab.sandbox.faults = SomeReads(0.3, kind)
    open_pull(lab)
    assert seconds_to(lab, "### Plan 1", 2 * MINUTES) <= 60


def test_renovate_513_a_read_is_repeated_without_a_pause_and_a_write_never(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(lab)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it sleeps"))
    fail(lab, "GET", r"/issues/2/comments$", 502, times=2)
    fail(lab, "POST", r"/comments$", 502, times=1)
    before = len(lab.sandbox.requests)
    say(lab, "sam", "/help")
    turn(lab, 20)
    posted = [one for one in list(lab.sandbox.requests)[before:] if one.method == "POST"]
    assert sum(one.path.endswith("/issues/2/comments") for one in posted) == 1
    turn(lab, 60)
    assert count(lab, "what it does") == 1


def test_cumulusci_676_the_log_names_the_request_that_failed(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fail(lab, "GET", r"/issues/1$", 502, times=10)
    open_issue(lab)
    turn(lab, 60)
    assert "502: a page: Unicorn! &middot; GitHub (GET /api/v3/repos/regatta-lab/lab/issues/1)" in (
        caplog.text
    )
    assert lab.labels(1) == ["experiment: wishlist"]


def test_what_was_answered_is_not_asked_again_when_the_last_question_fails(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    fail(lab, "GET", r"/git/blobs/", 502, times=30)
    before = len(lab.sandbox.requests)
    open_pull(lab)
    turn(lab, 25)
    asked = [one.path for one in list(lab.sandbox.requests)[before:] if one.status == 200]
    pulls = [path for path in asked if path.endswith("/pulls/2")]
    assert len(pulls) <= 2


# ── What is asked again ──


def test_github_api_505_what_has_not_changed_costs_nothing(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    used = []
    for _ in range(3):
        before = lab.sandbox.rates.count("Bearer installation-token", 0)["used"]
        say(lab, "sam", "Nice.")
        lab.settle()
        used.append(lab.sandbox.rates.count("Bearer installation-token", 0)["used"] - before)
    assert used[-1] <= 1
    answered = [one.status for one in list(lab.sandbox.requests)[-4:]]
    assert 304 in answered


def test_pulldasher_468_an_answer_that_changed_is_read_again(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    lab.sandbox.set_draft("ada", 2, True)
    lab.settle()
    say(lab, "grace", "/run")
    lab.settle()
    assert "is a draft" in lab.last(2)


def test_ade_996_a_304_for_what_is_no_longer_known_is_a_failure_that_passes(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    fail(lab, "GET", r"/pulls/2$", 304, "", times=2)
    open_pull(lab)
    turn(lab, 60)
    assert count(lab, "### Plan 1") == 1


# ── Outages ──


def test_gemini_review_action_36_after_an_hour_of_503s_all_is_posted_within_seconds(
    lab: Lab,
) -> None:
    begin(lab)
    lab.trainer.advance(2)
    turn(lab, 10)
    fail(lab, "*", r"", 503, "No server is currently available to service your request.")
    lab.trainer.pace = None
    before = len(lab.sandbox.requests)
    turn(lab, 60 * MINUTES, 5)
    assert len(lab.sandbox.requests) - before <= 6 * 60 + 30  # one request each ten seconds
    mend(lab)
    turn(lab, 45)
    assert is_complete(lab)


@pytest.mark.parametrize("minutes", [2, 20])
def test_neon_3958_after_an_outage_of_writes_the_state_is_shown_within_a_minute(
    lab: Lab, minutes: int
) -> None:
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    lab.trainer.busy = True
    say(lab, "grace", "/run")
    turn(lab, 20)
    assert count(lab, "Queued") == 1
    lab.trainer.busy = False
    lab.trainer.advance(1)
    for method in ("POST", "PATCH", "DELETE"):
        fail(lab, method, r"", 502)
    turn(lab, minutes * MINUTES, 5)
    mend(lab)
    turn(lab, 75)
    assert count(lab, "Queued") == 0
    assert count(lab, "🏃 Training") == 1


def test_a_command_is_done_while_github_does_not_answer_and_answered_afterwards(lab: Lab) -> None:
    begin(lab)
    lab.sandbox.comment("grace", 2, "/cancel")
    fail(lab, "*", r"/(comments|check-runs|reactions|labels)", 502)
    turn(lab, 5 * MINUTES)
    before = len(lab.sandbox.requests)
    turn(lab, 5 * MINUTES)
    assert writes(lab, before) <= 60
    mend(lab)
    turn(lab, 75)
    assert count(lab, "cancelled") >= 1
    assert plans(lab)
    assert ("regatta / plan", "success") in checks(lab)
