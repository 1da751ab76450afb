"""What an answer of GitHub's means."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.github.answers import (
    Forbidden,
    Gone,
    Later,
    Limited,
    Refused,
    RefusedForNow,
    Unanswered,
    Unauthorized,
    judge,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
BLOCKED = (
    "You have exceeded a secondary rate limit and have been temporarily blocked from content "
    "creation. Please retry your request again later."
)


def judged(status: int, body: Any, **headers: str) -> Later | Refused:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return judge(status, named, body, NOW)


def failed(code: str, message: str = "") -> dict[str, Any]:
    error = {"resource": "IssueComment", "code": code} | ({"message": message} if message else {})
    return {"message": "Validation Failed", "errors": [error]}


FINAL = [
    (403, {"message": "Unable to create comment because issue is locked."}),
    (403, {"message": "You must authenticate via a GitHub App."}),
    (
        403,
        {
            "message": "Invalid app_id `15368` - check run can only be modified by the GitHub App "
            "that created it."
        },
    ),
    (413, {"message": "Payload too large"}),
    (422, {"message": "Reference already exists"}),
    (422, {"message": "Update is not a fast forward"}),
    (422, {"message": "Invalid request.\n\nFor 'properties/body', nil is not a string."}),
    (422, failed("missing_field")),
    (422, failed("custom", "body is too long (maximum is 65536 characters)")),
]


@pytest.mark.parametrize(("status", "body"), FINAL)
def test_only_documented_messages_are_final(status: int, body: dict[str, Any]) -> None:
    assert type(judged(status, body)) is Refused
    near = body | {"message": f"{body['message']} (for now)", "errors": []}
    assert (
        status == 413
        or "Invalid request" in near["message"]
        or isinstance(judged(status, near), RefusedForNow)
    )


@given(st.integers(400, 599), st.text(max_size=200), st.sampled_from(["", "unlocked", "blocked"]))
def test_no_words_that_are_not_documented_are_final(status: int, text: str, word: str) -> None:
    error = judged(status, {"message": f"{text} {word}"})
    assert isinstance(error, Later | Gone) or status == 413


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"message": "Problems parsing JSON"}, RefusedForNow),
        (401, {"message": "Bad credentials"}, Unauthorized),
        (403, {"message": "Resource not accessible by integration"}, Forbidden),
        (403, {"message": "Repository was archived so is read-only."}, Forbidden),
        (403, {"message": BLOCKED}, Limited),
        (404, {"message": "Not Found"}, Gone),
        (408, "Request Timeout", Unanswered),
        (409, {"message": "Git Repository is empty."}, RefusedForNow),
        (410, {"message": "This issue was deleted"}, Gone),
        (422, {"message": f"No commit found for SHA: {'0' * 40}"}, Gone),
        (422, {"message": "Repository rule violations found\n\n"}, RefusedForNow),
        (422, failed("custom", "was submitted too quickly"), RefusedForNow),
        (423, {"message": "Locked"}, RefusedForNow),
        (429, {"message": "Too many requests"}, Limited),
        (451, {"message": "Repository access blocked"}, RefusedForNow),
        (502, "<html><title>Unicorn! &middot; GitHub</title>", Unanswered),
        (599, [], Unanswered),
    ],
)
def test_each_answer_has_its_kind(status: int, body: Any, expected: type[Exception]) -> None:
    assert type(judged(status, body)) is expected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 60),
        ({"retry_after": "17"}, 17),
        ({"retry_after": "0"}, 1),
        ({"retry_after": "Tue, 01 Jan 2030 12:05:00 GMT"}, 300),
        ({"retry_after": "Tue, 01 Jan 2030 11:00:00 GMT"}, 1),
        ({"retry_after": "soon"}, 60),
        ({"x_ratelimit_remaining": "0", "x_ratelimit_reset": "1893500000"}, 800),
        ({"x_ratelimit_remaining": "4771", "x_ratelimit_reset": "1893400000"}, 60),
    ],
)
def test_a_limit_lasts_as_long_as_github_says(headers: dict[str, str], seconds: int) -> None:
    for status in (403, 429):
        error = judged(status, {"message": BLOCKED}, **headers)
        assert isinstance(error, Limited)
        assert error.wait == timedelta(seconds=seconds)


def test_errors_and_titles_of_pages_are_read() -> None:
    error = judged(422, failed("custom", "was submitted too quickly"))
    assert str(error) == "422: Validation Failed: was submitted too quickly"
    assert "Unicorn!" in str(judged(502, "<title>Unicorn! &middot; GitHub</title>"))
    assert "odd" in str(judged(422, {"message": "x", "errors": ["odd"]}))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=20),
                    lambda x: st.lists(x) | st.dictionaries(st.text(max_size=8), x)))  # fmt: skip
def test_no_body_breaks_the_judge(body: Any) -> None:
    for status in (403, 404, 422, 500):
        assert isinstance(judged(status, {"message": body, "errors": body}), Later | Refused)
        assert isinstance(judged(status, body), Later | Refused)
