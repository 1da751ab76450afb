"""Where a store's files lie: what is asked of such a place (`Files`), and local disk (`Disk`).

`runner.store.gcs.Bucket` is the other place. Both create a file once and whole or not at all, say
that something is not there only when they have seen it, and say in a sentence what went wrong.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from runner.lib.untrusted_files import NotRegular, open_regular

ELSEWHERE = "name another store with --store or REGATTA_STORE"
FULL = (errno.ENOSPC, errno.EDQUOT)
UNLISTED = (errno.ENAMETOOLONG, errno.EACCES)
MAKERS = re.compile("steps/[^/]+/[^/]+/[^/]+")  # where makers of steps write
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
# What jobs read and write: all but records, pins, and the lease that says who leads.
JOBS = re.compile(r"(work|steps|texts|code|cache)(/|$)|leases/(x|steps(/|$))")
BLOCK = 1 << 20  # bytes that are copied at once


CACHE = "REGATTA_CACHE"


def cache() -> Path:
    """Where this machine keeps folders of what lies in a bucket."""
    given = os.environ.get(CACHE)
    return Path(given).resolve() if given else Path.home().resolve() / ".cache" / "regatta"


class StoreError(Exception):
    """The store cannot do what it promises; the message says what to mend."""


class BadName(StoreError):
    """No file of a store can have this name."""


class NoStore(StoreError):
    """There is no store, and none was to be made."""


class StoreFault(StoreError, OSError):
    """The disk failed, or the bucket did when something was to be written, or what lies there is no
    file. An OSError too, so that who can do without (a heartbeat that is late) goes on."""


class Entry(NamedTuple):
    """A file of the store, or a folder of it."""

    name: str  # from the store's root on
    size: int = 0  # bytes
    at: float = 0.0  # when it was written, in seconds since 1970 by the disk's or bucket's clock
    folder: bool = False


class Files(Protocol):
    """A place for files. Names have been checked (`Store`); "" is the root. Each call raises
    StoreError where it cannot be done."""

    @property
    def place(self) -> Path | str:
        """What opens the same store again."""

    def put(self, name: str, data: BinaryIO, *, lasting: bool = True) -> bool:
        """Create `name` whole, or not at all. False if it was there already. If not `lasting`, it
        may be gone or cut off after a power cut, and the two folders around it gone."""

    def same(self, name: str, data: BinaryIO) -> bool:
        """Whether the file `name` holds these bytes."""

    def get(self, name: str, into: BinaryIO, most: int | None = None, start: int = 0) -> bool:
        """Copy the file `name`, or at most `most` bytes from `start` on. False if there is none."""

    def names(self, folder: str) -> Iterable[str]:
        """What is directly in `folder`, each once."""

    def walk(self, folder: str, deep: bool) -> Iterator[Entry]:
        """All files below `folder`; if not `deep`, the files and folders directly in it."""

    def delete(self, name: str) -> None:
        """Remove the file `name`, if it is there."""

    def prune(self, folder: str) -> None:
        """Remove the empty folders at and below `folder`."""

    def url(self, name: str) -> str:
        """`name` as TensorStore and `engine.data.token_store` take it."""

    def local(self, name: str) -> Path:
        """Where `name` lies on this machine, or a copy of it may."""


class Disk:
    """Files in a folder. Create-once is `os.link`, which never replaces what is there."""

    def __init__(self, root: Path) -> None:
        self.place = root.resolve()  # reports are refused behind links, so ours are resolved

    def make(self) -> None:
        """Make the folder. Raises StoreError."""
        try:
            self.place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The store at {self.place} cannot be used: {error.strerror}. It needs a folder "
                f"that can be written, on a file system with hard links; {ELSEWHERE}."
            ) from error

    def path(self, name: str) -> Path:
        """Where `name` lies."""
        return self.place / name

    def local(self, name: str) -> Path:
        """The same."""
        return self.path(name)

    def url(self, name: str) -> str:
        """Its path: TensorStore and `engine.data.token_store` take one."""
        return str(self.path(name))

    def put(self, name: str, data: BinaryIO, *, lasting: bool = True) -> bool:
        """Create `name`: a draft beside it, synced, gets its name by a hard link.

        What need not last is not synced. Who reads it sees all of it or nothing for as long as the
        machine has power, since a link shows what was written before. Nothing that lasts may lie in
        the two folders around it, whose own names are not synced then.
        """
        target = self.path(name)
        with in_words(f"{target} was not written"):
            self._look(name)
            if lasting:
                make_folder(target.parent)
            elif not target.parent.is_dir():
                make_folder(target.parents[2])
                target.parent.mkdir(parents=True, exist_ok=True)
            draft = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
            try:
                with draft.open("xb") as file:
                    shutil.copyfileobj(data, file, BLOCK)
                    file.flush()
                    if lasting:
                        os.fsync(file.fileno())
                return _link(draft, target)
            finally:
                draft.unlink(missing_ok=True)
                if lasting:
                    _sync_folder(target.parent)

    def same(self, name: str, data: BinaryIO) -> bool:
        """Compare byte by byte."""
        with self.open(name) as file:
            while block := file.read(BLOCK):
                if block != data.read(len(block)):
                    return False
        return not data.read(1)

    def get(self, name: str, into: BinaryIO, most: int | None = None, start: int = 0) -> bool:
        """Copy a regular file; what is none is refused."""
        try:
            file = self.open(name)
        except (FileNotFoundError, NotADirectoryError):
            self._look(name)
            return False
        left = sys.maxsize if most is None else most
        with file:
            file.seek(start)
            while block := self._read(file, min(BLOCK, left)):
                into.write(block)
                left -= len(block)
        return True

    def open(self, name: str) -> BinaryIO:
        """Open a regular file. Raises FileNotFoundError or NotADirectoryError if there is none."""
        path = self.path(name)
        with in_words(f"{path} cannot be read", but=(FileNotFoundError, NotADirectoryError)):
            try:
                return open_regular(path)
            except NotRegular as error:
                raise StoreFault(f"{path} is {error.strerror}; move it aside.") from error

    def _read(self, file: BinaryIO, size: int) -> bytes:
        with in_words(f"{file.name} cannot be read"):
            return file.read(size)

    def names(self, folder: str) -> Iterable[str]:
        """What is directly in `folder`, drafts included."""
        with in_words(f"{self.path(folder)} cannot be listed"):
            try:
                return os.listdir(self.path(folder))  # noqa: PTH208  ten times as fast
            except (FileNotFoundError, NotADirectoryError):
                self._look(folder)
                return []

    def walk(self, folder: str, deep: bool) -> Iterator[Entry]:
        """Drafts included. Follows no link: a link, like a pipe, is an entry of its own."""
        self._look("")
        yield from self.tree(folder, deep)

    def tree(self, folder: str = "", deep: bool = True) -> Iterator[Entry]:
        """The same, of any folder on disk. What a maker of a step has left, and nobody can list or
        name, is an entry of its own, since own code may see to that; elsewhere it is a fault."""
        with in_words(f"{self.path(folder)} cannot be listed"):
            folders = [folder] if self.path(folder).is_dir() else []
            for inner in folders:  # which grows while we walk it
                try:
                    names = sorted(os.listdir(self.path(inner)))  # noqa: PTH208
                    if inner and names:
                        self.path(f"{inner}/{max(names, key=_length)}").lstat()
                except FileNotFoundError:  # removed since it was listed
                    continue
                except OSError as error:
                    if error.errno not in UNLISTED or not MAKERS.match(inner):
                        raise
                    yield Entry(inner, at=_written_at(self.path(inner)), folder=True)
                    continue
                for name in names:
                    name = f"{inner}/{name}" if inner else name
                    with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                        # Of a path as text: it is asked of every file that a lab has.
                        found = os.lstat(f"{self.place}/{name}")
                        if not stat.S_ISDIR(found.st_mode):
                            yield Entry(name, found.st_size, found.st_mtime)
                        elif deep:
                            folders.append(name)
                        else:
                            yield Entry(name, folder=True)

    def delete(self, name: str) -> None:
        """Unlink."""
        with in_words(f"{self.path(name)} was not removed"):
            self.path(name).unlink(missing_ok=True)

    def prune(self, folder: str) -> None:
        """Remove what is empty; what is not stays, with the folders above it."""
        for inner, _, _ in os.walk(self.path(folder), topdown=False):
            with contextlib.suppress(OSError):
                Path(inner).rmdir()

    def _look(self, name: str) -> None:
        """See that the store is there at all, before anybody takes a file's absence for a fact."""
        if name != "store.json" and not self.path("store.json").exists():
            raise StoreFault(
                f"{self.place} has no store.json any more. Was the folder removed, or its disk "
                f"unmounted? Bring it back, or {ELSEWHERE}."
            )


