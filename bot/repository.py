"""The requests within one repository, wherever it has moved to: pages, writes, tokens."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from bot.wire import GRAPHQL, Answer, Gone, Later, Moved, Refused, Unauthorized, Wire
from runner import faults

PAGE = 100


@runtime_checkable
class AppCredentials(Protocol):
    """What an App can do that a mere token cannot (`bot.app_auth`)."""

    def renew(self, token: str) -> None:
        """GitHub did not take this token: the next one is to be another."""

    def app_token(self) -> str:
        """For requests as the App itself rather than as its installation."""


class Repository:
    """One repository, known by its id once it has been found by its name."""

    def __init__(
        self,
        repository: str,
        credentials: Callable[[], str],
        *,
        api: str = "https://api.github.com",
        bot: str = "regatta-lab[bot]",
        seconds_between_writes: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`credentials` hands out the token for the next request; nothing else holds one. Where it
        is an App's, a token that GitHub does not take is renewed, once a request."""
        self.name = repository
        self.id: int | None = None
        self.bot = bot
        self._credentials = credentials
        self._between = seconds_between_writes
        self._monotonic = monotonic
        self._sleep = sleep
        self._wire = Wire(api, monotonic)
        self._wrote_at = float("-inf")
        self.on_write: Callable[[float], None] = lambda _: None  # told when something was written
        self._know(self._get(""))

    def now(self) -> datetime:
        """GitHub's time: its last answer's `Date` and what has passed since."""
        return self._wire.now()

    def _know(self, found: Any) -> Any:
        """Take name and address from what GitHub says of the repository; it must be the same one.

        A name that was given up can be taken by anybody."""
        if self.id not in (None, found["id"]):
            raise Later(
                f"{self.name} is another repository now (id {found['id']}, not {self.id}); "
                "name the right one and start again"
            )
        self.id, self.name, self.url = int(found["id"]), found["full_name"], found["html_url"]
        return found

    def _thread(self, path: str) -> Any:
        """An issue or a pull request; None if it is gone."""
        try:
            return self._get(path)
        except Gone:
            return None

    def _get(self, path: str, **query: str) -> Any:
        return self._ask("GET", path, query).found

    def _pages(self, path: str, *, inside: str = "", **query: str) -> Iterator[Any]:
        asked: dict[str, str] | str = {"per_page": str(PAGE)} | query
        while True:
            answer = self._ask("GET", path, asked)
            listed = answer.found[inside] if inside else answer.found
            if not isinstance(listed, list):
                raise Later(f"GET {path} answered {type(listed).__name__} instead of a list")
            yield from listed
            if answer.next is None:
                return
            asked = answer.next

    def _do(self, name: str, verb: str, path: str, body: Any = None) -> Any:
        with faults.around(f"github.{name}"):
            wait = self._wrote_at + self._between - self._monotonic()
            if wait > 0:
                self._sleep(wait)
            try:
                return self._ask(verb, path, {}, body).found
            finally:
                self._wrote_at = self._monotonic()
                self.on_write(self._wrote_at)

    def _ask(
        self, verb: str, path: str, query: dict[str, str] | str = "", body: Any = None
    ) -> Answer:
        """Raises Later instead of Gone where the whole repository cannot be seen (which an
        installation's owner may have chosen): that says nothing of what is in it."""
        try:
            return self._ask_there(verb, path, query, body)
        except Gone as gone:
            if self.id is None:
                raise
            if not path:
                raise Later(f"the repository {self.name} cannot be seen: {gone}") from gone
            self._know(self._get(""))
            raise

    def _ask_there(self, verb: str, path: str, query: dict[str, str] | str, body: Any) -> Answer:
        try:
            return self._send(verb, f"/repos/{self.name}{path}", query, body)
        except Moved as moved:
            self._follow(moved.path)
            return self._send(verb, f"/repos/{self.name}{path}", query, body)

    def _follow(self, location: str) -> None:
        """The repository has another name, or what was asked about is in another one."""
        if not location:
            raise Later("the answer leads out of GitHub's API, as that of a proxy may")
        found = re.match(r"/repositories/([0-9]+)(?=/|$)", location)
        if found is None or self.id not in (None, int(found[1])):
            raise Gone(301, "it is in another repository now")
        try:
            self._know(self._send("GET", found[0], "", None).found)
        except Moved:
            raise Later("GitHub redirects in a circle") from None

    def _send(self, verb: str, path: str, query: dict[str, str] | str, body: Any) -> Answer:
        token = self._credentials()
        try:
            return self._wire.send(verb, path, token, query=query, body=body)
        except Unauthorized:
            if not isinstance(self._credentials, AppCredentials):
                raise
            self._credentials.renew(token)
        return self._wire.send(verb, path, self._credentials(), query=query, body=body)

    def _graphql(self, query: str, variables: dict[str, str]) -> dict[str, Any]:
        """What GraphQL answers: its `data` and, where something is wrong, `errors`."""
        asked = {"query": query, "variables": variables}
        found = self._send("POST", GRAPHQL, "", asked).found
        return found if isinstance(found, dict) else {}

    def _as_app(self, verb: str, path: str, query: dict[str, str] | str = "") -> Answer:
        """A request of the App itself. Raises Refused where the bot is no App."""
        if not isinstance(self._credentials, AppCredentials):
            raise Refused(401, "only a GitHub App is told what was delivered to it")
        try:
            return self._wire.send(verb, path, self._credentials.app_token(), query=query)
        except Moved as moved:
            raise Later(f"{verb} {path} leads elsewhere: {moved.path}") from None
