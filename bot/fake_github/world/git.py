"""A real bare git repository, so that a commit is a commit and every SHA is git's own.

Everything is written, and all but refs and single objects is read, by the `git` command, in an
environment that knows nothing of the user's settings. Objects never change, so what was read once
is remembered.
"""

from __future__ import annotations

import os
import re
import subprocess
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ZERO = "0" * 40
SHA = re.compile(r"[0-9a-f]{40}")
PLAIN = re.compile(r"refs(/(?!\.)[\w.-]+)+", re.ASCII)  # a ref's name that is its file's, too


class GitRefusal(Exception):
    """Git would not; the message is its own first line."""


@dataclass(frozen=True)
class Signature:
    name: str
    email: str
    date: datetime

    def __str__(self) -> str:
        return f"{self.name} <{self.email}> {int(self.date.timestamp())} +0000"


@dataclass(frozen=True)
class Commit:
    sha: str
    tree: str
    parents: tuple[str, ...]
    author: Signature
    committer: Signature
    message: str


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
    sha: str | None
    additions: int
    deletions: int
    patch: str | None  # None for binary files


class Git:
    def __init__(self, path: Path, *, objects: Path | None = None) -> None:
        """`objects`: the folder of another repository's objects, which this one shares."""
        self.path = path
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(path),
            "LC_ALL": "C.UTF-8",
            "GIT_DIR": str(path),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
        }
        if objects:
            self._env["GIT_OBJECT_DIRECTORY"] = str(objects)
        self._known: dict[tuple[str, ...], object] = {}
        self._objects = objects or path / "objects"
        if not (path / "HEAD").exists():
            path.mkdir(parents=True, exist_ok=True)
            self._run("init", "--quiet", "--bare", "--initial-branch=main", "--template=")

    # Branches and names

    def resolve(self, name: str) -> str | None:
        """The commit that a SHA, branch or ref names; None if there is none."""
        names = [name] if SHA.fullmatch(name) else [f"refs/heads/{name}", f"refs/{name}", name]
        for candidate in names:
            sha = name if SHA.fullmatch(name) else self.ref(candidate)
            if sha and self.kind(sha) == "commit":
                return sha
            arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options")
            try:
                return self._run(*arguments, f"{candidate}^{{commit}}").decode().strip()
            except GitRefusal:
                continue
        return None

    def ref(self, name: str) -> str | None:
        """What `refs/…` points at; None if it does not exist."""
        if PLAIN.fullmatch(name) and not (self.path / "packed-refs").exists():
            try:
                found = (self.path / name).read_text().strip()
            except OSError:  # none has this name
                return None
            if SHA.fullmatch(found):
                return found
        try:
            return self._run("show-ref", "--verify", "--hash", "--", name).decode().strip()
        except GitRefusal:
            return None

    def branches(self) -> dict[str, str]:
        lines = self._run("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/")
        pairs = (line.split(" ") for line in lines.decode().splitlines())
        return {name.removeprefix("refs/heads/"): sha for name, sha in pairs}

    def valid_ref(self, name: str) -> bool:
        try:
            self._once(("valid", name), lambda: self._run("check-ref-format", name))
        except GitRefusal:
            return False
        return name.startswith("refs/")

    def set_ref(self, name: str, sha: str) -> None:
        self._run("update-ref", "--end-of-options", name, sha)

    # Reading objects

    def kind(self, sha: str) -> str | None:
        try:
            return self._once(("object", sha), lambda: self._read(sha))[0]
        except GitRefusal:
            return None

    def commit(self, sha: str) -> Commit:
        return self._once(("commit", sha), lambda: _parse_commit(sha, self._content(sha, "commit")))

    def blob(self, sha: str) -> bytes:
        return self._content(sha, "blob")

    def _content(self, sha: str, kind: str) -> bytes:
        found, content = self._once(("object", sha), lambda: self._read(sha))
        if found != kind:
            raise GitRefusal(f"{sha} is a {found} and no {kind}")
        return content

    def _read(self, sha: str) -> tuple[str, bytes]:
        """An object's kind and content. Raises GitRefusal if there is none."""
        if not SHA.fullmatch(sha):
            raise GitRefusal(f"{sha!r} names no object")
        try:
            raw = zlib.decompress((self._objects / sha[:2] / sha[2:]).read_bytes())
        except FileNotFoundError:  # in a pack, as after a real push, or nowhere
            kind = self._run("cat-file", "-t", sha).decode().strip()
            return kind, self._run("cat-file", kind, sha)
        head, _, content = raw.partition(b"\0")
        return head.partition(b" ")[0].decode(), content

    def tree(self, sha: str, *, recursive: bool = False, path: str = "") -> list[Entry]:
        """The entries of a tree or commit; with `path`, of the folder there."""
        flags = ["-r", "-t"] if recursive else []
        name = f"{sha}:{path}" if path else sha

        def read() -> list[Entry]:
            lines = self._run("ls-tree", "-z", "-l", *flags, "--end-of-options", name)
            return [_parse_entry(line) for line in lines.decode().split("\0") if line]

        return self._once(("tree", name, *flags), read)

    def entry(self, commit: str, path: str) -> Entry | None:
        """The file or folder at a path of a commit."""
        literally = ("--literal-pathspecs", "ls-tree", "-z", "-l", commit, "--", path)
        lines = self._once(literally, lambda: self._run(*literally))
        found = [_parse_entry(line) for line in lines.decode().split("\0") if line]
        return found[0] if len(found) == 1 and found[0].path == path else None

    def file(self, commit: str, path: str) -> bytes | None:
        entry = self.entry(commit, path)
        return self.blob(entry.sha) if entry and entry.type == "blob" else None

    # Comparing

    def merge_base(self, one: str, other: str) -> str | None:
        try:
            return self._once(
                ("base", one, other),
                lambda: self._run("merge-base", one, other).decode().strip(),
            )
        except GitRefusal:
            return None

    def log(self, base: str, head: str) -> list[str]:
        """The commits that `head` has and `base` has not, oldest first."""
        return self._once(
            ("log", base, head),
            lambda: self._run("rev-list", "--reverse", f"{base}..{head}").decode().split(),
        )

    def diff(self, old: str, new: str) -> list[Change]:
        return self._once(("diff", old, new), lambda: self._diff(old, new))

    def _diff(self, old: str, new: str) -> list[Change]:
        plain = ("diff-tree", "-r", "--no-renames", "--full-index", old, new)
        raw = self._run(*plain, "--raw", "-z").decode().split("\0")[:-1]
        counts = self._run(*plain, "--numstat", "-z").decode().split("\0")[:-1]
        text = self._run(*plain, "-p").decode(errors="replace")
        patches = iter(re.split(r"^diff --git .*\n", text, flags=re.M)[1:])
        changes = []
        for header, path, count in zip(raw[::2], raw[1::2], counts, strict=True):
            _, _, before, after, letter = header.split(" ")
            patch = next(patches)
            if letter == "T":  # a file became a link, or the other way: told as two patches
                patch += next(patches)
            added, removed, _ = count.split("\t")
            start = patch.find("@@ ")
            changes.append(
                Change(
                    path,
                    {"A": "added", "D": "removed"}.get(letter, "modified"),
                    after if after != ZERO else before,
                    int(added) if added != "-" else 0,
                    int(removed) if removed != "-" else 0,
                    patch[start:].rstrip("\n") if start >= 0 and added != "-" else None,
                )
            )
        return changes

    def merged_tree(self, base: str, head: str) -> str:
        """The tree of `base` and `head` together. Raises GitRefusal where they conflict."""
        return self._run("merge-tree", "--write-tree", base, head).decode().strip()

    # Writing

    def add_commit(
        self, branch: str, files: Mapping[str, bytes | None], message: str, by: Signature,
        parent: str | None,
    ) -> str:  # fmt: skip
        """Commit files (None deletes one) on a branch, in one go; returns the new SHA."""
        out = [
            f"commit refs/heads/{branch}\nmark :1\nauthor {by}\ncommitter {by}\n".encode(),
            _data(message.encode()),
            f"from {parent}\n".encode() if parent else b"",
        ]
        for path, content in sorted(files.items()):
            _check_path(path)
            if content is None:
                out.append(f"D {path}\n".encode())
            else:
                out.append(f"M 100644 inline {path}\n".encode() + _data(content))
        out.append(b"get-mark :1\n")
        sha = self._run("fast-import", "--quiet", "--date-format=raw", stdin=b"".join(out))
        return sha.decode().strip()

    def write_blob(self, content: bytes) -> str:
        return self._run("hash-object", "-w", "--stdin", stdin=content).decode().strip()

    def write_tree(self, base: str | None, entries: list[tuple[str, str, str | None]]) -> str:
        """A tree from (path, mode, SHA or None to delete) on top of another; paths may be deep."""
        index = self.path / "sandbox-index"
        index.unlink(missing_ok=True)
        env = {"GIT_INDEX_FILE": str(index)}
        if base:
            self._run("read-tree", base, env=env)
        lines = []
        for path, mode, sha in entries:
            _check_path(path)
            lines.append(f"{mode if sha else 0} {sha or ZERO}\t{path}\0")
        self._run("update-index", "-z", "--index-info", stdin="".join(lines).encode(), env=env)
        return self._run("write-tree", env=env).decode().strip()

    def write_commit(
        self, tree: str, parents: list[str], message: str, author: Signature, committer: Signature
    ) -> str:
        people = {}
        for role, who in (("AUTHOR", author), ("COMMITTER", committer)):
            people[f"GIT_{role}_NAME"] = who.name
            people[f"GIT_{role}_EMAIL"] = who.email
            people[f"GIT_{role}_DATE"] = f"{int(who.date.timestamp())} +0000"
        flags = [flag for parent in parents for flag in ("-p", parent)]
        made = self._run("commit-tree", tree, *flags, stdin=message.encode(), env=people)
        return made.decode().strip()

    # The command

    def _run(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        done = subprocess.run(
            ["git", *args], input=stdin, capture_output=True, env={**self._env, **(env or {})}
        )
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise GitRefusal(said[0] if said else f"git {args[0]} ended with {done.returncode}")
        return done.stdout

    def _once(self, key: tuple[str, ...], read: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = read()
        return self._known[key]  # type: ignore[return-value]


def _data(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content + b"\n"


def _check_path(path: str) -> None:
    parts = path.split("/")
    strange = any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)
    if strange or path.startswith('"') or not path.isprintable():
        raise GitRefusal(f"{path!r} is no path for a file in a repository")


def _parse_entry(line: str) -> Entry:
    meta, path = line.split("\t", 1)
    mode, kind, sha, size = meta.split()
    return Entry(mode, kind, sha, None if size == "-" else int(size), path)


def _parse_commit(sha: str, raw: bytes) -> Commit:
    head, _, message = raw.decode(errors="replace").partition("\n\n")
    fields = [line.split(" ", 1) for line in head.splitlines() if not line.startswith(" ")]
    one = {key: value for key, value in fields if key != "parent"}
    parents = tuple(value for key, value in fields if key == "parent")
    author, committer = (_parse_signature(one[key]) for key in ("author", "committer"))
    return Commit(sha, one["tree"], parents, author, committer, message)


def _parse_signature(line: str) -> Signature:
    found = re.fullmatch(r"(.*?) ?<(.*)> (\d+) [+-]\d{4}", line)
    if not found:
        raise GitRefusal(f"not a signature: {line!r}")
    when = datetime.fromtimestamp(int(found[3]), UTC)
    return Signature(found[1], found[2], when)
