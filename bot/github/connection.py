"""PyGithub's requests with GitHub's clock, its limits, and the errors of `bot.github.answers`.

By itself PyGithub repeats a request at the target of a 301, and sleeps on a 202. But others must
not decide where a write goes, and other requests must not wait meanwhile. So each answer is checked
before PyGithub sees it, and unusual answers are raised here.

A read whose answer was lost is sent again at once, and asks only for what has changed (`reads`). A
write is never repeated here. While GitHub does not answer at all, one request each ten seconds
tries whether it does.
"""

import logging
import threading
import time
from collections.abc import Callable
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

from bot.github.answers import (
    RETRY,
    Forbidden,
    Later,
    Limited,
    Moved,
    Refused,
    TimedOut,
    Unanswered,
    Unauthorized,
    Unusable,
    judge,
)
from bot.github.reads import Reads
from runner.lib import addresses

API = "https://api.github.com"
PAGE = 100
TIMEOUT = 20  # seconds for one request
READ_TRIES = 3  # for a read whose answer is lost; without a pause, because others wait
OUTAGE = 15.0  # seconds without an answer; then one request each RETRY is enough
MAX_LIMIT = timedelta(minutes=15)  # a limit without a duration grows up to here
RENEW_EVERY = 600.0  # seconds between two new tokens because of a 403
MOVED = (301, 302, 307, 308)

# Below INFO, PyGithub logs answers with tokens; its own handler redacts and escapes nothing.
logging.getLogger("github").setLevel(logging.INFO)
logging.getLogger("github").handlers.clear()
_injecting = threading.Lock()
log = logging.getLogger("regatta.github")
C = TypeVar("C", HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass)


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
        self._quiet_until = float("-inf")  # nothing is sent before then
        self.requests = 0  # sent since the start
        self._limits = 0  # in a row, between two writes that succeeded
        self._reads = Reads()
        self._silent: dict[bool, float] = {}  # since when reads, and writes (True), have no answer
        self._renewed_at = float("-inf")  # the last time because of a 403
        self.recoveries = 0  # how many outages have ended
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

    @property
    def is_away(self) -> bool:
        """Whether GitHub has answered no read for a while."""
        return self._monotonic() - self._silent.get(False, float("inf")) >= OUTAGE

    def requestJsonAndCheck(
        self, verb: str, url: str, *rest: Any, **more: Any
    ) -> tuple[dict[str, Any], Any]:
        """All of PyGithub's operations come through here. A refused token is renewed once, and sent
        to GitHub only."""
        if not url.startswith(("/", f"{self.base_url}/")) and url != self.graphql_url:
            raise Moved(None)
        try:
            return self._repeated(verb, url, *rest, **more)
        except (Unauthorized, Forbidden) as error:
            if not self.renew(needed=isinstance(error, Unauthorized)):
                raise
        return self._repeated(verb, url, *rest, **more)

    def renew(self, *, needed: bool = True) -> bool:
        """Drop the token, because another one may be valid: it was refused (`needed`), or it may
        lack a permission that was given since, or be of an installation that is no more. False: no
        other one is tried now."""
        if self._bearer is None or self._bearer.renew is None:
            return False
        if not needed:
            if self._monotonic() - self._renewed_at < RENEW_EVERY:
                return False
            self._renewed_at = self._monotonic()
        self._bearer.renew(self._bearer.last)
        return True

    def _repeated(self, verb: str, url: str, *rest: Any, **more: Any) -> tuple[dict[str, Any], Any]:
        for left in reversed(range(READ_TRIES if verb == "GET" else 1)):
            try:
                return super().requestJsonAndCheck(verb, url, *rest, **more)
            except Unanswered as error:
                if not left or self.is_away or isinstance(error, TimedOut):
                    raise
        raise AssertionError("a request is sent at least once")

    def _exchange(self, on: C, send: Callable[[], RequestsResponse]) -> RequestsResponse:
        """Send one request, once."""
        about = f"{on.verb} {urlsplit(on.url).path}"
        on.headers.setdefault("Accept", mediaType)
        known = self._reads.known(on.verb, on.url)
        if known and known.lasts:
            return known.answer()
        if known:
            on.headers["If-None-Match"] = known.etag
        quiet = self._quiet_until - self._monotonic()
        if quiet > 0:
            why = "GitHub does not answer" if self.is_away else "GitHub asked us to wait"
            raise Limited(f"{about}: {why}", timedelta(seconds=quiet))
        try:
            self.requests += 1
            answered = self._sent(on, send, about)
        except Unanswered:
            self._silent.setdefault(on.verb != "GET", self._monotonic())
            if self.is_away:
                self._quiet_until = self._monotonic() + RETRY.total_seconds()
            raise
        except Limited as error:
            self._limits += 1
            error.wait = min(error.wait * 2 ** min(self._limits - 1, 4), max(error.wait, MAX_LIMIT))
            self._quiet_until = self._monotonic() + error.wait.total_seconds()
            raise
        if answered.status == 304 and known:
            return known.answer(answered.response)
        return self._reads.keep(on.verb, on.url, answered)

    def _sent(self, on: C, send: Callable[[], RequestsResponse], about: str) -> RequestsResponse:
        try:
            answered = send()
        except requests.Timeout as error:
            # `from None`: the message of requests about a header may contain the token.
            raise TimedOut(f"{about}: {type(error).__name__}") from None
        except (requests.RequestException, OSError) as error:
            raise Unanswered(f"{about}: {type(error).__name__}") from None
        answer = answered.response
        with suppress(ValueError, TypeError):  # no date, or an invalid one
            date = parsedate_to_datetime(answer.headers.get("date", ""))
            self._date = (date, self._monotonic())
        if answer.status_code < 500:
            self._heard(on.verb != "GET", answer.status_code < 400)
        if answer.status_code in MOVED:
            at, location = f"{self.base_url}/", answer.headers.get("location", "")
            raise Moved(location[len(at) - 1 :] if location.startswith(at) else None)
        if answer.status_code >= 400:
            raise self._judged(answer, about)
        if answer.status_code == 202 and on.verb == "GET":
            raise Later(f"{about}: it is not computed yet")
        if answer.status_code in (204, 304) or on.verb == "DELETE":
            return answered
        with suppress(ValueError):  # a truncated body
            if answer.json() is not None:
                return answered
        raise Unanswered(f"{about}: the answer cannot be read")

    def _heard(self, writes: bool, succeeded: bool) -> None:
        """GitHub has answered a read, or a write."""
        silent = self._silent.pop(writes, None)
        if silent is not None and self._monotonic() - silent >= OUTAGE:
            self.recoveries += 1
            log.info("GitHub answers %s again", "writes" if writes else "reads")
        if writes and succeeded:
            self._limits = 0

    def _judged(self, answer: requests.Response, about: str) -> Later | Refused:
        try:
            body = answer.json()
        except ValueError:
            body = answer.text
        now = self.now() if self.answered else datetime.now(UTC)
        return judge(answer.status_code, answer.headers, body, now, about)
