"""The fault switches: each kind does what it says, and no more often than it was told to."""

from __future__ import annotations

import pytest
import requests
from github import GithubException
from github.Repository import Repository

from bot.fake_github.server import Sandbox
from bot.fake_github.world.faults import Fault
from tests.sandbox.fixtures import Ask

COMMENTS = r"/issues/1/comments$"


@pytest.fixture(autouse=True)
def _an_issue(sandbox: Sandbox) -> None:
    sandbox.open_issue("ada", "A question")


def bodies(sandbox: Sandbox) -> list[str]:
    return [each.body for each in sandbox.issue(1).comments]


def test_a_status_before_leaves_no_trace(bot: Repository, sandbox: Sandbox) -> None:
    sandbox.faults.add(Fault("status_before", "POST", COMMENTS, status=503, times=2))
    for _ in range(2):
        with pytest.raises(GithubException) as refused:
            bot.get_issue(1).create_comment("hello")
        assert refused.value.status == 503
    assert bodies(sandbox) == []
    bot.get_issue(1).create_comment("hello")
    assert bodies(sandbox) == ["hello"]


def test_a_status_after_has_taken_effect(bot: Repository, sandbox: Sandbox) -> None:
    sandbox.faults.add(Fault("status_after", "POST", COMMENTS))
    with pytest.raises(GithubException) as refused:
        bot.get_issue(1).create_comment("hello")
    assert refused.value.status == 502
    assert bodies(sandbox) == ["hello"]


@pytest.mark.parametrize(("kind", "left"), [("drop_before", []), ("drop_after", ["hello"])])
def test_a_dropped_connection_leaves_the_outcome_unknown(
    bot: Repository, sandbox: Sandbox, kind: str, left: list[str]
) -> None:
    sandbox.faults.add(Fault(kind, "POST", COMMENTS))
    with pytest.raises(requests.ConnectionError):
        bot.get_issue(1).create_comment("hello")
    assert bodies(sandbox) == left
    assert sandbox.requests[-1].status == 0
    bot.get_issue(1).create_comment("again")
    assert bodies(sandbox) == [*left, "again"]


def test_a_stale_list_lags_behind(bot: Repository, sandbox: Sandbox) -> None:
    sandbox.comment("ada", 1, "old")
    sandbox.world.clock.advance(60)
    sandbox.comment("ada", 1, "new")
    sandbox.faults.add(Fault("stale", "GET", COMMENTS, seconds=30))
    assert [each.body for each in bot.get_issue(1).get_comments()] == ["old"]
    assert [each.body for each in bot.get_issue(1).get_comments()] == ["old", "new"]


def test_a_limit_comes_with_its_headers(sandbox: Sandbox, ask: Ask) -> None:
    body = '{"message": "You have exceeded a secondary rate limit."}'
    sandbox.faults.add(Fault("status_before", status=403, headers={"Retry-After": "7"}, body=body))
    answer = ask("GET", "/issues")
    assert (answer.status_code, answer.headers["Retry-After"]) == (403, "7")
    assert "secondary rate limit" in answer.json()["message"]


def test_a_malformed_answer_can_be_made(sandbox: Sandbox, ask: Ask) -> None:
    sandbox.faults.add(Fault("status_before", "GET", "/issues$", status=200, body="null"))
    assert ask("GET", "/issues").json() is None


def test_faults_and_clock_are_set_over_http(ask: Ask, url: str) -> None:
    moved = requests.post(f"{url}/_sandbox/clock", json={"advance": 55}, timeout=5)
    assert moved.json() == {"now": "2030-01-02T03:05:00Z"}
    assert (
        requests.post(f"{url}/_sandbox/clock", json={"advance": -1}, timeout=5).status_code == 422
    )
    fault = {"kind": "status_before", "path": "/issues$", "status": 500}
    assert requests.post(f"{url}/_sandbox/faults", json=fault, timeout=5).status_code == 200
    assert ask("GET", "/issues").status_code == 500
    unknown = requests.post(f"{url}/_sandbox/faults", json={"kind": "flood"}, timeout=5)
    assert unknown.status_code == 422
    assert "status_before" in unknown.text
    requests.post(f"{url}/_sandbox/faults", json=fault, timeout=5)
    requests.delete(f"{url}/_sandbox/faults", timeout=5)
    assert ask("GET", "/issues").status_code == 200


def test_a_delayed_fault_takes_effect_later(bot: Repository, sandbox: Sandbox) -> None:
    sandbox.faults.add(Fault("later", "POST", COMMENTS, seconds=10))
    with pytest.raises(GithubException) as refused:
        bot.get_issue(1).create_comment("hello")
    assert refused.value.status == 502
    sandbox.world.clock.advance(9)
    assert list(bot.get_issue(1).get_comments()) == []
    sandbox.world.clock.advance(1)
    assert [each.body for each in bot.get_issue(1).get_comments()] == ["hello"]
    assert bodies(sandbox) == ["hello"]


def test_a_cut_answer_has_taken_effect(bot: Repository, sandbox: Sandbox) -> None:
    sandbox.faults.add(Fault("cut", "POST", COMMENTS))
    with pytest.raises(requests.RequestException):
        bot.get_issue(1).create_comment("hello")
    assert bodies(sandbox) == ["hello"]
    bot.get_issue(1).create_comment("again")
    assert bodies(sandbox) == ["hello", "again"]


def test_a_token_that_expired_is_never_taken_again(bot: Repository, sandbox: Sandbox) -> None:
    sandbox.faults.add(Fault("expired", "POST", COMMENTS))
    for _ in range(2):
        with pytest.raises(GithubException) as refused:
            bot.get_issue(1).create_comment("hello")
        assert refused.value.status == 401
    assert bodies(sandbox) == []


def test_limits_bite_where_they_are_told_to(bot: Repository, sandbox: Sandbox) -> None:
    sandbox.rates.bite = True
    for n in range(80):
        bot.get_issue(1).create_comment(f"{n}")
    with pytest.raises(GithubException) as refused:
        bot.get_issue(1).create_comment("one too many")
    assert refused.value.status == 403
    assert refused.value.headers is not None
    assert refused.value.headers["retry-after"] == "60"
    assert len(list(bot.get_issue(1).get_comments())) == 80  # reading is another budget
    sandbox.world.clock.advance(60)
    bot.get_issue(1).create_comment("in time")
    sandbox.rates.limit = 10
    with pytest.raises(GithubException) as used_up:
        bot.get_issue(1).create_comment("too much in an hour")
    assert used_up.value.headers is not None
    assert used_up.value.headers["x-ratelimit-remaining"] == "0"
