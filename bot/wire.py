"""One HTTP request to GitHub: GitHub's clock, its limits, and failures sorted into four.

`Gone` and `Refused` are final; `Later` is not, and after it nobody knows whether a write took
effect; after `Forbidden`, which may last until somebody gives a permission, it has not. A request
is sent once: nothing here repeats it, and no redirect is followed, since where a write goes must
not be for others to say.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests

TIMEOUT = 20  # seconds for one request
RETRY = timedelta(seconds=10)
SLOW_DOWN = timedelta(seconds=60)  # where GitHub limits and does not say for how long
GRAPHQL = "/graphql"  # the path that stands for it
MOVED = (301, 302, 307, 308)
# What GitHub says with a 403 where no permission would help.
FINAL = ("locked", "must authenticate via a GitHub App", "Invalid app_id")


class Later(Exception):
    """GitHub could not be reached, was broken, or told us to wait. The outcome is unknown."""

    def __init__(self, message: str, wait: timedelta = RETRY) -> None:
        super().__init__(message)
        self.wait = wait  # before it makes sense to ask again


class Refused(Exception):
    """GitHub said no for good (a 4xx); the message is GitHub's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Gone(Refused):
    """What was asked about is not there (404, 410)."""


class Forbidden(Later):
    """This request, and no other, is not permitted (a 403 that is no limit); nothing took effect.
    An operator may mend that."""


class Unauthorized(Later):
    """The token is not, or no longer, good (401); nothing took effect."""


class Moved(Exception):
    """What was asked about has another address now; nothing took effect."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path  # below the API's address


@dataclass(frozen=True)
class Answer:
    """What came back: parsed JSON, and where a list goes on."""

    found: Any
    next: str | None  # the query of the list's next page


class Wire:
    """Sends requests to one API."""

    def __init__(self, api: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api.rstrip("/")
        # On a server of one's own, GraphQL is beside REST's /api/v3 and not below it.
        self._graphql = f"{self._api.removesuffix('/v3')}{GRAPHQL}"
        self._monotonic = monotonic
        self._session = requests.Session()
        self._session.auth = _as_it_is  # else requests takes a token from ~/.netrc
        self._date: tuple[datetime, float] | None = None
        self._quiet_until = float("-inf")  # GitHub told us not to ask before then

    @property
    def answered(self) -> bool:
        """Whether GitHub's time is known."""
        return self._date is not None

    def now(self) -> datetime:
        """GitHub's time: its last answer's `Date` and what has passed since."""
        if self._date is None:
            raise AssertionError("nothing has been asked of GitHub yet")
        date, seen = self._date
        return date + timedelta(seconds=self._monotonic() - seen)

    def send(
        self,
        verb: str,
        path: str,
        token: str,
        *,
        query: Mapping[str, str] | str = "",
        body: Any = None,
    ) -> Answer:
        """Send one request. Raises Later, Forbidden, Refused, Gone, Unauthorized or Moved."""
        quiet = self._quiet_until - self._monotonic()
        if quiet > 0:
            raise Later("GitHub asked us to wait", timedelta(seconds=quiet))
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "User-Agent": "regatta",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        try:
            answer = self._session.request(
                verb,
                self._graphql if path == GRAPHQL else f"{self._api}{path}",
                params=query or None,
                json=body,
                headers=headers,
                timeout=TIMEOUT,
                allow_redirects=False,
            )
        except (requests.RequestException, OSError) as error:
            # `from None`: what requests says of a header may hold the token.
            raise Later(f"{verb} {path}: {type(error).__name__}") from None
        with suppress(ValueError, TypeError):  # no date, or none that can be read
            date = parsedate_to_datetime(answer.headers.get("date", ""))
            self._date = (date, self._monotonic())
        if answer.status_code in MOVED:
            raise Moved(self._below(answer.headers.get("location", "")))
        if answer.status_code >= 400:
            raise self._sorted(answer)
        if answer.status_code == 204 or verb == "DELETE":
            return Answer(None, None)
        try:
            found = answer.json()
        except ValueError as error:  # a body that broke off
            raise Later(f"{verb} {path}: the answer cannot be read") from error
        if found is None:
            raise Later(f"{verb} {path}: an empty answer")
        return Answer(found, urlsplit(answer.links.get("next", {}).get("url", "")).query or None)

    def _below(self, location: str) -> str:
        """Where a redirect of this API leads; empty where it leads out of it."""
        at = f"{self._api}/"
        return location[len(at) - 1 :] if location.startswith(at) else ""

    def _sorted(self, answer: requests.Response) -> Exception:
        try:
            data = answer.json()
        except ValueError:
            data = answer.text
        message = str(data.get("message", data) if isinstance(data, dict) else data)[:300]
        status = answer.status_code
        if status in (404, 410):
            return Gone(status, message)
        if status == 401:
            return Unauthorized(f"{status}: {message}")
        if status == 403 and any(words in message for words in FINAL):
            return Refused(status, message)
        if status in (403, 429) and (wait := self._limited(answer.headers, message)):
            self._quiet_until = self._monotonic() + wait.total_seconds()
            return Later(f"{status}: {message}", wait)
        if status == 403:
            return Forbidden(f"{status}: {message}", SLOW_DOWN)
        if status == 429 or status >= 500:
            return Later(f"{status}: {message}")
        return Refused(status, message)

    def _limited(self, headers: Mapping[str, str], message: str) -> timedelta | None:
        """How long a rate limit asks us to wait; None if this is none."""
        if (after := headers.get("retry-after", "")).isdigit():
            return timedelta(seconds=int(after))
        reset = headers.get("x-ratelimit-reset", "")
        if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
            return max(datetime.fromtimestamp(int(reset), UTC) - self.now(), RETRY)
        return SLOW_DOWN if "rate limit" in message else None


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
