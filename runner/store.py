"""The store: one tree of files that are created once and never changed. It is all the state.

Everything the lab knows lies here and can be read with `cat`. The one guarantee that all else
rests on is *create-once*: of several writers of a name exactly one succeeds, and a reader sees a
whole file or none.
"""

import contextlib
import errno
import json
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from runner import faults


class StoreError(Exception):
    """The store cannot do what it promises; the message says what to mend."""


class Store:
    """A store on local disk. Paths are relative, with `/`, and below the root."""

    def __init__(self, root: Path) -> None:
        """Open the store at `root`, making it if it is not there.

        Raises StoreError where the folder cannot be written or its file system has no hard links.
        """
        self.root = root.resolve()  # reports are refused behind links, so ours are resolved
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.create("store.json", to_json({"id": secrets.token_hex(8)}))
        except OSError as error:
            raise StoreError(
                f"The store at {self.root} cannot be used: {error.strerror}. It needs a folder "
                "that can be written, on a file system with hard links; name another one with "
                "--store or REGATTA_STORE."
            ) from error
        self._seen: dict[str, bytes] = {}

    @property
    def id(self) -> str:
        """Sixteen random hexadecimal digits, minted when the store was made."""
        return str(json.loads(self.require("store.json"))["id"])

    def path(self, name: str) -> Path:
        """Where `name` lies on disk. Raises StoreError for a name that leaves the store."""
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise StoreError(f"{name!r} is not a name inside the store.")
        return self.root.joinpath(*parts)

    def create(self, name: str, data: bytes) -> bool:
        """Create the file `name` whole, or not at all. False if it was there already."""
        target = self.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
        with faults.around(f"store.{_kind(name)}"):
            try:
                with draft.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                return self._link(draft, target, data)
            finally:
                draft.unlink(missing_ok=True)
                _sync_folder(target.parent)

    def _link(self, draft: Path, target: Path, data: bytes) -> bool:
        try:
            os.link(draft, target)
        except FileExistsError:
            return False
        except OSError as error:
            # A network file system may do the link and lose the reply.
            with contextlib.suppress(OSError):
                if os.path.samestat(draft.stat(), target.stat()):
                    return target.read_bytes() == data
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise StoreError(f"{target.parent} lies on a file system without links.") from error
            raise
        return True

    def read(self, name: str) -> bytes | None:
        """The bytes of `name`, or None. A file never changes, so each is read from disk once.

        Raises StoreError for what is no regular file.
        """
        if name not in self._seen:
            path = self.path(name)
            try:
                with open_regular(path) as file:
                    self._seen[name] = file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None
            except NotRegular as error:
                raise StoreError(f"{path} is {error}; move it aside.") from error
        return self._seen[name]

    def require(self, name: str) -> bytes:
        """Like `read`, for what must be there. Raises StoreError."""
        data = self.read(name)
        if data is None:
            raise StoreError(f"{self.root} has no {name}. Was part of the store removed?")
        return data

    def list(self, folder: str) -> list[str]:
        """Names of the finished files and folders directly in `folder`, sorted; [] if none."""
        try:
            names = [entry.name for entry in self.path(folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.startswith("."))

    def remove(self, name: str) -> None:
        """Remove a file that no one will ask for again: a superseded lease."""
        self._seen.pop(name, None)
        self.path(name).unlink(missing_ok=True)


class NotRegular(OSError):
    """A pipe, a folder or a device lies where a file should."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, if it is one: no link is followed, and no pipe waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def to_json(value: object) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8, no NaN. Equal values have equal bytes."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode() + b"\n"


def _kind(name: str) -> str:
    """The part of a path that names fault points: `records/plans/1/2/3.json` → `plans`."""
    top, *rest = name.split("/")
    return rest[0] if top == "records" and rest else top


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
