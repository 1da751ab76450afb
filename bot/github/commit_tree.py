"""Fetches files of a stranger's commit by SHA through the base repository. Each file's bytes are
compared with its git blob hash in the commit's tree. They are counted while they arrive; links,
submodules, pointers to Git LFS and odd modes or names are refused with a reason. Fetched files are
read, and never run."""

import re
from collections.abc import Iterable
from pathlib import Path

from bot.github import Entry, GitHub, Gone, Refused
from bot.github.branches import blob_id

MAX_FILES = 200  # fetched per commit
MAX_BYTES = 5_000_000  # per file
MAX_ENTRIES = 10_000  # in the experiment's folder
LFS = b"version https://git-lfs.github.com/spec/"
KINDS = {
    "120000": "a link; add the file itself",
    "160000": "a submodule; add its files themselves",
    "040000": "a folder",
}
PLAIN = re.compile(r"[^\x00-\x1f\x7f\\]{1,400}")


class Unfit(Exception):
    """The lab does not accept a file; the message is a whole sentence."""


class Tree(dict[str, Entry]):
    """The files of one folder of a commit, by their names in it."""

    def __init__(self, github: GitHub, commit: str, folder: str) -> None:
        """List the folder; "" is the whole tree. Raises `bot.github.Later` and `Refused`."""
        self.folder = folder
        within = f"{folder}/" if folder else ""
        self._github, self._commit = github, commit
        self._fetched: dict[str, bytes] = {}
        try:
            listed = github.tree(commit, folder)
        except Refused as refused:
            if folder or isinstance(refused, Gone):
                raise
            listed = []  # of a whole repository that is too large; see `__missing__`
        super().__init__((entry.path.removeprefix(within), entry) for entry in listed)

    def __missing__(self, name: str) -> Entry:
        """A file of a repository that cannot be listed at once."""
        folder = "" if self.folder else name.rpartition("/")[0]
        for entry in self._github.tree(self._commit, folder) if folder else ():
            if entry.path == name:
                return entry
        raise KeyError(name)

    def check(self) -> None:
        """Raises Unfit unless everything in the folder is a regular file with a plain name."""
        if len(self) > MAX_ENTRIES:
            raise Unfit(f"{self.folder} has {len(self):,} files; {MAX_ENTRIES:,} is most")
        for name, entry in sorted(self.items()):
            self._fit(name, entry)

    def fetch(self, name: str, most: int = MAX_BYTES) -> bytes:
        """The bytes of a file, at most `most`. Raises Unfit."""
        entry = self[name]
        self._fit(name, entry)
        if entry.size > most:
            raise Unfit(f"{entry.path} is larger than {most:,} bytes")
        if name not in self._fetched:
            if len(self._fetched) >= MAX_FILES:
                raise Unfit(f"more than {MAX_FILES} files of {self.folder} would be read")
            self._fetched[name] = self._checked(entry)
        return self._fetched[name]

    def lay(self, folder: Path, names: Iterable[str]) -> None:
        """Write files below `folder`. Raises Unfit."""
        for name in names:
            content, target = self.fetch(name), folder / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            except (OSError, ValueError) as error:
                raise Unfit(_name(name)) from error

    def mark(self, folder: Path, names: Iterable[str]) -> None:
        """Write empty files with these names, into folders that `lay` has made. Raises Unfit."""
        for name in names:
            self._fit(name, self[name])
            try:
                if (folder / name).parent.is_dir():
                    (folder / name).touch()
            except OSError as error:
                raise Unfit(_name(name)) from error

    def _checked(self, entry: Entry) -> bytes:
        content = self._github.blob(entry.sha)
        if blob_id(content, entry.sha) != entry.sha:
            raise Unfit(f"{entry.path} came with other bytes than its commit names; push it again")
        if len(content) > MAX_BYTES:
            raise Unfit(f"{entry.path} is larger than {MAX_BYTES:,} bytes")
        if content.startswith(LFS):
            raise Unfit(f"{entry.path} is a pointer to Git LFS; add the file itself")
        return content

    @staticmethod
    def _fit(name: str, entry: Entry) -> None:
        parts = name.split("/")
        if not PLAIN.fullmatch(name) or {"", ".", "..", ".git"} & {part.lower() for part in parts}:
            raise Unfit(_name(name))
        if entry.mode not in ("100644", "100755"):
            kind = KINDS.get(entry.mode, f"of the odd mode {entry.mode}; write 100644")
            raise Unfit(f"{entry.path} is {kind}")


def _name(name: str) -> str:
    return f"no file can have this name: {name[:100]!r}"
