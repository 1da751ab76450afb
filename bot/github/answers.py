"""What an answer of GitHub's means: by its status and headers, then by documented messages, word
for word. Pure.

Few refusals are final: `Gone` and `Refused`. Everything else passes, and is raised as a `Later`,
whose class says whether a write took effect. A new wording of GitHub's costs a wait, and nothing is
lost.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

RETRY = timedelta(seconds=10)
SLOW_DOWN = timedelta(seconds=60)  # GitHub's advice for limits that name no duration
SHORTEST_WAIT = timedelta(seconds=1)
# Refusals that last, by status. Each is the whole message.
FINAL = {
    403: re.compile(
        # of a comment; docs.github.com, GraphQL, CommentCannotUpdateReason LOCKED
        r"Unable to create comment because issue is locked\."
        # of check runs; docs.github.com, REST, Checks: only for Apps, and only the App's own
        r"|You must authenticate via a GitHub App\."
        r"|Invalid app_id `\d+` - check run can only be modified by the GitHub App that created "
        r"it\."
    ),
    422: re.compile(
        # of references; docs.github.com, REST, Git database
        r"Reference already exists|Update is not a fast forward"
        # of trees and of requests that do not fit GitHub's description
        r"|Invalid tree info|tree\.path contains a malformed path component"
        r"|tree\.content too large"
        r"|Invalid request\.\s.*",
        re.DOTALL,
    ),
}
# Codes in `errors[]` that last; docs.github.com, REST, Troubleshooting: "Validation Failed".
FINAL_CODES = {"missing_field", "invalid", "already_exists", "too_large"}
TOO_LONG = re.compile(r"body is too long \(maximum is \d+ characters\)", re.IGNORECASE)
# What a commit, tree or object is called that GitHub does not know, or not yet: rust-lang/homu#141,
# home-assistant/service-hub#394, fullsend-ai/fullsend#5774.
UNKNOWN = re.compile(
    r"No commit found for (SHA: )?\S+|Tree SHA does not exist|Object does not exist"
    r"|tree\.sha \w+ does not exist|Parent SHA does not exist or is not a commit object"
)
# Limits without a header: docs.github.com, REST, Rate limits; PyGithub#810, projects-migration#2.
LIMIT = re.compile(
    r"You have exceeded a secondary rate limit\b.*"
    r"|You have triggered an abuse detection mechanism\b.*"
    r"|API rate limit (already )?exceeded for .*",
    re.DOTALL,
)


class Later(Exception):
    """It cannot be known or done now."""

    def __init__(self, message: str, wait: timedelta = RETRY) -> None:
        super().__init__(message)
        self.wait = wait  # before a retry makes sense


class Unusable(Later):
    """An address or a key is none, and only an operator can correct it; nothing was asked."""


class Unanswered(Later):
    """GitHub failed, or its answer was lost. Whether a write took effect is unknown."""


class TimedOut(Unanswered):
    """The same, after so long that the read is not repeated at once."""


class Limited(Later):
    """GitHub wants us to wait, with everything. Nothing took effect."""


class RefusedForNow(Later):
    """Only this request is refused, perhaps for a moment. Nothing took effect."""


class Forbidden(RefusedForNow):
    """This request is not permitted (a 403 that is no limit). An operator may fix that."""


class Unauthorized(Later):
    """The token is not valid, or no longer (401); nothing took effect."""


class Moved(Later):
    """The subject of the request has another address now; nothing took effect."""

    def __init__(self, path: str | None) -> None:
        where = f"to {path}" if path else "out of GitHub's API, as that of a proxy may"
        super().__init__(f"the answer leads {where}")
        self.path = path  # below the API's URL; None if it is outside


class Refused(Exception):
    """GitHub refused for good (a 4xx); the message is GitHub's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Gone(Refused):
    """GitHub does not show the subject of the request (404, 410, some 422). Right after an event
    that is not the truth: GitHub's API can be seconds behind its webhooks."""


def judge(
    status: int, headers: Mapping[str, str], body: Any, now: datetime, about: str = ""
) -> Later | Refused:
    """The error of an answer with a status of 400 or more. `headers`: by names in lower case;
    `body`: JSON or, where it is none, a text; `now`: GitHub's time; `about`: the request."""
    message, errors = _message(body)
    said = f"{message} ({about})" if about else message
    if status in (404, 410) or (status == 422 and UNKNOWN.fullmatch(message)):
        return Gone(status, message)
    if status == 401:
        return Unauthorized(f"{status}: {said}")
    if status in (403, 429) and (wait := _limit(status, headers, message, now)):
        return Limited(f"{status}: {said}", wait)
    if status >= 500 or status == 408:
        return Unanswered(f"{status}: {said}", _retry_after(headers, now) or RETRY)
    if status == 413 or (status in FINAL and FINAL[status].fullmatch(message)):
        return Refused(status, message)
    if status == 422 and errors and all(map(_is_final, errors)):
        return Refused(status, message)
    of = Forbidden if status == 403 else RefusedForNow
    return of(f"{status}: {said}", _retry_after(headers, now) or SLOW_DOWN)


def _is_final(error: Mapping[str, Any]) -> bool:
    text = str(error.get("message") or "")
    return error.get("code") in FINAL_CODES or bool(TOO_LONG.fullmatch(text))


def _limit(
    status: int, headers: Mapping[str, str], message: str, now: datetime
) -> timedelta | None:
    """How long a limit asks us to wait; None if it is no limit."""
    if after := _retry_after(headers, now):
        return after
    reset = headers.get("x-ratelimit-reset", "")
    # With something remaining, the limit is a secondary one, and the reset is not about it.
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        return max(datetime.fromtimestamp(int(reset), UTC) - now, RETRY)
    return SLOW_DOWN if status == 429 or LIMIT.fullmatch(message) else None


def _retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """The header's duration: seconds or, as HTTP allows, a date."""
    after = headers.get("retry-after", "")
    if after.isdigit():
        return max(timedelta(seconds=int(after[:6])), SHORTEST_WAIT)
    try:
        return max(parsedate_to_datetime(after) - now, SHORTEST_WAIT)
    except (ValueError, TypeError):
        return None


def _message(body: Any) -> tuple[str, list[dict[str, Any]]]:
    """What GitHub says, with what `errors[]` adds, and the errors."""
    if not isinstance(body, dict):
        title = re.search(r"<title>([^<]{1,100})", str(body))
        return (f"a page: {title[1].strip()}" if title else str(body)[:300]), []
    listed = body.get("errors")
    errors = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    more = [str(one.get("message") or one.get("code") or "") for one in errors]
    if isinstance(listed, list):
        more += [one for one in listed if isinstance(one, str)]
    message = str(body.get("message", body))
    return ": ".join([message, *filter(None, more)] if more else [message])[:300], errors
