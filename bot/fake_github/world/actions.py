"""What every change to the world shares: one lock, then webhooks, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any

from bot.fake_github.world import shapes
from bot.fake_github.world.errors import Redirect, Refused, forbidden, invalid, not_found
from bot.fake_github.world.state import RANKS, Comment, Issue, User, World
from bot.fake_github.world.webhooks import Webhooks

LONGEST_BODY = 65_536


class Actions:
    def __init__(self, world: World, webhooks: Webhooks) -> None:
        self.world = world
        self.webhooks = webhooks
        self._depth = 0

    def changing(self) -> AbstractContextManager[datetime]:
        """What every change is made in."""
        return self._changing()

    @contextmanager
    def _changing(self) -> Iterator[datetime]:
        """Hold the lock, hand out the time, and send the webhooks once the lock is free again."""
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
        self.webhooks.emit(event, payload | common)

    # Who and what

    def user(self, login: str) -> User:
        """The person or bot of that name."""
        try:
            return self.world.users[login.lower()]
        except KeyError:
            raise not_found() from None

    def issue(self, number: int) -> Issue:
        try:
            return self.world.issues[number]
        except KeyError:
            pass
        match self.world.elsewhere.get(number):
            case None:
                raise not_found()
            case "":
                raise Refused(410, "This issue was deleted")
            case path:
                raise Redirect(path)

    def issue_comment(self, comment_id: int) -> Comment:
        try:
            return self.world.comments[comment_id]
        except KeyError:
            raise not_found() from None

    def is_app(self, user: User) -> bool:
        return user is self.world.bot

    def may(self, user: User, role: str) -> bool:
        """Whether somebody has at least that role here; the App may write, never administrate."""
        rank = RANKS["write"] if self.is_app(user) else RANKS[user.role]
        return rank >= RANKS[role]

    def need(self, user: User, role: str) -> None:
        if not self.may(user, role):
            raise forbidden("Must have admin rights to Repository.")

    @staticmethod
    def check_body(resource: str, body: str | None) -> None:
        if body is not None and len(body) > LONGEST_BODY:
            message = f"body is too long (maximum is {LONGEST_BODY} characters)"
            raise invalid(resource, "body", "custom", message)
