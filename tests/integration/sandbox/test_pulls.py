"""Forks, drafts, reviews, retargeting, merges and locks: by REST as people's clients drive it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from github import GithubException
from github.Repository import Repository

from bot.fake_github.server import Sandbox
from tests.sandbox.fixtures import NAME, TOKENS, Ask, client

Told = Callable[[str], list[dict[str, Any]]]
DECLARATION = "experiments/warm/experiment.yaml"


def refused(error: pytest.ExceptionInfo[GithubException]) -> int:
    return error.value.status


@pytest.fixture
def number(ada: Repository, sandbox: Sandbox) -> int:
    """Ada's pull request from a branch of the repository."""
    sandbox.commit("ada", "warm", {DECLARATION: b"title: Warm\n"}, "Declare")
    return ada.create_pull("main", "warm", title="Warm").number


def test_a_stranger_works_from_a_fork(
    url: str, sam: Repository, bot: Repository, told: Told
) -> None:
    with pytest.raises(GithubException) as denied:
        sam.create_git_ref("refs/heads/warm", sam.get_branch("main").commit.sha)
    assert refused(denied) == 403
    fork = client(url, TOKENS["sam"]).get_repo(NAME).create_fork()
    assert (fork.full_name, fork.id) != (NAME, sam.id)
    fork = client(url, TOKENS["sam"]).get_repo("sam/lab")
    base = fork.get_branch("main").commit
    tree = fork.create_git_tree([_file(b"title: Warm\n")], base.commit.tree)
    head = fork.create_git_commit("Declare", tree, [base.commit])
    ref = fork.create_git_ref("refs/heads/warm", head.sha)
    pull = sam.create_pull("main", "sam:warm", title="Warm")
    assert (pull.head.repo.full_name, pull.head.label) == ("sam/lab", "sam:warm")
    assert bot.get_commit(head.sha).sha == head.sha  # the base repository has it too
    assert [each["ref"] for each in told("push")] == []  # nobody installed the App there
    again = fork.create_git_commit("Again", tree, [head])
    ref.edit(again.sha)
    assert told("pull_request")[-1]["action"] == "synchronize"
    assert bot.get_pull(pull.number).head.sha == again.sha
    for path in ("/issues", "/pulls"):
        with pytest.raises(GithubException) as missing:
            fork.requester.requestJsonAndCheck("GET", f"/repos/sam/lab{path}")
        assert refused(missing) == 404
    with pytest.raises(GithubException) as denied:
        client(url, TOKENS["ada"]).get_repo("sam/lab").create_git_ref("refs/heads/x", head.sha)
    assert refused(denied) == 403


def _file(content: bytes) -> Any:
    from github import InputGitTreeElement

    return InputGitTreeElement(DECLARATION, "100644", "blob", content.decode())


def test_reviews_are_submitted_and_dismissed(
    url: str, ada: Repository, number: int, told: Told
) -> None:
    grace = client(url, TOKENS["grace"]).get_repo(NAME)
    made = grace.get_pull(number).create_review(body="Fine.", event="APPROVE")
    assert (made.state, made.commit_id) == ("APPROVED", ada.get_pull(number).head.sha)
    (submitted,) = told("pull_request_review")
    assert (submitted["action"], submitted["review"]["state"]) == ("submitted", "approved")
    with pytest.raises(GithubException) as own:
        ada.get_pull(number).create_review(event="APPROVE")
    assert refused(own) == 422
    with pytest.raises(GithubException) as wordless:
        grace.get_pull(number).create_review(event="COMMENT")
    assert refused(wordless) == 422
    with pytest.raises(GithubException) as denied:
        client(url, TOKENS["sam"]).get_repo(NAME).get_pull(number).get_review(made.id).dismiss("no")
    assert refused(denied) == 403
    made.dismiss("It changed.")
    assert told("pull_request_review")[-1]["review"]["state"] == "dismissed"
    assert [each.state for each in ada.get_pull(number).get_reviews()] == ["DISMISSED"]


