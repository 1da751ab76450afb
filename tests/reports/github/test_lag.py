"""One look right after an event is not the truth."""

import pytest

from bot.model import policy_file
from tests.reports.github.github_lab import (
    FILES,
    PULL,
    Changed,
    begin,
    checks,
    count,
    fail,
    failures,
    is_complete,
    mend,
    open_issue,
    open_pull,
    plans,
    push,
    say,
    turn,
)
from tests.scenarios.lab import Lab

LATER = 120  # seconds, in which GitHub shows what it did not show at first


def test_atlantis_1019_one_404_for_an_issue_right_after_its_webhook(lab: Lab) -> None:
    fail(lab, "GET", r"/issues/1$", 404, "Not Found", times=1)
    open_issue(lab)
    turn(lab, 30)
    assert len(lab.records("preregistrations")) == 1
    assert lab.labels(1) == ["experiment: wishlist"]


@pytest.mark.parametrize("seconds", [0, 5, LATER])
def test_atlantis_1817_404s_for_a_pull_request_right_after_its_webhook(
    lab: Lab, seconds: int
) -> None:
    """waffleio/waffle.io#3102 (some seconds), nodejs/github-bot#88, probot/stale#83."""
    open_issue(lab)
    lab.settle()
    fail(lab, "GET", PULL, 404, "Not Found", times=10**6 if seconds else 1)
    open_pull(lab)
    turn(lab, seconds)
    mend(lab)
    turn(lab, 90)
    assert count(lab, "### Plan 1") == 1
    assert checks(lab) == [("regatta / plan", "success")]


@pytest.mark.parametrize("what", [r"/issues/1$", r"/issues/1/comments$", r"/issues/1/labels$"])
def test_test_infra_2229_a_new_issue_is_not_known_for_two_minutes(lab: Lab, what: str) -> None:
    fail(lab, "*", what, 404, "Not Found")
    open_issue(lab)
    turn(lab, LATER)
    mend(lab)
    turn(lab, LATER)
    assert failures(lab) == []
    assert count(lab, "Sealed", 1) == 1
    assert lab.labels(1) == ["experiment: wishlist"]


