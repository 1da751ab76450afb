"""GitHub never makes a delivery: neither the bot nor the App's list of deliveries ever has it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.controller import catch_up
from bot.github import AppAuth, connection
from runner.lib import redact
from runner.publish import charts
from tests.reports.github.github_lab import (
    PIXEL,
    Changed,
    count,
    fail,
    mend,
    open_issue,
    open_pull,
    plans,
    push,
    say,
    turn,
)
from tests.sandbox.fixtures import app_keys
from tests.scenarios.lab import Lab, a_lab, form_body
from tests.stub_trainer import StubRay

HOUR = 60 * 60
STEP = 60  # seconds; the bot looks once a minute at what is due
DELIVERIES = r"/app/hook/deliveries"


def become_app(lab: Lab) -> None:
    """From the next life on, the bot is a GitHub App."""
    private, lab.sandbox.world.app_key = app_keys()
    api = f"{lab.sandbox.url}/api/v3"
    name = "regatta-lab/lab"
    lab.credentials = AppAuth("Iv1.sandbox", private, name, api=api, monotonic=lab.monotonic)
    lab.sweep_every = catch_up.EVERY
    lab.die()
    lab.settle()


def use_token(lab: Lab) -> None:
    lab.sweep_every = catch_up.EVERY
    lab.die()
    lab.settle()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "hold", lambda *_, **__: None)  # a second for each key
    monkeypatch.setattr(charts, "png", lambda _: PIXEL)


@pytest.fixture
def app(lab: Lab) -> Lab:
    """A lab whose bot is an App, and whose deliveries are never made from now on."""
    become_app(lab)
    return lab


def silence(lab: Lab) -> int:
    """GitHub makes no delivery from now on. Returns how many it has made."""
    lab.sandbox.webhooks.fate = lambda _: []
    return len(lab.sandbox.webhooks.deliveries)


def arrive(lab: Lab, since: int) -> None:
    """What was never delivered arrives after all."""
    lab.sandbox.webhooks.fate = lambda _: [0.0]
    for delivery in lab.sandbox.webhooks.deliveries[since:]:
        lab.sandbox.webhooks.redeliver(delivery)


# ── What happens, what stood before it, and how often the answer to it is there ──


@dataclass(frozen=True)
class Event:
    happen: Callable[[Lab], Any]
    answers: Callable[[Lab], int]
    needs: tuple[Callable[[Lab], Any], ...] = (open_issue, open_pull)


def review(lab: Lab) -> None:
    lab.clock.advance(31)
    lab.sandbox.submit_review("grace", 2, "APPROVE", "/run")


def edit_comment(lab: Lab) -> None:
    comment = say(lab, "sam", "Nice.")
    lab.clock.advance(60)
    lab.sandbox.edit_comment("sam", comment, "/help")


def edit_issue(lab: Lab) -> None:
    lab.clock.advance(60)
    lab.sandbox.edit_issue("ada", 1, body=form_body("A colder learning rate learns more."))


def started(lab: Lab) -> int:
    return len(lab.trainer.submissions)


EVENTS = {
    "a new issue": Event(open_issue, lambda lab: count(lab, "Sealed", 1), ()),
    "an edited issue": Event(edit_issue, lambda lab: count(lab, "dited", 1), (open_issue,)),
    "a new pull request": Event(open_pull, lambda lab: count(lab, "### Plan 1"), (open_issue,)),
    "a push": Event(push, lambda lab: count(lab, "### Plan 2")),
    "a command": Event(lambda lab: say(lab, "grace", "/run"), started),
    "a review": Event(review, started),
    "an edited comment": Event(edit_comment, lambda lab: count(lab, "edited")),
}


def prepare(lab: Lab, event: Event) -> None:
    for step in event.needs:
        step(lab)
        lab.settle()


def minutes_to(lab: Lab, event: Event, most: int) -> int:
    """The minutes until the answer is there."""
    for minute in range(most):
        if event.answers(lab):
            return minute
        turn(lab, 60, STEP)
    raise AssertionError(f"not in {most} minutes")


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize(
    ("identity", "most"), [(become_app, 62), (use_token, 12)], ids=["app", "token"]
)
def test_homu_178_what_github_never_delivers_is_seen_within_the_hour_and_dealt_with_once(
    lab: Lab, identity: Callable[[Lab], None], most: int, name: str
) -> None:
    """Also bors-ng/bors-ng#187, paritytech/parity-processbot#369, kubernetes/test-infra#9881 and
    JSONbored/loopover#3840: pull requests without any trace for two hours."""
    identity(lab)
    event = EVENTS[name]
    prepare(lab, event)
    since = silence(lab)
    event.happen(lab)
    minutes_to(lab, event, most)
    arrive(lab, since)
    turn(lab, 2.5 * HOUR, STEP)
    assert event.answers(lab) == 1


