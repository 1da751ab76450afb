"""A user's fork: branches of its own, and objects in common with its parent repository.

So every commit of a fork can be fetched through the parent, as in GitHub's networks. A fork has no
issues here, and the App is not installed on it: its changes send no webhook except those that move
a pull request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from bot.fake_github.world.code import Code
from bot.fake_github.world.errors import forbidden
from bot.fake_github.world.git import Git
from bot.fake_github.world.reviews import Reviews
from bot.fake_github.world.state import RANKS, Issue, User, World


class Fork(Code):
    """A fork, with the changes that its owner makes."""

    def __init__(self, origin: Code, world: World) -> None:
        super().__init__(world, origin.webhooks)
        self.origin = origin

    @contextmanager
    def changing(self) -> Iterator[datetime]:
        """Uses the parent's lock, so that its webhooks wait for this change, too."""
        with self.origin.changing() as now:
            yield now

    def emit(self, event: str, sender: User, **payload: Any) -> None:
        """Sends nothing."""

    def may(self, user: User, role: str) -> bool:
        """Its owner may do everything; others may read."""
        return user is self.world.owner or RANKS[role] == 0

    def move_heads(self, user: User, repository: int, branch: str, after: str) -> None:
        """The pull requests from here are in the parent."""
        self.origin.move_heads(user, repository, branch, after)


class Forks(Reviews):
    """Makes forks, and finds the fork of a pull request."""

    def forks(self) -> list[Fork]:
        return [Fork(self, world) for world in self.world.forks.values()]

    def fork(self, login: str) -> Fork:
        """The person's fork, created if there is none."""
        with self.changing():
            owner = self.user(login)
            if owner.type != "User":
                raise forbidden("Resource not accessible by integration")
            for known in self.forks():
                if known.world.owner is owner:
                    return known
            made = _forked(self.world, owner)
            self.world.forks[made.repository_id] = made
            return Fork(self, made)

    def remove_fork(self, login: str) -> None:
        """Remove the person's fork; its pull requests then have no head repository."""
        with self.changing():
            gone = self.fork(login).world.repository_id
            del self.world.forks[gone]
            for issue in self.world.issues.values():
                if issue.pull and issue.pull.head_repository == gone:
                    issue.pull.head_repository = None

    def home(self, issue: Issue) -> Code:
        """The repository of a pull request's head."""
        fork = self.world.forks.get(issue.as_pull.head_repository or 0)
        return Fork(self, fork) if fork else self


def _forked(main: World, owner: User) -> World:
    folder = main.git.path.with_name(f"fork-of-{owner.login}.git")
    git = Git(folder, objects=main.git.path / "objects")
    for branch, sha in main.git.branches().items():
        git.set_ref(f"refs/heads/{branch}", sha)
    own: dict[str, Any] = {name: {} for name in ("labels", "issues", "comments", "checks", "forks")}
    at, id, own["history"] = main.clock.now(), main.new_id(), None
    return replace(main, owner=owner, git=git, created_at=at, repository_id=id, parent=main, **own)
