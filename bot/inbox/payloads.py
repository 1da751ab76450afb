"""Parses GitHub's payloads: any payload, however odd, becomes a small `Delivery` or nothing. Pure.

The one parser for all sources: signed deliveries, the App's list of deliveries, and the event file
of Actions. It does not check signatures. Anything that has not GitHub's form is left out and never
an error, so that no payload can block the inbox or a thread.
"""

import re
from datetime import UTC, datetime
from typing import Any, Literal

from bot.model import commands
from bot.model.keys import CheckId
from bot.model.policy_file import APP
from bot.model.thread import Message, Push, ThreadId
from runner.lib.base_record import Record
from runner.schema.record import Person

# The events that the lab acts on. Events without commands wake their thread, too: facts have
# changed.
HEARD = {
    "issues": {"opened", "edited", "reopened", "closed", "deleted", "transferred"},
    "issue_comment": {"created"},
    "pull_request": {
        "opened",
        "synchronize",
        "reopened",
        "edited",
        "ready_for_review",
        "converted_to_draft",
        "closed",
    },
    "pull_request_review": {"submitted", "dismissed"},
    "check_run": {"requested_action", "rerequested"},
    "check_suite": {"rerequested"},
    "repository": {"renamed", "transferred", "privatized", "publicized", "archived", "unarchived"},
    "installation": {"created", "suspend", "unsuspend", "deleted", "new_permissions_accepted"},
    "installation_repositories": {"added", "removed"},
}
ABOUT_PULLS = ("pull_request", "pull_request_review")
WORDS = {"issue_comment": "comment", "pull_request_review": "review"}  # the fields with text
AT = {"issue_comment": "created_at", "pull_request_review": "submitted_at"}  # their times
INSIDERS = ("OWNER", "MEMBER", "COLLABORATOR")  # of all values of `author_association`
SWEPT = "swept"  # the action of a delivery that a sweep made
MAX_TEXT = 65_536  # characters; GitHub takes no longer comment
# The command of each button of a check run; the check run names the execution.
BUTTONS = {"cancel": "/cancel {execution}", "retry": "/retry {execution}", "replan": "/plan"}

Heard = Literal["delivery", "app-list", "event-file", "sweep"]
_LARGEST = 2**63 - 1
_LOGIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
_SHA = re.compile(r"[0-9a-f]{40}")


class Delivery(Record):
    """The content of one delivery, as far as the lab acts on it."""

    event: str
    action: str
    repository: int  # 0: it is about an installation
    number: int | None = None  # of the thread; None: it is about the whole lab
    pull: bool = False  # the thread is a pull request
    at: datetime | None = None  # GitHub's time of the event; None if the payload has none
    message: Message | None = None  # if it may contain commands
    push: Push | None = None
    check: str = ""  # key of the check run whose button was pressed
    app: str = ""  # login of the App whose checks of a commit are all to be made again
    # Whether GitHub says that its author belongs to the repository. It permits nothing: it decides
    # who has a turn first.
    insider: bool = False

    @property
    def thread(self) -> ThreadId | None:
        """Its thread."""
        return None if self.number is None else ThreadId(self.repository, self.number)


def read(event: str, payload: Any, heard: Heard = "delivery") -> Delivery | None:
    """Parse a payload; None if it is not for the lab. Never raises, for any JSON."""
    action = _text(payload, "action", 100)
    if not isinstance(event, str) or action not in HEARD.get(event, ()):
        return None
    repository = _int(_map(payload, "repository"), "id")
    if event.startswith("installation"):
        return Delivery(event=event, action=action, repository=repository or 0)
    if repository is None or not _map(payload, "sender"):
        return None
    about = Delivery(event=event, action=action, repository=repository)
    match event:
        case "repository":
            return about
        case "check_run" | "check_suite":
            return _button(about, payload, heard)
        case _:
            return _on_thread(about, payload, heard)


def said(
    id: int, author: Person, at: datetime, body: str, *, edited: bool, commit: str | None = None
) -> Message:
    """A message that a sweep found: a comment or, with its commit, a review."""
    return Message(
        id=id,
        author=author,
        at=at,
        body=clean(body, MAX_TEXT),
        via="comment" if commit is None else "review",
        heard="sweep",
        edited=edited,
        commit=commit,
    )


# ── Events ───────────────────────────────────────────────────────────────────────────────────


def _on_thread(about: Delivery, payload: Any, heard: Heard) -> Delivery | None:
    """An event on an issue or a pull request, with the user's text."""
    issue, pull = _map(payload, "issue"), _map(payload, "pull_request")
    thread = pull if about.event in ABOUT_PULLS else issue
    words = _map(payload, WORDS[about.event]) if about.event in WORDS else {}
    number = _int(thread, "number")
    # An app that acts for a person is not that person. A bot's comment counts if it has a command,
    # because the bot may be an agent that the policy names; the rules check that. What bots do with
    # threads are facts.
    kind = _map(payload, "sender").get("type")
    author = _app(_map(words, "user")) if kind == "Bot" else person(_map(words, "user"))
    spoke = isinstance(kind, str) and not words.get("performed_via_github_app")
    if kind == "Bot":
        spoke = spoke and author is not None and has_command(_text(words, "body", MAX_TEXT))
    if number is None or not (spoke or about.event != "issue_comment"):
        return None
    at = _moment(words if about.event in WORDS else thread, AT.get(about.event, "updated_at"))
    is_pull = thread is pull or "pull_request" in issue
    found: dict[str, Any] = {"number": number, "pull": is_pull, "at": at}
    found["insider"] = _text(words or thread, "author_association", 20) in INSIDERS
    if about.action in ("created", "submitted") and spoke:
        found["message"] = _message(about.event, words, author, at, heard)
    after = _sha(payload, "after") or _sha(_map(pull, "head"), "sha")
    moves = about.event == "pull_request" and about.action in ("opened", "synchronize")
    if moves and at is not None and after is not None:
        # Pushes of bots count, too: the head has changed.
        by = _int(_map(payload, "sender"), "id") or 0
        found["push"] = Push(at=at, after=after, before=_sha(payload, "before") or "", by=by)
    return about.model_copy(update=found)