def test_octokit_900_a_comment_is_not_known_for_a_while(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    fail(lab, "POST", r"/reactions$", 404, "Not Found", times=3)
    id = say(lab, "sam", "/help")
    turn(lab, LATER)
    assert count(lab, "what it does") == 1
    seen = {reaction.content for reaction in lab.sandbox.issue_comment(id).reactions}
    assert seen == {"eyes", "rocket"}
    assert failures(lab) == []


def test_what_stays_gone_is_given_up_after_minutes_and_blocks_nothing(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    fail(lab, "POST", r"/issues/2/comments$", 404, "Not Found")
    say(lab, "sam", "/help")
    turn(lab, 300, 5)
    assert failures(lab) == []
    assert lab.records("inbox") == {}  # the answer has its claim
    turn(lab, 600, 5)
    assert failures(lab) == ["failed: 404: Not Found"]
    before = len(lab.sandbox.requests)
    turn(lab, 600, 5)
    assert len(lab.sandbox.requests) == before


def test_a_deleted_issue_is_gone_at_once(lab: Lab) -> None:
    open_issue(lab)
    lab.sandbox.delete_issue(1)
    lab.settle()
    assert lab.records("inbox") == {}
    assert (lab.clock.now() - lab.sandbox.world.created_at).total_seconds() < 60


# ── Heads ──


def shows_old_head(lab: Lab, times: int) -> tuple[str, str]:
    """Ada pushes, and GitHub shows the head of before for so many reads."""
    open_issue(lab)
    lab.settle()
    old = open_pull(lab)
    lab.settle()
    new = push(lab)
    left = [times]

    def replica(method: str, path: str) -> None:
        behind = method == "GET" and path.endswith("/pulls/2") and left[0] > 0
        left[0] -= behind
        lab.sandbox.issue(2).as_pull.head_sha = old if behind else new

    lab.sandbox.faults = Changed(replica)
    return old, new


@pytest.mark.parametrize("times", [1, 1000])
def test_rocq_bot_1_the_old_head_after_a_push(lab: Lab, times: int) -> None:
    """tanium/octobot#75, rancher/fleet#4852."""
    old, new = shows_old_head(lab, times)
    turn(lab, 30)
    assert plans(lab) == [old, new]
    assert count(lab, "### Plan 2") == 1
    say(lab, "grace", "/run")
    turn(lab, 10)
    assert len(lab.trainer.submissions) == 1


def test_homu_216_a_stale_head_after_the_plan_makes_no_third_plan(lab: Lab) -> None:
    old, new = shows_old_head(lab, 1)
    turn(lab, 30)
    pull = lab.sandbox.issue(2).as_pull

    def replica(_: str, path: str) -> None:
        pull.head_sha = old if path.endswith("/pulls/2") else new

    lab.sandbox.faults = Changed(replica)
    say(lab, "sam", "Nice.")
    turn(lab, 30)
    assert plans(lab) == [old, new]


def test_jquery_license_23_the_newest_of_two_pushes_in_one_second_counts(lab: Lab) -> None:
    """Also preloopdev/preloop#185: the branch moves on while a delivery is read."""
    open_issue(lab)
    lab.settle()
    old = open_pull(lab)
    lab.settle()
    push(lab)
    text = {"experiments/warm/text.txt": b"Another text.\n" * 400}
    new = lab.sandbox.commit("ada", "warm", text, "At once")
    show = lab.sandbox.issue(2).as_pull
    lab.sandbox.faults = Changed(lambda *_: setattr(show, "head_sha", old))
    turn(lab, 30)
    assert plans(lab) == [old, new]


def test_a_head_that_was_pushed_back_is_believed(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    old = open_pull(lab)
    lab.settle()
    new = push(lab)
    lab.settle()
    lab.clock.advance(5)
    lab.sandbox.update_ref("ada", "refs/heads/warm", old, force=True)
    lab.settle()
    assert plans(lab) == [old, new, old]


# ── Commits ──


@pytest.mark.parametrize("times", [1, 3, 1000])
@pytest.mark.parametrize(
    ("what", "status", "message"),
    [
        (r"/compare/", 404, "Not Found"),
        (r"/git/trees/", 404, "Not Found"),
        (r"/git/blobs/", 404, "Not Found"),
        (r"/compare/", 422, "No commit found for SHA: 0123456789abcdef0123456789abcdef01234567"),
    ],
)
def test_homu_141_a_commit_that_github_does_not_know_yet(
    lab: Lab, what: str, status: int, message: str, times: int
) -> None:
    open_issue(lab)
    lab.settle()
    fail(lab, "GET", what, status, message, times=times)
    open_pull(lab)
    turn(lab, LATER)
    mend(lab)
    turn(lab, 90)
    assert count(lab, "cannot run yet") == 0
    assert checks(lab) == [("regatta / plan", "success")]
    assert plans(lab) == [lab.sandbox.issue(2).as_pull.head_sha]


def test_homu_141_a_new_policy_that_github_does_not_show_yet_is_not_taken_for_none(
    lab: Lab,
) -> None:
    """Its commit is the newest of the default branch, and its files are not there yet."""
    lab.trainer.reachable = False
    begin(lab)
    owner, policy = lab.sandbox.world.owner.login, {policy_file.PATH: b"own: true\n"}
    sha = lab.sandbox.commit(owner, "main", policy, "A policy")
    fail(lab, "GET", rf"/(contents/|git/trees/{sha})", 404, "Not Found")
    lab.trainer.reachable = True
    turn(lab, 20)
    assert lab.trainer.submissions == []
    mend(lab)
    turn(lab, 90)
    assert count(lab, "Not started") == 0
    assert len(lab.trainer.submissions) == 1


def test_highfive_190_a_404_for_the_changes_of_a_push(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    fail(lab, "GET", r"/compare/", 404, "Not Found", times=2)
    new = push(lab)
    turn(lab, 60)
    assert plans(lab)[-1] == new
    assert count(lab, "cannot run yet") == 0


@pytest.mark.parametrize("fork", [False, True])
def test_service_hub_394_no_commit_is_found_for_a_check(lab: Lab, fork: bool) -> None:
    open_issue(lab)
    lab.settle()
    no_commit = "No commit found for SHA: 0123456789abcdef0123456789abcdef01234567"
    fail(lab, "POST", r"/check-runs$", 422, no_commit, times=2)
    if fork:
        lab.sandbox.fork("ada").commit("ada", "warm", FILES, "Declare an experiment")
        lab.sandbox.open_pull("ada", "Warmer learning rate", "Tests #1.", "ada:warm")
    else:
        open_pull(lab)
    turn(lab, LATER)
    assert checks(lab) == [("regatta / plan", "success")]
    assert failures(lab) == []


def test_fullsend_5774_a_tree_that_was_just_written_is_not_known_yet(lab: Lab) -> None:
    begin(lab)
    fail(lab, "POST", r"/git/commits$", 422, "Tree SHA does not exist", times=3)
    lab.trainer.pace = None
    turn(lab, 420, 5)
    assert failures(lab) == []
    assert is_complete(lab)


def test_a_commit_that_stays_unknown_is_said_to_be_so_and_nobody_is_blamed(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    fail(lab, "GET", r"/compare/", 404, "Not Found")
    open_pull(lab)
    turn(lab, 720, 5)
    assert count(lab, "GitHub does not show this commit") == 1
    assert count(lab, "Push a correction") == 0
    mend(lab)
    say(lab, "ada", "/plan")
    turn(lab, 30)
    assert checks(lab)[-1] == ("regatta / plan", "success")


# ── People ──


def test_a_maintainer_whom_github_does_not_know_for_a_moment_may_approve(lab: Lab) -> None:
    open_issue(lab)
    lab.settle()
    open_pull(lab)
    lab.settle()
    fail(lab, "GET", r"/collaborators/grace/permission$", 404, "Not Found", times=4)
    say(lab, "grace", "/run")
    turn(lab, 60)
    assert count(lab, "Not done") == 0
    assert len(lab.trainer.submissions) == 1


def test_what_github_does_not_show_keeps_nobody_from_cancelling(lab: Lab) -> None:
    begin(lab)
    fail(lab, "GET", r"/compare/", 404, "Not Found")
    push(lab)
    turn(lab, 20)
    say(lab, "grace", "/cancel")
    turn(lab, 20)
    states = [x["state"] for path, x in lab.records("executions").items() if "result" in path]
    assert states == ["cancelled"]
    mend(lab)
    turn(lab, 90)
    assert count(lab, "### Plan 2") == 1


def test_a_diff_that_github_cannot_make_keeps_nobody_from_cancelling(lab: Lab) -> None:
    begin(lab)
    fail(lab, "GET", r"/compare/", 500, "Sorry, this diff is taking too long to generate.")
    push(lab)
    turn(lab, 20)
    say(lab, "grace", "/cancel")
    turn(lab, 60)
    states = [x["state"] for path, x in lab.records("executions").items() if "result" in path]
    assert states == ["cancelled"]
