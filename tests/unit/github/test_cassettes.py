"""The client against recorded answers: these requests and no others, each exactly as it was."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest
import yaml
from vcr.errors import CannotOverwriteExistingCassetteException

from bot.github import AppAuth
from tests.github.build import private_key
from tests.github.operations import TAPES
from tests.github.tapes import (
    HERE,
    client,
    expected,
    replay,
    subject,
    tape,
    without_secrets,
)
from tests.sandbox.openapi import VARIABLE, description


@pytest.mark.parametrize("name", TAPES)
def test_a_cassette_replays_to_its_end_and_says_the_same(name: str) -> None:
    about = subject()
    credentials = lambda: "a-token"  # noqa: E731
    if name == "app":
        credentials = AppAuth("Iv1.x", private_key(), about.repository, monotonic=lambda: 0.0)
    assert replay(name, about, credentials) == expected(name)


def test_a_request_that_was_not_recorded_is_not_let_through() -> None:
    about = subject()
    with tape("none").use_cassette("writing.yaml"):
        github = client(lambda: "a-token", about)
        with pytest.raises(CannotOverwriteExistingCassetteException, match="body differs"):
            github.create_comment(about.issue, "Words that nobody recorded.")


@pytest.mark.parametrize("name", TAPES)
def test_recorded_requests_are_described_by_github_and_hold_no_secret(name: str) -> None:
    text = (HERE / f"{name}.yaml").read_text()
    assert "uthorization" not in text
    assert "BEGIN RSA" not in text
    known = description()
    if known is None:
        pytest.skip(f"{VARIABLE} is not set: GitHub's OpenAPI description, a JSON file")
    for each in yaml.safe_load(text)["interactions"]:
        asked = each["request"]
        url = urlsplit(asked["uri"])
        body = (asked["body"] or "").encode()
        assert known.request_complaint(asked["method"], url.path, url.query, body) is None


def test_cassettes_contain_no_token() -> None:
    answer = {
        "headers": {"Date": ["now"], "Set-Cookie": ["a secret"], "X-OAuth-Scopes": ["repo"]},
        "body": {"string": json.dumps({"token": "ghs_secret", "expires_at": "x"}).encode()},
    }
    kept = without_secrets(answer)
    assert list(kept["headers"]) == ["Date"]
    assert json.loads(kept["body"]["string"]) == {"token": "not-kept", "expires_at": "x"}
