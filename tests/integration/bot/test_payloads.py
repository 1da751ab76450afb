"""GitHub's real payloads, and odd versions of them, posted to the bot with a good signature.

None is answered with an error, each comes to the right handler or to none, and nothing that was
accepted keeps its thread from being looked at.
"""

import copy
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from bot.controller.reconciler import Reconciler
from bot.service.server import create_app
from bot.setup.settings import Settings
from tests.examples import examples as so_many
from tests.payloads import NotHere, Payload, payloads
from tests.scenarios.lab import SECRET, Lab, a_lab

# The field that names the thread, of each event and action that is about one.
THREADS = {
    ("issues", action): "issue"
    for action in ("opened", "edited", "reopened", "closed", "deleted", "transferred")
} | {
    ("issue_comment", "created"): "issue",
    ("pull_request_review", "submitted"): "pull_request",
    ("pull_request_review", "dismissed"): "pull_request",
} | {
    ("pull_request", action): "pull_request"
    for action in ("opened", "synchronize", "reopened", "edited", "ready_for_review",
                   "converted_to_draft", "closed")
}  # fmt: skip
# What is about the whole lab: of a repository, and of the installation.
LAB = {
    ("repository", action)
    for action in ("renamed", "transferred", "privatized", "publicized", "archived", "unarchived")
} | {
    ("installation", "created"), ("installation", "suspend"), ("installation", "unsuspend"),
    ("installation", "deleted"),
    ("installation", "new_permissions_accepted"), ("installation_repositories", "added"),
    ("installation_repositories", "removed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def real() -> list[Payload]:
    try:
        return payloads()
    except NotHere as error:
        pytest.skip(f"did not run: {error}")


class Front:
    """The bot's application on the sandbox; its reconciler stands still."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.store = lab.root / "served"
        (lab.root / "token").write_text("a-token-of-the-tests")
        app = create_app(
            Settings(
                store=str(self.store),
                repository="regatta-lab/lab",
                webhook_secret=SECRET,
                github_token="installation-token",
                bot="regatta-lab[bot]",
                isolation="none",
                ray_address="http://127.0.0.1:9",
                ray_token_file=lab.root / "token",
                github_api=f"{lab.sandbox.url}/api/v3",
            )
        )
        self.client = TestClient(app, raise_server_exceptions=False)
        self.sent = 0

    @property
    def repository(self) -> int:
        """The id of the lab's repository."""
        return self.lab.sandbox.world.repository_id

    def post(self, event: str, body: bytes) -> tuple[int, str, dict[str, Any] | None]:
        """The status and words of the answer, and what the inbox kept, under its thread."""
        self.sent += 1
        name = f"d-{self.sent}"
        headers = {
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": name,
            "X-Hub-Signature-256": "sha256="
            + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest(),
        }
        answer = self.client.post("/webhook", content=body, headers=headers)
        kept = list((self.store / "records" / "inbox").rglob(f"{name}.json"))
        found = (
            {"thread": int(kept[0].parent.name), **json.loads(kept[0].read_bytes())}
            if kept
            else None
        )
        self.lab.deliver(headers, body)
        return answer.status_code, answer.text, found

    def rest(self) -> None:
        """The reconciler looks at all that was accepted, and nothing of it is left."""
        self.lab.settle()
        bot = self.lab.bot
        assert isinstance(bot, Reconciler)
        assert not bot._failures
        assert not self.lab.records("aside")
        assert not self.lab.records("inbox")


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with a_lab(tmp_path_factory.mktemp("payloads")) as lab:
        yield Front(lab)


def ours(payload: Payload, repository: int) -> dict[str, Any]:
    """The payload, as if it were of the lab's repository."""
    body = copy.deepcopy(payload.body)
    if isinstance(body.get("repository"), dict):
        body["repository"]["id"] = repository
    return body


def by_a_bot(body: dict[str, Any]) -> bool:
    return bool(body.get("sender", {}).get("type") == "Bot")


def test_each_real_payload_comes_to_the_right_handler_or_to_none(
    front: Front, real: list[Payload]
) -> None:
    heard = 0
    for payload in real:
        kind = payload.event, payload.action
        elsewhere = front.post(payload.event, json.dumps(payload.body).encode())
        body = ours(payload, front.repository)
        status, words, kept = front.post(payload.event, json.dumps(body).encode())
        ignored = by_a_bot(body) and not payload.event.startswith("pull_request")
        if kind in THREADS and not ignored:
            heard += 1
            assert (status, words) == (202, "Kept."), payload.name
            assert kept is not None
            assert kept["thread"] == body[THREADS[kind]]["number"], payload.name
            said = {"issue_comment": "comment", "pull_request_review": "review"}
            if payload.event in said and payload.action != "dismissed":
                told = body[said[payload.event]]
                assert kept["message"]["id"] == told["id"]
                assert kept["message"]["body"] == (told["body"] or "")
            else:
                assert kept["message"] is None, payload.name
            assert elsewhere[:2] == (200, "Nothing to do."), payload.name
        else:
            expected = "Noted." if kind in LAB else "Nothing to do."
            assert (status, words) == (200, expected), payload.name
            assert kept is None
    print(f"{len(real)} payloads, {heard} of them heard")
    assert heard >= 10
    front.rest()


# ── Odd ones ─────────────────────────────────────────────────────────────────────────────────

DEEP = "<deep>"  # stands for what Python's own writer cannot nest
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**40, -(10**40), 0.5, 1e300,
        float("nan"), float("inf"), "", " ", "x", "\x00", "\ud800", "\udfff\ud800", "../../x",
        "2026-13-45T99:99:99Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59Z", "x" * 100_000,
        "/run", "/run\n/cancel\n/status", "created", "Bot", [], {}, [None], [[]], {"id": None},
        {"login": None, "id": 1}, DEEP,
    ]
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all that is in a payload, but the deepest."""
    if isinstance(value, dict | list) and len(path) < 4:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from places(value[key], (*path, key))


def changed(body: dict[str, Any], path: tuple[Any, ...], value: Any, gone: bool) -> None:
    """Put `value` at `path`, or take away what is there; nothing if another change was first."""
    *way, last = path
    at: Any = body
    try:
        for key in way:
            at = at[key]
        if gone:
            del at[last]
        else:
            at[last] = value
    except (KeyError, IndexError, TypeError):
        return


@st.composite
def odd(draw: st.DrawFn, real: list[Payload], repository: int) -> tuple[str, bytes]:
    """An event and the bytes of a body: a real payload with up to four changes."""
    near = [
        payload
        for payload in real
        if (payload.event, payload.action) in THREADS | dict.fromkeys(LAB)
    ]
    payload = draw(st.sampled_from(near if draw(st.integers(0, 5)) else real))
    body: Any = ours(payload, repository)
    # What the lab reads is changed more often than what it does not.
    every = list(places(body))
    read = [
        path for path in every
        if path[0] in WHOLE
        or (len(path) <= 3 and path[-1] in READ)
    ]  # fmt: skip
    for _ in range(draw(st.integers(1, 4))):
        often = draw(st.integers(0, 3))
        some = read if read and often else every
        path: tuple[Any, ...] = draw(st.sampled_from(some))
        changed(body, path, draw(ODD), gone=not draw(st.integers(0, 4)))
    text = json.dumps(body)
    text = text.replace(f'"{DEEP}"', "[" * 5_000 + "]" * 5_000)
    data = text.encode()
    if not draw(st.integers(0, 9)):
        data = data[: draw(st.integers(0, len(data)))]
    return payload.event, data


WHOLE = {"action", "sender", "repository", "installation", "number", "before", "after"}
READ = {
    "issue", "pull_request", "comment", "review", "check_run", "requested_action", "id", "number",
    "body", "user", "login", "type", "created_at", "updated_at", "submitted_at", "started_at",
    "completed_at", "commit_id", "external_id", "identifier", "head", "sha", "head_sha",
    "performed_via_github_app", "state",
}  # fmt: skip


@pytest.mark.parametrize(
    "examples",
    [so_many(40), pytest.param(5_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
def test_odd_versions_of_real_payloads_are_answered_and_stop_no_thread(
    front: Front, real: list[Payload], examples: int
) -> None:
    statuses: dict[int, int] = {}

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(odd(real, front.repository))
    def post(made: tuple[str, bytes]) -> None:
        event, body = made
        status, words, kept = front.post(event, body)
        assert status in (200, 202, 400), (status, words)
        assert (kept is not None) == (status == 202)
        statuses[status] = statuses.get(status, 0) + 1

    post()
    print(f"answers: {statuses}")
    assert statuses[202] > examples // 10
    front.rest()