class Split:
    """Two places as one. What jobs read and write is in the second, so that their identity needs no
    right to the first, where the records are, and who leads."""

    def __init__(self, lab: Files, jobs: Files) -> None:
        self.place, self._lab, self._jobs = lab.place, lab, jobs

    def part(self, name: str) -> Files:
        """Where `name` lies."""
        return self._jobs if JOBS.match(name) else self._lab

    def put(self, name: str, data: BinaryIO, *, lasting: bool = True) -> bool:
        """Create it where it belongs, and so on."""
        return self.part(name).put(name, data, lasting=lasting)

    def same(self, name: str, data: BinaryIO) -> bool:
        """Compare."""
        return self.part(name).same(name, data)

    def get(self, name: str, into: BinaryIO, most: int | None = None, start: int = 0) -> bool:
        """Copy."""
        return self.part(name).get(name, into, most, start)

    def names(self, folder: str) -> Iterable[str]:
        """List; of a folder that is in both places, what either has."""
        return {entry.name.rpartition("/")[2] for entry in self.walk(folder, deep=False)}

    def walk(self, folder: str, deep: bool) -> Iterator[Entry]:
        """Walk; of a folder that is in both places, through what either has."""
        if folder not in ("", "leases"):
            yield from self.part(folder).walk(folder, deep)
            return
        seen = set()
        for part in (self._lab, self._jobs):
            for entry in part.walk(folder, deep):
                if entry.name not in seen and (entry.folder or self.part(entry.name) is part):
                    seen.add(entry.name)
                    yield entry

    def delete(self, name: str) -> None:
        """Remove."""
        self.part(name).delete(name)

    def prune(self, folder: str) -> None:
        """Prune."""
        self.part(folder).prune(folder)

    def url(self, name: str) -> str:
        """Of where it lies."""
        return self.part(name).url(name)

    def local(self, name: str) -> Path:
        """On this machine."""
        return self.part(name).local(name)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep it lies and whatever rights it has, of
    which nobody writes to it any more. Does nothing where it is not there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(top, 0o700)
            # Folders are moved up before they are emptied, so that no name becomes too long.
            entries = [entry.name for entry in os.scandir(top)]
            inner = [name for name in entries if not _unlinked(name, top)]
            for name in inner:  # which grows while we walk it
                os.chmod(name, 0o700, dir_fd=top)  # a folder, and none of ours has a link in it
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                try:
                    for entry in list(os.scandir(below)):
                        if not _unlinked(entry.name, below):
                            os.chmod(entry.name, 0o700, dir_fd=below)
                            inner.append(moved := f"{secrets.token_hex(8)}")
                            os.rename(entry.name, moved, src_dir_fd=below, dst_dir_fd=top)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        folder.rmdir()


