"""Finds missed events: GitHub's lists of changes, of the bot's own comments, and of deliveries."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from github.HookDelivery import HookDeliverySummary
from github.NamedUser import NamedUser
from github.Organization import Organization
from github.PaginatedList import PaginatedList

from bot.github.answers import Refused
from bot.github.connection import Line
from bot.github.credentials import AppAuth
from bot.github.place import Base
from runner.schema.record import Person


@dataclass(frozen=True)
class Found:
    """A comment as it is now, whenever it was written."""

    number: int  # of its thread
    pull: bool
    id: int
    author: Person
    bot: bool  # written by a bot
    at: datetime
    changed: datetime  # later than `at` if it was ever edited
    body: str
    via_app: bool = False  # written by an app in a person's name


@dataclass(frozen=True)
class Seen:
    """A thread that has changed."""

    number: int
    pull: bool
    open: bool
    changed: datetime


@dataclass(frozen=True)
class Attempt:
    """An attempt at a delivery to the App, as in its list; `guid` is the delivery's id."""

    id: int
    guid: str
    at: datetime
    event: str
    action: str | None
    repository: int | None
    taken: bool  # it got a 2xx


class Lists(Base):
    """Reads GitHub's lists."""

    def comments_since(self, at: datetime) -> Iterator[Found]:
        """The repository's comments that were written or edited since then, the newest change
        first: what changes while the pages are read moves to their front, so none is skipped."""
        since = at.astimezone(UTC)
        for comment in self._there.get_issues_comments("updated", "desc", since):
            path = urlsplit(comment.html_url).path
            yield Found(
                number=int(comment.issue_url.rpartition("/")[2]),
                pull=path.rpartition("/")[0].endswith("/pull"),
                id=comment.id,
                author=person(comment.user),
                bot=comment.user is not None and comment.user.type != "User",
                via_app=comment.performed_via_github_app is not None,
                at=comment.created_at,
                changed=comment.updated_at,
                body=comment.body or "",
            )

    def proposals(self, author: int) -> tuple[int, ...]:
        """The numbers of the open pull requests of the user with this id, oldest first."""
        found = self._there.get_pulls("open", "created", "asc")
        return tuple(one.number for one in found if person(one.user).id == author)

    def threads_since(self, at: datetime) -> Iterator[Seen]:
        """Issues and pull requests, open and closed, that changed since then, the newest change
        first, as above."""
        since = at.astimezone(UTC)
        for issue in self._there.get_issues(
            state="all", sort="updated", direction="desc", since=since
        ):
            yield Seen(
                number=issue.number,
                pull="/pull/" in issue.html_url,  # `pull_request` may send a request
                open=issue.state == "open",
                changed=issue.updated_at,
            )

    def app_deliveries(self) -> Iterator[Attempt]:
        """The attempts at deliveries to the App, newest first, of all its repositories. Raises
        Refused if the bot is no App."""
        for each in PaginatedList(HookDeliverySummary, self._app, "/app/hook/deliveries"):
            yield Attempt(
                id=each.id or 0,
                guid=each.guid or "",
                at=each.delivered_at or datetime.fromtimestamp(0, UTC),
                event=each.event or "",
                action=each.action,
                repository=each.repository_id,
                taken=200 <= (each.status_code or 0) < 300,
            )

    def app_delivery(self, id: int) -> tuple[str, str, Any]:
        """Delivery id, event and payload of an attempt; as trustworthy as a signed body."""
        found = self._app.get(f"/app/hook/deliveries/{id}")
        return found["guid"], found["event"], found["request"]["payload"]

    def redeliver(self, id: int) -> None:
        """Ask GitHub to send a delivery once more."""
        self._app.requestJsonAndCheck("POST", f"/app/hook/deliveries/{id}/attempts")

    @property
    def _app(self) -> Line:
        """For requests of the App itself, which PyGithub does not have. Raises Refused if the bot
        is no App."""
        if not isinstance(self._credentials, AppAuth):
            raise Refused(401, "only a GitHub App is told what was delivered to it")
        return self._credentials.line


def person(user: NamedUser | Organization | None) -> Person:
    """A user of GitHub as a Person."""
    return Person(login=user.login, id=user.id) if user else Person(login="ghost", id=0)
