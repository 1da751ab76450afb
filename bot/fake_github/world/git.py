"""A real bare git repository, so that every SHA is git's own.

libgit2 reads and writes it; content that no repository can hold is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pygit2
from pygit2 import Commit, Signature
from pygit2.enums import DiffOption, FileMode, SortMode

from bot.fake_github.world.errors import unprocessable

ZERO = "0" * 40
SHA = re.compile(r"[0-9a-f]{40}")
REFUSALS = (pygit2.GitError, KeyError, ValueError, OSError)  # errors of libgit2 in pygit2


@dataclass(frozen=True)
class Entry:
    mode: str
    type: str
    sha: str
    size: int | None
    path: str


@dataclass(frozen=True)
class Change:
    path: str
    status: str  # "added", "removed", "modified"
    sha: str
    additions: int
    deletions: int
    patch: str | None  # None for binary files


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except REFUSALS as error:
        raise unprocessable(str(error)) from None


class Git:
    def __init__(self, path: Path, *, objects: Path | None = None) -> None:
        """`objects`: the folder of another repository's objects, which this one shares."""
        self.path = path
        if not (path / "HEAD").exists():
            path.mkdir(parents=True, exist_ok=True)
            if objects:
                (path / "objects").symlink_to(objects.resolve())
            pygit2.init_repository(path, bare=True, initial_head="main")
        self._repository = pygit2.Repository(str(path))

    # Branches and names

    def resolve(self, name: str) -> str | None:
        """The commit of a SHA, branch or ref; None if there is none."""
        names = [name] if SHA.fullmatch(name) else [f"refs/heads/{name}", f"refs/{name}", name]
        for candidate in names:
            try:
                return str(self._repository.revparse_single(candidate).peel(Commit).id)
            except REFUSALS:
                continue
        return None

    def ref(self, name: str) -> str | None:
        """The target of `refs/…`; None if it does not exist."""
        try:
            return str(self._repository.references[name].target)
        except REFUSALS:
            return None

    def branches(self) -> dict[str, str]:
        names = self._repository.branches.local
        return {name: str(names[name].target) for name in names}

    def valid_ref(self, name: str) -> bool:
        return name.startswith("refs/") and pygit2.reference_is_valid_name(name)

    @_refusing()
    def set_ref(self, name: str, sha: str) -> None:
        self._repository.references.create(name, sha, force=True)

    # Reading objects

    def kind(self, sha: str) -> str | None:
        found = self._repository.get(sha) if SHA.fullmatch(sha) else None
        return found.type_str if found else None

    def commit(self, sha: str) -> Commit:
        return self._repository[sha].peel(Commit)

    def blob(self, sha: str) -> bytes:
        return self._repository[sha].peel(pygit2.Blob).data

    def tree(self, sha: str, *, recursive: bool = False, path: str = "") -> list[Entry]:
        """The entries of a tree or commit; with `path`, of the folder there."""
        found = self._tree(sha)
        folder = found[path].peel(pygit2.Tree) if path else found
        return list(_entries(folder, "", recursive))

    def entry(self, commit: str, path: str) -> Entry | None:
        """The file or folder at a path of a commit."""
        try:
            return _entry(self._tree(commit)[path], path)
        except REFUSALS:
            return None

    def file(self, commit: str, path: str) -> bytes | None:
        entry = self.entry(commit, path)
        return self.blob(entry.sha) if entry and entry.type == "blob" else None

    def _tree(self, sha: str) -> pygit2.Tree:
        return self._repository[sha].peel(pygit2.Tree)

    # Comparing

    def merge_base(self, one: str, other: str) -> str | None:
        found = self._repository.merge_base(one, other)
        return str(found) if found else None

    def log(self, base: str, head: str) -> list[str]:
        """The commits that are in `head` and not in `base`, oldest first."""
        order = SortMode.TOPOLOGICAL | SortMode.TIME | SortMode.REVERSE
        walk = self._repository.walk(head, order)
        walk.hide(base)
        return [str(commit.id) for commit in walk]

    def diff(self, old: str, new: str) -> list[Change]:
        trees = self._tree(old), self._tree(new)
        found = trees[0].diff_to_tree(trees[1], flags=DiffOption.INCLUDE_TYPECHANGE)
        return [_change(patch) for patch in found if patch]

    def merged_tree(self, base: str, head: str) -> str | None:
        """The tree of `base` and `head` merged; None if they conflict."""
        index = self._repository.merge_commits(base, head)
        return None if index.conflicts else str(index.write_tree(self._repository))

    # Writing

    @_refusing()
    def add_commit(
        self, branch: str, files: Mapping[str, bytes | None], message: str, by: Signature,
        parent: str | None,
    ) -> str:  # fmt: skip
        """Commit files (None deletes one) on a branch. Returns the new SHA."""
        entries = [
            (path, "100644", None if content is None else self.write_blob(content))
            for path, content in files.items()
        ]
        parents = [parent] if parent else []
        sha = self.write_commit(self.write_tree(parent, entries), parents, message, by, by)
        self.set_ref(f"refs/heads/{branch}", sha)
        return sha

    def write_blob(self, content: bytes) -> str:
        return str(self._repository.create_blob(content))

    @_refusing()
    def write_tree(self, base: str | None, entries: list[tuple[str, str, str | None]]) -> str:
        """A tree from (path, mode, SHA or None to delete) on top of another; paths may be deep."""
        index = pygit2.Index()
        if base:
            index.read_tree(self._tree(base))
        for path, mode, sha in entries:
            _check_path(path)
            if sha:
                index.add(pygit2.IndexEntry(path, pygit2.Oid(hex=sha), FileMode(int(mode, 8))))
            elif path in index:
                index.remove(path)
        return str(index.write_tree(self._repository))

    @_refusing()
    def write_commit(
        self, tree: str, parents: list[str], message: str, author: Signature, committer: Signature
    ) -> str:
        made = self._repository.create_commit(None, author, committer, message, tree, list(parents))
        return str(made)


def _check_path(path: str) -> None:
    parts = path.split("/")
    strange = any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)
    if strange or not path.isprintable():
        raise unprocessable(f"{path!r} is no path for a file in a repository")


def _entries(tree: pygit2.Tree, under: str, recursive: bool) -> Iterator[Entry]:
    for item in tree:
        path = f"{under}{item.name}"
        yield _entry(item, path)
        if recursive and isinstance(item, pygit2.Tree):
            yield from _entries(item, f"{path}/", recursive)


def _entry(item: pygit2.Object, path: str) -> Entry:
    size = item.size if isinstance(item, pygit2.Blob) else None
    return Entry(f"{item.filemode:06o}", item.type_str, str(item.id), size, path)


def _change(patch: pygit2.Patch) -> Change:
    delta, (_, added, removed) = patch.delta, patch.line_stats
    gone = delta.status_char() == "D"
    side = delta.old_file if gone else delta.new_file
    text = patch.data.decode(errors="replace")
    start = -1 if delta.is_binary else text.find("@@ ")
    return Change(
        side.path,
        "removed" if gone else "added" if delta.status_char() == "A" else "modified",
        str(side.id),
        added,
        removed,
        text[start:].rstrip("\n") if start >= 0 else None,
    )


def signature(name: str, email: str, at: datetime) -> Signature:
    return Signature(name, email, int(at.timestamp()), 0)


def signed_at(who: Signature) -> datetime:
    return datetime.fromtimestamp(who.time, UTC)
