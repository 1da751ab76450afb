"""Checkpoints of a store in a bucket. Processes on several hosts write them there together, by
Orbax and TensorStore. A process that trains alone may have no network. It saves to local disk, and
each complete checkpoint is copied to the store. Either one counts once Orbax's own
`commit_success.txt` exists, which is written last:

    <checkpoints>/<step>/…                    as Orbax wrote it
    <checkpoints>/<step>/committed.json       the digest of every file, of a copied one
    <checkpoints>/<step>/commit_success.txt

Files in a folder beside the checkpoints (the chunks of a curve, written once and atomically) are
copied as they appear, before the checkpoints that are saved after them.

For a store on disk nothing is copied: training saves into the store.
"""

import math
import os
import re
import sys
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from runner.lib import bounds, untrusted_files
from runner.lib.canonical_json import to_json
from runner.lib.threads import meanwhile
from runner.store import digests
from runner.store.backends import in_words
from runner.store.store import Remote, StoreError, draft_beside, local

COMPLETE, LISTED = "commit_success.txt", "committed.json"
CHUNK = re.compile(r"[0-9]{6,9}\.jsonl")  # beside checkpoints
MOST_CHUNKS = 100_000  # copied per run
LOOK_EVERY = 0.5  # seconds between two looks for new checkpoints
MOST_WORD = 1 << 20  # bytes of committed.json
MOST_FOLDERS = MOST_FILES = 1_000  # that are searched for a checkpoint's content
WORD = TypeAdapter(dict[str, digests.FileDigest])


@contextmanager
def copied(where: Path | Remote, beside: Path | None = None) -> Iterator[None]:
    """Copy to `where` what is saved in `local(where)` during the `with` body, each checkpoint once
    it is complete, and the files in the folder `beside` it; remove from `where` what is deleted
    there. Failures are retried; one that remains is raised at the end as StoreError."""
    if isinstance(where, Path):
        yield
        return
    copies = Copies(where, beside)

    def watch(over: threading.Event) -> None:
        while not over.wait(LOOK_EVERY):
            try:
                copies.look()
            except StoreError as error:  # the next look may succeed
                print(f"a checkpoint was not copied yet: {error}", file=sys.stderr)

    try:
        with meanwhile(watch):
            yield
    except BaseException:
        with suppress(StoreError):  # the earlier error says more
            copies.look()
        raise
    copies.look()


def brought(
    places: Sequence[Path | Remote], beside: str = "", keep: Container[int] = ()
) -> list[Path]:
    """The checkpoint folders `places` on this machine. From a bucket, copies the newest checkpoint
    of all and those of the steps to `keep`, unless they are here, and for each place that has one
    the folder `beside` it. Raises StoreError."""
    steps = {place: saved(place) for place in places if isinstance(place, Remote)}
    best = max(steps, key=lambda place: steps[place], default=None)
    for place, step in steps.items():
        if step and beside:
            aside = f"{place.key.rpartition('/')[0]}/{beside}"
            if not place.store.local(aside).is_dir() and place.store.list(aside):
                place.store.fetch(aside)
        wanted = {x for x in _listed(place) if x in keep} | ({step} if place is best else set())
        for one in sorted(wanted - {0}):
            if _is_whole(place / str(one)):
                _bring(place / str(one))
    return [local(place) for place in places]


def forget(where: Remote) -> None:
    """Remove a bucket's folder of checkpoints, or one checkpoint, so that nobody continues from it.
    Raises StoreError."""
    # First the file that makes the rest count.
    for entry in sorted(where.walk(), key=lambda entry: not entry.name.endswith(f"/{COMPLETE}")):
        where.store.remove(entry.name)


