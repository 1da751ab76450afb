"""One repository, wherever it has moved to: its name, its writes, and its data on GitHub."""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from github.Repository import Repository

from bot.github.answers import Gone, Later, Moved, Refused
from bot.github.connection import API, Bearer, Line
from runner.lib import fault_points

NAMED = re.compile(r"^/repos/[^/]+/[^/?]+")  # the repository in a URL path


class Place(Line):
    """A line to one repository, identified by its id once it was found by name. Requests always use
    its current name, whatever name a URL has."""

    name: str
    url: str
    id: int | None = None

    def know(self, found: Repository) -> Repository:
        """Take name and URL from GitHub's data; raises unless the id is the same.

        Anybody can take a name that was given up."""
        if self.id not in (None, found.id):
            raise Later(
                f"{self.name} is another repository now (id {found.id}, not {self.id}); "
                "name the right one and start again"
            )
        self.id, self.name, self.url = found.id, found.full_name, found.html_url
        return found

    def look(self) -> Repository:
        """GitHub's current data about the repository."""
        return self.know(self.repository(self.name))

    def requestJsonAndCheck(
        self, verb: str, url: str, *rest: Any, **more: Any
    ) -> tuple[dict[str, Any], Any]:
        """Raises Later instead of Gone if the whole repository is invisible (perhaps by choice of
        the installation's owner): that says nothing about its content."""
        whole = url == f"/repos/{self.name}"
        send = super().requestJsonAndCheck
        try:
            try:
                return send(verb, self._here(url), *rest, **more)
            except Moved as moved:
                self._follow(moved.path)
            return send(verb, self._here(url), *rest, **more)
        except Gone as gone:
            if self.id is not None and whole:
                self.renew(needed=False)
                raise Later(f"the repository {self.name} cannot be seen: {gone}") from gone
            if self.id is not None:
                self.look()
            raise

    def _here(self, url: str) -> str:
        path = url[len(self.base_url) :] if url.startswith(f"{self.base_url}/") else url
        return NAMED.sub(lambda _: f"/repos/{self.name}", path)

    def _follow(self, location: str | None) -> None:
        """The repository has another name, or the subject has moved to another repository."""
        if location is None:
            raise Moved(None)
        found = re.match(r"/repositories/([0-9]+)(?=/|$)", location)
        if found is None or self.id not in (None, int(found[1])):
            raise Gone(301, "it is in another repository now")
        headers, data = super().requestJsonAndCheck("GET", found[0])
        self.know(Repository(self, headers, data, completed=True))


class Base:
    """Common parts of the lab's reads and writes."""

    def __init__(
        self,
        repository: str,
        credentials: Callable[[], str],
        *,
        api: str = API,
        bot: str = "regatta-lab[bot]",
        seconds_between_writes: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`credentials` returns the token for the next request; nothing else stores one. If it is
        an App's, a refused token is renewed, once per request."""
        self.bot = bot
        self._credentials = credentials
        self._between = seconds_between_writes
        self._monotonic = monotonic
        self._sleep = sleep
        self._wrote_at = float("-inf")
        self.on_write: Callable[[float], None] = lambda _: None  # called after each write
        self.gives_way: Callable[[], bool] = lambda: False  # whether a command comes first
        self._objects: dict[str, str] = {}  # of git's, that were created just now: their ids
        self._line = Place(api, Bearer(credentials), monotonic)
        self._line.name = repository
        self._line.look()
        self._there = self._line.repository(repository)

    @property
    def id(self) -> int:
        """The repository's id, whatever its name."""
        assert self._line.id is not None
        return self._line.id

    @property
    def name(self) -> str:
        """The repository's current name."""
        return self._line.name

    @property
    def url(self) -> str:
        """Its web page."""
        return self._line.url

    @property
    def requests(self) -> int:
        """How many were sent to GitHub."""
        return self._line.requests

    def now(self) -> datetime:
        """GitHub's time: its last answer's `Date` plus the time since."""
        return self._line.now()

    def renew(self) -> None:
        """The next request has another token, if the bot is an App: this one may be of an
        installation that is no more."""
        self._line.renew()

    def outages(self) -> tuple[bool, int]:
        """Whether GitHub does not answer, which is tried now; and how many such times have
        ended."""
        if self._line.is_away:
            with suppress(Later, Refused):
                self._line.look()
        return self._line.is_away, self._line.recoveries

    def _write(self, name: str, verb: str, path: str, body: Any = None) -> Any:
        """Every write goes through here. Raises what `Line` does; after Later, the outcome is
        unknown."""
        with fault_points.around(f"github.{name}"):
            wait = self._wrote_at + self._between - self._monotonic()
            if wait > 0:
                self._sleep(wait)
            try:
                address = f"/repos/{self.name}{path}"
                return self._line.requestJsonAndCheck(verb, address, input=body)[1]
            finally:
                self._wrote_at = self._monotonic()
                self.on_write(self._wrote_at)
