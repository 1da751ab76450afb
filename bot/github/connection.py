"""PyGithub's requests, with manners: GitHub's clock, its limits, and failures sorted into four.

`Gone` and `Refused` are final; `Later` is not, and after it nobody knows whether a write took
effect; after `Forbidden`, which may last until somebody gives a permission, it has not.

PyGithub of itself repeats a request where a 301 points, and sleeps on a 202. Where a write goes
must not be for others to say, and nobody else may wait meanwhile. So each answer is looked at
before PyGithub sees it, and what is no plain answer is raised here.
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

API = "https://api.github.com"
PAGE = 100
TIMEOUT = 20  # seconds for one request
RETRY = timedelta(seconds=10)
SLOW_DOWN = timedelta(seconds=60)  # where GitHub limits and does not say for how long
MOVED = (301, 302, 307, 308)
# What GitHub says with a 403 where no permission would help.
FINAL = ("locked", "must authenticate via a GitHub App", "Invalid app_id")

# Below INFO, PyGithub logs answers that hold tokens; its own handler redacts and escapes nothing.
logging.getLogger("github").setLevel(logging.INFO)
logging.getLogger("github").handlers.clear()
_injecting = threading.Lock()
C = TypeVar("C", HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass)


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


class Moved(Later):
    """What was asked about has another address now; nothing took effect."""

    def __init__(self, path: str | None) -> None:
        where = f"to {path}" if path else "out of GitHub's API, as that of a proxy may"
        super().__init__(f"the answer leads {where}")
        self.path = path  # below the API's address; None where it leads out of it


class Bearer(Auth):
    """Speaks with the token that `credentials` hands out for each request, and holds no other."""

    token_type = "Bearer"

    def __init__(
        self, credentials: Callable[[], str], renew: Callable[[str], None] | None = None
    ) -> None:
        """`renew` is told of a token that GitHub did not take: the next one is another. Without it,
        or one of the credentials' own, there is no other."""
        self.credentials = credentials
        self.renew = renew or getattr(credentials, "renew", None)
        self.last = ""

    @property
    def token(self) -> str:
        """For the next request. Raises Later where there is none."""
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
        if urlsplit(api).scheme not in ("http", "https"):
            raise Later(f"{api} is no address of GitHub's API")

        def guarded(plain: type[C]) -> type[C]:
            look = {"getresponse": lambda on: self._exchange(on, partial(plain.getresponse, on))}
            return type(plain.__name__, (plain,), look)

        with _injecting:  # into this class; PyGithub's own stays as it is
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
                retry=None,  # else a POST is sent again after a 502
                pool_size=None,
                seconds_between_requests=0,  # `bot.controller.write_budget` knows better
                seconds_between_writes=0,
                lazy=True,
                api_version="2022-11-28",
            )
            self.resetConnectionClasses()  # else each request has a connection of its own

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

    def get(self, path: str, **query: str) -> Any:
        """What is answered to one question."""
        return self.requestJsonAndCheck("GET", path, query)[1]

    def repository(self, name: str) -> Repository:
        """PyGithub's repository of this name; nothing is asked yet."""
        return Repository(self, url=f"/repos/{name}")

    def requestJsonAndCheck(
        self, verb: str, url: str, *rest: Any, **more: Any
    ) -> tuple[dict[str, Any], Any]:
        """All of PyGithub's operations come through here. A token that GitHub does not take is
        renewed once, and sent to GitHub only."""
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
            # `from None`: what requests says of a header may hold the token.
            raise Later(f"{about}: {type(error).__name__}") from None
        answer = answered.response
        with suppress(ValueError, TypeError):  # no date, or none that can be read
            date = parsedate_to_datetime(answer.headers.get("date", ""))
            self._date = (date, self._monotonic())
        if answer.status_code in MOVED:
            at, location = f"{self.base_url}/", answer.headers.get("location", "")
            raise Moved(location[len(at) - 1 :] if location.startswith(at) else None)
        if answer.status_code >= 400:
            raise self._sorted(answer)
        if answer.status_code == 202 and on.verb == "GET":
            raise Later(f"{about}: it is not computed yet")
        with suppress(ValueError):  # a body that broke off
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
        """How long a rate limit asks us to wait; None if this is none."""
        if (after := headers.get("retry-after", "")).isdigit():
            return timedelta(seconds=int(after))
        reset = headers.get("x-ratelimit-reset", "")
        if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
            return max(datetime.fromtimestamp(int(reset), UTC) - self.now(), RETRY)
        return SLOW_DOWN if "rate limit" in message else None
