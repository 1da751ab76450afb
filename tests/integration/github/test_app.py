"""The bot as a GitHub App: its tokens, GitHub's clock, what was delivered and what was missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.fake_github.server import Clock, Sandbox, make_sandbox, running
from bot.fake_github.world.faults import Fault
from bot.github import AppAuth, GitHub, Gone, Later, Refused
from bot.model.actions import Button
from bot.setup.settings import Settings, Unset
from runner.lib import redact
from tests.sandbox.fixtures import BOT_TOKEN, FILES, NAME, SECRET, TOKENS, app_keys
from tests.sandbox.openapi import Recorder


@pytest.fixture(scope="module")
def keys() -> tuple[str, str]:
    """A private key and its public half, PEM."""
    return app_keys()


@dataclass
class App:
    sandbox: Sandbox
    url: str
    auth: AppAuth
    client: Callable[[], GitHub]
    answers: list[int]  # what the bot answers to the next deliveries; 202 after them

    def comment(self, who: str, body: str) -> None:
        self.sandbox.world.clock.advance(1)
        self.sandbox.comment(who, 1, body)


@pytest.fixture
def app(tmp_path: Path, keys: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setattr(redact, "hold", lambda *_, **__: None)  # a second for each key
    answers: list[int] = []
    sandbox = make_sandbox(
        tmp_path,
        files=FILES,
        bot_token=BOT_TOKEN,
        persona_tokens=TOKENS,
        webhook_secret=SECRET,
        clock=Clock(running=False),
        deliver=lambda _headers, _body: answers.pop(0) if answers else 202,
        app_key=keys[1],
    )
    recorder = Recorder(bot=lambda who: "Bearer" in who)
    clock = sandbox.world.clock
    with running(sandbox, wrap=recorder) as url:

        def monotonic() -> float:
            return clock.now().timestamp()

        auth = AppAuth("Iv1.sandbox", keys[0], NAME, api=f"{url}/api/v3", monotonic=monotonic)

        def client() -> GitHub:
            return GitHub(
                NAME,
                auth,
                api=f"{url}/api/v3",
                seconds_between_writes=0,
                monotonic=monotonic,
                sleep=lambda _: None,
            )

        sandbox.open_issue("ada", "A question")
        yield App(sandbox, url, auth, client, answers)
    assert recorder.complaints == []


def test_a_clock_ten_minutes_off_still_gets_in(app: App) -> None:
    app.sandbox.world.clock.advance(600)  # the local clock stays behind
    assert app.client().issue(1) is not None
    refused = [each for each in app.sandbox.requests if each.status == 401]
    assert len(refused) == 1  # the first word was signed by the local clock


def said(app: App, bot: str = "") -> Settings:
    api = f"{app.url}/api/v3"
    return Settings(repository=NAME, ray_address="http://127.0.0.1:9", bot=bot, github_api=api)


def test_the_login_is_what_github_calls_the_app(app: App) -> None:
    assert said(app).login(app.auth) == "regatta-lab[bot]"
    assert said(app, "regatta-lab[bot]").login(app.auth) == "regatta-lab[bot]"
    with pytest.raises(Unset, match="the App speaks as regatta-lab"):
        said(app, "my-lab[bot]").login(app.auth)


def test_the_login_of_a_token_is_asked_for(app: App) -> None:
    assert said(app).login(lambda: TOKENS["ada"]) == "ada"
    assert said(app, "said").login(lambda: "not asked") == "said"
    with pytest.raises(Unset, match="REGATTA_BOT"):
        said(app).login(lambda: "unknown")


def test_a_token_is_kept_and_renewed_before_it_ends(app: App) -> None:
    github = app.client()
    first = app.auth()
    app.sandbox.world.clock.advance(54 * 60)
    github.issue(1)
    assert app.auth() == first
    app.sandbox.world.clock.advance(2 * 60)
    github.issue(1)
    assert app.auth() != first


def test_a_token_that_is_not_taken_any_more_is_renewed_and_nothing_is_done_twice(app: App) -> None:
    github = app.client()
    app.sandbox.faults.add(Fault("expired", "POST", "/comments$"))
    github.create_comment(1, "hello")
    assert [each.body for each in app.sandbox.issue(1).comments] == ["hello"]


def test_another_key_is_refused_in_words(app: App, keys: tuple[str, str]) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    assert other.decode() != keys[0]
    auth = AppAuth("Iv1.sandbox", other.decode(), NAME, api=f"{app.url}/api/v3")
    with pytest.raises(Later, match="does not take the App's key"):
        auth()
    auth = AppAuth("Iv1.sandbox", "no key at all", NAME, api=f"{app.url}/api/v3")
    with pytest.raises(Later, match="PEM") as unread:
        auth()
    assert "no key at all" not in str(unread.value)


def test_without_a_token_nothing_is_taken_for_refused(app: App) -> None:
    github = app.client()
    app.sandbox.faults.add(Fault("expired", "POST", "/comments$"))
    app.sandbox.faults.add(Fault("status_before", "GET", "/installation$", status=404))
    with pytest.raises(Later, match="gets no token"):  # the App was removed just then
        github.create_comment(1, "hello")
    github.create_comment(1, "hello")
    assert [each.body for each in app.sandbox.issue(1).comments] == ["hello"]


def test_a_suspended_installation_is_a_matter_of_time(app: App) -> None:
    github = app.client()
    app.sandbox.suspend(True)
    with pytest.raises(Later, match="suspended"):
        github.issue(1)
    app.sandbox.suspend(False)
    assert github.issue(1) is not None


def test_an_unanswered_delivery_is_found_in_the_apps_list(app: App) -> None:
    github = app.client()
    app.answers[:] = [503]
    app.comment("grace", "/run")
    app.comment("grace", "thanks")
    attempts = list(github.app_deliveries())
    missed = [each for each in attempts if not each.taken]
    assert [(each.event, each.action) for each in missed] == [("issue_comment", "created")]
    guid, event, payload = github.app_delivery(missed[0].id)
    assert (guid, event) == (missed[0].guid, "issue_comment")
    assert (payload["comment"]["body"], payload["repository"]["id"]) == ("/run", github.id)
    github.redeliver(missed[0].id)
    again = next(github.app_deliveries())
    assert (again.guid, again.taken) == (guid, True)
    assert again.id != missed[0].id


def test_the_apps_list_goes_on_as_long_as_it_is_read(app: App) -> None:
    github = app.client()
    for n in range(120):
        app.comment("sam", f"{n}")
    before = len(app.sandbox.requests)
    found = github.app_deliveries()
    first = [next(found).id for _ in range(100)]
    assert len(app.sandbox.requests) == before + 1
    ids = first + [each.id for each in found]
    assert (len(ids), ids) == (121, sorted(set(ids), reverse=True))


def test_without_an_app_deliveries_cannot_be_listed(app: App) -> None:
    github = GitHub(NAME, lambda: BOT_TOKEN, api=f"{app.url}/api/v3")
    with pytest.raises(Refused, match="only a GitHub App"):
        list(github.app_deliveries())


def test_a_sweep_finds_comments_threads_and_the_bots_own_words(app: App) -> None:
    github = app.client()
    app.comment("grace", "before")
    app.sandbox.world.clock.advance(60)
    began = github.now() + timedelta(seconds=60)
    edited = app.sandbox.issue(1).comments[0]
    app.sandbox.world.clock.advance(60)
    app.sandbox.edit_comment("grace", edited.id, "/run")
    app.comment("ada", "/help")
    github.create_comment(1, "done <!-- regatta: x -->")
    found = list(github.comments_since(began))
    assert [(each.author.login, each.changed > each.at, each.bot) for each in found] == [
        ("regatta-lab[bot]", False, True), ("ada", False, False), ("grace", True, False),
    ]  # fmt: skip
    assert {(each.number, each.pull) for each in found} == {(1, False)}
    assert [(each.number, each.pull, each.open) for each in github.threads_since(began)] == [
        (1, False, True)
    ]


def test_a_renamed_repository_is_followed_by_its_id(app: App) -> None:
    github = app.client()
    app.sandbox.rename("regatta")
    made = github.create_comment(1, "hello")
    assert [each.id for each in app.sandbox.issue(1).comments] == [made.id]
    assert (github.name, github.url.endswith("/regatta")) == ("regatta-lab/regatta", True)
    asked = len(app.sandbox.requests)
    github.issue(1)
    assert len(app.sandbox.requests) == asked + 1  # the new name is remembered


def test_an_app_whose_repository_was_renamed_still_gets_its_token(app: App) -> None:
    github = app.client()
    app.sandbox.rename("regatta")
    app.sandbox.world.clock.advance(2 * 3600)
    assert github.issue(1) is not None  # a new token, by the old name that the operator gave
    assert github.name == "regatta-lab/regatta"
    app.sandbox.world.clock.advance(2 * 3600)
    assert github.issue(1) is not None


def test_an_app_whose_repository_was_transferred_gets_a_token_of_its_new_installation(
    app: App,
) -> None:
    github = app.client()
    app.sandbox.transfer("another-lab")
    made = github.create_comment(1, "hello")
    assert [each.id for each in app.sandbox.issue(1).comments] == [made.id]
    assert github.name == "another-lab/lab"
    asked = [each for each in app.sandbox.requests if each.path.endswith("/access_tokens")]
    assert len(asked) == 2


def test_a_name_that_somebody_else_took_is_not_believed(app: App) -> None:
    github = app.client()
    app.sandbox.world.repository_id += 1
    with pytest.raises(Later, match="another repository"):
        github.issue(99)


def test_a_transferred_issue_is_gone_and_a_deleted_one_too(app: App) -> None:
    github = app.client()
    app.sandbox.open_issue("ada", "Another")
    app.sandbox.transfer_issue(1)
    app.sandbox.delete_issue(2)
    assert github.issue(1) is None
    assert github.issue(2) is None
    with pytest.raises(Gone):
        github.create_comment(1, "hello")
    assert app.sandbox.open_issue("ada", "A third").number == 3


def test_a_repository_that_cannot_be_seen_says_nothing_of_its_threads(app: App) -> None:
    github = GitHub(NAME, lambda: TOKENS["sam"], api=f"{app.url}/api/v3")
    app.sandbox.set_private(True)
    with pytest.raises(Later, match="cannot be seen"):
        github.issue(1)
    assert app.client().issue(1) is not None  # the App is installed there


def test_buttons_stand_on_a_check_run_and_go_with_it(app: App) -> None:
    github = app.client()
    head = app.sandbox.world.git.resolve("main") or ""
    output = {"title": "Running", "summary": "step 3"}
    cancel = Button("Cancel", "cancel", "Stop it; its record is kept")
    made = github.create_check("regatta / x", head, "x", None, output, (cancel,))
    run = app.sandbox.check_run(made.id)
    assert [each.identifier for each in run.actions] == ["cancel"]
    app.sandbox.press("grace", made.id, "cancel")
    pressed = app.sandbox.webhooks.deliveries[-1]
    assert (pressed.event, pressed.action) == ("check_run", "requested_action")
    github.update_check(made.id, "success", output)
    assert run.actions == []
    github.conclude_check(made.id)
    assert run.conclusion == "neutral"
