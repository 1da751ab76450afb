"""The world as it was some seconds ago, as a replica that lags behind shows it."""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.fake_github.world.git import Git
from bot.fake_github.world.state import Issue, World

MAX_LAG = timedelta(seconds=30)
BEGINNING = datetime.min.replace(tzinfo=UTC)


class History:
    """The versions of threads and branches of the last seconds."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._threads: dict[int, list[tuple[datetime, Issue]]] = defaultdict(list)
        self._pushes: list[tuple[datetime, str, str | None]] = []  # time, ref, before
        for number in world.issues:
            self.note(number, BEGINNING)

    def note(self, number: int, at: datetime | None = None) -> None:
        """A thread has changed."""
        world, now = self._world, at or self._world.clock.now()
        kept: list[object] = [*world.users.values(), *world.labels.values()]
        version = copy.deepcopy(world.issues[number], {id(each): each for each in kept})
        versions = self._threads[number]
        versions.append((now, version))
        while len(versions) > 1 and versions[1][0] < world.clock.now() - MAX_LAG:
            versions.pop(0)

    def note_push(self, ref: str, before: str | None) -> None:
        """A branch has moved."""
        now = self._world.clock.now()
        self._pushes = [each for each in self._pushes if each[0] > now - MAX_LAG]
        self._pushes.append((now, ref, before))

    def at(self, then: datetime) -> World:
        """The world at that time: what is younger is not there, or is as it was before."""
        world, issues = self._world, {}
        for number in world.issues:
            old = [version for time, version in self._threads[number] if time <= then]
            if old:
                issues[number] = old[-1]
        moved: dict[str, str | None] = {}
        for time, ref, before in self._pushes:
            if time > then:
                moved.setdefault(ref, before)
        return replace(
            world,
            issues=issues,
            comments={each.id: each for issue in issues.values() for each in issue.comments},
            checks={id: run for id, run in world.checks.items() if run.created_at <= then},
            git=_GitBefore(world.git, then, moved),
        )


class _GitBefore(Git):
    """A repository without the commits that are younger than `then`."""

    def __init__(self, git: Git, then: datetime, moved: dict[str, str | None]) -> None:
        super().__init__(git.path)
        self._then, self._moved = then.timestamp(), moved

    def resolve(self, name: str) -> str | None:
        found = self._moved.get(f"refs/heads/{name}", super().resolve(name))
        return found if found and self.commit(found).commit_time <= self._then else None

    def ref(self, name: str) -> str | None:
        return self._moved.get(name, super().ref(name))

    def kind(self, sha: str) -> str | None:
        found = super().kind(sha)
        return None if found == "commit" and self.resolve(sha) is None else found
