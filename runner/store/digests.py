"""A step's output: a folder of regular files, each with its size and digest.

The content is not trusted: links, pipes, too many or too few files are refused. Nothing that the
digests do not cover may reach a later step: all files have one mode and one time, and so do
folders; extended attributes, access lists and empty folders are refused.
"""

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from runner.lib.base_record import Record, Sha256
from runner.lib.bounds import Count
from runner.lib.canonical_json import to_json
from runner.lib.untrusted_files import SETUID, open_regular

MOST_FILES = 1_000_000
MOST_LISTED = 16 << 20  # bytes of the files' entries in a manifest, which is read often
ONE_LISTED = 110  # bytes of a file's entry there, without its name
FILE_MODE, FOLDER_MODE = 0o644, 0o755
TIME = 315_532_800  # 1980-01-01, the earliest time that all archive formats know
# Extended attributes that somebody has set. Others are the system's own (`security.selinux`).
GIVEN = ("user.", "trusted.", "security.capability", "system.posix_acl_")


class BadOutput(Exception):
    """The store has not the content that it should have; the message is a whole sentence."""


class FileDigest(Record):
    """One file of an output."""

    sha256: Sha256
    bytes: Count


FILES = TypeAdapter(dict[str, FileDigest])


def verify(folder: Path, wanted: Mapping[str, FileDigest], *, digests: bool = True) -> None:
    """Raises BadOutput unless exactly these files are in `folder`, each with its digest. Without
    `digests` it reads no file and compares only sizes."""
    compare(folder, _sizes(folder), wanted)
    for path in sorted(wanted if digests else ()):
        if digest(folder / path) != wanted[path]:
            raise bad(folder, f"its file {path!r} is not the one that was made")


def compare(folder: Path | str, found: Mapping[str, int], wanted: Mapping[str, FileDigest]) -> None:
    """Raises BadOutput unless `found`, bytes by path, has exactly these names and sizes."""
    for path in sorted(found.keys() | wanted.keys()):
        if path not in found:
            raise bad(folder, f"its file {path!r} is missing")
        if path not in wanted:
            raise bad(folder, f"its file {path!r} is not in its manifest")
        if found[path] != wanted[path].bytes:
            raise bad(folder, f"its file {path!r} is not the one that was made")


def sha256(files: Mapping[str, FileDigest]) -> str:
    """SHA-256 over the sorted relative paths, sizes and digests of an output's files."""
    lines = (f"{path}\0{of.bytes}\0{of.sha256}\n" for path, of in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def digests(folder: Path) -> dict[str, FileDigest]:
    """The digest of each file in `folder`, by relative path. Raises BadOutput for anything else."""
    return {path: digest(folder / path) for path in _sizes(folder)}


def listed(files: Mapping[str, FileDigest]) -> bytes:
    """These digests as JSON, which FILES reads."""
    return to_json({path: of.model_dump() for path, of in sorted(files.items())})


def accepted(folder: Path) -> dict[str, FileDigest]:
    """The same for a new output that nobody writes to any more; also fixes modes and times. Raises
    BadOutput for anything that digests do not cover and that cannot be fixed, and OSError."""
    sizes, folders = _walked(folder)
    for path in (*folders, *(folder / name for name in sizes)):
        if given := _given(path):
            what = f"{path.relative_to(folder).as_posix()!r} has an attribute, {given}"
            raise bad(folder, f"its {what}, which no digest sees; leave it out")
    for path in folders[1:]:
        if not any(path.iterdir()):
            what = f"its folder {path.relative_to(folder).as_posix()!r} is empty"
            raise bad(folder, f"{what}, and only files are kept; leave it out")
    settle(folder)
    return {path: digest(folder / path) for path in sizes}


def settle(folder: Path) -> None:
    """Give all files of an output one mode and one time, and its folders, too; replace hard links
    by copies. Raises BadOutput and OSError."""
    sizes, folders = _walked(folder)
    seen: set[tuple[int, int]] = set()
    for path in (folder / name for name in sizes):
        found = path.lstat()
        if (found.st_dev, found.st_ino) in seen:
            draft = path.with_name(f".{secrets.token_hex(6)}.tmp")
            shutil.copyfile(path, draft)
            draft.replace(path)
        seen.add((found.st_dev, found.st_ino))
        _fix(path, FILE_MODE)
    for path in folders:
        _fix(path, FOLDER_MODE)


def _fix(path: Path, mode: int) -> None:
    """The file may also belong to another output, by a hard link; then it already has them."""
    found = path.lstat()
    if stat.S_IMODE(found.st_mode) != mode:
        path.chmod(mode)
    if found.st_mtime_ns != TIME * 10**9:
        os.utime(path, (TIME, TIME))


def _given(path: Path) -> str | None:
    """An extended attribute that somebody has set on a file or folder; None if there is none."""
    try:
        found = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return None
        raise
    return next((ascii(name)[1:-1] for name in sorted(found) if name.startswith(GIVEN)), None)


def _sizes(folder: Path) -> dict[str, int]:
    """The bytes of each file in `folder`, by relative path. Raises BadOutput for anything else."""
    return _walked(folder)[0]


def _walked(folder: Path) -> tuple[dict[str, int], list[Path]]:
    """The same, and the folders, starting with `folder` itself."""
    if os.path.realpath(folder) != str(folder) or not folder.is_dir():
        raise bad(folder, "it is not there, or behind a link")
    sizes: dict[str, int] = {}
    folders, listed = [folder], 0
    for inner in folders:  # grows during the loop
        with os.scandir(inner) as entries:
            for entry in entries:
                path, found = Path(entry.path), entry.stat(follow_symlinks=False)
                if os.fsencode(entry.name).decode(errors="ignore") != entry.name:
                    raise bad(folder, f"the name of its file {entry.name!r} is not in UTF-8")
                if not entry.name.isprintable():
                    raise bad(folder, f"the name of its file {entry.name!r} cannot be printed")
                if len(sizes) + len(folders) > MOST_FILES:
                    raise bad(folder, f"it holds more than {MOST_FILES:,} files and folders")
                if stat.S_ISDIR(found.st_mode):
                    folders.append(path)
                elif stat.S_ISREG(found.st_mode) and found.st_mode & SETUID:
                    raise bad(folder, f"its file {entry.name!r} would run as its owner (setuid)")
                elif stat.S_ISREG(found.st_mode):
                    sizes[name := path.relative_to(folder).as_posix()] = found.st_size
                    listed += len(name.encode()) + ONE_LISTED
                    if listed > MOST_LISTED:
                        what = f"{len(sizes):,} of its files take {listed:,} bytes to list"
                        raise bad(folder, f"{what}, and {MOST_LISTED:,} is the most; use fewer")
                else:
                    raise bad(folder, f"it holds {entry.name!r}, which is no regular file")
    return sizes, folders


def digest(path: Path) -> FileDigest:
    """The size and the digest of one file."""
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return FileDigest(sha256=digest.hexdigest(), bytes=size)


def sync(folder: Path, above: int) -> None:
    """Sync everything in `folder`, and so many folders above it."""
    below = [Path(inner, name) for inner, _, names in os.walk(folder) for name in (*names, ".")]
    for path in (*below, *folder.parents[:above]):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def bad(folder: Path | str, what: str) -> BadOutput:
    """An error about an output, with what to do."""
    above = str(folder).rpartition("/")[0]
    return BadOutput(f"{folder}: {what}. Remove {above} and run again: it is made anew.")
