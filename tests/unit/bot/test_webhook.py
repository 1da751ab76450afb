"""The way in: what is kept, what is dropped, and what is refused."""

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI
from starlette.types import Message

from bot.inbox import deliveries, webhook
from bot.inbox.payloads import HEARD
from bot.inbox.webhook import Gate
from bot.model.thread import ThreadId
from runner.store import backends
from runner.store.store import Store, StoreError

SECRET = "a-secret-of-the-tests"
REPOSITORY = 7
DROPPED = (200, "Nothing to do.")
KEPT = (202, "Kept.")


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def payload(**changes: Any) -> dict[str, Any]:
    """A comment on issue 5 by a person."""
    return {
        "action": "created",
        "sender": {"login": "grace", "type": "User"},
        "repository": {"id": REPOSITORY},
        "issue": {"number": 5},
        "comment": {"id": 1, "body": "/run"},
        **changes,
    }


class Hall:
    """A gate, what is behind it, and whom it woke."""

    def __init__(self, root: Path) -> None:
        self.woken: list[ThreadId] = []
        self.root = root / "store"
        self.gate = Gate(Store(self.root), SECRET, REPOSITORY, self.woken.append)

    def receive(
        self,
        body: Any,
        *,
        event: str = "issue_comment",
        delivery: str | None = "d-1",
        signature: str | None = None,
    ) -> tuple[int, str]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {
            "X-Hub-Signature-256": sign(raw) if signature is None else signature,
            "X-GitHub-Event": event,
        }
        if delivery is not None:
            headers["X-GitHub-Delivery"] = delivery
        return self.gate.receive(headers, raw)

    def kept(self) -> list[str]:
        inbox = self.root / "records" / "inbox"
        return sorted(path.relative_to(inbox).as_posix() for path in inbox.rglob("*.json"))


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path)


def test_a_signed_comment_is_kept_and_wakes_its_thread(hall: Hall) -> None:
    assert hall.receive(payload()) == KEPT
    assert hall.kept() == [f"{REPOSITORY}/5/d-1.json"]
    assert hall.woken == [ThreadId(REPOSITORY, 5)]


@pytest.mark.parametrize(
    "of",
    [
        "application/x-www-form-urlencoded",  # GitbookIO/nuts#145: GitHub's default
        "application/x-www-form-urlencoded; charset=utf-8",  # wearerequired/traduttore#166
        "Application/X-WWW-Form-Urlencoded",  # getstackit/stackit#1328
    ],
)
def test_a_delivery_as_a_form_is_kept(hall: Hall, of: str) -> None:
    """octokit/webhooks.js#158, uselagoon/lagoon#1869: the default of a repository's webhooks."""
    form = urlencode({"payload": json.dumps(payload())}).encode()
    headers = {
        "X-Hub-Signature-256": sign(form),
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": "d-1",
        "Content-Type": of,
    }
    assert hall.gate.receive(headers, form) == KEPT
    for odd in (b"", b"payload=", b"a=1&b=2&payload={}", b"\xff", b"payload=%ff"):
        headers["X-Hub-Signature-256"] = sign(odd)
        assert hall.gate.receive(headers, odd) == (400, "The payload is not JSON.")


def test_a_delivery_that_comes_twice_is_kept_once_and_acknowledged_twice(hall: Hall) -> None:
    assert hall.receive(payload()) == KEPT
    assert hall.receive(payload()) == KEPT
    assert hall.kept() == [f"{REPOSITORY}/5/d-1.json"]


RAW = json.dumps(payload()).encode()


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "sha256=",
        "sha256=" + "0" * 64,
        sign(RAW).removeprefix("sha256="),
        sign(RAW).upper(),
        sign(RAW)[:-1],
        sign(RAW) + "0",
        sign(RAW) + " ",
        sign(RAW, "another secret"),
        sign(RAW, ""),
        "sha1=" + hmac.new(SECRET.encode(), RAW, hashlib.sha1).hexdigest(),
        "sha256=ä",
        "sha256=\ud800",
    ],
)
def test_a_wrong_signature_is_refused_and_nothing_is_kept(hall: Hall, signature: str) -> None:
    status, _ = hall.receive(RAW, signature=signature)
    assert status == 401
    assert hall.kept() == []
    assert hall.woken == []


