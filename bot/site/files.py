"""A site is a list of files, and each says what it is made from.

Only what is made from something else than when it was last written is drawn again, so that one more
run costs what one run costs. Each file takes its predecessor's place in one step, what others link
to before the pages that link to it; so a reader sees old pages or new ones, and none that is half
written. A build that dies leaves such a mixture, and the next one finishes it.
"""

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from runner.record import Record

MADE_FROM = ".made-from.json"  # path: what the file there was made from
LOCK = ".lock"
NEW = ".new"  # how a file ends that is being written


@dataclass(frozen=True)
class File:
    """One file of a site. `made_from` is equal only where `draw` gives equal bytes; without it the
    file is drawn each time."""

    path: str  # below the site's folder
    draw: Callable[[], bytes | str]
    made_from: str | None = None


def made_from(*parts: Record | bytes | str) -> str:
    """A digest of everything that a file follows from, the code that draws it included."""
    digest = hashlib.sha256(_edition().encode())
    for part in parts:
        data = part.canonical() if isinstance(part, Record) else part
        data = data.encode() if isinstance(data, str) else data
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


@cache
def _edition() -> str:
    """A digest of the code and templates that draw pages, and of what draws charts."""
    from runner import charts

    here = Path(__file__).parent
    paths = [path for path in sorted(here.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    digest = hashlib.sha256(version("vl-convert-python").encode())
    for path in (*paths, Path(charts.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def put(files: Iterable[File], out: Path) -> list[str]:
    """Bring the folder `out` to hold these files and no others; the paths that were drawn for it,
    in the order of `files`. Who comes while another builds waits for it."""
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        wanted = {file.path: file for file in files}
        was = _read(out)
        drawn = [path for path, file in wanted.items() if not _stands(out, file, was)]
        redrawn = set(drawn)
        # A build that dies while it draws must not leave word of what it has replaced.
        _note(out, {path: made for path, made in was.items() if path not in redrawn})
        for path in drawn:
            _write(out / path, wanted[path].draw())
        for path in was.keys() - wanted.keys():
            _remove(out, path)
        _note(out, {path: file.made_from for path, file in wanted.items()})
    return drawn


def _stands(out: Path, file: File, was: dict[str, str | None]) -> bool:
    known = file.made_from is not None and was.get(file.path) == file.made_from
    return known and (out / file.path).is_file()


def is_site(out: Path) -> bool:
    """Whether a folder holds what `put` has written, or is about to."""
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
    _write(out / MADE_FROM, json.dumps(known, indent=0, sort_keys=True))


def _write(target: Path, content: bytes | str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(target.name + NEW)
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.replace(target)


def _remove(out: Path, path: str) -> None:
    """Remove a file, and the folders that it leaves empty."""
    (out / path).unlink(missing_ok=True)
    for folder in (out / path).parents:
        if folder == out or any(folder.iterdir()):
            return
        folder.rmdir()
