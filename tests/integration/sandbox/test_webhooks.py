"""The webhooks: signed, in order, of GitHub's shape."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bot.fake_github.server import Sandbox, make_sandbox
from tests.sandbox.fixtures import BOT_TOKEN, FILES, SECRET, TOKENS, Received

Told = Callable[[str], list[dict[str, Any]]]
FOLDER = "REGATTA_TEST_WEBHOOKS"


def story(sandbox: Sandbox) -> None:
    """One of every event."""
    sandbox.open_issue("ada", "A question", "body")
    sandbox.edit_issue("ada", 1, body="edited")
    comment = sandbox.comment("sam", 1, "/run")
    sandbox.edit_comment("sam", comment.id, "/run now")
    sandbox.delete_comment("sam", comment.id)
    sandbox.set_labels("grace", 1, ["experiment: wishlist"])
    sandbox.edit_issue("ada", 1, state="closed")
    sandbox.edit_issue("ada", 1, state="open")
    sandbox.commit("ada", "warm", {"experiments/warm/experiment.yaml": b"title: 1\n"}, "one")
    sandbox.open_pull("ada", "Warm", "body", "warm")
    sandbox.commit("ada", "warm", {"experiments/warm/experiment.yaml": b"title: 2\n"}, "two")
    sandbox.edit_issue("ada", 2, title="Warmer")
    sandbox.edit_issue("ada", 2, state="closed")
    sandbox.edit_issue("ada", 2, state="open")
    review = sandbox.submit_review("grace", 2, "APPROVE", "/run")
    sandbox.dismiss_review("grace", 2, review.id, "changed")
    sandbox.set_draft("ada", 2, True)
    sandbox.set_draft("ada", 2, False)
    sandbox.lock("grace", 2)
    sandbox.unlock("grace", 2)
    sandbox.lock("grace", 1)
    pull = sandbox.pull(2).pull
    assert pull is not None
    button = {"label": "Cancel", "identifier": "cancel", "description": "Stop it"}
    run = sandbox.create_check_run(
        "regatta-lab[bot]", name="regatta / x", head_sha=pull.head_sha, actions=[button]
    )
    sandbox.press("grace", run.id, "cancel")
    sandbox.rename("regatta")
    sandbox.suspend(True)
    sandbox.suspend(False)
    sandbox.delete_issue(1)


def test_every_change_is_told_once_and_in_order(sandbox: Sandbox, received: Received) -> None:
    story(sandbox)
    events = [
        (headers["X-GitHub-Event"], json.loads(body).get("action")) for headers, body in received
    ]
    assert events == [
        ("issues", "opened"),
        ("issues", "edited"),
        ("issue_comment", "created"),
        ("issue_comment", "edited"),
        ("issue_comment", "deleted"),
        ("issues", "labeled"),
        ("issues", "closed"),
        ("issues", "reopened"),
        ("push", None),
        ("pull_request", "opened"),
        ("push", None),
        ("pull_request", "synchronize"),
        ("pull_request", "edited"),
        ("pull_request", "closed"),
        ("pull_request", "reopened"),
        ("pull_request_review", "submitted"),
        ("pull_request_review", "dismissed"),
        ("pull_request", "converted_to_draft"),
        ("pull_request", "ready_for_review"),
        ("pull_request", "locked"),
        ("pull_request", "unlocked"),
        ("issues", "locked"),
        ("check_run", "requested_action"),
        ("repository", "renamed"),
        ("installation", "suspend"),
        ("installation", "unsuspend"),
        ("issues", "deleted"),
    ]


def test_the_signature_is_over_the_very_bytes(sandbox: Sandbox, received: Received) -> None:
    sandbox.open_issue("ada", "Überraschung", "±")
    ((headers, body),) = received
    expected = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["X-Hub-Signature-256"] == f"sha256={expected}"
    assert headers["User-Agent"].startswith("GitHub-Hookshot/")


def test_a_push_to_the_branch_says_before_and_after(sandbox: Sandbox, told: Told) -> None:
    before = sandbox.commit("ada", "warm", {"a.txt": b"1"}, "one")
    sandbox.open_pull("ada", "Warm", None, "warm")
    after = sandbox.commit("grace", "warm", {"a.txt": b"2"}, "two")
    synchronize = told("pull_request")[-1]
    assert (synchronize["before"], synchronize["after"]) == (before, after)
    assert synchronize["pull_request"]["head"]["sha"] == after
    assert synchronize["sender"]["login"] == "grace"
    push = told("push")[-1]
    assert (push["ref"], push["before"], push["after"]) == ("refs/heads/warm", before, after)
    assert push["head_commit"]["modified"] == ["a.txt"]


def test_an_edit_says_what_was_there_before(sandbox: Sandbox, told: Told) -> None:
    story(sandbox)
    comment = next(each for each in told("issue_comment") if each["action"] == "edited")
    assert comment["changes"] == {"body": {"from": "/run"}}
    assert comment["comment"]["body"] == "/run now"
    assert "pull_request" not in comment["issue"]
    title = next(each for each in told("pull_request") if each["action"] == "edited")
    assert title["changes"] == {"title": {"from": "Warm"}}


def test_a_comment_on_a_pull_request_says_so(sandbox: Sandbox, told: Told) -> None:
    sandbox.commit("ada", "warm", {"a.txt": b"1"}, "one")
    sandbox.open_pull("ada", "Warm", None, "warm")
    sandbox.comment("regatta-lab[bot]", 1, "The plan")
    (payload,) = told("issue_comment")
    assert payload["issue"]["pull_request"]["url"].endswith("/pulls/1")
    assert payload["sender"]["type"] == "Bot"
    assert payload["comment"]["performed_via_github_app"]["slug"] == "regatta-lab"


def test_a_refused_change_tells_nobody(sandbox: Sandbox, received: Received) -> None:
    sandbox.open_issue("ada", "A question")
    received.clear()
    for attempt in (
        lambda: sandbox.set_labels("sam", 1, ["urgent"]),
        lambda: sandbox.edit_issue("sam", 1, title="Mine"),
        lambda: sandbox.commit("sam", "main", {"a.txt": b""}, "x"),
    ):
        with pytest.raises(Exception, match=r"admin rights|denied"):
            attempt()
    assert received == []
    assert sandbox.issue(1).title == "A question"


def test_a_webhook_receiver_can_call_the_sandbox_back(tmp_path: Path) -> None:
    """Delivery happens when the lock is free: the receiver's own change is made and told after."""
    told: list[str] = []

    def deliver(_: Mapping[str, str], body: bytes) -> int:
        payload = json.loads(body)
        told.append(payload["action"])
        if payload["sender"]["type"] == "User":
            worker = Thread(target=sandbox.comment, args=("regatta-lab[bot]", 1, "Hello"))
            worker.start()
            worker.join(5)
            assert not worker.is_alive()
        return 202

    sandbox = make_sandbox(
        tmp_path, files=FILES, bot_token=BOT_TOKEN, persona_tokens=TOKENS,
        webhook_secret=SECRET, deliver=deliver,
    )  # fmt: skip
    sandbox.open_issue("ada", "A question")
    assert told == ["opened", "created"]