def test_the_signature_is_over_the_raw_bytes(hall: Hall) -> None:
    spaced = json.dumps(payload(), indent=4).encode()
    assert hall.receive(spaced, signature=sign(RAW))[0] == 401
    assert hall.receive(spaced, signature=sign(spaced)) == KEPT


def test_the_signature_is_checked_before_anything_else(hall: Hall) -> None:
    assert hall.gate.receive({}, b"not json")[0] == 401
    assert hall.receive(b"not json", delivery="../../x", signature="")[0] == 401


@pytest.mark.parametrize("delivery", [None, "", "../x", "a/b", "a b", "a\n", ".", "ä", "a" * 81])
def test_a_missing_or_odd_delivery_id_is_refused(hall: Hall, delivery: str | None) -> None:
    assert hall.receive(payload(), delivery=delivery)[0] == 400
    assert hall.kept() == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_body_that_is_not_json_is_refused(hall: Hall, body: bytes) -> None:
    assert hall.receive(body)[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "words",
        5,
        {},
        payload(action=None),
        payload(action=["created"]),
        payload(action="edited"),
        payload(action="deleted"),
        payload(sender=None),
        payload(sender={}),
        payload(sender={"login": "regatta-lab[bot]", "type": "Bot"}),  # not the comment's author
        payload(
            sender={"login": "regatta-lab[bot]", "type": "Bot"},
            comment={
                "id": 1,
                "body": "A plan",
                "user": {"login": "l[bot]", "id": 2, "type": "Bot"},
            },
        ),
        payload(repository=None),
        payload(repository={"id": REPOSITORY + 1}),
        payload(repository={"id": str(REPOSITORY)}),
        payload(issue=None),
        payload(issue={}),
        payload(issue={"number": "5"}),
        payload(issue={"number": "../5"}),
        payload(issue={"number": None}),
    ],
)
def test_a_delivery_about_no_thread_is_acknowledged_and_dropped(hall: Hall, body: Any) -> None:
    assert hall.receive(body) == DROPPED
    assert hall.kept() == []
    assert hall.woken == []


@pytest.mark.parametrize("event", ["", "push", "ping", "check_run", "issues", "x"])
def test_other_events_with_the_same_payload_are_dropped(hall: Hall, event: str) -> None:
    assert hall.receive(payload(), event=event) == DROPPED


ABOUT = {
    "issues": {"issue": {"number": 9}},
    "issue_comment": {"issue": {"number": 9}},
    "pull_request": {"pull_request": {"number": 9}},
    "pull_request_review": {"pull_request": {"number": 9}},
    "check_run": {
        "check_run": {"id": 3, "external_id": "9.check.x1", "started_at": "2026-01-01T00:00:00Z"},
        "requested_action": {"identifier": "cancel"},
        "sender": {"id": 4, "login": "grace", "type": "User"},
    },
}
BOTS_TOO = ("issues", "pull_request", "pull_request_review", "repository", "installation")
LAB = ("repository", "installation", "installation_repositories")  # about no single thread


@pytest.mark.parametrize(
    ("event", "action"),
    [(event, action) for event in ABOUT for action in sorted(HEARD[event])],
)
def test_each_event_that_is_heard_wakes_its_thread(hall: Hall, event: str, action: str) -> None:
    body: dict[str, Any] = payload(action=action)
    body.pop("issue")
    assert hall.receive(body | ABOUT[event], event=event) == KEPT
    assert hall.woken == [ThreadId(REPOSITORY, 9)]


@pytest.mark.parametrize("event", LAB)
def test_a_repository_event_wakes_the_lab_and_is_not_stored(hall: Hall, event: str) -> None:
    told = []
    hall.gate = dataclasses.replace(hall.gate, lab=told.append)
    for action in sorted(HEARD[event]):
        assert hall.receive(payload(action=action), event=event) == (200, "Noted.")
    assert [delivery.action for delivery in told] == sorted(HEARD[event])
    assert hall.kept() == hall.woken == []


