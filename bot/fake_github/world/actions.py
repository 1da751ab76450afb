"""Common to every change of the world: one lock, webhooks, and permissions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from bot.fake_github.world import shapes
from bot.fake_github.world.errors import Redirect, Refused, forbidden, invalid, not_found
from bot.fake_github.world.state import RANKS, Comment, Issue, User, World
from bot.fake_github.world.webhooks import Webhooks

LONGEST_BODY = 65_536
K = TypeVar("K")
V = TypeVar("V")


def known(things: Mapping[K, V], name: K) -> V:
    if name not in things:
        raise not_found()
    return things[name]


class Actions:
    def __init__(self, world: World, webhooks: Webhooks) -> None:
        self.world = world
        self.webhooks = webhooks
        self._depth = 0

    @contextmanager
    def changing(self) -> Iterator[datetime]:
        """A context for every change: holds the lock, yields the time, and sends the webhooks after
        the lock is released."""
        with self.world.lock:
            self._depth += 1
            try:
                yield self.world.clock.now()
            finally:
                self._depth -= 1
                outermost = self._depth == 0
        if outermost:
            self.webhooks.flush()

    def emit(self, event: str, sender: User, **payload: Any) -> None:
        common = {
            "repository": shapes.repository(self.world),
            "organization": shapes.organization(self.world),
            "sender": shapes.user(self.world, sender),
            "installation": {"id": self.world.installation_id, "node_id": "MDIzOkluc3RhbGw="},
        }
        thread = payload.get("issue") or payload.get("pull_request")
        if self.world.history and thread:
            self.world.history.note(thread["number"])
        self.webhooks.emit(event, payload | common)

    # Users and permissions

    def user(self, login: str) -> User:
        """The person or bot with that name."""
        return known(self.world.users, login.lower())

    def issue(self, number: int) -> Issue:
        if path := self.world.elsewhere.get(number):
            raise Redirect(path)
        if number in self.world.elsewhere:
            raise Refused(410, "This issue was deleted")
        return known(self.world.issues, number)

    def issue_comment(self, comment_id: int) -> Comment:
        return known(self.world.comments, comment_id)

    def is_app(self, user: User) -> bool:
        return user is self.world.bot

    def may(self, user: User, role: str) -> bool:
        """Whether a user has at least that role here; the App may write, never administrate."""
        rank = RANKS["write"] if self.is_app(user) else RANKS[user.role]
        return rank >= RANKS[role]

    def need(self, user: User, role: str, author: User | None = None) -> None:
        """Refuse users without at least that role, except for what is their own."""
        if user is not author and not self.may(user, role):
            raise forbidden("Must have admin rights to Repository.")

    @staticmethod
    def check_body(resource: str, body: str | None) -> None:
        if body is not None and len(body) > LONGEST_BODY:
            message = f"body is too long (maximum is {LONGEST_BODY} characters)"
            raise invalid(resource, "body", "custom", message)
