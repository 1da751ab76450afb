"""The only file that knows PyGithub: GitHub's operations in the lab's own words.

Every request goes through `_ask`, which keeps GitHub's clock, spaces out writes, marks fault
points and sorts failures into three: `Gone` and `Refused` are final, `Later` is not, and after
`Later` it is unknown whether a write took effect.
"""

import base64
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import github
import requests

from bot import labfile
from bot.facts import Issue, Pull, Push, Review
from runner import faults
from runner.record import Person

TIMEOUT = 20  # seconds for one request
PAGE = 100
RETRY = timedelta(seconds=10)
SLOW_DOWN = timedelta(seconds=60)  # where GitHub limits and does not say for how long


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


@dataclass(frozen=True)
class Made:
    """Something of ours that is visible on GitHub."""

    id: int
    at: datetime


@dataclass(frozen=True)
class Changed:
    """A file that a pull request changes."""

    path: str
    removed: bool


@dataclass(frozen=True)
class Entry:
    """A file in a commit's tree."""

    path: str
    mode: str
    sha: str
    size: int


class GitHub:
    """One repository, as the lab's bot sees it."""

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
        """`credentials` hands out the token for the next requests; nothing else holds one."""
        self.name = repository
        self.bot = bot
        self._credentials = credentials
        self._api = api
        self._between = seconds_between_writes
        self._monotonic = monotonic
        self._sleep = sleep
        self._date: tuple[datetime, float] | None = None
        self._wrote_at = float("-inf")
        self._client: tuple[str, github.Github] | None = None
        self.on_write: Callable[[float], None] = lambda _: None  # told when something was written
        self._quiet_until = float("-inf")  # GitHub told us not to ask before then
        found = self._get("")
        self.id = int(found["id"])
        self.url = str(found["html_url"])

    def now(self) -> datetime:
        """GitHub's time: its last answer's `Date` and what has passed since."""
        if self._date is None:
            raise AssertionError("nothing has been asked of GitHub yet")
        date, seen = self._date
        return date + timedelta(seconds=self._monotonic() - seen)

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    def issue(self, number: int) -> Issue | None:
        """An issue, or None if it is gone."""
        try:
            found = self._get(f"/issues/{number}")
        except Gone:
            return None
        return Issue(
            title=found["title"],
            body=found["body"] or "",
            author=_person(found["user"]),
            open=found["state"] == "open",
        )

    def pull(self, number: int) -> Pull | None:
        """A pull request, or None if it is gone."""
        try:
            found = self._get(f"/pulls/{number}")
        except Gone:
            return None
        return Pull(
            title=found["title"],
            author=_person(found["user"]),
            head=found["head"]["sha"],
            base=found["base"]["sha"],
            open=found["state"] == "open",
            draft=bool(found["draft"]),
            base_ref=found["base"]["ref"],
            head_ref=found["head"]["ref"],
            head_repository=_id(found["head"]["repo"]),
            merged=bool(found["merged"]),
            locked=bool(found["locked"]),
        )

    def reviews(self, number: int) -> list[Review]:
        """The reviews of a pull request, oldest first; a dismissed one says so in its state."""
        return [
            Review(
                id=review["id"],
                author=_person(review["user"]),
                state=review["state"].upper(),
                commit=review["commit_id"],
                at=_moment(review["submitted_at"]),
                body=review["body"] or "",
            )
            for review in self._pages(f"/pulls/{number}/reviews")
            if review.get("submitted_at")  # a pending one is seen by its author only
        ]

    def review(self, number: int, id: int) -> Review | None:
        """A review as it is now, or None if it is gone."""
        try:
            return next((review for review in self.reviews(number) if review.id == id), None)
        except Gone:
            return None

    def committers(self, number: int) -> frozenset[int]:
        """Ids of who opened the pull request and of who wrote or committed its commits.

        GitHub knows an account by the e-mail address that a commit names, so this is what the
        commits say of themselves.
        """
        pull = self._get(f"/pulls/{number}")
        people = {_id(pull["user"])}
        basehead = f"{pull['base']['sha']}...{pull['head']['sha']}"
        page, seen = 1, 0
        while True:  # unlike the pull request's own list, which ends at 250
            found = self._get(f"/compare/{basehead}", per_page=str(PAGE), page=str(page))
            for commit in found["commits"]:
                people |= {_id(commit["author"]), _id(commit["committer"])}
            seen += len(found["commits"])
            if seen >= found["total_commits"] or not found["commits"]:
                return frozenset(id for id in people if id is not None)
            page += 1

    def pushes(self, number: int) -> list[Push]:
        """The forced pushes to a pull request's branch, oldest first, at GitHub's times.

        GitHub lists the other pushes by commit, with the dates that the commits claim. They are
        left out: a head that left a commit comes back to it by a forced push only.
        """
        return [
            Push(at=_moment(event["created_at"]), after=event["commit_id"] or "")
            for event in self._pages(f"/issues/{number}/timeline")
            if event.get("event") in ("head_ref_force_pushed", "head_ref_restored")
        ]

    def policy_file(self) -> tuple[str, bytes | None]:
        """The default branch's head commit and who may do what there; None without that file."""
        branch = self._get("")["default_branch"]
        sha = str(self._get(f"/branches/{quote(branch)}")["commit"]["sha"])
        try:
            found = self._get(f"/contents/{labfile.PATH}", ref=sha)
        except Gone:
            return sha, None
        if not isinstance(found, dict) or found["type"] != "file":
            return sha, None
        return sha, base64.b64decode(found["content"])

    def role(self, login: str) -> str:
        """`role_name` of a person in the repository at this moment; "none" for a stranger."""
        try:
            return str(self._get(f"/collaborators/{login}/permission")["role_name"])
        except Gone:
            return "none"

    def changed(self, base: str, head: str) -> list[Changed]:
        """The files that `head` changes since it left `base`."""
        found = self._get(f"/compare/{base}...{head}")
        return [Changed(file["filename"], file["status"] == "removed") for file in found["files"]]

    def tree(self, commit: str) -> list[Entry]:
        """Every file of a commit's tree."""
        found = self._get(f"/git/trees/{commit}", recursive="1")
        if found["truncated"]:
            raise Refused(413, "the repository's tree is too large to be listed at once")
        return [
            Entry(entry["path"], entry["mode"], entry["sha"], int(entry.get("size", 0)))
            for entry in found["tree"]
            if entry["type"] != "tree"
        ]

    def blob(self, sha: str) -> bytes:
        """The bytes of a blob."""
        return base64.b64decode(self._get(f"/git/blobs/{sha}")["content"])

    def file(self, path: str) -> bytes | None:
        """A file of the default branch, or None."""
        try:
            return base64.b64decode(self._get(f"/contents/{path}")["content"])
        except Gone:
            return None

    def labels(self, number: int) -> list[str]:
        """The names of an issue's labels."""
        return [label["name"] for label in self._pages(f"/issues/{number}/labels")]

    def my_comments(self, number: int, ending: str) -> list[Made]:
        """The bot's own comments on a thread that end with the marker `ending`, oldest first."""
        return [
            Made(comment["id"], _moment(comment["created_at"]))
            for comment in self._pages(f"/issues/{number}/comments")
            if comment["user"]["login"] == self.bot and (comment["body"] or "").endswith(ending)
        ]

    def my_checks(self, commit: str, name: str, external_id: str) -> list[Made]:
        """The check runs on a commit that carry `external_id`, oldest first."""
        found = self._get(
            f"/commits/{commit}/check-runs", filter="all", check_name=name, per_page=str(PAGE)
        )
        return sorted(
            (
                Made(check["id"], _moment(check["started_at"]))
                for check in found["check_runs"]
                if check["external_id"] == external_id
            ),
            key=lambda made: made.id,
        )

    # ── Writing ──────────────────────────────────────────────────────────────────────────────

    def create_comment(self, number: int, body: str) -> Made:
        """A new comment."""
        made = self._do("create_comment", "POST", f"/issues/{number}/comments", {"body": body})
        return Made(made["id"], _moment(made["created_at"]))

    def edit_comment(self, comment: int, body: str) -> None:
        """Another text for one of the bot's comments."""
        self._do("edit_comment", "PATCH", f"/issues/comments/{comment}", {"body": body})

    def delete_comment(self, comment: int) -> None:
        """One of the bot's own comments goes."""
        self._do("delete_comment", "DELETE", f"/issues/comments/{comment}")

    def react(self, comment: int, content: str) -> None:
        """A reaction; GitHub keeps one of each."""
        self._do("react", "POST", f"/issues/comments/{comment}/reactions", {"content": content})

    def set_labels(self, number: int, names: list[str]) -> None:
        """Exactly these labels."""
        self._do("set_labels", "PUT", f"/issues/{number}/labels", {"labels": names})

    def create_check(
        self,
        name: str,
        commit: str,
        external_id: str,
        conclusion: str | None,
        output: dict[str, str],
    ) -> Made:
        """A new check run on a commit."""
        state = {"conclusion": conclusion} if conclusion else {"status": "in_progress"}
        asked = {"name": name, "head_sha": commit, "external_id": external_id, "output": output}
        made = self._do("create_check", "POST", "/check-runs", asked | state)
        return Made(made["id"], self.now())

    def update_check(self, check: int, conclusion: str | None, output: dict[str, str]) -> None:
        """Another look for a check run."""
        state = {"conclusion": conclusion} if conclusion else {"status": "in_progress"}
        self._do("update_check", "PATCH", f"/check-runs/{check}", {"output": output} | state)

    def keep_picture(self, name: str, png: bytes, at: datetime) -> str:
        """Keep a PNG in a commit of its own, outside every branch; returns the commit's SHA.

        The commit has no parent and a fixed date, so the same picture is the same commit, and
        doing it twice does nothing.
        """
        content = {"content": base64.b64encode(png).decode(), "encoding": "base64"}
        blob = self._do("create_blob", "POST", "/git/blobs", content)["sha"]
        entry = {"path": name, "mode": "100644", "type": "blob", "sha": blob}
        tree = self._do("create_tree", "POST", "/git/trees", {"tree": [entry]})["sha"]
        who = {
            "name": "Regatta",
            "email": "regatta@users.noreply.github.com",
            "date": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        asked = {"message": name, "tree": tree, "parents": [], "author": who, "committer": who}
        commit = str(self._do("create_commit", "POST", "/git/commits", asked)["sha"])
        try:
            ref = {"ref": f"refs/regatta/{name.partition('.')[0]}", "sha": commit}
            self._do("create_ref", "POST", "/git/refs", ref)
        except Refused as error:
            if error.status != 422:  # 422: the reference exists
                raise
        return commit

    # ── Requests ─────────────────────────────────────────────────────────────────────────────

    def _get(self, path: str, **parameters: str) -> Any:
        return self._ask("GET", path, parameters)

    def _pages(self, path: str) -> Iterator[Any]:
        page = 1
        while True:
            found = self._ask("GET", path, {"per_page": str(PAGE), "page": str(page)})
            if not isinstance(found, list):
                raise Later(f"GET {path} answered {type(found).__name__} instead of a list")
            yield from found
            if len(found) < PAGE:
                return
            page += 1

    def _do(self, name: str, verb: str, path: str, body: dict[str, Any] | None = None) -> Any:
        with faults.around(f"github.{name}"):
            wait = self._wrote_at + self._between - self._monotonic()
            if wait > 0:
                self._sleep(wait)
            try:
                return self._ask(verb, path, {}, body)
            finally:
                self._wrote_at = self._monotonic()
                self.on_write(self._wrote_at)

    def _ask(
        self, verb: str, path: str, parameters: dict[str, str], body: dict[str, Any] | None = None
    ) -> Any:
        url = f"/repos/{self.name}{path}"
        quiet = self._quiet_until - self._monotonic()
        if quiet > 0:
            raise Later("GitHub asked us to wait", timedelta(seconds=quiet))
        try:
            headers, found = self._requester().requestJsonAndCheck(
                verb, url, parameters=parameters, input=body
            )
        except github.GithubException as error:
            self._keep_date(error.headers or {})
            raise self._sorted(error) from error
        except (requests.RequestException, OSError) as error:
            # `from None`: what requests says of a header may hold the token.
            raise Later(f"{verb} {url}: {type(error).__name__}") from None
        except ValueError as error:  # a body that broke off
            raise Later(f"{verb} {url}: the answer cannot be read") from error
        self._keep_date(headers)
        if found is None and verb != "DELETE":
            raise Later(f"{verb} {url}: an empty answer")
        return found

    def _requester(self) -> Any:
        token = self._credentials()
        if self._client is None or self._client[0] != token:
            client = github.Github(
                base_url=self._api,
                auth=github.Auth.Token(token),
                timeout=TIMEOUT,
                retry=None,  # the default repeats a POST after a 502: two comments
                seconds_between_requests=0,
                seconds_between_writes=0,
                lazy=True,
            )
            self._client = (token, client)
        return self._client[1].requester

    def _keep_date(self, headers: Any) -> None:
        date = headers.get("date")
        if date:
            self._date = (parsedate_to_datetime(date), self._monotonic())

    def _sorted(self, error: github.GithubException) -> Exception:
        data = error.data if isinstance(error.data, dict) else {}
        message = str(data.get("message", error.data))[:300]
        if error.status in (404, 410):
            return Gone(error.status, message)
        if error.status == 403 and "locked" in message:
            return Refused(error.status, message)
        if error.status in (403, 429) and (wait := self._limited(error.headers or {}, message)):
            self._quiet_until = self._monotonic() + wait.total_seconds()
            return Later(f"{error.status}: {message}", wait)
        if error.status in (401, 403, 429) or error.status >= 500:
            return Later(f"{error.status}: {message}")
        return Refused(error.status, message)

    def _limited(self, headers: Any, message: str) -> timedelta | None:
        """How long a rate limit asks us to wait; None if this is none."""
        if (after := str(headers.get("retry-after", ""))).isdigit():
            return timedelta(seconds=int(after))
        reset = str(headers.get("x-ratelimit-reset", ""))
        if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
            return max(datetime.fromtimestamp(int(reset), UTC) - self.now(), RETRY)
        return SLOW_DOWN if "rate limit" in message else None


def _id(found: Any) -> int | None:
    """The id of a person or repository; None for one that is gone or unknown."""
    return found["id"] if found and "id" in found else None


def _person(user: Any) -> Person:
    if user is None:  # whose account is gone
        return Person(login="ghost", id=0)
    return Person(login=user["login"], id=user["id"])


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