def test_bors_ng_187_in_actions_mode_the_next_job_sees_it(tmp_path: Path) -> None:
    with a_lab(tmp_path, StubRay(pace=0), mode="actions") as lab:
        prepare(lab, EVENTS["a command"])
        silence(lab)
        say(lab, "grace", "/run")
        turn(lab, 120, STEP)
        assert started(lab) == 1


# ── The list of deliveries ──


@pytest.mark.parametrize("status", [404, 500])
def test_test_infra_9881_a_list_of_deliveries_that_fails_keeps_nobody_waiting_for_an_hour(
    app: Lab, status: int
) -> None:
    prepare(app, EVENTS["a command"])
    silence(app)
    fail(app, "GET", DELIVERIES, status, "Not Found" if status == 404 else "")
    say(app, "grace", "/run")
    assert minutes_to(app, EVENTS["a command"], 15) >= 1


def test_a_list_of_deliveries_that_failed_is_read_from_where_it_was_read_before(app: Lab) -> None:
    """A pressed button is in no other list. Two hours of failures, each with a full look."""
    prepare(app, EVENTS["a command"])
    say(app, "grace", "/run")
    turn(app, 60)
    check = max(app.sandbox.world.checks.values(), key=lambda each: each.id)
    fail(app, "GET", DELIVERIES, 500)
    gate, app.gate = app.gate, None  # the bot does not answer
    app.sandbox.press("grace", check.id, "cancel")
    app.gate, app.undelivered = gate, []
    turn(app, 2 * HOUR, STEP)
    app.die()
    turn(app, 60)
    assert count(app, "cancelled") == 0
    mend(app)
    turn(app, 12 * 60, STEP)
    assert count(app, "cancelled") >= 1


def test_a_delivery_that_the_list_names_and_github_has_no_longer_hides_no_other(app: Lab) -> None:
    gate, app.gate = app.gate, None
    open_issue(app)
    app.clock.advance(1)
    app.sandbox.open_issue("ada", "Experiment: colder is better", form_body())
    app.gate, app.undelivered = gate, []
    deliveries = [each for each in app.sandbox.webhooks.attempts if each.delivery.event == "issues"]
    fail(app, "GET", rf"{DELIVERIES}/{deliveries[-1].id}$", 404, "Not Found")
    turn(app, 12 * 60, STEP)
    assert count(app, "Sealed", 1) == 1


# ── The full look ──


def list_reads(lab: Lab, hours: float) -> list[str]:
    """The paths of the requests about threads within so many hours."""
    before = len(lab.sandbox.requests)
    turn(lab, hours * HOUR, STEP)
    paths = [each.path.removeprefix("/api/v3") for each in list(lab.sandbox.requests)[before:]]
    return [path for path in paths if path.startswith("/repos/regatta-lab/lab/issues")]


def test_a_look_costs_the_same_however_many_threads_are_quiet(tmp_path: Path) -> None:
    """gabrielkoerich/orch#127: a net that reads all threads every few minutes."""
    costs = []
    for threads in (5, 60):
        with a_lab(tmp_path / str(threads), StubRay(pace=0)) as lab:
            become_app(lab)
            for n in range(threads):
                lab.sandbox.open_issue("ada", f"Question {n}", "What is this?")
                lab.clock.advance(1)
            lab.settle()
            turn(lab, 2 * HOUR, STEP)
            costs.append(list_reads(lab, 4))
    assert len(costs[0]) == len(costs[1]) <= 8  # two lists an hour