def test_while_a_secret_is_changed_both_are_good_and_no_third(hall: Hall) -> None:
    hall.gate = dataclasses.replace(hall.gate, secret="the new one", old_secret=SECRET)
    assert hall.receive(RAW, signature=sign(RAW, "the new one")) == KEPT
    assert hall.receive(RAW, signature=sign(RAW)) == KEPT
    assert hall.receive(RAW, signature=sign(RAW, "a third"))[0] == 401
    assert hall.receive(RAW, signature=sign(RAW, ""))[0] == 401
    hall.gate = dataclasses.replace(hall.gate, old_secret="")
    assert hall.receive(RAW, signature=sign(RAW))[0] == 401
    assert hall.receive(RAW, signature=sign(RAW, ""))[0] == 401


def test_a_gate_without_a_secret_cannot_be_made(hall: Hall) -> None:
    with pytest.raises(ValueError, match="without a secret"):
        dataclasses.replace(hall.gate, secret="")


@pytest.mark.parametrize("error", [OSError("no space left"), StoreError("the bucket is gone")])
def test_a_disk_that_cannot_keep_it_asks_for_it_again(
    hall: Hall, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: object) -> bool:
        raise error

    monkeypatch.setattr(Store, "create", full)
    assert hall.receive(payload())[0] == 503
    assert hall.woken == []


def test_githubs_real_payloads_are_kept_where_they_concern_a_thread(tmp_path: Path) -> None:
    named = os.environ.get("REGATTA_TEST_WEBHOOKS")
    if not named:
        pytest.skip("did not run: REGATTA_TEST_WEBHOOKS names no folder of GitHub's payloads")
    files = sorted(Path(named).glob("*.json"))
    assert files
    heard = 0
    for file in files:
        event, action, _ = file.name.split(".", 2)
        body: Mapping[str, Any] = json.loads(file.read_bytes())
        repository = (body.get("repository") or {}).get("id", 0)
        hall = Hall(tmp_path / file.stem)
        hall.gate = Gate(hall.gate.store, SECRET, repository, hall.woken.append)
        answer = hall.receive(file.read_bytes(), event=event)
        from_a_bot = (body.get("sender") or {}).get("type") == "Bot"
        if action not in HEARD.get(event, ()) or (from_a_bot and event not in BOTS_TOO):
            assert answer == DROPPED, file.name
        elif event in LAB:
            assert answer == (200, "Noted."), file.name
        elif event == "check_run":
            assert answer == DROPPED, file.name  # the buttons of another app
        else:
            heard += 1
            about = body["pull_request" if event.startswith("pull_request") else "issue"]
            assert answer == KEPT, file.name
            assert hall.woken == [ThreadId(repository, about["number"])], file.name
        hall.gate = Gate(hall.gate.store, SECRET, repository + 1, hall.woken.append)
        if not event.startswith("installation"):
            assert hall.receive(file.read_bytes(), event=event, delivery="d-2") == DROPPED
    assert heard


def test_a_secret_is_compared_whole() -> None:
    assert webhook.verify("s", b"body", sign(b"body", "s"))
    assert not webhook.verify("s", b"body", sign(b"body", "s")[:20])


# ── Over HTTP ────────────────────────────────────────────────────────────────────────────────


def posted(hall: Hall, *pieces: bytes, length: int | None) -> list[Message]:
    """What is answered to a POST whose body comes in these pieces, and then does not go on."""
    app = FastAPI()
    app.include_router(webhook.routes(hall.gate))
    told, coming = [], list(pieces)
    headers = [(b"x-hub-signature-256", sign(b"other").encode())]
    headers += [] if length is None else [(b"content-length", str(length).encode())]

    async def receive() -> Message:
        if not coming:
            await asyncio.sleep(3600)
        body, more = coming.pop(0), sum(map(len, pieces)) != length or bool(coming)
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(message: Message) -> None:
        told.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/webhook", "query_string": b"",
        "headers": headers, "root_path": "", "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return told


