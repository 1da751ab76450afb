"""The REST answers against GitHub's OpenAPI description: what was checked, and that it can fail."""

from __future__ import annotations

import json

import pytest

from tests.sandbox.openapi import VARIABLE, Description, description


@pytest.fixture
def github() -> Description:
    known = description()
    if known is None:
        pytest.skip(f"{VARIABLE} is not set: GitHub's OpenAPI description, a JSON file")
    return known


def test_an_answer_that_lacks_a_key_is_found_out(github: Description) -> None:
    label = {
        "id": 1, "node_id": "x", "url": "http://127.0.0.1/l", "name": "a", "color": "ededed",
        "default": False, "description": None,
    }  # fmt: skip
    path = "/repos/o/r/labels/a"
    assert github.complaint("GET", path, 200, json.dumps(label).encode()) is None
    del label["color"]
    assert "color" in (github.complaint("GET", path, 200, json.dumps(label).encode()) or "")
    assert "answered 418" in (github.complaint("GET", path, 418, b"{}") or "")


def test_paths_with_slashes_find_their_operation(github: Description) -> None:
    for path, expected in (
        ("/repos/o/r/issues/comments/7", "issues/get-comment"),
        ("/repos/o/r/issues/7/comments", "issues/list-comments"),
        ("/repos/o/r/commits/a/b/check-runs", "checks/list-for-ref"),
        ("/repos/o/r/compare/a/b...c/d", "repos/compare-commits-with-basehead"),
        ("/repos/o/r/git/ref/heads/a", "git/get-ref"),
    ):
        operation = github.operation("GET", path)
        assert operation is not None
        assert operation["operationId"] == expected


def test_a_request_that_github_does_not_describe_is_found_out(github: Description) -> None:
    comments, body = "/repos/o/r/issues/1/comments", json.dumps({"body": "hello"}).encode()
    assert github.request_complaint("POST", comments, "", body) is None
    assert github.request_complaint("GET", comments, "per_page=100&page=2", b"") is None
    for method, path, query, sent, why in (
        ("POST", comments, "", b"{}", "'body' is a required property"),
        ("POST", comments, "", b"", "no body"),
        ("POST", comments, "", b'{"body": "x", "colour": 1}', "no field colour"),
        ("GET", comments, "since=yesterday", b"", "since"),
        ("GET", comments, "colour=red", b"", "no parameter colour"),
        ("GET", comments, "", b"{}", "takes none"),
        ("GET", "/repos/o/r/nothing", "", b"", "no such operation"),
    ):
        assert why in (github.request_complaint(method, path, query, sent) or "")
