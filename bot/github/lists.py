"""What was missed: GitHub's lists of what changed, of the bot's own words, and of deliveries."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from github.NamedUser import NamedUser
from github.Organization import Organization

from bot.github.connection import PAGE, Later, Moved, Refused
from bot.github.credentials import AppAuth
from bot.github.place import Base
from runner.record import Person

NEXT = re.compile(r'<([^>]*)>; rel="next"')


@dataclass(frozen=True)
class Found:
    """A comment as it is now, whenever it was written."""

    number: int  # of its thread
    pull: bool
    id: int
    author: Person
    bot: bool  # written by a bot, or by an app in a person's name
    at: datetime
    changed: datetime  # later than `at` if it was ever edited
    body: str


@dataclass(frozen=True)
class Seen:
    """A thread of which something has changed."""

    number: int
    pull: bool
    open: bool
    changed: datetime


@dataclass(frozen=True)
class Attempt:
    """An attempt at a delivery to the App, as its list has it; `guid` is the delivery's id."""

    id: int
    guid: str
    at: datetime
    event: str
    action: str | None
    repository: int | None
    taken: bool  # it was answered with a 2xx
    again: bool  # a redelivery


class Lists(Base):
    """Looks through GitHub's lists."""

    def comments_since(self, at: datetime) -> Iterator[Found]:
        """The repository's comments that were written or edited since then, the oldest change
        first."""
        since = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        asked = {"since": since, "sort": "updated", "direction": "asc"}
        for comment in self._pages("/issues/comments", **asked):
            path = urlsplit(comment["html_url"]).path
            user = comment["user"]
            app = user is not None and user["type"] != "User"
            yield Found(
                number=int(comment["issue_url"].rpartition("/")[2]),
                pull=path.rpartition("/")[0].endswith("/pull"),
                id=comment["id"],
                author=Person(login=user["login"], id=user["id"]) if user else GHOST,
                bot=app or bool(comment.get("performed_via_github_app")),
                at=datetime.fromisoformat(comment["created_at"]),
                changed=datetime.fromisoformat(comment["updated_at"]),
                body=comment["body"] or "",
            )

    def threads_since(self, at: datetime, *, state: str = "all") -> Iterator[Seen]:
        """Issues and pull requests that changed since then, the oldest change first; `state` is
        open, closed or all."""
        since = at.astimezone(UTC)
        for issue in self._there.get_issues(
            state=state, sort="updated", direction="asc", since=since
        ):
            yield Seen(
                number=issue.number,
                pull="/pull/" in issue.html_url,  # `pull_request` is asked for where it is none
                open=issue.state == "open",
                changed=issue.updated_at,
            )

    def app_deliveries(self, cursor: str | None = None) -> tuple[list[Attempt], str | None]:
        """A page of the attempts at deliveries to the App, newest first, of all its repositories;
        and the cursor of the next page. Raises Refused where the bot is no App."""
        asked = {"per_page": str(PAGE)} | ({"cursor": cursor} if cursor else {})
        headers, found = self._as_app("GET", "/app/hook/deliveries", asked)
        if not isinstance(found, list):
            raise Later("GET /app/hook/deliveries answered no list")
        more = NEXT.search(headers.get("link", ""))
        after = parse_qs(urlsplit(more[1]).query).get("cursor") if more else None
        return [_attempt(each) for each in found], after[0] if after else None

    def app_delivery(self, id: int) -> tuple[str, str, Any]:
        """Delivery id, event and payload of an attempt. GitHub's own word, like a signed body."""
        _, found = self._as_app("GET", f"/app/hook/deliveries/{id}")
        return found["guid"], found["event"], found["request"]["payload"]

    def redeliver(self, id: int) -> None:
        """Have GitHub send a delivery once more."""
        self._as_app("POST", f"/app/hook/deliveries/{id}/attempts")

    def _as_app(self, verb: str, path: str, query: dict[str, str] | None = None) -> tuple[Any, Any]:
        """A request of the App itself, which PyGithub has for other hooks only: headers and what
        was found. Raises Refused where the bot is no App."""
        if not isinstance(self._credentials, AppAuth):
            raise Refused(401, "only a GitHub App is told what was delivered to it")
        try:
            return self._credentials.line.requestJsonAndCheck(verb, path, query)
        except Moved as moved:
            raise Later(f"{verb} {path} leads elsewhere: {moved.path}") from None


def _attempt(each: Any) -> Attempt:
    return Attempt(
        id=each["id"],
        guid=each["guid"],
        at=datetime.fromisoformat(each["delivered_at"]),
        event=each["event"],
        action=each["action"],
        repository=each["repository_id"],
        taken=200 <= each["status_code"] < 300,
        again=each["redelivery"],
    )


GHOST = Person(login="ghost", id=0)  # whose account is gone


def person(user: NamedUser | Organization | None) -> Person:
    """Somebody as GitHub names them."""
    return Person(login=user.login, id=user.id) if user else GHOST
