"""Reads the trees of commits, however large the repository is.

GitHub lists 300 files of a comparison, and a recursive tree until it is `truncated`. Beyond that,
folders are read one by one, and only those that matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bot.github.answers import Refused
from bot.github.branches import Branches

MAX_COMPARED = 300  # files that GitHub lists for a comparison
MAX_FOLDERS = 100  # that are read one by one to compare two trees


@dataclass(frozen=True)
class Entry:
    """A file in a commit's tree."""

    path: str
    mode: str
    sha: str
    size: int
    is_folder: bool = False


class Trees(Branches):
    """Lists and compares trees."""

    def changed(self, base: str, head: str) -> list[str]:
        """The files that `head` changed or added since it left `base`. Raises Refused (413) if they
        are in too many folders of a large repository."""
        # PyGithub would also request a page of the commits.
        compared = self._line.get(f"/repos/{self.name}/compare/{base}...{head}")
        files = compared["files"]
        if len(files) < MAX_COMPARED:
            return [file["filename"] for file in files if file["status"] != "removed"]
        since = compared["merge_base_commit"]["sha"]
        try:
            old, new = (self.tree(commit) for commit in (since, head))
        except Refused:
            return list(self._differing(since, head, "", [MAX_FOLDERS]))
        before = {(entry.path, entry.mode, entry.sha) for entry in old}
        return [x.path for x in new if (x.path, x.mode, x.sha) not in before]

    def tree(self, commit: str, folder: str = "") -> list[Entry]:
        """Every file of a commit, or of one of its folders; paths are the commit's. Raises Refused
        (413) if GitHub does not list as many."""
        listed, truncated = self._entries(commit, "", recursive=True)
        if truncated and folder:
            found = self._folder(commit, folder)
            if found is None:
                return []
            listed, truncated = self._entries(found, f"{folder}/", recursive=True)
        if truncated:
            raise Refused(413, f"{folder or 'the repository'} has more files than GitHub lists")
        within = f"{folder}/" if folder else ""
        return [x for x in listed if not x.is_folder and x.path.startswith(within)]

    def inside(self, commit: str, folder: str) -> list[Entry]:
        """What one folder of a commit holds; empty if there is no such folder. Raises Gone if
        GitHub does not show the commit, which the content of a path would not tell apart."""
        found = self._folder(commit, folder)
        return self._entries(found, f"{folder}/")[0] if found else []

    def _folder(self, commit: str, folder: str) -> str | None:
        """The tree of a folder of a commit; None if there is no such folder."""
        tree: str | None = commit
        for name in folder.split("/"):
            listed = self._entries(tree, "")[0] if tree else []
            tree = next((x.sha for x in listed if x.is_folder and x.path == name), None)
        return tree

    def _differing(self, old: str | None, new: str, under: str, left: list[int]) -> Iterator[str]:
        """The files of a tree that are not, or otherwise, in another; equal folders are skipped.
        `left`: how many folders may be read."""
        left[0] -= 1
        if left[0] < 0:
            raise Refused(413, f"it changes more than {MAX_FOLDERS} folders")
        listed = self._entries(old, under)[0] if old else []
        before = {entry.path: (entry.mode, entry.sha, entry.is_folder) for entry in listed}
        for entry in self._entries(new, under)[0]:
            mode, sha, is_folder = before.get(entry.path, ("", "", False))
            if (mode, sha) == (entry.mode, entry.sha):
                continue
            if entry.is_folder:
                within = f"{entry.path}/"
                yield from self._differing(sha if is_folder else None, entry.sha, within, left)
            else:
                yield entry.path

    def _entries(
        self, tree: str, under: str, *, recursive: bool = False
    ) -> tuple[list[Entry], bool]:
        """What a tree (or a commit's) holds, and whether GitHub left something out."""
        query: dict[str, Any] = {"recursive": "1"} if recursive else {}
        found = self._line.get(f"/repos/{self.name}/git/trees/{tree}", **query)
        listed = [
            Entry(under + x["path"], x["mode"], x["sha"], x.get("size", 0), x["type"] == "tree")
            for x in found["tree"]
        ]
        return listed, bool(found.get("truncated"))
