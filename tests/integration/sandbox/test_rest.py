"""The REST API, driven by PyGithub as the bot drives it."""

from __future__ import annotations

import datetime as dt

import pytest
from github import GithubException, UnknownObjectException
from github.Repository import Repository

from bot.fake_github.server import Sandbox
from tests.sandbox.fixtures import BOT_TOKEN, NAME, TOKENS, Ask, client


def refusal(error: pytest.ExceptionInfo[GithubException]) -> tuple[int, str]:
    return error.value.status, error.value.data["message"]


# People and permissions


def test_a_person_and_the_bot_are_who_their_tokens_say(url: str) -> None:
    assert client(url, TOKENS["ada"]).get_user().login == "ada"
    bot = client(url, BOT_TOKEN).get_user("regatta-lab[bot]")
    assert (bot.login, bot.type) == ("regatta-lab[bot]", "Bot")
    with pytest.raises(UnknownObjectException):
        client(url, BOT_TOKEN).get_user("nobody").name  # noqa: B018


def test_an_unknown_token_is_refused_and_nobody_may_read(ask: Ask) -> None:
    assert ask("GET", "/issues", token="ghp_wrong").status_code == 401
    assert ask("GET", "/issues", token=None).status_code == 200
    assert ask("POST", "/issues", token=None, json={"title": "x"}).status_code == 401


@pytest.mark.parametrize(
    ("login", "permission", "role"),
    [("ada", "write", "write"), ("grace", "write", "maintain"), ("sam", "read", "read")],
)
def test_a_permission_collapses_and_the_role_name_does_not(
    bot: Repository, login: str, permission: str, role: str
) -> None:
    assert bot.get_collaborator_permission(login) == permission
    assert bot.get_collaborator_role_name(login) == role


def test_a_role_that_was_taken_away_is_gone_at_once(bot: Repository, sandbox: Sandbox) -> None:
    sandbox.set_role("grace", None)
    assert bot.get_collaborator_role_name("grace") == "read"


def test_the_permission_of_nobody_and_of_the_bot_is_not_found(bot: Repository) -> None:
    for login in ("nobody", "regatta-lab[bot]"):
        with pytest.raises(GithubException) as refused:
            bot.get_collaborator_permission(login)
        assert refusal(refused) == (404, f"{login} is not a user")


def test_the_repository_its_installation_and_the_rate_are_told(
    url: str, bot: Repository, ask: Ask
) -> None:
    assert (bot.full_name, bot.default_branch, bot.private) == (NAME, "main", False)
    assert ask("GET", "/installation").status_code == 401  # for the App's own signed word only
    assert client(url, BOT_TOKEN).get_rate_limit().rate.limit == 5000
    _, listed = bot.requester.requestJsonAndCheck("GET", "/installation/repositories")
    assert [each["full_name"] for each in listed["repositories"]] == [NAME]


# Issues, comments, reactions, labels


def test_an_issue_is_opened_edited_closed_and_reopened(ada: Repository) -> None:
    issue = ada.create_issue("A question", "Does it pay off?")
    assert (issue.number, issue.state, issue.user.login) == (1, "open", "ada")
    issue.edit(title="A better question", body="Does it pay off in 16 steps?")
    issue.edit(state="closed", state_reason="not_planned")
    assert (issue.title, issue.state, issue.state_reason) == (
        "A better question", "closed", "not_planned",
    )  # fmt: skip
    assert [each.number for each in ada.get_issues(state="closed")] == [1]
    issue.edit(state="open")
    assert ada.get_issue(1).closed_at is None


def test_an_invalid_request_gets_githubs_error_format(ada: Repository) -> None:
    with pytest.raises(GithubException) as empty:
        ada.create_issue("  ")
    assert refusal(empty) == (422, "Validation Failed")
    assert empty.value.data["errors"][0]["field"] == "title"
    issue = ada.create_issue("x" * 10, "y" * 65_536)
    with pytest.raises(GithubException) as long:
        issue.create_comment("z" * 65_537)
    assert "65536" in long.value.data["errors"][0]["message"]
    with pytest.raises(GithubException):
        issue.create_comment(" ")


