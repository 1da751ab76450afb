"""Writes the bot's branch through GitHub's database of git objects: no clone, no git command, and
never by force, so that existing commits stay."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from github.ContentFile import ContentFile
from github.GithubObject import NotSet, Opt

from bot.github.answers import Gone, Later
from bot.github.lists import Lists

MAX_OBJECTS = 200  # of git's, that are remembered after they were created


@dataclass(frozen=True)
class Tip:
    """A branch's newest commit."""

    commit: str
    tree: str


class Branches(Lists):
    """Reads and moves a branch."""

    def tip(self, branch: str) -> Tip | None:
        """The tip of a branch; None if there is none."""
        try:
            commit = self._there.get_git_ref(f"heads/{branch}").object.sha
        except Gone:
            return None
        return Tip(commit, self._there.get_git_commit(commit).tree.sha)

    def file_id(self, commit: str, path: str) -> str | None:
        """Git's id of a file at a commit; None if there is none. See `blob_id`."""
        found = self._content(path, commit)
        return found.sha if found else None

    def add_files(self, tree: str | None, files: Mapping[str, str]) -> str:
        """Add these files to `tree`. Returns the new tree's id. Raises Refused, also if they are
        too many at once."""
        entries = [
            {"path": path, "mode": "100644", "type": "blob", "content": text}
            for path, text in files.items()
        ]
        asked: dict[str, Any] = {"tree": entries} | ({"base_tree": tree} if tree else {})
        return self._object("add_files", "/git/trees", asked)

    def commit(self, message: str, tree: str, parents: Sequence[str]) -> str:
        """Create a commit, on no branch yet. GitHub sets author and time, and signs an App's
        commits."""
        asked = {"message": message, "tree": tree, "parents": list(parents)}
        return self._object("commit", "/git/commits", asked)

    def create_branch(self, branch: str, commit: str) -> None:
        """Create a branch. Raises Refused (422) if the name is taken."""
        self._create_ref(f"refs/heads/{branch}", commit)

    def advance(self, branch: str, commit: str) -> None:
        """Move a branch forward to a commit. Raises Refused (422) if that is not a fast-forward, or
        a rule of the repository forbids it."""
        asked = {"sha": commit, "force": False}
        self._write("advance", "PATCH", f"/git/refs/heads/{quote(branch)}", asked)

    def _object(self, name: str, path: str, asked: dict[str, Any]) -> str:
        """Create an object of git's. A commit needs several, between which a command may come that
        does not wait for the others; then this raises Later, and nothing that was created just now
        is created again."""
        key = hashlib.sha256(json.dumps([path, asked]).encode()).hexdigest()
        if key not in self._objects:
            try:
                self._objects[key] = str(self._write(name, "POST", path, asked)["sha"])
            except Gone:  # GitHub does not know, or no longer, what it consists of
                self._objects.clear()
                raise
            while len(self._objects) > MAX_OBJECTS:
                del self._objects[next(iter(self._objects))]
            if self.gives_way():
                raise Later("a command comes first", timedelta(0))
        return self._objects[key]

    def _create_ref(self, ref: str, commit: str) -> None:
        self._write("create_ref", "POST", "/git/refs", {"ref": ref, "sha": commit})

    def _content(self, path: str, ref: Opt[str] = NotSet) -> ContentFile | None:
        """A file at a commit, or on the default branch; None if there is none."""
        try:
            found = self._there.get_contents(path, ref)
        except Gone:
            return None
        return None if isinstance(found, list) else found


def blob_id(content: bytes, like: str | None = None) -> str:
    """Git's id of a file with this content, in SHA-1 or, if `like` is, in SHA-256."""
    long = like is not None and len(like) == 64
    digest = hashlib.sha256() if long else hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % len(content) + content)
    return digest.hexdigest()
