"""Actions mode beside a server: one store, the same words, and each command once. That the stories
come out the same in both modes is shown by `test_story.py`, which tells each in both."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bot.controller import catch_up
from bot.controller.reconciler import Reconciler
from bot.fake_github import server
from bot.fake_github.world.faults import Fault
from bot.service import actions_job
from runner.publish import charts
from tests.scenarios.lab import Lab, a_lab
from tests.scenarios.visible import visible
from tests.system.scenarios.test_story import PIXEL, executions, results


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab in Actions mode."""
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path, mode="actions") as lab:
        yield lab


def as_job(lab: Lab, headers: Mapping[str, str], body: bytes) -> actions_job.Event:
    """What Actions say of the event that this delivery is about, too."""
    file = lab.root / "the-event.json"
    file.write_bytes(body)
    return actions_job.event_of(
        {
            "GITHUB_EVENT_NAME": headers["X-GitHub-Event"],
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_RUN_ID": "123",
        }
    )


def test_server_and_actions_do_not_repeat_each_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path) as lab:
        lab.preregister()
        pull = lab.propose()
        lab.say("grace", pull, "/run")
        told = [one for one in lab.sandbox.webhooks.deliveries if one.event == "issue_comment"]
        assert isinstance(lab.bot, Reconciler)
        lab.bot.release()
        before = visible(lab)
        lab.mode = "actions"
        lab.die()
        lab.start()
        for one in told:  # the same comments, as Actions tell of them
            lab.deliver(one.headers | {"X-GitHub-Delivery": f"run-{one.id}"}, one.body)
        lab.settle()
        assert visible(lab) == before
        assert len(executions(lab)) == 1
        lab.mode = "server"
        lab.die()
        lab.start()
        for one in told:  # and weeks later, captured and sent again
            lab.clock.advance(21 * 86_400)
            lab.deliver(one.headers | {"X-GitHub-Delivery": f"again-{one.id}"}, one.body)
        lab.settle()
        assert visible(lab) == before
        assert [one["state"] for one in results(lab)] == ["done"]


def test_a_job_leaves_its_event_to_the_server_that_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)
    with a_lab(tmp_path) as lab:
        number = lab.preregister()
        server = lab.bot
        assert isinstance(server, Reconciler)
        assert server.work() is None
        lab.sandbox.webhooks._deliver = None  # the webhook is not set up
        lab.sandbox.comment("ada", number, "/help")
        event = as_job(lab, *_newest(lab))
        actions_job.keep(lab.store, event, lab.sandbox.world.repository_id)

        def both_sleep(seconds: float) -> None:
            lab.sleep(seconds)
            server.work()

        ended = actions_job.work(
            lab.reconciler(), may_take=300, monotonic=lab.monotonic, sleep=both_sleep
        )
        assert ended == "another leads"
        assert "/cancel" in lab.last(number)


def test_a_job_goes_on_where_one_was_cut_off(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.clock.advance(31)
    lab.sandbox.comment("grace", pull, "/run")
    for _ in range(40):  # each job may do next to nothing
        assert lab.bot is not None
        if lab.bot.work() is None:
            break
        lab.sleep(2)
    assert [one["state"] for one in results(lab)] == ["done"]


def test_a_review_that_approves_is_found_by_the_clocks_job(lab: Lab) -> None:
    lab.preregister()
    pull = lab.propose()
    lab.sandbox.submit_review("grace", pull, "APPROVE", "Looks right.\n\n/run")
    lab.settle()
    lab.clock.advance(600)
    lab.settle()
    assert [one["state"] for one in results(lab)] == ["done"]


@pytest.mark.parametrize("silent", [False, True])
def test_a_review_that_was_edited_or_may_have_been_is_to_be_typed_again(
    lab: Lab, silent: bool
) -> None:
    lab.preregister()
    pull = lab.propose()
    made = lab.sandbox.submit_review("grace", pull, "APPROVE", "Looks right.\n\n/run")
    if silent:
        fault = Fault("status_before", "POST", "/graphql$", 10**6, 403, '{"message": "no"}')
        lab.sandbox.faults.add(fault)
    else:
        lab.clock.advance(60)
        lab.sandbox.edit_review("grace", pull, made.id, "Looks very right.\n\n/run")
    lab.clock.advance(600)
    lab.settle()
    assert results(lab) == lab.trainer.submissions == []
    assert "Post it again" in lab.last(pull)
    assert "it may have been edited since" in lab.last(pull)


def test_a_job_that_leads_says_that_github_is_away(lab: Lab) -> None:
    lab.preregister()
    lab.sandbox.faults.add(Fault("status_before", "GET", r"/issues/comments", 10**6, 500))
    ended = actions_job.work(
        lab.reconciler(), may_take=300, monotonic=lab.monotonic, sleep=lab.sleep
    )
    assert ended == "GitHub is away"


def test_a_repository_that_took_over_a_name_does_not_get_the_lab(lab: Lab) -> None:
    lab.preregister()
    github = lab.reconciler()._github
    catch_up.belongs(lab.store, github)
    assert github._line.id is not None
    github._line.id += 1
    with pytest.raises(catch_up.AnotherRepository, match="of the repository with the id"):
        catch_up.belongs(lab.store, github)


def test_a_claim_that_the_server_left_open_is_found_by_its_login(lab: Lab) -> None:
    lab.preregister()
    bot = lab.reconciler()
    lab.sandbox.faults.add(Fault("status_after", "POST", r"/issues/1/comments$"))
    lab.sandbox.comment("ada", 1, "/help")
    assert lab.bot is not None
    lab.bot.work()  # type: ignore[call-arg]
    bot._github.bot = "github-actions[bot]"  # another mode, another login
    for _ in range(200):
        bot.work()
        lab.sleep(1)
    assert sum("what it does" in body for body in lab.comments(1)) == 1


def test_a_job_lets_go_of_the_lease_so_that_the_next_begins_at_once(lab: Lab) -> None:
    lab.preregister()
    at = lab.monotonic()
    lab.sandbox.comment("ada", 1, "/status")
    assert lab.bot is not None
    lab.bot.work()
    assert lab.monotonic() - at < 5


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"GITHUB_EVENT_NAME": "issues", "GITHUB_EVENT_PATH": "/nowhere", "GITHUB_RUN_ID": "1"},
        {"GITHUB_EVENT_NAME": "issues", "GITHUB_EVENT_PATH": "/nowhere", "GITHUB_RUN_ID": "../1"},
    ],
)
def test_handle_outside_of_actions_is_refused_with_a_reason(environment: dict[str, str]) -> None:
    with pytest.raises(actions_job.NoEvent, match=r"GitHub Actions|cannot be read"):
        actions_job.event_of(environment)


