"""A site as a list of files, each with a digest of what it is made from.

A file is drawn again only if that digest has changed, so one more run costs only its own pages.
Each file is replaced atomically, and files are written before the pages that link to them; so a
reader sees old or new pages, but no half-written one. If a build crashes, the next one finishes
it.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from runner.lib.base_record import Record
from runner.lib.paths import ROOMS

MADE_FROM = ".made-from.json"  # path: digest of what the file was made from
LOCK = ".lock"
LIBRARIES = ("altair", "jinja2", "numpy", "scipy", "vl-convert-python")  # that affect pages
NEW = ".new"  # suffix of a file that is being written


class File(NamedTuple):
    """One file of a site. Equal `made_from` means equal bytes from `draw`; without it the file is
    drawn each time."""

    path: str  # below the site's folder
    draw: Callable[[], bytes | str]
    made_from: str | None = None


@dataclass(frozen=True)
class Drawn:
    """The content of a file, None for no file; and the problem if it is incomplete."""

    content: bytes | str | None
    fault: str | None = None


@dataclass(frozen=True)
class Put:
    """What `put` did: the drawn paths, and {path: why it could not be drawn}."""

    drawn: list[str]
    faults: dict[str, str]


def made_from(*parts: Record | bytes | str) -> str:
    """A digest of everything that a file depends on, including the code that draws it."""
    digest = hashlib.sha256(edition().encode())
    for part in parts:
        data = part.canonical() if isinstance(part, Record) else part
        data = data.encode() if isinstance(data, str) else data
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


@cache
def edition() -> str:
    """A digest of what pages depend on besides records: every file of the lab's packages, because
    any may contribute a figure or a sentence, and the libraries that draw."""
    top = Path(__file__).parents[3]
    digest = hashlib.sha256()
    for library in LIBRARIES:
        digest.update(f"{library} {version(library)}\n".encode())
    for path in sorted(path for room in ROOMS for path in (top / room).rglob("*")):
        if "__pycache__" not in path.parts and path.is_file():
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(top).as_posix()}\0{found}\n".encode())
    return digest.hexdigest()


def put(files: Iterable[File], out: Path, draw: Callable[[File], Drawn]) -> Put:
    """Make the folder `out` contain exactly these files, drawn in the order of `files`. Files with
    a problem are drawn again next time. A second build waits for the first."""
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        was, there = _read(out), _below(out)
        now: dict[str, str | None] = {}
        draws: dict[str, File] = {}  # only files to draw; a large site has many others
        for file in files:  # the last one of a path counts
            now[file.path] = made = file.made_from
            draws.pop(file.path, None)
            if made is None or was.get(file.path) != made or file.path not in there:
                draws[file.path] = file
        # If a build crashes while drawing, its replaced files must not count as current.
        if stale := draws.keys() & was.keys():
            _note(out, {path: made for path, made in was.items() if path not in stale})
        faults: dict[str, str] = {}
        for path, file in draws.items():
            found = draw(file)
            if found.fault is not None:
                faults[path], now[path] = found.fault, None
            if found.content is None:
                del now[path]
            else:
                write(out / path, found.content)
        for path in (was.keys() | draws.keys()) - now.keys():
            _remove(out, path)
        if stale or now != was:
            _note(out, now)
    return Put([*draws], faults)


def _below(out: Path) -> set[str]:
    """All files below a folder."""
    return {
        f"{folder}/{name}".removeprefix(f"{out}/")
        for folder, _, names in os.walk(out)
        for name in names
    }


def is_site(out: Path) -> bool:
    """Whether a folder was written by `put`, or is empty and can be."""
    held = {path.name for path in out.iterdir()}
    return MADE_FROM in held or held <= {LOCK, MADE_FROM + NEW}


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    with (out / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(out: Path) -> dict[str, str | None]:
    try:
        return dict(json.loads((out / MADE_FROM).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return {}


def _note(out: Path, known: dict[str, str | None]) -> None:
    write(out / MADE_FROM, json.dumps(known, sort_keys=True))


def write(target: Path, content: bytes | str) -> None:
    """Write a file atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(target.name + NEW)
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.replace(target)


def _remove(out: Path, path: str) -> None:
    """Remove a file, and the folders that it leaves empty."""
    (out / path).unlink(missing_ok=True)
    with suppress(OSError):  # it stops at a folder that is not empty; `out` has the lock
        os.removedirs((out / path).parent)