@pytest.mark.parametrize(
    ("pieces", "length", "status"),
    [
        ((b"{}",), 2, 401),
        ((), webhook.MAX_BYTES + 1, 413),
        ((), None, 411),
        ((b"x" * 100,), 1000, 408),
        ((b"x" * 100,), webhook.MAX_BYTES, 408),
    ],
)
def test_a_body_that_is_too_long_or_late_is_refused(
    hall: Hall,
    monkeypatch: pytest.MonkeyPatch,
    pieces: tuple[bytes, ...],
    length: int | None,
    status: int,
) -> None:
    monkeypatch.setattr(webhook, "MAY_TAKE", 0.05)
    assert posted(hall, *pieces, length=length)[0]["status"] == status


def test_a_body_whose_signature_cannot_be_one_is_refused_unread(hall: Hall) -> None:
    app = FastAPI()
    app.include_router(webhook.routes(hall.gate))
    told: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("it is read")

    async def send(message: Message) -> None:
        told.append(message)

    for signature in (b"", b"sha256=", b"sha1=" + b"0" * 64, b"sha256=" + b"0" * 63):
        scope = {
            "type": "http", "method": "POST", "path": "/webhook", "query_string": b"",
            "headers": [(b"content-length", b"9"), (b"x-hub-signature-256", signature)],
            "root_path": "", "http_version": "1.1", "scheme": "http",
        }  # fmt: skip
        asyncio.run(app(scope, receive, send))
    assert [one["status"] for one in told if "status" in one] == [401] * 4


async def held(room: webhook.Room, client: str, size: int) -> webhook.Coming:
    """A body that is read until it has to give way, and is `size` bytes long by then."""
    with room.for_one(client) as coming, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5) as coming.limit:
            coming.size = size
            await asyncio.sleep(3600)
    return coming


def test_of_large_bodies_the_oldest_of_the_client_with_most_gives_way() -> None:
    async def story() -> list[str]:
        room, gone = webhook.Room(), list[str]()
        for client, size in (("a", 9), ("b", 20), ("b", 15), ("a", 5), ("c", 1), ("d", 20)):
            task = asyncio.create_task(held(room, client, size << 20))
            name = f"{client}{size}"
            task.add_done_callback(lambda _, name=name: gone.append(name))
            await asyncio.sleep(0)
            while room.lacks():
                await asyncio.sleep(0.01)
        assert sum(one.size for one in room.bodies) <= webhook.ROOM
        return list(gone)

    assert asyncio.run(story()) == ["b20"]


def test_no_body_gives_way_while_one_is_complete() -> None:
    room = webhook.Room()
    with room.for_one("a") as complete, room.for_one("b") as coming:
        complete.size, coming.size = 25 << 20, 26 << 20
        assert room.lacks()
        assert room.bodies == [complete, coming]


def test_the_inbox_keeps_no_folders_of_threads_that_were_dealt_with(hall: Hall) -> None:
    hall.receive(payload())
    id = ThreadId(REPOSITORY, 5)
    (one,) = deliveries.unhandled(hall.gate.store, id)
    deliveries.handle(hall.gate.store, id, one)
    assert not (hall.root / "records" / "inbox" / str(REPOSITORY) / "5").exists()
    (hall.root / "records" / "inbox" / str(REPOSITORY) / "6").mkdir()
    deliveries.tidy(hall.gate.store, REPOSITORY)
    assert list((hall.root / "records").glob("inbox/*/*")) == []


def test_a_delivery_is_kept_whose_folder_is_removed_at_that_moment(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, removed = backends.make_folder, []

    def make(folder: Path) -> None:
        real(folder)
        if folder.name == "5" and not removed:
            removed.append(folder)
            folder.rmdir()

    monkeypatch.setattr(backends, "make_folder", make)
    assert hall.receive(payload())[0] == 202
    assert removed
    assert hall.kept() == [f"{REPOSITORY}/5/d-1.json"]
