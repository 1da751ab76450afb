"""PyGithub's requests with GitHub's clock, its limits, and four types of failure.

`Gone` and `Refused` are final. After `Later`, which is not, nobody knows whether a write took
effect. After `Forbidden`, which may last until somebody gives a permission, it has not.

By itself PyGithub repeats a request at the target of a 301, and sleeps on a 202. But others must
not decide where a write goes, and other requests must not wait meanwhile. So each answer is checked
before PyGithub sees it, and unusual answers are raised here.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from github.Auth import Auth
from github.Consts import mediaType
from github.Repository import Repository
from github.Requester import (
    HTTPRequestsConnectionClass,
    HTTPSRequestsConnectionClass,
    Requester,
    RequestsResponse,
)

from runner.lib import addresses

API = "https://api.github.com"
PAGE = 100
TIMEOUT = 20  # seconds for one request
RETRY = timedelta(seconds=10)
SLOW_DOWN = timedelta(seconds=60)  # for rate limits without a duration
MOVED = (301, 302, 307, 308)
# Messages of a 403 that no permission would change.
FINAL = ("locked", "must authenticate via a GitHub App", "Invalid app_id")

# Below INFO, PyGithub logs answers with tokens; its own handler redacts and escapes nothing.
logging.getLogger("github").setLevel(logging.INFO)
logging.getLogger("github").handlers.clear()
_injecting = threading.Lock()
C = TypeVar("C", HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass)


class Later(Exception):
    """GitHub did not answer, failed, or told us to wait. The outcome is unknown."""

    def __init__(self, message: str, wait: timedelta = RETRY) -> None:
        super().__init__(message)
        self.wait = wait  # before a retry makes sense


class Unusable(Later):
    """An address or a key is none, and only an operator can correct it; nothing was asked."""


class Refused(Exception):
    """GitHub refused for good (a 4xx); the message is GitHub's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Gone(Refused):
    """The subject of the request does not exist (404, 410)."""


class Forbidden(Later):
    """Only this request is not permitted (a 403 that is no limit); nothing took effect. An operator
    may fix that."""


class Unauthorized(Later):
    """The token is not valid, or no longer (401); nothing took effect."""


class Moved(Later):
    """The subject of the request has another address now; nothing took effect."""

    def __init__(self, path: str | None) -> None:
        where = f"to {path}" if path else "out of GitHub's API, as that of a proxy may"
        super().__init__(f"the answer leads {where}")
        self.path = path  # below the API's URL; None if it is outside


class Bearer(Auth):
    """Authenticates each request with the token that `credentials` returns; stores no token."""

    token_type = "Bearer"

    def __init__(
        self, credentials: Callable[[], str], renew: Callable[[str], None] | None = None
    ) -> None:
        """`renew` is called with a token that GitHub refused; then `credentials` returns another
        one. Without `renew` here or in the credentials, no other token is tried."""
        self.credentials = credentials
        self.renew = renew or getattr(credentials, "renew", None)
        self.last = ""

    @property
    def token(self) -> str:
        """The token for the next request. Raises Later if there is none."""
        self.last = self.credentials()
        return self.last


class Line(Requester):
    """Sends requests to one API. They raise Later, Forbidden, Refused, Gone or Moved."""

    def __init__(
        self,
        api: str = API,
        auth: Bearer | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bearer = auth
        self._monotonic = monotonic
        self._date: tuple[datetime, float] | None = None
        self._quiet_until = float("-inf")  # GitHub told us not to ask before then
        if not addresses.is_http(api):
            raise Unusable(f"{api} is no address of GitHub's API")

        def guarded(plain: type[C]) -> type[C]:
            look = {"getresponse": lambda on: self._exchange(on, partial(plain.getresponse, on))}
            return type(plain.__name__, (plain,), look)

        with _injecting:  # into this class; PyGithub's own stays unchanged
            self.injectConnectionClasses(
                guarded(HTTPRequestsConnectionClass), guarded(HTTPSRequestsConnectionClass)
            )
            super().__init__(
                auth=auth,
                base_url=api.rstrip("/"),
                timeout=TIMEOUT,
                user_agent="regatta",
                per_page=PAGE,
                verify=True,
                retry=None,  # otherwise a POST is repeated after a 502
                pool_size=None,
                seconds_between_requests=0,  # `bot.controller.write_budget` decides
                seconds_between_writes=0,
                lazy=True,
                api_version="2022-11-28",
            )
            self.resetConnectionClasses()  # otherwise each request has a connection of its own

    @property
    def answered(self) -> bool:
        """Whether GitHub's time is known."""
        return self._date is not None

    def now(self) -> datetime:
        """GitHub's time: its last answer's `Date` plus the time since."""
        if self._date is None:
            raise AssertionError("nothing has been asked of GitHub yet")
        date, seen = self._date
        return date + timedelta(seconds=self._monotonic() - seen)

    def get(self, path: str, **query: str) -> Any:
        """The JSON answer to a GET."""
        return self.requestJsonAndCheck("GET", path, query)[1]

    def repository(self, name: str) -> Repository:
        """PyGithub's repository with this name; sends no request."""
        return Repository(self, url=f"/repos/{name}")

    def requestJsonAndCheck(
        self, verb: str, url: str, *rest: Any, **more: Any
    ) -> tuple[dict[str, Any], Any]:
        """All of PyGithub's operations come through here. A refused token is renewed once, and sent
        to GitHub only."""
        if not url.startswith(("/", f"{self.base_url}/")) and url != self.graphql_url:
            raise Moved(None)
        try:
            return super().requestJsonAndCheck(verb, url, *rest, **more)
        except Unauthorized:
            if self._bearer is None or self._bearer.renew is None:
                raise
            self._bearer.renew(self._bearer.last)
        return super().requestJsonAndCheck(verb, url, *rest, **more)

    def _exchange(self, on: C, send: Callable[[], RequestsResponse]) -> RequestsResponse:
        """Send one request, once."""
        quiet = self._quiet_until - self._monotonic()
        if quiet > 0:
            raise Later("GitHub asked us to wait", timedelta(seconds=quiet))
        about = f"{on.verb} {urlsplit(on.url).path}"
        on.headers.setdefault("Accept", mediaType)
        try:
            answered = send()
        except (requests.RequestException, OSError) as error:
            # `from None`: the message of requests about a header may contain the token.
            raise Later(f"{about}: {type(error).__name__}") from None
        answer = answered.response
        with suppress(ValueError, TypeError):  # no date, or an invalid one
            date = parsedate_to_datetime(answer.headers.get("date", ""))
            self._date = (date, self._monotonic())
        if answer.status_code in MOVED:
            at, location = f"{self.base_url}/", answer.headers.get("location", "")
            raise Moved(location[len(at) - 1 :] if location.startswith(at) else None)
        if answer.status_code >= 400:
            raise self._sorted(answer)
        if answer.status_code == 202 and on.verb == "GET":
            raise Later(f"{about}: it is not computed yet")
        with suppress(ValueError):  # a truncated body
            if answer.status_code == 204 or on.verb == "DELETE" or answer.json() is not None:
                return answered
        raise Later(f"{about}: the answer cannot be read")

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
        """How long a rate limit asks us to wait; None if it is no rate limit."""
        if (after := headers.get("retry-after", "")).isdigit():
            return timedelta(seconds=int(after))
        reset = headers.get("x-ratelimit-reset", "")
        if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
            return max(datetime.fromtimestamp(int(reset), UTC) - self.now(), RETRY)
        return SLOW_DOWN if "rate limit" in message else None
