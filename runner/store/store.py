"""The store: one tree of files that are created once and never changed. It is all the state.

Everything the lab knows is here and can be read with `cat`, or for a store in a bucket
(gs://bucket/prefix) with any tool for buckets: same tree, same names, same guarantees. The
guarantee that everything else depends on is *create-once*: of several writers of a name exactly one
succeeds, and a reader sees a whole file or none.
"""

import contextlib
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from runner.lib import fault_points
from runner.lib.canonical_json import to_json
from runner.store.backends import ELSEWHERE, Disk, in_words
from runner.store.backends import BadName as BadName
from runner.store.backends import Entry as Entry
from runner.store.backends import NoStore as NoStore
from runner.store.backends import StoreError as StoreError
from runner.store.backends import StoreFault as StoreFault

if TYPE_CHECKING:  # the client library is imported only for a bucket
    from runner.store.gcs import Bucket

# What jobs read and write: everything but records, pins, and the leader's lease.
JOBS = re.compile(r"(work|steps|texts|models|corpora|code|cache)(/|$)|leases/(x|steps(/|$))")
MOST_SEEN = 64 << 20  # bytes of files that are cached in memory
AT_ONCE = 8  # files that are copied or deleted in parallel

T = TypeVar("T")


class Store:
    """A store on local disk or in a bucket. Names are relative, with `/`, and below the root."""

    def __init__(
        self,
        place: Path | str,
        *,
        jobs: Path | str | None = None,
        also: Sequence[Path | str] = (),
        make: bool = True,
    ) -> None:
        """Open the store in the folder or at the gs:// URL `place`; create it if it is missing and
        `make`.

        With `jobs`, everything that jobs read and write is in that other place, and it is their
        store: their identity needs no right to `place`, where the records are.

        `also`: other stores, which are only read. What this store lacks is read from the first of
        them that has it, and lists show the files of all.

        Raises StoreError if it cannot be used, or is missing and not to be made.
        """
        self._seen: dict[str, bytes] = {}
        self._seen_bytes = 0
        self._also: tuple[Disk | Bucket, ...] = tuple(Store(one, make=False)._lab for one in also)
        files = _files(place)
        self._lab: Disk | Bucket = files
        self._jobs: Disk | Bucket = files
        if make and isinstance(files, Disk):
            files.make()  # a write, so that a disk without hard links fails now
            self._mint()
        elif not files.get("store.json", io.BytesIO()):
            if not make:
                raise NoStore(f"There is no store at {self.root}; {ELSEWHERE}.")
            self._mint()
        if jobs is not None:
            self._jobs = Store(jobs, make=make)._lab

    def _mint(self) -> None:
        self.create("store.json", to_json({"id": secrets.token_hex(8)}))

    @property
    def root(self) -> Path | str:
        """The folder or the URL: `Store(store.root)` is this store again."""
        return self._lab.place

    @property
    def id(self) -> str:
        """Sixteen random hexadecimal digits, drawn when the store was created."""
        return str(json.loads(self.require("store.json"))["id"])

    def at(self, name: str) -> "Path | Remote":
        """The place of `name`: a Path, or a Remote in a bucket."""
        files = self._part(name)
        return files.local(name) if isinstance(files, Disk) else Remote(self, name)

    def place(self, name: str) -> Path | str:
        """The place of `name` for people: its path, or gs://bucket/prefix/name. For a job's folder,
        the part before `work/` opens the job's store."""
        files = self._part(name)
        return files.local(name) if isinstance(files, Disk) else f"{files.place}/{name}"

    def _part(self, name: str) -> "Disk | Bucket":
        """The place that has `name`. Raises StoreError for a name outside the store."""
        return self._jobs if JOBS.match(_check(name)) else self._lab

    def _parts(self, folder: str) -> "Iterable[Disk | Bucket]":
        """The places that may have a part of `folder`."""
        both = dict.fromkeys((self._lab, self._jobs))
        return (*(both if folder in ("", "leases") else (self._part(folder),)), *self._also)

    def is_from_another(self, name: str) -> bool:
        """Whether only a store of `also` has this file."""
        return bool(self._also) and not self._part(name).get(name, io.BytesIO(), most=1)

    def url(self, name: str) -> str:
        """The place of `name` for TensorStore and `engine.data.token_store`: a path or a gs://
        URL."""
        return self._part(name).url(name)

    def create(self, name: str, data: bytes, *, lasting: bool = True) -> bool:
        """Create the file `name` atomically. False if it exists. If not `lasting`, which is faster,
        a power cut may truncate or remove it and the two folders around it, so these must hold
        nothing that has to last.

        Raises StoreError if it may not have been created; repeating the call is safe.
        """
        files = self._part(name)
        with fault_points.around(f"store.{_kind(name)}"):
            return files.put(name, io.BytesIO(data), lasting=lasting)

    def read(self, name: str) -> bytes | None:
        """The bytes of `name`, or None. Files never change, so recent reads are cached.

        Raises StoreError if it is no regular file.
        """
        found = self._seen.get(name)
        if found is None and (found := self.peek(name)) is not None:
            self._keep(name, found)
        return found

    def _keep(self, name: str, data: bytes) -> None:
        """Cache what was read, and drop the oldest entries."""
        while self._seen and self._seen_bytes + len(data) > MOST_SEEN:
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # another thread did
                self._forget(next(iter(self._seen)))
        self._seen[name] = data
        self._seen_bytes += len(data)

    def _forget(self, name: str) -> None:
        self._seen_bytes -= len(self._seen.pop(name, b""))

    def peek(self, name: str, most: int | None = None, start: int = 0) -> bytes | None:
        """Like `read`, or at most `most` bytes from `start` on, or the last `-start` bytes; without
        cache."""
        into = io.BytesIO()
        if not any(x.get(name, into, most, start) for x in (self._part(name), *self._also)):
            return None
        return into.getvalue()[start:] if start < 0 else into.getvalue()  # a bucket may send more

    def require(self, name: str) -> bytes:
        """Like `read`, but raises StoreError if there is none."""
        data = self.read(name)
        if data is None:
            raise StoreError(f"{self.root} has no {name}. Was part of the store removed?")
        return data

    def list(self, folder: str) -> list[str]:
        """Names of the finished files and folders directly in `folder`, sorted; [] if none."""
        names = {name for part in self._parts(folder) for name in part.names(folder)}
        return sorted(name for name in names if not name.startswith("."))

    def walk(self, folder: str = "", *, deep: bool = True) -> Iterator[Entry]:
        """All files below `folder`, drafts included; if not `deep`, the entries directly in it."""
        parts = [*self._parts(folder)]
        if len(parts) == 1:
            yield from parts[0].walk(folder, deep)
            return
        seen = set()
        for part in parts:
            for entry in part.walk(folder, deep):
                belongs = part is self._part(entry.name) or part in self._also
                if entry.name not in seen and (entry.folder or belongs):
                    seen.add(entry.name)
                    yield entry

    def remove(self, name: str) -> None:
        """Delete a file that nobody needs any more, such as a superseded lease."""
        self._forget(name)
        self._part(name).delete(name)

    def prune(self, folder: str) -> None:
        """Remove the empty folders at and below `folder`. A bucket has none."""
        if isinstance(files := self._part(folder), Disk):
            files.prune(folder)

    # ── Folders ──────────────────────────────────────────────────────────────────────────────

    def local(self, name: str) -> Path:
        """The folder `name` on this machine; for a bucket, the place of its copy. Write new content
        here, then call `publish`."""
        return self._part(name).local(name)

    def publish(self, name: str) -> None:
        """Ensure that the files in `local(name)` are in the store. Raises StoreError."""
        if not isinstance(self.at(name), Path):
            self.upload_folder(name, self.local(name))

    def fetch(self, name: str, check: Callable[[Path], object] = lambda _: None) -> Path:
        """The folder `name` on this machine: `local(name)`. From a bucket it is copied once, and
        only if `check` accepts the copy; readers check it again later. Raises StoreError."""
        folder = self.local(name)
        if not isinstance(self.at(name), Path) and not folder.is_dir():
            try:
                self.download_folder(name, folder, check)
            except StoreError:
                if not folder.is_dir():  # or another process was faster
                    raise
        return folder

    def upload_folder(self, name: str, folder: Path) -> None:
        """Copy the files below a local folder to `name`, each created once; files that an earlier
        call has copied stay. Readers may see some of them meanwhile, so create the file that names
        them last.

        Raises StoreError for anything that is no regular file, and for a file of `name` with other
        bytes.
        """
        here, files = Disk(folder), self._part(name)

        def upload(entry: Entry) -> None:
            target = f"{name}/{entry.name}"
            with here.open(entry.name) as file:
                if not files.put(target, file):
                    file.seek(0)
                    if not files.same(target, file):
                        raise StoreError(
                            f"{self.url(target)} is there with other bytes than "
                            f"{folder / entry.name}, and no file of a store is ever changed; "
                            "copy the folder to another name."
                        )

        with in_words(f"{folder} was not copied to {self.url(name)}"):
            if not folder.is_dir():
                raise StoreError(f"{folder} is no folder, and cannot be copied to {name}.")
            together(upload, here.tree())

    def download_folder(
        self, name: str, folder: Path, check: Callable[[Path], object] = lambda _: None
    ) -> None:
        """Copy the files below `name` to a new local folder, all or nothing. `check` gets the copy
        before it has its name, and may raise.

        Raises StoreError, also if there are no files, and if `folder` exists and is not empty.
        """

        def download(entry: Entry) -> None:
            target = draft / _check(entry.name).removeprefix(f"{name}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                if not self._part(name).get(entry.name, file):
                    raise StoreError(f"{self.url(entry.name)} was removed; copy the folder again.")

        with in_words(f"{folder} was not written"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with draft_beside(folder.parent) as draft:
                if not together(download, self.walk(name)):
                    raise StoreError(f"{self.url(name)} holds no files to copy.")
                check(draft)
                draft.rename(folder)


@contextlib.contextmanager
def draft_beside(folder: Path) -> Iterator[Path]:
    """A temporary name beside `folder`, for content that is made during the `with` body and then
    moved into `folder`, which others read. Deleted at the end."""
    draft = folder.with_name(f".{folder.name}-{secrets.token_hex(6)}")
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@dataclass(frozen=True)
class Remote:
    """A file or folder of a store in a bucket, with the methods of Path that are needed."""

    store: Store
    key: str  # its name in the store

    def __truediv__(self, name: str) -> "Remote":
        return Remote(self.store, f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The last part of its name."""
        return self.key.rpartition("/")[2]

    def as_posix(self) -> str:
        """Its URL."""
        return str(self.store.place(self.key))

    def create(self, data: bytes) -> None:
        """Create the file. Raises StoreError if that fails or it exists."""
        if not self.store.create(self.key, data):
            raise StoreError(f"{self.as_posix()} is there, and somebody else wrote it.")

    def walk(self) -> Iterator[Entry]:
        """All files below it."""
        return self.store.walk(self.key)

    def local(self) -> Path:
        """The path of its copy on this machine, which may not exist yet."""
        return self.store.local(self.key)


def local(where: Path | Remote) -> Path:
    """`where` as a path: itself, or that of its copy on this machine."""
    return where if isinstance(where, Path) else where.local()


def together(do: Callable[[Entry], T], entries: Iterable[Entry]) -> list[T]:
    """Do the same with each entry, several in parallel. Raises the first error."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            return list(pool.map(do, entries))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _files(place: Path | str) -> "Disk | Bucket":
    if isinstance(place, str) and place.startswith("gs://"):
        from runner.store.gcs import Bucket

        return Bucket(place)
    if re.match("gs:/", str(place)):
        url = str(place).replace("gs:/", "gs://", 1)
        raise StoreError(f"{url} is in a bucket, and this needs a folder here; {ELSEWHERE}.")
    # Unlike Path's, these return False without permission; the error comes with the first use.
    if os.path.exists(place) and not os.path.isdir(place):  # noqa: PTH110, PTH112
        raise StoreError(f"{place} is no folder, and a store is one; {ELSEWHERE}.")
    return Disk(Path(place))


def _check(name: str) -> str:
    if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")):
        raise BadName(f"{name!r} is not a name inside the store.")
    return name


def _kind(name: str) -> str:
    """The part of a path that names its fault points: `records/plans/1/2/3.json` → `plans`."""
    top, *rest = name.split("/")
    return rest[0] if top == "records" and rest else top
