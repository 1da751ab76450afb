"""Builds the cassettes from GitHub's own example payloads, for who has no token to record with.

    REGATTA_TEST_WEBHOOKS=folder python -m tests.github.build

The client asks, and each request is answered with the objects that GitHub puts into webhooks: the
same repository, issue, pull request, comments. What no webhook holds (a tree, a blob, a page's
address) is put together from their values.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import requests
import vcr.serialize
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from vcr.request import Request
from vcr.serializers import yamlserializer

from bot.github import AppAuth
from tests.github.operations import TAPES, Subject, play
from tests.github.tapes import API, HERE, client, write

DATE = "Thu, 16 May 2019 12:00:00 GMT"


def private_key() -> str:
    """A new key; the word that it signs is not kept."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


class GitHubsExamples:
    """Answers requests with what is in the example payloads."""

    def __init__(self, folder: Path) -> None:
        def payload(name: str) -> Any:
            return json.loads((folder / f"{name}.json").read_text())

        opened = payload("pull_request.opened.7")
        commented = payload("issue_comment.created.1")
        reviewed = payload("pull_request_review.submitted.2")
        checked = payload("check_run.created.1")
        self.delivered = commented
        self.repository = commented["repository"]
        self.issue = payload("issues.opened.13")["issue"]
        self.pull = opened["pull_request"]
        self.comment = commented["comment"]
        self.review = reviewed["review"]
        self.check = checked["check_run"]
        self.label = payload("label.created.1")["label"]
        self.installation = payload("installation.created.2")["installation"]
        self.person = commented["sender"]
        self.said = 0
        self.subject = Subject(
            repository=self.repository["full_name"],
            issue=self.issue["number"],
            pull=self.pull["number"],
            login=self.person["login"],
            since="2019-05-15T00:00:00+00:00",
        )

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        path = re.sub(rf"^/repos/{self.repository['full_name']}", "", path)
        for verb, pattern, found in self.table(body):
            if verb == method and re.fullmatch(pattern, path):
                return found
        raise LookupError(f"no example answers {method} {path}")

    def table(self, body: Any) -> list[tuple[str, str, tuple[int, Any]]]:
        """Method, path, and what GitHub would answer."""
        pull, readme = self.pull, f"# {self.repository['name']}\n".encode()
        sha = hashlib.sha1(b"blob %d\0" % len(readme) + readme).hexdigest()
        content = {"content": base64.b64encode(readme).decode(), "encoding": "base64"}
        head = pull["head"]["sha"]
        commit = {"sha": head, "author": self.person, "committer": self.person}
        commit["parents"] = [{"sha": pull["base"]["sha"]}]
        file = {"path": "README.md", "mode": "100644", "type": "blob", "sha": sha}
        policy = file | {"path": "policy.yml"}
        github = {"path": ".github", "mode": "040000", "type": "tree", "sha": "1" * 40}
        lab = {"path": "regatta", "mode": "040000", "type": "tree", "sha": "2" * 40}
        pushed = {"event": "head_ref_force_pushed", "actor": self.person, "commit_id": head}
        pushed |= {"id": 1, "created_at": pull["created_at"]}
        role = {"permission": "write", "role_name": "maintain", "user": self.person}
        compared = {"total_commits": 1, "commits": [commit]}
        compared["files"] = [{"filename": "README.md", "status": "modified", "sha": sha}]
        attempt = {
            "id": 12345678, "guid": "0b989ba4-242f-11e5-81e1-c7b6966d2516", "status": "OK",
            "delivered_at": "2019-05-15T15:20:21Z", "redelivery": False, "duration": 0.27,
            "status_code": 502, "event": "issue_comment", "action": "created",
            "installation_id": self.installation["id"], "repository_id": self.repository["id"],
            "throttled_at": None,
        }  # fmt: skip
        heard = {"headers": {"X-GitHub-Delivery": attempt["guid"]}, "payload": self.delivered}
        token = {"token": "not-kept", "expires_at": "2019-05-16T13:00:00Z"}
        said = self.comment | {"body": (body or {}).get("body", self.comment["body"])}
        reaction = {"id": 1, "user": self.person, "content": "eyes"}
        made = {"sha": head}
        checks = {"total_count": 1, "check_runs": [self.check]}
        return [
            ("GET", "", (200, self.repository)),
            ("GET", "/installation", (200, self.installation)),
            ("GET", f"/issues/{self.issue['number']}", (200, self.issue)),
            ("GET", f"/pulls/{pull['number']}", (200, pull)),
            ("GET", r"/collaborators/\w+/permission", (200, role)),
            ("GET", r"/compare/\w+\.\.\.\w+", (200, compared)),
            ("GET", r"/issues/\d+/timeline", (200, [pushed])),
            ("GET", r"/pulls/\d+/reviews", (200, [self.review])),
            ("GET", r"/branches/\w+", (200, {"name": "master", "commit": commit})),
            ("GET", r"/contents/README.md", (200, {"type": "file", "sha": sha} | content)),
            ("GET", r"/git/ref/heads/[\w-]+", (200, {"object": {"type": "commit", "sha": head}})),
            ("GET", r"/git/commits/\w+", (200, {"sha": head, "tree": {"sha": sha}})),
            ("PATCH", r"/git/refs/heads/[\w-]+", (200, {"object": {"sha": head}})),
            ("GET", "/git/trees/1+", (200, {"tree": [lab], "truncated": False})),
            ("GET", "/git/trees/2+", (200, {"tree": [policy], "truncated": False})),
            ("GET", r"/git/trees/\w+", (200, {"tree": [file, github], "truncated": False})),
            ("GET", r"/git/blobs/\w+", (200, {"sha": sha} | content)),
            ("GET", r"/issues/\d+/comments", (200, [self.comment])),
            (
                "GET",
                r"/commits/\w+/check-runs",
                (200, checks),
            ),
            ("GET", "/issues/comments", (200, [self.comment])),
            ("GET", "/issues", (200, [self.issue])),
            ("POST", r"/issues/\d+/labels", (200, [self.label])),
            ("DELETE", r"/issues/\d+/labels/.+", (200, [self.label])),
            ("POST", r"/issues/\d+/comments", (201, said)),
            ("PATCH", r"/issues/comments/\d+", (200, said)),
            ("DELETE", r"/issues/comments/\d+", (204, None)),
            ("POST", r"/issues/comments/\d+/reactions", (201, reaction)),
            ("POST", "/check-runs", (201, self.check)),
            ("PATCH", r"/check-runs/\d+", (200, self.check)),
            ("POST", "/git/(blobs|trees|commits)", (201, made)),
            ("POST", "/git/refs", (422, {"message": "Reference already exists"})),
            ("POST", "/graphql", (200, {"data": {"node": {"lastEditedAt": None}}})),
            ("POST", r"/app/installations/\d+/access_tokens", (201, token)),
            ("GET", "/app/hook/deliveries", (200, [attempt])),
            ("GET", r"/app/hook/deliveries/\d+", (200, attempt | {"request": heard})),
            ("POST", r"/app/hook/deliveries/\d+/attempts", (202, {})),
        ]