def test_deliveries_are_posted_tried_once_and_can_be_sent_again(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.headers["X-GitHub-Delivery"], json.loads(body)["action"]))
            self.send_response(500 if len(seen) == 1 else 202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        sandbox = make_sandbox(
            tmp_path, files=FILES, bot_token=BOT_TOKEN, persona_tokens=TOKENS,
            webhook_secret=SECRET, webhook_url=f"http://127.0.0.1:{receiver.server_port}/webhook",
        )  # fmt: skip
        sandbox.open_issue("ada", "A question")
        sandbox.comment("ada", 1, "hello")
        assert sandbox.webhooks.drain()
        first, second = sandbox.webhooks.deliveries
        assert [each.status for each in (first, second)] == [500, 202]
        sandbox.webhooks.redeliver(first)
        assert sandbox.webhooks.drain()
        assert seen == [(first.id, "opened"), (second.id, "created"), (first.id, "opened")]
    finally:
        receiver.shutdown()
        receiver.server_close()
    sandbox.comment("ada", 1, "nobody listens")
    assert sandbox.webhooks.drain()
    assert sandbox.webhooks.deliveries[-1].status == 0


# Keys that real payloads have and the sandbox leaves out: settings and habits of old payloads that
# no client asks for. Of objects that are null here (milestone, license) only the key is compared.
LEFT_OUT = {
    "allow_squash_merge",
    "allow_merge_commit",
    "allow_rebase_merge",
    "allow_auto_merge",
    "allow_update_branch",
    "delete_branch_on_merge",
    "use_squash_pr_title_as_default",
    ".repository.master_branch",  # only in `push`
    ".repository.stargazers",
    ".repository.owner.name",
    ".repository.owner.email",
}
PAIRS = [
    ("issues", "opened", "issues.opened.13.json"),
    ("issues", "edited", "issues.edited.6.json"),
    ("issues", "labeled", "issues.labeled.7.json"),
    ("issues", "reopened", "issues.reopened.15.json"),
    ("issue_comment", "created", "issue_comment.created.1.json"),
    ("issue_comment", "edited", "issue_comment.edited.4.json"),
    ("issue_comment", "deleted", "issue_comment.deleted.3.json"),
    ("pull_request", "opened", "pull_request.opened.7.json"),
    ("pull_request", "closed", "pull_request.closed.3.json"),
    ("pull_request", "reopened", "pull_request.reopened.9.json"),
    ("pull_request", "converted_to_draft", "pull_request.converted_to_draft.4.json"),
    ("pull_request", "ready_for_review", "pull_request.ready_for_review.8.json"),
    ("pull_request", "locked", "pull_request.locked.6.json"),
    ("pull_request", "unlocked", "pull_request.unlocked.13.json"),
    ("issues", "locked", "issues.locked.10.json"),
    ("pull_request_review", "submitted", "pull_request_review.submitted.2.json"),
    ("pull_request_review", "dismissed", "pull_request_review.dismissed.1.json"),
    ("check_run", "requested_action", "check_run.requested_action.4.json"),
    ("repository", "renamed", "repository.renamed.5.json"),
    ("installation", "suspend", "installation.suspend.4.json"),
    ("issues", "deleted", "issues.deleted.3.json"),
    ("push", None, "push.2.json"),
]


def missing(real: Any, ours: Any, at: str = "") -> list[str]:
    """The keys that a real payload has and ours has not, below objects that both have."""
    if isinstance(real, list) and isinstance(ours, list):
        pairs = zip(real[:1], ours[:1], strict=False)
        return [key for one, other in pairs for key in missing(one, other, f"{at}[]")]
    if not (isinstance(real, dict) and isinstance(ours, dict)):
        return []
    if at.endswith(".permissions"):  # what an App asked for
        return []
    lacking = [key for key in real if key not in ours]
    found = [f"{at}.{key}" for key in lacking if not {key, f"{at}.{key}"} & LEFT_OUT]
    for key in real.keys() & ours.keys():
        found += missing(real[key], ours[key], f"{at}.{key}")
    return found


@pytest.mark.parametrize(("event", "action", "name"), PAIRS)
def test_a_payload_has_every_key_of_a_real_one(
    sandbox: Sandbox, told: Told, event: str, action: str | None, name: str
) -> None:
    folder = os.environ.get(FOLDER)
    if not folder:
        pytest.skip(f"{FOLDER} is not set: the folder with GitHub's example payloads")
    story(sandbox)
    ours = [each for each in told(event) if each.get("action") == action][-1]
    real = json.loads((Path(folder) / name).read_text())
    assert missing(real, ours) == []
