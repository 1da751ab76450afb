"""Whatever GitHub, or somebody with GitHub's secret, sends: a small delivery, or nothing."""

import copy
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.inbox import deliveries, payloads
from bot.inbox.payloads import Delivery
from bot.model.keys import Key
from bot.model.thread import Push, Said, ThreadId
from runner.schema.record import Person
from runner.store.store import Store
from tests.examples import examples

REPOSITORY = 7
GRACE = {"login": "grace", "id": 3, "type": "User"}
A, B = "a" * 40, "b" * 40


def comment(**changes: Any) -> dict[str, Any]:
    """Grace's `/run` on pull request 5, with these changes to the comment."""
    written = {"id": 11, "user": GRACE, "created_at": "2026-01-02T03:04:05Z", "body": "/run"}
    return {
        "action": "created",
        "sender": GRACE,
        "repository": {"id": REPOSITORY},
        "issue": {"number": 5, "pull_request": {}},
        "comment": written | changes,
    }


def synchronize(**changes: Any) -> dict[str, Any]:
    pull = {"number": 5, "head": {"sha": B}, "updated_at": "2026-01-02T03:04:05Z"}
    return {
        "action": "synchronize",
        "sender": GRACE,
        "repository": {"id": REPOSITORY},
        "pull_request": pull,
        "before": A,
        "after": B,
        **changes,
    }


def review(action: str = "submitted", **changes: Any) -> dict[str, Any]:
    written = {"id": 12, "user": GRACE, "submitted_at": "2026-01-02T03:04:05Z", "body": "/run"}
    return {
        "action": action,
        "sender": GRACE,
        "repository": {"id": REPOSITORY},
        "pull_request": {"number": 5},
        "review": written | {"commit_id": A, "state": "approved"} | changes,
    }


def button(identifier: Any = "cancel", **changes: Any) -> dict[str, Any]:
    check = {"id": 13, "external_id": "5.check.x1", "started_at": "2026-01-02T03:04:05Z"}
    return {
        "action": "requested_action",
        "sender": GRACE,
        "repository": {"id": REPOSITORY},
        "check_run": check | changes,
        "requested_action": {"identifier": identifier},
    }


def suite(**changes: Any) -> dict[str, Any]:
    """*Re-run all checks*, in the form of GitHub's `check_suite.rerequested`."""
    sides = {"head": {"ref": "warm", "sha": A}, "base": {"ref": "main", "repo": {"id": REPOSITORY}}}
    written = {"id": 14, "head_sha": A, "updated_at": "2026-01-02T03:04:05Z"}
    app = {"id": 1, "slug": "regatta-lab"}
    return {
        "action": "rerequested",
        "sender": GRACE,
        "repository": {"id": REPOSITORY},
        "check_suite": {**written, "app": app, "pull_requests": [{"number": 5, **sides}]} | changes,
    }


PAYLOADS = {
    "check_suite": suite(),
    "issue_comment": comment(),
    "pull_request": synchronize(),
    "pull_request_review": review(),
    "check_run": button(),
}


def test_a_comment_is_read_with_its_author_and_githubs_time() -> None:
    said = payloads.read("issue_comment", comment())
    assert said
    assert said.message
    assert said.thread == ThreadId(REPOSITORY, 5)
    assert said.pull
    assert said.message.author == Person(login="grace", id=3)
    assert said.message.at.isoformat() == "2026-01-02T03:04:05+00:00"
    assert (said.message.body, said.message.heard) == ("/run", "delivery")
    assert str(said.message.key(0)) == "11-0"


def test_a_review_is_bound_to_the_commit_that_it_is_of() -> None:
    said = payloads.read("pull_request_review", review())
    assert said
    assert said.message
    assert (said.message.via, said.message.commit, str(said.message.key(0))) == (
        "review",
        A,
        "r12-0",
    )


def test_a_dismissed_review_wakes_the_thread_and_commands_nothing() -> None:
    said = payloads.read("pull_request_review", review("dismissed"))
    assert said
    assert said.thread
    assert said.message is None


def test_a_button_is_a_command_about_the_execution_that_its_check_run_names() -> None:
    said = payloads.read("check_run", button())
    assert said
    assert said.message
    assert (said.message.body, said.message.via) == ("/cancel x1", "button")
    assert (said.thread, str(said.message.key(0))) == (
        ThreadId(REPOSITORY, 5),
        f"b13-cancel-{GRACE['id']}",
    )


@pytest.mark.parametrize(  # mergewatch/mergewatch.ai#558, rocq-prover/bot#113
    ("key", "command"), [("5.check.x1", "/retry x1"), ("5.unplanned.1", "/plan")]
)
def test_githubs_own_rerun_of_a_check_is_a_button(key: str, command: str) -> None:
    pressed = button(external_id=key) | {"action": "rerequested", "requested_action": None}
    said = payloads.read("check_run", pressed)
    assert said
    assert said.message
    assert (said.message.body, said.message.via) == (command, "button")


OURS = ("regatta-lab[bot]", A)


