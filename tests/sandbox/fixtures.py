"""A sandbox with a lab's files, served on loopback, and a PyGithub client for each person."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from github import Auth, Github
from github.Repository import Repository

from bot.fake_github.server import Clock, Sandbox, make_sandbox, running
from tests.sandbox.openapi import Recorder

BOT_TOKEN = "ghs_bot"
TOKENS = {"ada": "ghp_ada", "sam": "ghp_sam", "grace": "ghp_grace"}
SECRET = "a webhook secret"
NAME = "regatta-lab/lab"


@functools.cache
def app_keys() -> tuple[str, str]:
    """An App's private key and its public half, PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = key.public_key().public_bytes(serialization.Encoding.PEM, form)
    return private.decode(), public.decode()


FORM = b"""\
name: Experiment
description: Preregister an experiment
title: "[experiment] "
labels: ["experiment: wishlist"]
body:
  - type: markdown
    attributes:
      value: "Thank you for **asking in the open**."
  - type: textarea
    id: hypothesis
    attributes:
      label: Hypothesis
      description: One sentence.
    validations:
      required: true
  - type: textarea
    id: predictions
    attributes:
      label: Predictions
      render: yaml
      value: |
        - metric: eval/bpb
  - type: dropdown
    id: kind
    attributes:
      label: Kind
      options: [question, replication]
  - type: input
    id: budget
    attributes:
      label: Budget
      placeholder: 1 hour
  - type: checkboxes
    id: promises
    attributes:
      label: Promises
      options:
        - label: I have looked for an earlier one
          required: true
        - label: I would run it again
"""
FILES = {
    "README.md": b"# A lab\n",
    "experiments/first/experiment.yaml": b"title: First\n",
    ".github/ISSUE_TEMPLATE/experiment.yml": FORM,
}

Received = list[tuple[Mapping[str, str], bytes]]


@pytest.fixture
def received() -> Received:
    """The webhooks that were sent, as (headers, body)."""
    return []


@pytest.fixture
def told(received: Received) -> Callable[[str], list[dict[str, Any]]]:
    """The payloads of one event."""

    def of(event: str) -> list[dict[str, Any]]:
        return [
            json.loads(body) for headers, body in received if headers["X-GitHub-Event"] == event
        ]

    return of


@pytest.fixture
def sandbox(tmp_path: Path, received: Received) -> Sandbox:
    def deliver(headers: Mapping[str, str], body: bytes) -> int:
        received.append((headers, body))
        return 202

    return make_sandbox(
        tmp_path,
        files=FILES,
        bot_token=BOT_TOKEN,
        persona_tokens=TOKENS,
        webhook_secret=SECRET,
        clock=Clock(datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC), running=False),
        deliver=deliver,
    )


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def url(sandbox: Sandbox, recorder: Recorder) -> Iterator[str]:
    """The served sandbox; what does not fit GitHub's description fails the test at its end."""
    with running(sandbox, wrap=recorder) as url:
        yield url
    assert recorder.complaints == []


def client(url: str, token: str) -> Github:
    return Github(
        base_url=f"{url}/api/v3",
        auth=Auth.Token(token),
        retry=None,
        seconds_between_requests=0,
        seconds_between_writes=0,
        lazy=True,
    )


@pytest.fixture
def bot(url: str) -> Repository:
    """The repository as the bot's PyGithub sees it."""
    return client(url, BOT_TOKEN).get_repo(NAME)


@pytest.fixture
def ada(url: str) -> Repository:
    return client(url, TOKENS["ada"]).get_repo(NAME)


@pytest.fixture
def sam(url: str) -> Repository:
    return client(url, TOKENS["sam"]).get_repo(NAME)


Ask = Callable[..., requests.Response]


@pytest.fixture
def ask(url: str) -> Iterator[Ask]:
    """A plain request to the API: `ask("GET", "/issues", token=…)`, paths inside the repository."""
    with requests.Session() as session:

        def send(
            method: str, path: str, *, token: str | None = BOT_TOKEN, **more: Any
        ) -> requests.Response:
            headers = {"Authorization": f"token {token}"} if token else {}
            headers |= more.pop("headers", {})
            address = f"{url}/api/v3/repos/{NAME}{path}"
            return session.request(method, address, headers=headers, timeout=10, **more)

        yield send
