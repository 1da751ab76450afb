"""The places of a store's files: local disk (`Disk`) or `runner.store.gcs.Bucket`.

Both have the same methods and get checked names (`Store`); "" is the root. They create a file once
and atomically, report a file as missing only when they have seen that, and raise StoreError with
the reason if a call fails.
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
from typing import BinaryIO, NamedTuple

from runner.lib.untrusted_files import NotRegular, open_regular

ELSEWHERE = "name another store with --store or REGATTA_STORE"
FULL = (errno.ENOSPC, errno.EDQUOT)
UNLISTED = (errno.ENAMETOOLONG, errno.EACCES)
MAKERS = re.compile("steps/[^/]+/[^/]+/[^/]+")  # where makers of steps write
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
BLOCK = 1 << 20  # bytes that are copied at a time


CACHE = "REGATTA_CACHE"


def cache() -> Path:
    """The folder on this machine for copies of what is in a bucket."""
    if given := os.environ.get(CACHE):
        return Path(given).resolve()
    around = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(around).resolve() / "regatta"


class StoreError(Exception):
    """The store cannot keep its guarantees; the message says what to fix."""


class BadName(StoreError):
    """A store cannot have a file with this name."""


class NoStore(StoreError):
    """There is no store, and the caller did not ask to make one."""


class StoreFault(StoreError, OSError):
    """The disk failed, or a write to the bucket did, or there is no regular file. Also an OSError,
    so that callers that can do without (a late heartbeat) continue."""


class Entry(NamedTuple):
    """A file or a folder of the store."""

    name: str  # relative to the store's root
    size: int = 0  # bytes
    at: float = 0.0  # time of the write, in seconds since 1970 by the disk's or the bucket's clock
    folder: bool = False


class Disk:
    """Files in a folder. Create-once is `os.link`, which never replaces a file."""

    def __init__(self, root: Path) -> None:
        self.place = root.resolve()  # resolved, because reports behind links are refused

    def make(self) -> None:
        """Create the folder. Raises StoreError."""
        try:
            self.place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The store at {self.place} cannot be used: {error.strerror}. It needs a folder "
                f"that can be written, on a file system with hard links; {ELSEWHERE}."
            ) from error

    def local(self, name: str) -> Path:
        """The path of `name`."""
        return self.place / name

    def url(self, name: str) -> str:
        """Its path, as TensorStore and `engine.data.token_store` need it."""
        return str(self.local(name))

    def put(self, name: str, data: BinaryIO, *, lasting: bool = True) -> bool:
        """Create `name`; False if it exists. Writes a draft beside it, syncs it, and hard-links it
        to its name.

        With `lasting=False` nothing is synced. Readers still see all of it or nothing while the
        machine has power. But the names of the two folders around it are not synced either, so
        these folders must hold nothing that has to last.
        """
        target = self.local(name)
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
        """Whether the file `name` has exactly these bytes."""
        with self.open(name) as file:
            while block := file.read(BLOCK):
                if block != data.read(len(block)):
                    return False
        return not data.read(1)

    def get(self, name: str, into: BinaryIO, most: int | None = None, start: int = 0) -> bool:
        """Copy the file `name`, or at most `most` bytes from `start` on, or the last `-start`
        bytes. Returns False if there is none; raises if it is no regular file."""
        try:
            file = self.open(name)
        except (FileNotFoundError, NotADirectoryError):
            self._look(name)
            return False
        left = sys.maxsize if most is None else most
        with file:
            if start < 0:  # relative to the current end, because the file may be growing
                size = os.fstat(file.fileno()).st_size
                start = max(0, size + start)
                left = min(left, size - start)
            file.seek(start)
            while block := self._read(file, min(BLOCK, left)):
                into.write(block)
                left -= len(block)
        return True

    def open(self, name: str) -> BinaryIO:
        """Open a regular file. Raises FileNotFoundError or NotADirectoryError if there is none."""
        path = self.local(name)
        with in_words(f"{path} cannot be read", but=(FileNotFoundError, NotADirectoryError)):
            try:
                return open_regular(path)
            except NotRegular as error:
                raise StoreFault(f"{path} is {error.strerror}; move it aside.") from error

    def _read(self, file: BinaryIO, size: int) -> bytes:
        with in_words(f"{file.name} cannot be read"):
            return file.read(size)

    def names(self, folder: str) -> Iterable[str]:
        """The entries directly in `folder`, drafts included."""
        with in_words(f"{self.local(folder)} cannot be listed"):
            try:
                return os.listdir(self.local(folder))  # noqa: PTH208  ten times as fast
            except (FileNotFoundError, NotADirectoryError):
                self._look(folder)
                return []

    def walk(self, folder: str, deep: bool) -> Iterator[Entry]:
        """All files below `folder`, drafts included; if not `deep`, the files and folders directly
        in it. Follows no link: a link or a pipe is an entry of its own."""
        self._look("")
        yield from self.tree(folder, deep)

    def tree(self, folder: str = "", deep: bool = True) -> Iterator[Entry]:
        """The same for any folder on disk. If a maker's folder has names that cannot be listed,
        they are one entry, because own code can cause that; elsewhere this is an error."""
        with in_words(f"{self.local(folder)} cannot be listed"):
            folders = [folder] if self.local(folder).is_dir() else []
            for inner in folders:  # grows during the loop
                try:
                    names = sorted(os.listdir(self.local(inner)))  # noqa: PTH208
                    if inner and names:
                        self.local(f"{inner}/{max(names, key=_length)}").lstat()
                except FileNotFoundError:  # removed meanwhile
                    continue
                except OSError as error:
                    if error.errno not in UNLISTED or not MAKERS.match(inner):
                        raise
                    yield Entry(inner, at=_written_at(self.local(inner)), folder=True)
                    continue
                for name in names:
                    name = f"{inner}/{name}" if inner else name
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        # A string, because this runs for every file of a lab.
                        found = os.lstat(f"{self.place}/{name}")
                        if not stat.S_ISDIR(found.st_mode):
                            yield Entry(name, found.st_size, found.st_mtime)
                        elif deep:
                            folders.append(name)
                        else:
                            yield Entry(name, folder=True)

    def delete(self, name: str) -> None:
        """Delete the file."""
        with in_words(f"{self.local(name)} was not removed"):
            self.local(name).unlink(missing_ok=True)

    def prune(self, folder: str) -> None:
        """Remove empty folders; others stay, with the folders above them."""
        for inner, _, _ in os.walk(self.local(folder), topdown=False):
            with contextlib.suppress(OSError):
                Path(inner).rmdir()

    def _look(self, name: str) -> None:
        """Check that the store itself is there, so that a missing disk is not taken for a missing
        file."""
        if name != "store.json" and not self.local("store.json").exists():
            raise StoreFault(
                f"{self.place} has no store.json any more. Was the folder removed, or its disk "
                f"unmounted? Bring it back, or {ELSEWHERE}."
            )


def remove_tree(folder: Path) -> None:
    """Remove a folder with its content, at any depth and with any permissions, if nobody writes to
    it any more. Does nothing if it is missing. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchmod(top, 0o700)
            # Folders are moved up before they are emptied, so that no path becomes too long.
            entries = [entry.name for entry in os.scandir(top)]
            inner = [name for name in entries if not _unlinked(name, top)]
            for name in inner:  # grows during the loop
                os.chmod(name, 0o700, dir_fd=top)  # a folder; our paths contain no links
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
    """Remove an entry of an open folder; False if it is a folder."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return False
    os.unlink(name, dir_fd=folder)
    return True


def make_folder(folder: Path) -> None:
    """Create a folder that survives a power cut: syncs its name in the folder above."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _length(name: str) -> int:
    return len(os.fsencode(name))


def _written_at(folder: Path) -> float:
    """When a folder was last written; the current time if that is unknown, so that it is kept."""
    try:
        return folder.lstat().st_mtime
    except OSError:
        return time.time()


def _link(draft: Path, target: Path) -> bool:
    try:
        os.link(draft, target)
    except OSError as error:
        # A network file system may make the link and lose the reply.
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
    """Turn errors of the operating system into StoreFault, except those in `but`."""
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