def pressed_of(payload: Any, ours: tuple[str, str] = OURS) -> list[str]:
    """The commands of a press of *Re-run all checks*."""
    said = payloads.read("check_suite", payload)
    heard = [deliveries.Unheard("d-1", said)] if said else []
    return [f"{one.key(0)} {one.body}" for one in deliveries.messages(heard, {}, ours=ours)]


def test_rerun_all_checks_is_the_button_replan_and_each_press_counts() -> None:
    assert pressed_of(suite()) == ["b1767323045-replan-3 /plan"]
    again = suite(updated_at="2026-01-02T03:05:05Z")
    assert pressed_of(again) == ["b1767323105-replan-3 /plan"]


FORK = {"number": 5, "head": {"sha": A}, "base": {"repo": {"id": 8}}}


@pytest.mark.parametrize(
    "changes",
    [
        {"pull_requests": []},  # a fork's
        {"pull_requests": [FORK]},
        {"pull_requests": [{"number": 5, "head": {"sha": B}, "base": {"repo": {"id": 7}}}]},
        {"pull_requests": [None, {"number": "5"}]},
        {"pull_requests": None},
        {"head_sha": B},
        {"updated_at": None},
        {"app": {"slug": "another"}},
        {"app": None},
    ],
)
def test_a_suite_of_another_app_commit_or_repository_is_none_of_the_labs_business(
    changes: dict[str, Any],
) -> None:
    assert pressed_of(suite(**changes)) == []
    assert pressed_of(suite(), ("regatta-lab[bot]", B)) == [], "an older head"
    assert pressed_of(suite(), ("", "")) == []


def test_of_presses_before_a_restoration_only_cancel_counts() -> None:
    ours = {Key("check", "x1"): Said(kind="check", id=13, at=None)}
    for identifier in ("cancel", "retry", "replan"):
        said = payloads.read("check_run", button(identifier))
        assert said
        assert said.at
        found = deliveries.messages([deliveries.Unheard("d-1", said)], ours, restored=said.at)
        assert bool(found) == (identifier == "cancel")
        assert deliveries.messages(
            [deliveries.Unheard("d-1", said)], ours, said.at - timedelta(seconds=1)
        )


def test_two_people_who_press_one_button_are_both_heard() -> None:
    ours = {Key("check", "x1"): Said(kind="check", id=13, at=None)}
    both = [
        deliveries.Unheard(f"d-{who['id']}", payloads.read("check_run", button() | {"sender": who}))
        for who in (GRACE, GRACE | {"login": "hugo", "id": 13}, GRACE)
    ]
    assert [message.author.id for message in deliveries.messages(both, ours)] == [GRACE["id"], 13]


@pytest.mark.parametrize("identifier", ["lgtm|26764", "", None, "run", "CANCEL"])
def test_a_button_that_is_not_the_labs_is_left_alone(identifier: Any) -> None:
    assert payloads.read("check_run", button(identifier)) is None


@pytest.mark.parametrize("external", ["", "x", "5", "0.check.x1", "5.../../x", "5.check.X 1", None])
def test_a_check_run_that_names_no_thread_is_left_alone(external: Any) -> None:
    assert payloads.read("check_run", button(external_id=external)) is None


def test_a_button_counts_only_on_a_check_run_that_is_on_record() -> None:
    said = payloads.read("check_run", button())
    pressed = [deliveries.Unheard("d-1", said)]
    ours = Said(kind="check", id=13, at=None)
    assert deliveries.messages(pressed, {Key("check", "x1"): ours})
    assert not deliveries.messages(
        pressed, {Key("check", "x1"): Said(kind="check", id=14, at=None)}
    )
    assert not deliveries.messages(pressed, {})


@pytest.mark.parametrize("kind", ["User", "Bot"])
def test_a_push_is_seen_whoever_pushed(kind: str) -> None:
    said = payloads.read("pull_request", synchronize(sender=GRACE | {"type": kind}))
    assert said
    assert said.push
    assert (said.push.before, said.push.after) == (A, B)


@pytest.mark.parametrize(
    "changes",
    [
        {"user": None},
        {"user": {}},
        {"user": {"login": "grace"}},
        {"user": {"login": "../../orgs/x", "id": 3}},
        {"user": {"login": "grace", "id": True}},
        {"user": {"login": "lab[bot]", "id": 3, "type": "Bot"}},
        {"id": None},
        {"id": "11"},
        {"id": True},
        {"id": 1.5},
        {"id": -1},
        {"id": 2**70},
        {"created_at": None},
        {"created_at": "yesterday"},
        {"created_at": "2026-01-02T03:04:05"},
        {"created_at": "0001-01-01T00:00:00+23:59"},
    ],
)
def test_a_comment_without_a_known_author_commands_nothing(changes: dict[str, Any]) -> None:
    said = payloads.read("issue_comment", comment(**changes))
    assert said
    assert said.thread
    assert said.message is None


