"""A thread's timeline as its page shows it: comments, and between them what happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from bot.sandbox.state import Comment, Event, Issue, User

LABELS = ("labeled", "unlabeled")


@dataclass
class Happening:
    """One line of the timeline; labels that one person changes in a row share a line."""

    id: int
    kind: str  # an event's kind, or "labels"
    user: User
    at: datetime
    detail: str = ""
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def timeline(issue: Issue) -> list[Comment | Happening]:
    """Comments and happenings in their order."""
    items: list[Comment | Happening] = []
    things: list[Comment | Event] = [*issue.comments, *issue.events]
    for thing in sorted(things, key=lambda each: each.id):
        if isinstance(thing, Comment):
            items.append(thing)
        elif thing.kind in LABELS:
            last = items[-1] if items else None
            if not (isinstance(last, Happening) and (last.kind, last.user) == ("labels", thing.user)):
                last = Happening(thing.id, "labels", thing.user, thing.at)
                items.append(last)
            (last.added if thing.kind == "labeled" else last.removed).append(thing.detail)
        else:
            items.append(Happening(thing.id, thing.kind, thing.user, thing.at, thing.detail))
    return items