def test_insight_3376_a_thread_that_changes_while_pages_are_read_hides_no_other(
    app: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """constructorfabric/insight#3376: with the oldest change first, a change moves a row from the
    first page to the last one, and the first row of the second page is skipped."""
    monkeypatch.setattr(connection, "PAGE", 2)
    app.die()
    silence(app)
    numbers = []
    for n in range(6):
        app.clock.advance(1)
        title = f"Experiment: {n} times warmer is better"
        numbers.append(app.sandbox.open_issue("ada", title, form_body()).number)
    turned = []

    def change(_: str, path: str) -> None:
        """Between the first two pages of the list of threads, its oldest one changes."""
        if not path.endswith("/lab/issues"):
            return
        turned.append(path)
        if len(turned) == 2:
            app.clock.advance(1)
            app.sandbox.comment("ada", numbers[0], "By the way.")

    app.sandbox.faults = Changed(change)
    app.clock.advance(HOUR)
    turn(app, 10 * 60, STEP)
    assert len(turned) >= 3
    assert [count(app, "Sealed", number) for number in numbers[1:]] == [1] * 5
    turn(app, HOUR, STEP)  # what changed meanwhile is read by the next look
    assert count(app, "Sealed", numbers[0]) == 1


def test_skara_1781_a_pull_request_that_cannot_be_read_hides_no_other_thread(app: Lab) -> None:
    """openjdk/skara#1781, also chinthakagodawita/autoupdate#100. It is read when it can be."""
    open_issue(app)
    app.settle()
    silence(app)
    fail(app, "GET", r"/issues/2/timeline$", 500)
    open_pull(app)
    before = catch_up.last_at(app.store, app.sandbox.world.repository_id)
    app.clock.advance(1)
    app.sandbox.open_issue("ada", "Experiment: colder is better", form_body())
    turn(app, 65 * 60, STEP)
    assert count(app, "Sealed", 3) == 1
    assert plans(app) == []
    assert catch_up.last_at(app.store, app.sandbox.world.repository_id) == before
    asked = len(app.sandbox.requests)
    turn(app, HOUR, STEP)
    tries = [each for each in list(app.sandbox.requests)[asked:] if "timeline" in each.path]
    assert len(tries) <= 3 * 8  # every ten minutes by then
    mend(app)
    turn(app, 12 * 60, STEP)
    assert count(app, "### Plan 1") == 1
    assert catch_up.last_at(app.store, app.sandbox.world.repository_id) != before


def test_dynos_sync_93_a_clock_of_githubs_that_was_ahead_leaves_no_gap(app: Lab) -> None:
    """dynos-fit/dynos-sync#93: a point in time in the future hides all that happens before it."""
    now = app.clock.now()
    repository = app.sandbox.world.repository_id
    app.settle()
    app.die()
    swept = catch_up.Swept(at=now + timedelta(days=2), listed=now + timedelta(days=2))
    catch_up._keep(app.store, repository, swept)
    silence(app)
    open_issue(app)
    turn(app, 70 * 60, STEP)
    assert count(app, "Sealed", 1) == 1


def test_mergeatron_28_a_look_that_was_due_while_the_bot_was_away_is_the_first_thing(
    app: Lab,
) -> None:
    """SnapInteractive/mergeatron#28: when it starts, it looks for what it missed."""
    silence(app)
    app.die()
    open_issue(app)
    app.clock.advance(2 * HOUR)
    turn(app, 60, 5)
    assert count(app, "Sealed", 1) == 1


def test_a_pull_request_that_was_closed_in_silence_is_seen(app: Lab) -> None:
    """Before its launch, this voids the approval."""
    prepare(app, EVENTS["a command"])
    app.trainer.busy = True
    say(app, "grace", "/run")
    turn(app, 60)
    silence(app)
    app.sandbox.edit_issue("ada", 2, state="closed")
    turn(app, 65 * 60, STEP)
    handled = app.records("handled").items()
    assert [fact["event"] for path, fact in handled if "/2/swept-" in path] == ["pull_request"]
