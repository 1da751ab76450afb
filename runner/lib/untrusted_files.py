"""Reads files that an untrusted process may have written: only regular files, no symbolic links, up
to an expected size. Everything that could block or crash the reader (pipes, loops, depth, odd
names) raises Refused with a reason.

Uses the standard library only, as does everything that `runner.worker.fork_server` forks."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

SETUID = stat.S_ISUID | stat.S_ISGID
MOST_BYTES = 1 << 20  # of a report
MOST_REASON = 300  # characters of a reason for refusal, which may quote the job


class Refused(Exception):
    """The content is refused; the message names the file and the reason."""


class NotRegular(OSError):
    """There is a pipe, a folder or a device instead of a file."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Follows no link and does not block on a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def read(path: Path, most_bytes: int) -> bytes | None:
    """The bytes of a regular file that is behind no link; None if there is no file. Raises
    Refused."""
    data = _part(path, most_bytes + 1)
    return None if data is None else within(data, path.as_posix(), most_bytes)


def _part(path: Path, size: int) -> bytes | None:
    with refusing(path):
        if path.parent.resolve() != path.parent.absolute():
            raise Refused(f"{short(path.as_posix())}: behind a link")
        try:
            file = open_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with file:
            return file.read(size)


def within(data: bytes, path: str, most_bytes: int) -> bytes:
    """The bytes of the file `path`. Raises Refused if they are more than `most_bytes`."""
    if len(data) > most_bytes:
        raise Refused(f"{short(path)}: larger than {most_bytes} bytes")
    return data


def words(path: Path, most_bytes: int) -> str:
    """The first bytes of a file as one printable line; empty if it cannot be read."""
    try:
        said = _part(path, most_bytes) or b""
    except Refused:
        return ""
    return printable(" ".join(said.decode(errors="replace").split()))


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn errors of the `with` body about the content at `path` into Refused."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:  # Path.resolve: RuntimeError for a loop
        reason = error.strerror if isinstance(error, OSError) else None
        told = reason or " ".join(str(error).split()) or type(error).__name__
        raise Refused(f"{short(path.as_posix())}: {printable(told)[:MOST_REASON]}") from error


def short(path: str) -> str:
    """The path, starting at the attempt's or the step's folder, for messages."""
    _, found, after = path.rpartition("/work/")
    if not found:
        _, found, after = path.rpartition("/steps/")
    return printable(after if found else path.rpartition("/")[2])[-MOST_REASON:]


def printable(name: str) -> str:
    """A stranger's text or a file name as printable text: bytes that are not UTF-8 and control
    characters become `\\xff`."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