def test_a_body_that_is_no_json_or_no_object_is_refused_in_words(ask: Ask) -> None:
    header = {"Content-Type": "application/json"}
    broken = ask("POST", "/issues", data=b"{", headers=header)
    assert (broken.status_code, broken.json()["message"]) == (400, "Problems parsing JSON")
    assert ask("POST", "/issues", json=["title"]).status_code == 400
    assert ask("POST", "/issues", json={"title": 7}).status_code == 422


def test_a_comment_is_created_edited_listed_and_deleted(bot: Repository, ada: Repository) -> None:
    issue = ada.create_issue("A question")
    first = issue.create_comment("first")
    second = bot.get_issue(1).create_comment("second")
    assert (second.user.login, second.user.type) == ("regatta-lab[bot]", "Bot")
    second.edit("second, edited")
    assert [each.body for each in issue.get_comments()] == ["first", "second, edited"]
    assert [each.id for each in bot.get_issues_comments()] == [first.id, second.id]
    second.delete()
    assert issue.get_comment(first.id).body == "first"
    with pytest.raises(UnknownObjectException):
        bot.get_issue(1).get_comment(second.id).body  # noqa: B018
    assert ada.get_issue(1).comments == 1


def test_writers_edit_anybodys_comment_and_strangers_their_own(
    bot: Repository, ada: Repository, sam: Repository
) -> None:
    ada.create_issue("A question")
    said = bot.get_issue(1).create_comment("the bot's")
    ada.get_issue(1).get_comment(said.id).edit("rewritten by Ada")
    with pytest.raises(GithubException) as stranger:
        sam.get_issue(1).get_comment(said.id).edit("rewritten by Sam")
    assert stranger.value.status == 403
    own = sam.get_issue(1).create_comment("mine")
    own.edit("still mine")
    with pytest.raises(GithubException):
        sam.get_issue(1).set_labels("urgent")


def test_the_same_reaction_twice_is_one_reaction(ada: Repository, ask: Ask) -> None:
    comment = ada.create_issue("A question").create_comment("/run")
    path = f"/issues/comments/{comment.id}/reactions"
    answers = [ask("POST", path, json={"content": "eyes"}) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 200]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert [each.content for each in comment.get_reactions()] == ["eyes"]
    assert ask("GET", f"/issues/comments/{comment.id}").json()["reactions"]["eyes"] == 1
    assert ask("POST", path, json={"content": "applause"}).status_code == 422
    ada.get_issue(1).create_reaction("rocket")
    assert ada.get_issue(1).reactions["rocket"] == 1
    assert [each.content for each in ada.get_issue(1).get_reactions()] == ["rocket"]
    assert ask("DELETE", f"{path}/{answers[0].json()['id']}").status_code == 204
    assert list(comment.get_reactions()) == []


def test_labels_are_set_by_one_put_and_made_where_missing(bot: Repository, ada: Repository) -> None:
    issue = bot.get_issue(ada.create_issue("A question").number)
    made = bot.create_label("experiment: wishlist", "c5def5", "asked for")
    assert bot.get_label("experiment: wishlist").color == made.color == "c5def5"
    issue.add_to_labels("urgent")
    issue.set_labels("experiment: wishlist", "new")
    assert {each.name for each in issue.get_labels()} == {"experiment: wishlist", "new"}
    issue.remove_from_labels("experiment: wishlist")
    assert {each.name for each in bot.get_labels()} == {"experiment: wishlist", "new", "urgent"}
    with pytest.raises(GithubException) as gone:
        issue.remove_from_labels("experiment: wishlist")
    assert gone.value.status == 404
    with pytest.raises(GithubException) as twice:
        bot.create_label("NEW", "ffffff")
    assert twice.value.data["errors"][0]["code"] == "already_exists"


# Lists


def test_lists_come_in_pages_with_links(ada: Repository, ask: Ask) -> None:
    issue = ada.create_issue("A question")
    for number in range(7):
        issue.create_comment(f"comment {number}")
    page = ask("GET", "/issues/1/comments", params={"per_page": 3, "page": 2})
    assert [each["body"][-1] for each in page.json()] == ["3", "4", "5"]
    assert set(page.links) == {"first", "prev", "next", "last"}
    assert len(list(ada.get_issue(1).get_comments())) == 7
    ada.get_issue(1)._requester.per_page = 2
    assert len(list(ada.get_issue(1).get_comments())) == 7


