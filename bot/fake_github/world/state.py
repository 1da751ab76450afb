"""The sandbox's state in memory: people, issues, pull requests, comments, checks, and one clock.

Plain data and one lock. Changes are in `threads.py` and `code.py`, JSON in `shapes.py`; commits,
trees and branches are in a real git repository (`git.py`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, BeforeValidator, Field

from bot.fake_github.world.git import Git

if TYPE_CHECKING:
    from bot.fake_github.world.history import History

Role = str  # "admin", "maintain", "write", "triage", "read"; None is a stranger
RANKS: Mapping[Role | None, int] = {
    None: 0,
    "read": 0,
    "triage": 1,
    "write": 2,
    "maintain": 3,
    "admin": 4,
}
LONGEST_OUTPUT = 65_535
Status = Literal["queued", "in_progress", "completed"]
Conclusion = Literal[
    "action_required", "cancelled", "failure", "neutral", "success", "skipped", "stale",
    "timed_out",
]  # fmt: skip
REACTIONS = {
    "+1": "👍", "-1": "👎", "laugh": "😄", "hooray": "🎉",
    "confused": "😕", "heart": "❤️", "rocket": "🚀", "eyes": "👀",
}  # fmt: skip


class Clock:
    """GitHub's clock: it runs with the monotonic clock and can be moved forward, never back."""

    def __init__(self, now: datetime | None = None, *, running: bool = True) -> None:
        self._start = now or datetime.now(UTC)
        self._began = time.monotonic()
        self._running = running
        self._moved = timedelta(0)

    def now(self) -> datetime:
        """The time in whole seconds, GitHub's resolution."""
        ran = time.monotonic() - self._began if self._running else 0.0
        return (self._start + self._moved + timedelta(seconds=ran)).replace(microsecond=0)

    def advance(self, seconds: float) -> datetime:
        if seconds < 0:
            raise ValueError("the sandbox's clock only moves forward")
        self._moved += timedelta(seconds=seconds)
        return self.now()

    def date_header(self) -> str:
        return format_datetime(self.now(), usegmt=True)


@dataclass
class User:
    id: int
    login: str
    name: str
    role: Role | None = None
    type: str = "User"  # "User", "Bot" or "Organization"
    vanished: bool = False  # the account was deleted

    @property
    def email(self) -> str:
        return f"{self.login}@users.noreply.localhost"


@dataclass
class Label:
    id: int
    name: str
    color: str
    description: str | None = None


@dataclass
class Reaction:
    id: int
    user: User
    content: str
    created_at: datetime


@dataclass
class Post:
    id: int
    number: int  # of its issue or pull request
    user: User
    body: str
    created_at: datetime


@dataclass
class Comment(Post):
    updated_at: datetime
    reactions: list[Reaction] = field(default_factory=list)
    edited: bool = False


@dataclass
class Event:
    """An event on a thread's timeline, between comments."""

    id: int  # from the same counter as comments, so that ids are in order of time
    kind: str  # as in the REST timeline, or "pushed", which is not there
    user: User
    at: datetime
    detail: str = ""
    told: dict[str, Any] = field(default_factory=dict)  # further fields in the API


@dataclass
class Review(Post):
    state: str  # "APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED"
    commit_id: str
    edited_at: datetime | None = None


@dataclass
class Pull:
    id: int
    head: str  # branch names without refs/heads/
    base: str
    head_sha: str
    base_sha: str
    head_owner: User
    head_repository: int | None  # None: the fork was removed
    draft: bool = False
    merged_at: datetime | None = None
    merged_by: User | None = None
    merge_commit_sha: str | None = None
    reviews: list[Review] = field(default_factory=list)