def test_another_base_is_told_with_the_one_before(
    ada: Repository, sam: Repository, number: int, sandbox: Sandbox, told: Told
) -> None:
    sandbox.create_ref("grace", "refs/heads/stable", ada.get_branch("main").commit.sha)
    with pytest.raises(GithubException) as denied:
        sam.get_pull(number).edit(base="stable")
    assert refused(denied) == 403
    ada.get_pull(number).edit(base="stable")
    assert ada.get_pull(number).base.ref == "stable"
    edited = told("pull_request")[-1]
    assert (edited["action"], edited["changes"]["base"]["ref"]["from"]) == ("edited", "main")
    with pytest.raises(GithubException) as nowhere:
        ada.get_pull(number).edit(base="nowhere")
    assert refused(nowhere) == 422


def test_drafts_are_not_merged_and_what_is_merged_stays_closed(
    url: str, ada: Repository, number: int, sandbox: Sandbox, told: Told
) -> None:
    grace = client(url, TOKENS["grace"]).get_repo(NAME)
    sandbox.set_draft("ada", number, True)
    assert told("pull_request")[-1]["action"] == "converted_to_draft"
    with pytest.raises(GithubException) as draft:
        grace.get_pull(number).merge()
    assert refused(draft) == 405
    sandbox.set_draft("ada", number, False)
    assert told("pull_request")[-1]["action"] == "ready_for_review"
    assert grace.get_pull(number).merge().merged
    closed = told("pull_request")[-1]
    assert (closed["action"], closed["pull_request"]["merged"]) == ("closed", True)
    assert grace.get_contents(DECLARATION).decoded_content == b"title: Warm\n"  # type: ignore[union-attr]
    with pytest.raises(GithubException) as reopened:
        ada.get_pull(number).edit(state="open")
    assert refused(reopened) == 422


def test_a_locked_thread_takes_comments_of_writers_only(
    url: str, bot: Repository, sam: Repository, number: int, told: Told
) -> None:
    grace = client(url, TOKENS["grace"]).get_repo(NAME)
    grace.get_issue(number).lock("spam")
    assert told("pull_request")[-1]["action"] == "locked"
    for who in (bot, sam):
        with pytest.raises(GithubException) as locked:
            who.get_issue(number).create_comment("hello")
        assert refused(locked) == 403
        assert "issue is locked" in str(locked.value.data)
    grace.get_issue(number).create_comment("hello")
    grace.get_issue(number).unlock()
    sam.get_issue(number).create_comment("hello")


def test_the_timeline_tells_all_of_it_in_order(
    bot: Repository, number: int, sandbox: Sandbox
) -> None:
    first = bot.get_pull(number).head.sha
    sandbox.commit("ada", "warm", {DECLARATION: b"title: Warmer\n"}, "More")
    sandbox.comment("sam", number, "hello")
    sandbox.submit_review("grace", number, "COMMENT", "hm")
    sandbox.update_ref("ada", "refs/heads/warm", first, force=True)
    sandbox.set_labels("grace", number, ["x"])
    sandbox.edit_issue("ada", number, state="closed")
    events = [each.event for each in bot.get_issue(number).get_timeline()]
    assert events == [
        "committed", "commented", "reviewed", "head_ref_force_pushed", "labeled", "closed",
    ]  # fmt: skip


def test_a_new_title_with_an_arrow_in_it_is_told_whole(
    bot: Repository, number: int, sandbox: Sandbox
) -> None:
    before = sandbox.issue(number).title
    for title in ("Warm → warmer", "Warmest"):
        sandbox.edit_issue("ada", number, title=title)
    told = [each.raw_data.get("rename") for each in bot.get_issue(number).get_timeline()]
    assert [each for each in told if each] == [
        {"from": before, "to": "Warm → warmer"},
        {"from": "Warm → warmer", "to": "Warmest"},
    ]


def test_a_review_of_ones_own_may_only_comment(ask: Ask, number: int) -> None:
    path = f"/pulls/{number}/reviews"
    said = ask("POST", path, token=TOKENS["ada"], json={"event": "COMMENT", "body": "Mine."})
    assert (said.status_code, said.json()["state"]) == (200, "COMMENTED")
    assert ask("POST", path, token=TOKENS["ada"], json={"event": "APPROVE"}).status_code == 422