def test_since_is_inclusive_to_the_second(bot: Repository, sandbox: Sandbox) -> None:
    issue = sandbox.open_issue("ada", "A question")
    early = sandbox.comment("ada", 1, "early")
    sandbox.world.clock.advance(10)
    late = sandbox.comment("ada", 1, "late")
    at = late.created_at
    assert [each.id for each in bot.get_issues_comments(since=at)] == [late.id]
    just_before = at - dt.timedelta(seconds=10)
    assert [c.id for c in bot.get_issues_comments(since=just_before)] == [early.id, late.id]
    assert [each.number for each in bot.get_issues(state="all", since=at)] == [issue.number]
    after = at + dt.timedelta(seconds=1)
    assert list(bot.get_issues(state="all", since=after)) == []
    sandbox.world.clock.advance(5)
    sandbox.edit_comment("ada", early.id, "edited")
    assert [each.id for each in bot.get_issues_comments(since=after)] == [early.id]


def test_an_unchanged_answer_is_304_and_free(ada: Repository, ask: Ask) -> None:
    ada.create_issue("A question")
    first = ask("GET", "/issues")
    again = ask("GET", "/issues", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["X-RateLimit-Remaining"] == first.headers["X-RateLimit-Remaining"]
    ada.create_issue("Another")
    changed = ask("GET", "/issues", headers={"If-None-Match": first.headers["ETag"]})
    assert changed.status_code == 200
    assert int(changed.headers["X-RateLimit-Used"]) > int(first.headers["X-RateLimit-Used"])


def test_a_conditional_request_of_pygithub_sees_the_304(ada: Repository, url: str) -> None:
    ada.create_issue("A question")
    requester = client(url, BOT_TOKEN).requester
    path = f"/repos/{NAME}/issues"
    _, headers, _ = requester.requestJson("GET", path)
    status, _, body = requester.requestJson("GET", path, headers={"If-None-Match": headers["etag"]})
    assert (status, body) == (304, "")


def test_a_moved_clock_shows_in_the_date_and_in_what_is_made(sandbox: Sandbox, ask: Ask) -> None:
    before = ask("GET", "")
    assert before.headers["Date"] == "Wed, 02 Jan 2030 03:04:05 GMT"
    sandbox.world.clock.advance(86_400)
    assert ask("GET", "").headers["Date"] == "Thu, 03 Jan 2030 03:04:05 GMT"
    made = ask("POST", "/issues", json={"title": "Tomorrow"}).json()
    assert made["created_at"] == "2030-01-03T03:04:05Z"


# What is not there


def test_an_unsupported_operation_is_named(ask: Ask) -> None:
    answer = ask("PUT", "/branches/main/protection", json={})
    assert answer.status_code == 501
    assert answer.json()["message"] == (
        f"the sandbox does not implement PUT /repos/{NAME}/branches/main/protection"
    )


@pytest.mark.parametrize(
    "path",
    ["/issues/99", "/issues/99/comments", "/issues/comments/99", "/issues/x", "/pulls/1",
     "/check-runs/99", "/git/blobs/" + "0" * 40, "/git/commits/nonsense", "/git/ref/heads/none",
     "/git/trees/none", "/contents/none.txt", "/compare/main...none", "/labels/none"],
)  # fmt: skip
def test_a_missing_object_is_a_404_in_json(ask: Ask, path: str) -> None:
    answer = ask("GET", path)
    assert (answer.status_code, answer.json()["status"]) == (404, "404")


def test_another_repository_is_not_found(url: str) -> None:
    with pytest.raises(UnknownObjectException):
        client(url, BOT_TOKEN).get_repo("regatta-lab/other").id  # noqa: B018


def test_requests_are_logged_so_that_tests_can_count_them(sandbox: Sandbox, ask: Ask) -> None:
    ask("GET", "/issues", params={"state": "all"})
    last = sandbox.requests[-1]
    assert (last.method, last.status, last.query) == ("GET", 200, "state=all")
    assert last.path == f"/repos/{NAME}/issues"


def test_another_sites_page_cannot_write_here(ask: Ask) -> None:
    answer = ask("POST", "/issues", json={"title": "x"}, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert ask("GET", "", headers={"Host": "evil.example"}).status_code == 403
