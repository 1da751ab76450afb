"""The store: one tree of files that are created once and never changed. It is all the state.

Everything the lab knows lies here and can be read with `cat`, or, where the store is in a bucket
(gs://bucket/prefix), with any tool that reads one: same tree, same names, same promises. The one
guarantee that all else rests on is *create-once*: of several writers of a name exactly one
succeeds, and a reader sees a whole file or none.
"""

import contextlib
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
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

if TYPE_CHECKING:  # who has no bucket needs no client for one
    from runner.store.gcs import Bucket

# What jobs read and write: all but records, pins, and the lease that says who leads.
JOBS = re.compile(r"(work|steps|texts|code|cache)(/|$)|leases/(x|steps(/|$))")
MOST_SEEN = 64 << 20  # bytes of what was read that are kept in memory
AT_ONCE = 8  # files that are copied or removed at the same time

T = TypeVar("T")


class Store:
    """A store on local disk or in a bucket. Names are relative, with `/`, and below the root."""

    def __init__(
        self, place: Path | str, *, jobs: Path | str | None = None, make: bool = True
    ) -> None:
        """Open the store in the folder or at the gs:// URL `place`, making it if it is not there.

        With `jobs`, another place, all that jobs read and write lies there, and it is their store:
        their identity needs no right to `place`, where the records are.

        Raises StoreError where it cannot be used, and where it is not there and is not to be made.
        """
        self._seen: dict[str, bytes] = {}
        self._seen_bytes = 0
        self._lab = self._jobs = files = _files(place)
        if make and isinstance(files, Disk):
            files.make()  # it is written to each time, so that no hard links are noticed now
            self._mint()
        elif self.read("store.json") is None:
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
        """Sixteen random hexadecimal digits, minted when the store was made."""
        return str(json.loads(self.require("store.json"))["id"])

    def at(self, name: str) -> "Path | Remote":
        """Where `name` lies: its path, or what stands for one in a bucket."""
        files = self._part(name)
        return files.local(name) if isinstance(files, Disk) else Remote(self, name)

    def place(self, name: str) -> Path | str:
        """Where `name` lies, in words: its path, or gs://bucket/prefix/name as a person writes it.
        Of a job's folder, what comes before `work/` opens the store that the job is given."""
        files = self._part(name)
        return files.local(name) if isinstance(files, Disk) else f"{files.place}/{name}"

    def _part(self, name: str) -> "Disk | Bucket":
        """The place in which `name` lies. Raises StoreError for a name that leaves the store."""
        return self._jobs if JOBS.match(_check(name)) else self._lab

    def _parts(self, folder: str) -> "Iterable[Disk | Bucket]":
        """The places in which something of `folder` may lie."""
        both = dict.fromkeys((self._lab, self._jobs))
        return both if folder in ("", "leases") else (self._part(folder),)

    def url(self, name: str) -> str:
        """Where `name` lies, as TensorStore and `engine.data.token_store` take it: a path, or a
        gs:// URL."""
        return self._part(name).url(name)

    def create(self, name: str, data: bytes, *, lasting: bool = True) -> bool:
        """Create the file `name` whole, or not at all. False if it was there already. If not
        `lasting`, which is quicker, a power cut may cut it off or take it, and the two folders
        around it, in which nothing else may lie that is to last.

        Raises StoreError where it may not have been created; doing it again is safe.
        """
        files = self._part(name)
        with fault_points.around(f"store.{_kind(name)}"):
            return files.put(name, io.BytesIO(data), lasting=lasting)

    def read(self, name: str) -> bytes | None:
        """The bytes of `name`, or None. A file never changes, so what was read lately is kept.

        Raises StoreError for what is no regular file.
        """
        found = self._seen.get(name)
        if found is None and (found := self.peek(name)) is not None:
            self._keep(name, found)
        return found

    def _keep(self, name: str, data: bytes) -> None:
        """Keep what was read in memory, and forget what was read long ago."""
        while self._seen and self._seen_bytes + len(data) > MOST_SEEN:
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # another thread's
                self._forget(next(iter(self._seen)))
        self._seen[name] = data
        self._seen_bytes += len(data)

    def _forget(self, name: str) -> None:
        self._seen_bytes -= len(self._seen.pop(name, b""))

    def peek(self, name: str, most: int | None = None, start: int = 0) -> bytes | None:
        """Like `read`, or at most `most` bytes from `start` on, or the last `-start` bytes, and
        nothing is kept in memory."""
        into = io.BytesIO()
        if not self._part(name).get(name, into, most, start):
            return None
        return into.getvalue()[start:] if start < 0 else into.getvalue()  # a bucket may send more

    def require(self, name: str) -> bytes:
        """Like `read`, for what must be there. Raises StoreError."""
        data = self.read(name)
        if data is None:
            raise StoreError(f"{self.root} has no {name}. Was part of the store removed?")
        return data

    def list(self, folder: str) -> list[str]:
        """Names of the finished files and folders directly in `folder`, sorted; [] if none."""
        names = {name for part in self._parts(folder) for name in part.names(folder)}
        return sorted(name for name in names if not name.startswith("."))

    def walk(self, folder: str = "", *, deep: bool = True) -> Iterator[Entry]:
        """All files below `folder`, drafts included; if not `deep`, what is directly in it."""
        seen = set()
        for part in self._parts(folder):
            for entry in part.walk(folder, deep):
                belongs = part is (self._jobs if JOBS.match(entry.name) else self._lab)
                if entry.name not in seen and (entry.folder or belongs):
                    seen.add(entry.name)
                    yield entry

    def remove(self, name: str) -> None:
        """Remove a file that no one will ask for again: a superseded lease."""
        self._forget(name)
        self._part(name).delete(name)

    def prune(self, folder: str) -> None:
        """Remove the empty folders at and below `folder`. A bucket has none."""
        if isinstance(files := self._part(folder), Disk):
            files.prune(folder)

    # ── Folders ──────────────────────────────────────────────────────────────────────────────

    def local(self, name: str) -> Path:
        """Where the folder `name` lies on this machine or, of a bucket's, a copy of it may: what is
        to become a part of the store is written here, and `publish` makes it one."""
        return self._part(name).local(name)

    def publish(self, name: str) -> None:
        """See to it that the files in `local(name)` are in the store. Raises StoreError."""
        if not isinstance(self.at(name), Path):
            self.upload_folder(name, self.local(name))

    def fetch(self, name: str, check: Callable[[Path], object] = lambda _: None) -> Path:
        """The folder `name`, on this machine: `local(name)`. Out of a bucket it is copied once, as
        far as `check` raises nothing of the copy; who reads it later checks what it holds then.
        Raises StoreError."""
        folder = self.local(name)
        if not isinstance(self.at(name), Path) and not folder.is_dir():
            try:
                self.download_folder(name, folder, check)
            except StoreError:
                if not folder.is_dir():  # or another process was faster
                    raise
        return folder

    def upload_folder(self, name: str, folder: Path) -> None:
        """Copy the files below a local folder to `name`, each created once; what an earlier call
        has copied stays. Who reads them meanwhile sees some: what names them is created last.

        Raises StoreError for what is no regular file, and for a file of `name` with other bytes.
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
        """Copy the files below `name` to a new local folder: all of them, or there is no folder.
        `check` may look at the copy, and raise, before it has its name.

        Raises StoreError, also where there are no files, and where `folder` is there and not empty.
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
    """A name beside `folder` for what is made during the `with` body and moved into `folder`, in
    which others may look. What is left there at the end goes."""
    draft = folder.with_name(f".{folder.name}-{secrets.token_hex(6)}")
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@dataclass(frozen=True)
class Remote:
    """A file or folder of a store in a bucket, as far as it is used like a Path."""

    store: Store
    key: str  # its name in the store

    def __truediv__(self, name: str) -> "Remote":
        return Remote(self.store, f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The last part of its name."""
        return self.key.rpartition("/")[2]

    def as_posix(self) -> str:
        """Where it lies."""
        return str(self.store.place(self.key))

    def create(self, data: bytes) -> None:
        """Create the file. Raises StoreError where it cannot be, or is there already."""
        if not self.store.create(self.key, data):
            raise StoreError(f"{self.as_posix()} is there, and somebody else wrote it.")

    def walk(self) -> Iterator[Entry]:
        """All files below it."""
        return self.store.walk(self.key)

    def local(self) -> Path:
        """Where a copy of it lies, or may."""
        return self.store.local(self.key)


def local(where: Path | Remote) -> Path:
    """`where` as a path: its own, or that of its copy on this machine."""
    return where if isinstance(where, Path) else where.local()


def together(do: Callable[[Entry], T], entries: Iterable[Entry]) -> list[T]:
    """Do the same with each entry, several at a time. The first failure is raised."""
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
    # Unlike Path's, these say no where it cannot be seen, which is told when it is used.
    if os.path.exists(place) and not os.path.isdir(place):  # noqa: PTH110, PTH112
        raise StoreError(f"{place} is no folder, and a store is one; {ELSEWHERE}.")
    return Disk(Path(place))


def _check(name: str) -> str:
    if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")):
        raise BadName(f"{name!r} is not a name inside the store.")
    return name


def _kind(name: str) -> str:
    """The part of a path that names fault points: `records/plans/1/2/3.json` → `plans`."""
    top, *rest = name.split("/")
    return rest[0] if top == "records" and rest else top
