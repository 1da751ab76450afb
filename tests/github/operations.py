"""What the cassettes hold: the client's operations on one repository, and what came of each."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.github import GitHub, Refused
from bot.model.actions import Button

Step = tuple[str, Callable[[], Any]]
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAAMBAQAY3Y2wAAAAAElFTkSuQmCC"
)


@dataclass(frozen=True)
class Subject:
    """A repository to ask about, an issue and a pull request there, and somebody."""

    repository: str
    issue: int
    pull: int
    login: str
    since: str  # what changed before is not asked for


def reading(github: GitHub, subject: Subject) -> Iterator[Step]:
    """Every question."""
    issue, number = subject.issue, subject.pull
    since = datetime.fromisoformat(subject.since)
    yield "repository", lambda: [github.id, github.name, github.url]
    yield "issue", lambda: github.issue(issue)
    yield "pull", lambda: github.pull(number)
    pull = github.pull(number)
    assert pull is not None
    yield "role", lambda: github.role(subject.login)
    yield "changed", lambda: github.changed(pull.base, pull.head)
    yield "contributions", lambda: github.contributions(number)
    yield "pushes", lambda: github.pushes(number)
    yield "reviews", lambda: github.reviews(number)
    yield "unedited", lambda: [github.unedited(each) for each in github.reviews(number)]
    yield "lab", lambda: github.lab_files(github.default_head())
    yield "file", lambda: github.file("README.md")
    tree = github.tree(pull.head)
    yield "tree", lambda: tree
    yield "blob", lambda: github.blob(tree[0].sha)
    yield "my comments", lambda: github.my_comments(issue, "<!-- regatta: sealed -->")
    yield "my checks", lambda: github.my_checks(pull.head, "regatta / plan", "1.check")
    yield "comments since", lambda: list(github.comments_since(since))
    yield "threads since", lambda: list(github.threads_since(since))
    yield "now", lambda: github.now()


def writing(github: GitHub, subject: Subject) -> Iterator[Step]:
    """Every write. What can be undone is undone."""
    pull = github.pull(subject.pull)
    assert pull is not None
    yield "label", lambda: github.add_label(subject.issue, "experiment: wishlist")
    yield "label removed", lambda: github.remove_label(subject.issue, "experiment: wishlist")
    made = github.create_comment(subject.issue, "A comment of a recording. <!-- regatta: x -->")
    yield "comment", lambda: made
    yield "edit", lambda: github.edit_comment(made.id, "Edited. <!-- regatta: x -->")
    yield "react", lambda: github.react(made.id, "eyes")
    yield "delete", lambda: github.delete_comment(made.id)
    output = {"title": "Recorded", "summary": "Nothing was run."}
    button = Button("Cancel", "cancel", "Stop it; its record is kept")

    def check() -> Any:
        run = github.create_check("regatta / x", pull.head, "x", None, output, (button,))
        github.update_check(run.id, "success", output)
        github.conclude_check(run.id)
        return run

    yield "check", check

    def branch() -> Any:
        name, file = "regatta-recorded", {"README.md": "Recorded.\n"}
        with contextlib.suppress(Refused):  # it is there from another recording
            first = github.commit("Recorded", github.add_files(None, file), [])
            github.create_branch(name, first)
        tip = github.tip(name)
        assert tip is not None
        tree = github.add_files(tip.tree, {"more.json": "{}\n"})
        github.advance(name, github.commit("Recorded again", tree, [tip.commit]))
        return github.file_id(tip.commit, "README.md")

    yield "branch", branch
    at = datetime(2026, 1, 1, tzinfo=UTC)
    yield "picture", lambda: github.keep_picture("recorded", PNG, at)


def app(github: GitHub, _: Subject) -> Iterator[Step]:
    """As a GitHub App: a token, and what was delivered."""
    yield "repository", lambda: [github.id, github.name]
    attempts = list(github.app_deliveries())
    yield "deliveries", lambda: attempts
    yield "delivery", lambda: github.app_delivery(attempts[0].id)[:2]
    yield "redeliver", lambda: github.redeliver(attempts[0].id)


TAPES = {"reading": reading, "writing": writing, "app": app}


def play(steps: Iterator[Step]) -> dict[str, Any]:
    """Do each and tell what came of it; a refusal is an answer too."""
    told = {}
    for name, step in steps:
        try:
            told[name] = _plain(step())
        except Refused as refused:
            told[name] = f"refused with {refused.status}"
    return told


def _plain(value: Any) -> Any:
    """As JSON can say it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(each) for key, each in asdict(value).items()}
    match value:
        case None | str() | int() | float():
            return value
        case bytes():
            return value.decode("utf-8", "replace")
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case set() | frozenset():
            return sorted(_plain(each) for each in value)
        case list() | tuple():
            return [_plain(each) for each in value]
        case datetime() | timedelta():
            return str(value)
        case _:
            return _plain(value.model_dump(mode="json"))