def test_a_store_that_the_next_job_would_not_find_is_refused() -> None:
    assert actions_job.lasting("gs://bucket/lab") == "gs://bucket/lab"
    assert actions_job.lasting("/srv/regatta") == "/srv/regatta"
    with pytest.raises(actions_job.NoPlace, match="REGATTA_STORE"):
        actions_job.lasting("store")


@pytest.mark.parametrize("body", [b"[]", b"null", b'{"action":"created","comment":null}', b"{}"])
def test_an_odd_event_is_for_no_thread(lab: Lab, body: bytes) -> None:
    event = as_job(lab, {"X-GitHub-Event": "issue_comment"}, body)
    actions_job.keep(lab.reconciler() and lab.store, event, lab.sandbox.world.repository_id)
    assert lab.records("inbox") == {}


def test_regatta_handle_is_a_job_of_its_own(tmp_path: Path) -> None:
    with a_lab(tmp_path, mode="actions", serving=server.running) as lab:
        lab.sandbox.webhooks._deliver = None
        lab.sandbox.open_issue("ada", "A question", "Not an experiment.")
        lab.sandbox.comment("ada", 1, "/help `$(touch owned)` $(touch owned)")
        lab.sandbox.comment("ada", 1, "/help")
        event = tmp_path / "event.json"
        event.write_bytes(_newest(lab)[1])
        said = subprocess.run(
            [sys.executable, "-m", "bot", "handle", "--ray-address", "http://127.0.0.1:9"],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=Path(__file__).parents[3],
            env={
                "PATH": os.environ["PATH"],
                "GITHUB_EVENT_NAME": "issue_comment",
                "GITHUB_EVENT_PATH": str(event),
                "GITHUB_RUN_ID": "4711",
                "REGATTA_REPOSITORY": "regatta-lab/lab",
                "REGATTA_GITHUB_API": f"{lab.sandbox.url}/api/v3",
                "REGATTA_GITHUB_TOKEN": "installation-token",
                "REGATTA_BOT": "regatta-lab[bot]",
                "REGATTA_RAY_TOKEN": "a-token",
                "REGATTA_RAY_TOKEN_FILE": "",
                "REGATTA_STORE": str(tmp_path / "store"),
                "REGATTA_SECONDS_BETWEEN_WRITES": "0",
            },
        )
        assert said.returncode == 0, said.stderr
        assert said.stdout == "done\n"
        assert "dealt with" in said.stderr
        assert sum("| `/status` |" in body for body in lab.comments(1)) >= 1


def _newest(lab: Lab) -> tuple[Mapping[str, str], bytes]:
    one = lab.sandbox.webhooks.deliveries[-1]
    assert json.loads(one.body)["action"]
    comments = [one for one in lab.sandbox.webhooks.deliveries if one.event == "issue_comment"]
    people = [one for one in comments if json.loads(one.body)["sender"]["type"] == "User"]
    return people[-1].headers, people[-1].body