@pytest.mark.parametrize(
    "payload",
    [
        comment(performed_via_github_app={"slug": "an-app"}),
        comment() | {"sender": GRACE | {"type": "Bot"}},
        comment() | {"issue": {"number": True}},
        comment() | {"issue": {"number": float("nan")}},
        comment() | {"issue": {"number": 2**70}},
        comment() | {"issue": None},
        comment() | {"sender": None},
        comment() | {"action": ["created"]},
    ],
)
def test_a_payload_not_for_the_lab_is_ignored(payload: Any) -> None:
    assert payloads.read("issue_comment", payload) is None


def test_odd_characters_become_something_that_a_file_can_hold() -> None:
    said = payloads.read("issue_comment", json.loads(json.dumps(comment(body="/run \ud800\0"))))
    assert said
    assert said.message
    assert said.message.body == "/run ?\0"
    assert Delivery.model_validate_json(said.canonical()) == said


def test_a_text_longer_than_github_takes_is_cut() -> None:
    said = payloads.read("issue_comment", comment(body="x" * 10**6))
    assert said
    assert said.message
    assert len(said.message.body) == payloads.MAX_TEXT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just(A),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, Any]:
    """One of the payloads with some of its values replaced by anything."""
    event = draw(st.sampled_from(sorted(PAYLOADS)))
    payload = copy.deepcopy(PAYLOADS[event])
    for _ in range(draw(st.integers(1, 3))):
        place: Any = payload
        key = draw(st.sampled_from(sorted(place)))
        while isinstance(place[key], dict) and place[key] and draw(st.booleans()):
            place = place[key]
            key = draw(st.sampled_from(sorted(place)))
        place[key] = draw(JSON | st.just("\ud800"))
    return event, payload


@settings(max_examples=examples(80), deadline=None)
@given(mutated())
def test_no_payload_is_an_error_and_what_is_read_can_be_kept(given: tuple[str, Any]) -> None:
    event, payload = given
    said = payloads.read(event, payload)
    if said is not None:
        assert Delivery.model_validate_json(said.canonical()) == said


# ── The inbox ──


def kept(store: Store, name: str, event: str, payload: Any) -> bool:
    said = payloads.read(event, payload)
    assert said
    assert said.thread
    return deliveries.keep(store, said.thread, name, said)


def test_a_handled_delivery_leaves_the_inbox_for_good(tmp_path: Path) -> None:
    store, id = Store(tmp_path), ThreadId(REPOSITORY, 5)
    assert kept(store, "d-1", "issue_comment", comment())
    (only,) = deliveries.unhandled(store, id)
    deliveries.handle(store, id, only)
    assert deliveries.unhandled(store, id) == []
    assert not kept(store, "d-1", "issue_comment", comment())
    assert deliveries.unhandled(store, id) == []
    name = f"records/handled/{REPOSITORY}/5/d-1.json"
    assert Delivery.model_validate_json(store.require(name)) == only.said


def test_a_death_between_the_record_and_the_removal_changes_nothing(tmp_path: Path) -> None:
    store, id = Store(tmp_path), ThreadId(REPOSITORY, 5)
    kept(store, "d-1", "issue_comment", comment())
    store.create(f"records/handled/{REPOSITORY}/5/d-1.json", b"{}\n")
    assert deliveries.unhandled(store, id) == []


def test_pushes_are_known_also_after_their_deliveries_are_dealt_with(tmp_path: Path) -> None:
    store, id = Store(tmp_path), ThreadId(REPOSITORY, 5)
    kept(store, "d-1", "pull_request", synchronize())
    new = deliveries.unhandled(store, id)
    (push,) = deliveries.pushes(store, id, new)
    assert isinstance(push, Push)
    assert (push.before, push.after) == (A, B)
    deliveries.handle(store, id, new[0])
    kept(store, "d-2", "pull_request", synchronize())
    assert deliveries.pushes(store, id, deliveries.unhandled(store, id)) == (push,)


def test_messages_come_in_the_order_of_githubs_clock(tmp_path: Path) -> None:
    store, id = Store(tmp_path), ThreadId(REPOSITORY, 5)
    kept(store, "a", "issue_comment", comment(id=20, created_at="2026-01-02T03:04:07Z"))
    kept(store, "b", "pull_request_review", review(id=90, submitted_at="2026-01-02T03:04:06Z"))
    kept(store, "c", "issue_comment", comment(id=10))
    kept(store, "d", "issue_comment", comment(id=10))
    found = deliveries.messages(deliveries.unhandled(store, id), {})
    assert [message.id for message in found] == [10, 90, 20]


def test_an_unreadable_delivery_is_handled_without_effect(tmp_path: Path) -> None:
    store, id = Store(tmp_path), ThreadId(REPOSITORY, 5)
    store.create(f"records/inbox/{REPOSITORY}/5/d-2.json", b'{"event": 5, "payload": []}')
    store.create(f"records/inbox/{REPOSITORY}/5/d-3.json", b"not json")
    found = deliveries.unhandled(store, id)
    assert deliveries.messages(found, {}) == ()
    for one in found:
        deliveries.handle(store, id, one)
    assert deliveries.unhandled(store, id) == []