def _message(
    event: str,
    words: dict[str, Any],
    author: Person | None,
    at: datetime | None,
    heard: Heard,
) -> Message | None:
    """A user's message; None if the author or the time is unknown."""
    id = _int(words, "id")
    if id is None or author is None or at is None:
        return None
    return Message(
        id=id,
        author=author,
        at=at,
        body=_text(words, "body", MAX_TEXT),
        via="review" if event == "pull_request_review" else "comment",
        heard=heard,
        commit=_sha(words, "commit_id"),
    )


def _button(about: Delivery, payload: Any, heard: Heard) -> Delivery | None:
    """A pressed button, of ours or GitHub's own *Re-run*. The check run's external id, which is
    ours, names thread and execution; *Re-run all checks* names App and commit."""
    check = _map(payload, about.event)
    ours = CheckId.parse(_text(check, "external_id", 200))
    who, id = person(_map(payload, "sender")), _int(check, "id")
    identifier = _text(_map(payload, "requested_action"), "identifier", 100)
    number, execution = (ours.thread, ours.key.of) if ours else (None, "")
    if about.action == "rerequested" and ours:
        identifier = "retry" if ours.key.kind == "check" else "replan"
    # The payload has no time of the press; the check run's is earlier.
    at = _moment(check, "completed_at") or _moment(check, "started_at")
    fields: dict[str, Any] = {"check": str(ours.key) if ours else ""}
    if about.event == "check_suite" and (at := _moment(check, "updated_at")):
        number, execution, identifier = _pull_of(check, about.repository), "all", "replan"
        id = int(at.timestamp())  # its own id is the same at the next press
        fields["app"] = _text(_map(check, "app"), "slug", 100) + APP
    words = BUTTONS.get(identifier)
    if who is None or id is None or at is None or words is None or not (number and execution):
        return None
    message = Message(
        id=id,
        author=who,
        at=at,
        body=words.format(execution=execution),
        via="button",
        heard=heard,
        commit=_sha(check, "head_sha"),
        identifier=identifier,
    )
    fields |= {"number": number, "pull": True, "at": at, "message": message, "insider": True}
    return about.model_copy(update=fields)


def _pull_of(suite: dict[str, Any], repository: int) -> int | None:
    """The first pull request into this repository with the suite's commit; GitHub lists none from a
    fork."""
    pulls, head = suite.get("pull_requests"), _sha(suite, "head_sha")
    for pull in pulls if isinstance(pulls, list) else ():
        here = _int(_map(_map(pull, "base"), "repo"), "id") == repository
        if here and head and _sha(_map(pull, "head"), "sha") == head:
            return _int(pull, "number")
    return None


# ── Values that may be anything ──────────────────────────────────────────────────────────────


def person(user: dict[str, Any]) -> Person | None:
    """A person; None for a bot or app, and for deleted accounts."""
    login, id = user.get("login"), _int(user, "id")
    if id is None or not isinstance(login, str) or user.get("type") == "Bot":
        return None
    # It becomes a part of URL paths.
    return Person(login=login, id=id) if _LOGIN.fullmatch(login) else None


def _app(user: dict[str, Any]) -> Person | None:
    """A GitHub App's account; None for anybody else."""
    login, id = user.get("login"), _int(user, "id")
    if id is None or not isinstance(login, str) or user.get("type") != "Bot":
        return None
    known = login.endswith(APP) and _LOGIN.fullmatch(login.removesuffix(APP))
    return Person(login=login, id=id) if known else None


def has_command(body: str) -> bool:
    """Whether a comment has a command."""
    return bool(commands.read(body).commands)


def clean(text: str, most: int) -> str:
    """Its first `most` characters, in a form that every file and answer can contain."""
    return text[:most].encode("utf-8", "replace").decode()


def _map(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _text(value: Any, key: str, most: int) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    return clean(found, most) if isinstance(found, str) else ""


def _int(value: Any, key: str) -> int | None:
    found = value.get(key) if isinstance(value, dict) else None
    return found if type(found) is int and 0 < found <= _LARGEST else None  # True is no number


def _sha(value: Any, key: str) -> str | None:
    found = _text(value, key, 41)
    return found if _SHA.fullmatch(found) else None


def _moment(value: Any, key: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(_text(value, key, 40))
        return found.astimezone(UTC) if found.utcoffset() is not None else None
    except (ValueError, OverflowError):
        return None
