"""Reading what somebody else may have laid on disk: regular files only, behind no link, as large as
expected. Whatever stops who reads (pipes, loops, depths, odd names) is refused in words.

It needs the standard library alone, as all does that `runner.worker.fork_server` forks."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

SETUID = stat.S_ISUID | stat.S_ISGID
MOST_BYTES = 1 << 20  # of a report
MOST_REASON = 300  # characters of why something was refused; keys and values are the job's words


class Refused(Exception):
    """What is not believed; the message names the file and the reason."""


class NotRegular(OSError):
    """A pipe, a folder or a device lies where a file should."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, if it is one: no link is followed, and no pipe waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def read(path: Path, most_bytes: int) -> bytes | None:
    """The bytes of a regular file that lies behind no link, or None if there is no such file.
    Raises Refused."""
    data = _part(path, most_bytes + 1)
    return None if data is None else within(data, path.as_posix(), most_bytes)


def _part(path: Path, size: int) -> bytes | None:
    with refusing(path):
        if path.parent.resolve() != path.parent:
            raise Refused(f"{short(path.as_posix())}: behind a link")
        try:
            file = open_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with file:
            return file.read(size)


def within(data: bytes, path: str, most_bytes: int) -> bytes:
    """These bytes of the file `path`, if they are no more. Raises Refused."""
    if len(data) > most_bytes:
        raise Refused(f"{short(path)}: larger than {most_bytes} bytes")
    return data


def words(path: Path, most_bytes: int) -> str:
    """What the first bytes of a file say, on one line that a terminal may have; empty where it
    cannot be read."""
    try:
        said = _part(path, most_bytes) or b""
    except Refused:
        return ""
    return printable(" ".join(said.decode(errors="replace").split()))


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Raises Refused in the `with` body for whatever lies at `path` to stop who reads it."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:  # Path.resolve: RuntimeError for a loop
        reason = error.strerror if isinstance(error, OSError) else None
        told = reason or " ".join(str(error).split()) or type(error).__name__
        raise Refused(f"{short(path.as_posix())}: {printable(told)[:MOST_REASON]}") from error


def short(path: str) -> str:
    """The path from the attempt's or the step's folder on, which is what a reader can place."""
    _, found, after = path.rpartition("/work/")
    if not found:
        _, found, after = path.rpartition("/steps/")
    return printable(after if found else path.rpartition("/")[2])[-MOST_REASON:]


def printable(name: str) -> str:
    """Somebody's words, or a name from disk, as text that can be written and shown: bytes that are
    no UTF-8 become `\\xff`, and so does what controls a screen."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
