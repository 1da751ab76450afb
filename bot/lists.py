"""What was missed: GitHub's lists of what changed, of the bot's own words, and of deliveries."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bot.repository import PAGE, Repository
from bot.wire import Later
from runner.record import Person


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


class Lists(Repository):
    """Looks through GitHub's lists."""

    def comments_since(self, at: datetime) -> Iterator[Found]:
        """The repository's comments that were written or edited since then, the oldest change
        first."""
        asked = {"since": _stamp(at), "sort": "updated", "direction": "asc"}
        for comment in self._pages("/issues/comments", **asked):
            path = urlsplit(comment["html_url"]).path
            user = comment["user"]
            app = user is not None and user["type"] != "User"
            yield Found(
                number=int(comment["issue_url"].rpartition("/")[2]),
                pull=path.rpartition("/")[0].endswith("/pull"),
                id=comment["id"],
                author=person(user),
                bot=app or bool(comment.get("performed_via_github_app")),
                at=moment(comment["created_at"]),
                changed=moment(comment["updated_at"]),
                body=comment["body"] or "",
            )

    def threads_since(self, at: datetime, *, state: str = "all") -> Iterator[Seen]:
        """Issues and pull requests that changed since then, the oldest change first; `state` is
        open, closed or all."""
        asked = {"since": _stamp(at), "sort": "updated", "direction": "asc", "state": state}
        for issue in self._pages("/issues", **asked):
            yield Seen(
                number=issue["number"],
                pull="pull_request" in issue,
                open=issue["state"] == "open",
                changed=moment(issue["updated_at"]),
            )

    def app_deliveries(self, cursor: str | None = None) -> tuple[list[Attempt], str | None]:
        """A page of the attempts at deliveries to the App, newest first, of all its repositories;
        and the cursor of the next page. Raises Refused where the bot is no App."""
        asked = {"per_page": str(PAGE)} | ({"cursor": cursor} if cursor else {})
        answer = self._as_app("GET", "/app/hook/deliveries", asked)
        if not isinstance(answer.found, list):
            raise Later("GET /app/hook/deliveries answered no list")
        after = parse_qs(answer.next or "").get("cursor")
        return [_attempt(each) for each in answer.found], after[0] if after else None

    def app_delivery(self, id: int) -> tuple[str, str, Any]:
        """Delivery id, event and payload of an attempt. GitHub's own word, like a signed body."""
        found = self._as_app("GET", f"/app/hook/deliveries/{id}").found
        return found["guid"], found["event"], found["request"]["payload"]

    def redeliver(self, id: int) -> None:
        """Have GitHub send a delivery once more."""
        self._as_app("POST", f"/app/hook/deliveries/{id}/attempts")


def _attempt(each: Any) -> Attempt:
    return Attempt(
        id=each["id"],
        guid=each["guid"],
        at=moment(each["delivered_at"]),
        event=each["event"],
        action=each["action"],
        repository=each["repository_id"],
        taken=200 <= each["status_code"] < 300,
        again=each["redelivery"],
    )


def person(user: Any) -> Person:
    """Somebody as GitHub names them."""
    if user is None:  # whose account is gone
        return Person(login="ghost", id=0)
    return Person(login=user["login"], id=user["id"])


def moment(text: str) -> datetime:
    """A time as GitHub writes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