class Tape:
    """In place of the network; keeps what was asked and answered as vcrpy keeps it."""

    def __init__(self, answer: Callable[[str, str, Any], tuple[int, Any]]) -> None:
        self.answer = answer
        self.kept: list[tuple[Any, Any]] = []

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:
        """Answer one request."""
        url = (request.url or "").replace(f"{API}:443", API)  # as PyGithub writes it
        path = url.removeprefix(API).partition("?")[0]
        sent = request.body.encode() if isinstance(request.body, str) else None
        status, found = self.answer(request.method or "", path, json.loads(sent or b"null"))
        body = b"" if found is None else json.dumps(found).encode()
        headers = {"Content-Type": "application/json; charset=utf-8", "Date": DATE}
        answer = requests.Response()
        answer.status_code, answer._content = status, body
        answer.headers.update(headers)
        names = ("Accept", "Content-Type", "X-GitHub-Api-Version")
        kept = {name: request.headers[name] for name in names if name in request.headers}
        self.kept.append(
            (
                Request(request.method, url, sent, kept),
                {
                    "status": {"code": status, "message": ""},
                    "headers": {name: [value] for name, value in headers.items()},
                    "body": {"string": body},
                },
            )
        )
        return answer


def build(folder: Path) -> None:
    """Write all cassettes and what the client makes of them."""
    examples = GitHubsExamples(folder)
    about = examples.subject
    for name, steps in TAPES.items():
        tape = Tape(examples.answer)
        with mock.patch.object(requests.adapters.HTTPAdapter, "send", tape.send):
            app = AppAuth("Iv1.recorded", private_key(), about.repository, monotonic=lambda: 0.0)
            credentials = app if name == "app" else lambda: "a-token"
            told = play(steps(client(credentials, about), about))
        asked, answered = zip(*tape.kept, strict=True)
        kept = vcr.serialize.serialize(
            {"requests": list(asked), "responses": list(answered)}, yamlserializer
        )
        (HERE / f"{name}.yaml").write_text(kept)
        write(HERE / f"{name}.json", told)
    write(HERE / "subject.json", asdict(about))


if __name__ == "__main__":
    build(Path(os.environ["REGATTA_TEST_WEBHOOKS"]))
