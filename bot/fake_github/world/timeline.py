"""A thread's timeline as its page shows it: comments and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from bot.fake_github.world.state import Comment, Event, Issue, Review, User


@dataclass
class Labels:
    """Labels that one person changes at once, on one line."""

    id: int
    user: User
    at: datetime
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kind: str = "labels"


def timeline(issue: Issue) -> list[Comment | Review | Event | Labels]:
    """Comments, reviews and events in order."""
    items: list[Comment | Review | Event | Labels] = []
    things: list[Comment | Review | Event] = [*issue.comments, *issue.events]
    things += issue.pull.reviews if issue.pull else []
    for thing in sorted(things, key=lambda each: each.id):
        if not isinstance(thing, Event) or thing.kind not in ("labeled", "unlabeled"):
            items.append(thing)
            continue
        line = items[-1] if items else None
        if not (isinstance(line, Labels) and _continues(line, thing)):
            line = Labels(thing.id, thing.user, thing.at)
            items.append(line)
        (line.added if thing.kind == "labeled" else line.removed).append(thing.detail)
    return items


def _continues(line: Labels, event: Event) -> bool:
    return line.user is event.user and (event.at - line.at).total_seconds() <= 1
