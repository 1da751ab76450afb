"""A thread's timeline as its page shows it: comments, and between them what happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from bot.fake_github.world.state import Comment, Event, Issue, Review, User

LABELS = ("labeled", "unlabeled")


@dataclass
class Happening:
    """One line of the timeline; labels that one person changes at once share a line."""

    id: int
    kind: str  # an event's kind, or "labels"
    user: User
    at: datetime
    detail: str = ""
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def timeline(issue: Issue) -> list[Comment | Review | Happening]:
    """Comments, reviews and happenings in their order."""
    items: list[Comment | Review | Happening] = []
    things: list[Comment | Review | Event] = [*issue.comments, *issue.events]
    things += issue.pull.reviews if issue.pull else []
    for thing in sorted(things, key=lambda each: each.id):
        if isinstance(thing, Comment | Review):
            items.append(thing)
        elif thing.kind in LABELS:
            line = items[-1] if items else None
            if not (isinstance(line, Happening) and _continues(line, thing)):
                line = Happening(thing.id, "labels", thing.user, thing.at)
                items.append(line)
            (line.added if thing.kind == "labeled" else line.removed).append(thing.detail)
        else:
            items.append(Happening(thing.id, thing.kind, thing.user, thing.at, thing.detail))
    return items


def _continues(line: Happening, event: Event) -> bool:
    at_once = (event.at - line.at).total_seconds() <= 1
    return line.kind == "labels" and line.user is event.user and at_once