class Copies:
    """Copies of what is saved in a folder on this machine, in a place that survives the machine."""

    def __init__(self, where: Remote, beside: Path | None = None) -> None:
        self._where, self._beside = where, beside
        self._copied: set[int] = set()
        self._told: set[str] = set()  # of the files beside

    def look(self) -> None:
        """Copy what was saved since the last look, the oldest first: whoever continues from a
        checkpoint then finds those before it that stay. Raises StoreError."""
        here = _steps(local(self._where))
        self._copy_beside()
        for step in sorted(here - self._copied):
            with in_words(f"{self._where.as_posix()}/{step} was not written"):
                self._copy(step)
        newest = max(self._copied, default=0)
        for step in [x for x in self._copied if x < newest and x not in here]:
            forget(self._where / str(step))
            self._copied.remove(step)

    def _copy(self, step: int) -> None:
        saved, place = local(self._where) / str(step), self._where / str(step)
        if _is_whole(place):  # it came from there
            self._copied.add(step)
            return
        with draft_beside(saved.parent) as draft:
            try:
                # Orbax never changes its files but soon deletes them; hard links to them stay.
                before = _files(saved)
                _link(saved, draft)
                if not before == _files(saved) == _files(draft):
                    return  # it is being deleted, so there is a newer one
                (draft / COMPLETE).unlink(missing_ok=True)
                word = {name: of.model_dump() for name, of in digests.digests(draft).items()}
                place.store.upload_folder(place.key, draft)
                (place / LISTED).create(to_json(word))
                (place / COMPLETE).create(b"")
                self._copied.add(step)
            except FileNotFoundError:
                if saved.is_dir():
                    raise

    def _copy_beside(self) -> None:
        beside = self._beside
        if beside is None or not beside.is_dir() or beside.is_symlink():
            return
        parent = self._where.key.rpartition("/")[0]
        fresh = {x for x in os.listdir(beside) if CHUNK.fullmatch(x)} - self._told  # noqa: PTH208
        for name in sorted(fresh)[: MOST_CHUNKS - len(self._told)]:
            with suppress(untrusted_files.Refused):
                data = untrusted_files.read(beside / name, untrusted_files.MOST_BYTES)
                self._where.store.create(f"{parent}/{beside.name}/{name}", data or b"")
            self._told.add(name)


def _is_whole(step: Remote) -> bool:
    """Whether the checkpoint is complete. Raises StoreError."""
    return step.store.peek((step / COMPLETE).key, 1) is not None


def _files_of(step: Remote) -> Mapping[str, digests.FileDigest] | None:
    """The files of a checkpoint that was copied; None of one that Orbax wrote. Raises
    StoreError."""
    said = step.store.peek((step / LISTED).key, MOST_WORD)
    try:
        return None if said is None else bounds.parse(WORD, said)
    except ValueError as error:
        raise StoreError(f"{(step / LISTED).as_posix()} is no list of files.") from error


def saved(place: Path | Remote, most: float = math.inf) -> int:
    """The newest step, at most `most`, with a checkpoint at `place`; 0 if there is none. The writer
    is not trusted: an empty folder does not count, nor does the target of a link. Raises
    StoreError."""
    if isinstance(place, Remote):
        steps = sorted(_listed(place), reverse=True)
        whole = (step for step in steps if _is_whole(place / str(step)))
    else:
        steps = [] if place.is_symlink() else sorted(_steps(place), reverse=True)
        whole = (step for step in steps if _holds_something(place / str(step)))
    return next((step for step in whole if step <= most), 0)


def _listed(place: Remote) -> list[int]:
    """The steps of which there is something at `place`, complete or not."""
    return [int(name) for name in place.store.list(place.key) if name.isdecimal()]


def _holds_something(step: Path) -> bool:
    params = step / "params"
    if step.is_symlink() or params.is_symlink():
        return False
    walked = islice(os.walk(params), MOST_FOLDERS)  # follows no link
    files = (Path(inner) / name for inner, _, names in walked for name in names)
    return any(not file.is_symlink() and file.stat().st_size for file in islice(files, MOST_FILES))


def _bring(step: Remote) -> None:
    """Copy a checkpoint to this machine, unless it is here, and check its digests."""

    def check(draft: Path) -> None:
        (draft / COMPLETE).unlink()
        if (files := _files_of(step)) is None:
            return
        (draft / LISTED).unlink()
        try:
            digests.verify(draft, files)
        except digests.BadOutput as error:
            raise StoreError(
                f"{step.as_posix()} is not what was saved: {error}. Remove it to go on from an "
                "earlier one."
            ) from error

    step.store.fetch(step.key, check)


def _link(folder: Path, draft: Path) -> None:
    """Hard-link all files below a folder into another one. The writer may be hostile: symbolic
    links are not followed, nor folders that became one."""
    for inner, _, names, opened in os.fwalk(folder, follow_symlinks=False):
        target = draft / Path(inner).relative_to(folder)
        target.mkdir()
        for name in names:
            os.link(name, target / name, src_dir_fd=opened, follow_symlinks=False)


def _steps(folder: Path) -> set[int]:
    """The steps that Orbax has finished there: only those have a final name."""
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208
    return {int(name) for name in names if name.isdecimal()}


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