def _unlinked(name: str, folder: int) -> bool:
    """Remove an entry of an open folder, if it is no folder itself."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


def make_folder(folder: Path) -> None:
    """Make a folder that outlasts a power failure: its name is synced in the one above."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _length(name: str) -> int:
    return len(os.fsencode(name))


def _written_at(folder: Path) -> float:
    """When a folder was written to; now where it cannot be looked at, so that it is kept."""
    try:
        return folder.lstat().st_mtime
    except OSError:
        return time.time()


def _link(draft: Path, target: Path) -> bool:
    try:
        os.link(draft, target)
    except OSError as error:
        # A network file system may do the link and lose the reply.
        with contextlib.suppress(OSError):
            if os.path.samestat(draft.stat(), target.stat()):
                return True
        if isinstance(error, FileExistsError):
            return False
        if error.errno in NO_LINKS:
            raise StoreError(
                f"{target.parent} lies on a file system without hard links ({error.strerror}), and "
                f"of two writers neither would know who was first; {ELSEWHERE}."
            ) from error
        raise
    return True


@contextlib.contextmanager
def in_words(what: str, but: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """Errors of the operating system as StoreFault, except those in `but`."""
    try:
        yield
    except OSError as error:
        if isinstance(error, (StoreError, *but)):
            raise
        remedy = "look at the disk, its rights and its mounts, then do it again"
        if error.errno in FULL:
            remedy = "make room (`regatta store gc` shows what may go), then do it again"
        raise StoreFault(f"{what}: {error.strerror or error}; {remedy}.") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