@dataclass
class Issue:
    """An issue or, if `pull` is set, a pull request: GitHub numbers them together."""

    id: int
    number: int
    user: User
    title: str
    body: str | None
    created_at: datetime
    updated_at: datetime
    state: str = "open"
    state_reason: str | None = None
    closed_at: datetime | None = None
    closed_by: User | None = None
    labels: list[Label] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    reactions: list[Reaction] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pull: Pull | None = None
    edited: bool = False
    locked: bool = False
    lock_reason: str | None = None

    @property
    def as_pull(self) -> Pull:
        """The `pull` of what is known to be a pull request."""
        assert self.pull is not None
        return self.pull


def moment(text: str) -> datetime:
    """An ISO 8601 time as clients send it, in whole seconds; without a zone it is UTC."""
    at = datetime.fromisoformat(text.strip().replace(" ", "+"))
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).replace(microsecond=0)


Moment = Annotated[datetime, BeforeValidator(moment)]


class Button(BaseModel):
    """A button of a check run; its texts are limited as on GitHub."""

    label: str = Field(min_length=1, max_length=20)
    identifier: str = Field(min_length=1, max_length=20)
    description: str = Field(min_length=1, max_length=40)


def _output(name: str, default: object = None, longest: int | None = None) -> Any:
    return Field(default, validation_alias=AliasPath("output", name), max_length=longest)


class CheckFields(BaseModel):
    """The fields of a check run in a request."""

    name: str | None = Field(default=None, min_length=1)
    head_sha: str | None = None
    status: Status | None = None
    conclusion: Conclusion | None = None
    external_id: str | None = None
    details_url: str | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    title: str | None = _output("title")
    summary: str | None = _output("summary", longest=LONGEST_OUTPUT)
    text: str | None = _output("text", longest=LONGEST_OUTPUT)
    images: list[dict[str, str]] = _output("images", [])
    annotations: list[dict[str, object]] = _output("annotations", [])
    actions: list[Button] = Field(default=[], max_length=3)


class CheckRun(CheckFields):
    id: int
    name: str
    head_sha: str
    created_at: datetime
    status: Status = "queued"


@dataclass
class World:
    owner: User
    name: str
    bot: User
    git: Git
    clock: Clock
    created_at: datetime
    url: str = "http://127.0.0.1"  # of the server; `server.running` sets it once it has a port
    webhook_secret: str = ""
    leaderboard_url: str | None = None
    starter: str = ""  # a first experiment.yaml, with which a new pull request begins
    default_branch: str = "main"
    users: dict[str, User] = field(default_factory=dict)
    tokens: dict[str, User] = field(default_factory=dict)
    labels: dict[str, Label] = field(default_factory=dict)  # by lower-case name
    issues: dict[int, Issue] = field(default_factory=dict)
    comments: dict[int, Comment] = field(default_factory=dict)
    checks: dict[int, CheckRun] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1001))
    repository_id: int = 700_001
    app_id: int = 800_001
    installation_id: int = 900_001
    forks: dict[int, World] = field(default_factory=dict)  # by repository id
    parent: World | None = None  # of a fork
    old_names: set[str] = field(default_factory=set)  # lower-case; these redirect
    elsewhere: dict[int, str | None] = field(default_factory=dict)  # issue → new path; None: gone
    private: bool = False
    suspended_at: datetime | None = None  # the App's installation
    app_key: str | None = None  # the App's public key, PEM; None: there is no App
    issued: dict[str, datetime] = field(default_factory=dict)  # the App's tokens → when they expire
    retired: set[str] = field(default_factory=set)  # tokens of an installation that is no more
    max_tree: int = 100_000  # entries of a recursive tree, before it is truncated
    history: History | None = None  # the last seconds, where replicas lag

    def open_pulls(self) -> Iterator[tuple[Issue, Pull]]:
        for issue in list(self.issues.values()):
            if issue.pull and issue.state == "open":
                yield issue, issue.pull

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    @property
    def api(self) -> str:
        return f"{self.url}/api/v3"

    @property
    def html(self) -> str:
        return f"{self.url}/{self.full_name}"

    def new_id(self) -> int:
        return next(self.ids)


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
