"""What PyGithub would do by itself and the lab must not: repeat, wait, believe the local clock."""

from __future__ import annotations

import logging
import time

import pytest

from bot.fake_github.server import Sandbox, running
from bot.fake_github.world.faults import Fault
from bot.github import GitHub, Gone, Later
from tests.sandbox.fixtures import BOT_TOKEN, NAME


@pytest.fixture(autouse=True)
def an_issue(sandbox: Sandbox) -> None:
    sandbox.open_issue("ada", "A question")


def asked(sandbox: Sandbox, since: int) -> list[str]:
    return [f"{one.method} {one.path}" for one in list(sandbox.requests)[since:]]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_nothing_is_asked_or_written_where_a_redirect_points(
    github: GitHub, sandbox: Sandbox, url: str, status: int
) -> None:
    api = f"{url}/api/v3"
    for location in (f"{api}/repos/{NAME}/issues/1/comments", f"{api}/repositories/1/x"):
        headers = {"location": location}
        sandbox.faults.add(
            Fault("status_before", "POST", "/comments$", status=status, headers=headers)
        )
        before = len(sandbox.requests)
        with pytest.raises(Gone, match="another repository"):
            github.create_comment(1, "hello")
        posted = [one for one in asked(sandbox, before) if one.startswith("POST")]
        assert len(posted) == 1
    assert sandbox.issue(1).comments == []


def test_a_redirect_out_of_githubs_api_is_not_followed(github: GitHub, sandbox: Sandbox) -> None:
    headers = {"location": "https://elsewhere.example/repositories/1/issues/1"}
    sandbox.faults.add(Fault("status_before", "GET", "/issues/1$", status=301, headers=headers))
    with pytest.raises(Later, match="leads out of GitHub's API"):
        github.issue(1)


def test_a_202_raises_later_without_sleeping(
    github: GitHub, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    sandbox.faults.add(Fault("status_before", "GET", "/issues/1$", status=202, body="{}"))
    before = len(sandbox.requests)
    with pytest.raises(Later):
        github.issue(1)
    assert len(asked(sandbox, before)) == 1


@pytest.mark.parametrize("kind", ["status_after", "drop_after", "cut"])
def test_a_write_whose_answer_is_lost_is_sent_once_and_its_outcome_unknown(
    github: GitHub, sandbox: Sandbox, kind: str
) -> None:
    sandbox.faults.add(Fault(kind, "POST", "/comments$"))
    with pytest.raises(Later):
        github.create_comment(1, "hello")
    assert len(sandbox.issue(1).comments) == 1


def test_a_token_goes_to_no_host_but_githubs(github: GitHub, sandbox: Sandbox) -> None:
    """Also where an answer names another address, as a list's next page."""
    headers = {"link": '<http://127.0.0.1:9/api/v3/repos/x/y/issues/1/comments?page=2>; rel="next"'}
    body = '[{"body": "a", "id": 1, "user": null}]'
    sandbox.faults.add(
        Fault("status_before", "GET", "/comments$", status=200, headers=headers, body=body)
    )
    with pytest.raises(Later, match="leads out of GitHub's API"):
        github.my_comments(1, "x")


def test_after_a_limit_nothing_is_asked_until_it_is_over(sandbox: Sandbox) -> None:
    clock = [0.0]
    with running(sandbox) as url:
        github = GitHub(NAME, lambda: BOT_TOKEN, api=f"{url}/api/v3", monotonic=lambda: clock[0])
        sandbox.faults.add(
            Fault("status_before", "GET", "/issues/1$", status=403, headers={"retry-after": "30"})
        )
        with pytest.raises(Later):
            github.issue(1)
        before = len(sandbox.requests)
        with pytest.raises(Later, match="asked us to wait") as told:
            github.issue(1)
        assert (told.value.wait.total_seconds(), len(sandbox.requests)) == (30.0, before)
        clock[0] += 31
        assert github.issue(1) is not None


def test_no_log_of_a_librarys_holds_a_token(
    github: GitHub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    github.issue(1)
    assert BOT_TOKEN not in caplog.text
    assert not [each for each in caplog.records if each.name.startswith("github")]
    assert not logging.getLogger("github").handlers  # its lines go where all others go
