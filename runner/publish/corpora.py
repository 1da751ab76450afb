"""Fetches the files of a corpus into the store, from a folder, a bucket, or any place that fsspec
opens. What was copied before a fetch was killed stays, and the next one goes on from there.

    corpora/<digest>/files/…      the files, with their relative paths
    corpora/<digest>/files.json   the digest of each; written last, so that it says all are there

The digest is over paths, sizes and digests of all files, as that of a step's output."""

import fcntl
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from runner.lib import bounds
from runner.lib.format import first_of
from runner.publish.hub import first_line
from runner.schema import corpora
from runner.schema.corpora import FILES_OF, MAX_LIST, Corpus, Fetched
from runner.store import backends, digests
from runner.store.digests import FileDigest
from runner.store.store import Store

BLOCK = 4 << 20  # bytes that are copied at a time
MAX_NAMED = 3  # files in an error
Progress = Callable[[int, int, str], None]  # bytes so far, bytes in all (0: unknown), and the file


class CorpusError(Exception):
    """The files of a corpus are not there, or not the ones that they should be; the message is a
    whole sentence and says what to do."""


class Listed(NamedTuple):
    """A file where a corpus is from."""

    bytes: int | None  # None: the place does not say
    mark: str  # changes with the content: an ETag or a time; empty if the place has none


class _Origin(Protocol):
    def files(self) -> dict[str, Listed]: ...

    def blocks(self, path: str, start: int) -> Iterator[bytes]: ...


# ── Where corpora are from ───────────────────────────────────────────────────────────────────


class _Folder:
    """A folder of this machine."""

    def __init__(self, where: Path, corpus: Corpus) -> None:
        self._root, self._takes = where.resolve(), corpus.takes

    def files(self) -> dict[str, Listed]:
        found = {}
        for inner, _, names in os.walk(self._root):
            for path in (Path(inner, name) for name in names):
                relative = path.relative_to(self._root).as_posix()
                if not self._takes(relative):
                    continue
                target = path.resolve()
                if not target.is_relative_to(self._root):
                    words = f"{path} is a link that leads out of {self._root}"
                    raise CorpusError(f"{words}; leave it out (`without`)")
                if target.is_file():
                    there = target.stat()
                    found[relative] = Listed(there.st_size, str(there.st_mtime_ns))
        return found

    def blocks(self, path: str, start: int) -> Iterator[bytes]:
        with (self._root / path).open("rb") as file:
            file.seek(start)
            while block := file.read(BLOCK):
                yield block


class _Bucket:
    """A folder in Google Cloud Storage, read as the store reads its own."""

    def __init__(self, url: str, corpus: Corpus) -> None:
        from runner.store.gcs import Bucket

        self._bucket, self._takes = Bucket(url), corpus.takes

    def files(self) -> dict[str, Listed]:
        entries = self._bucket.walk("", deep=True)
        return {x.name: Listed(x.size, str(x.at)) for x in entries if self._takes(x.name)}

    def blocks(self, path: str, start: int) -> Iterator[bytes]:
        import io

        while True:
            self._bucket.get(path, into := io.BytesIO(), BLOCK, start)
            block = into.getvalue()[:BLOCK]
            yield block
            start += len(block)
            if len(block) < BLOCK:
                return


class _Elsewhere:
    """Whatever fsspec opens: hf://datasets/…, s3://…, https://…"""

    def __init__(self, url: str, corpus: Corpus) -> None:
        import fsspec

        self._corpus, self._url = corpus, url
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise CorpusError(
                f"{url} cannot be opened here: {first_line(error)}; for s3:// run "
                "`pip install 'regatta[s3]'`"
            ) from error

    def files(self) -> dict[str, Listed]:
        if self._url.startswith(("https://", "http://")):  # which have no lists of their files
            return {path: _listed(self._fs.info(at)) for path, at in self._pages().items()}
        root = self._root.rstrip("/")
        if self._fs.isfile(root):
            return {root.rpartition("/")[2]: _listed(self._fs.info(root))}
        found = self._fs.find(root, detail=True)
        paths = {at.removeprefix(f"{root}/"): info for at, info in found.items()}
        return {path: _listed(info) for path, info in paths.items() if self._corpus.takes(path)}

    def _pages(self) -> dict[str, str]:
        """{path: its URL}."""
        if not self._url.endswith("/"):
            return {self._url.rpartition("/")[2].partition("?")[0]: self._url}
        if not self._corpus.files or any("*" in name or "?" in name for name in self._corpus.files):
            raise CorpusError(
                f"{self._url} has no list of its files; name each of them in `files`, without `*`"
            )
        return {path: self._url + path for path in self._corpus.files}

    def blocks(self, path: str, start: int) -> Iterator[bytes]:
        if not self._url.startswith(("https://", "http://")):
            root = self._root.rstrip("/")
            return self._read(root if root.rpartition("/")[2] == path else f"{root}/{path}", start)
        at = self._pages()[path]
        try:
            if start:
                rest = self._read(at, start)
                return itertools.chain([next(rest, b"")], rest)
        except ValueError:  # the server gives only whole files
            pass
        return self._read(at, start, block_size=0)  # as it is sent

    def _read(self, at: str, start: int, **options: Any) -> Iterator[bytes]:
        with self._fs.open(at, "rb", **options) as file:
            if options:
                while start and (block := file.read(min(start, BLOCK))):
                    start -= len(block)
            else:
                file.seek(start)
            while block := file.read(BLOCK):
                yield block


def _listed(info: Mapping[str, Any]) -> Listed:
    keys = ("ETag", "etag", "blob_id", "LastModified", "Last-Modified", "mtime", "last_commit")
    mark = next((str(info[key]) for key in keys if info.get(key)), "")
    return Listed(info.get("size"), mark)


def _origin(corpus: Corpus, root: Path) -> _Origin:
    if corpus.where.startswith("gs://"):
        return _Bucket(corpus.where, corpus)
    if "://" in corpus.where:
        return _Elsewhere(corpus.where, corpus)
    return _Folder(root / corpus.where, corpus)


# ── Fetching ─────────────────────────────────────────────────────────────────────────────────


def fetch(
    store: Store, name: str, corpus: Corpus, root: Path, progress: Progress = lambda *_: None
) -> Fetched:
    """Copy the files of a corpus into the store, or what an earlier call left of them. A relative
    `where` is below `root`. Raises CorpusError if it cannot, or if the files are others than those
    that the registry names; and StoreError."""
    draft = backends.cache() / "corpora" / _key(name, corpus.where)
    with _alone(draft, name):
        with _explained(name, corpus):
            origin = _origin(corpus, root)
            found = origin.files()
            if not found:
                raise CorpusError(f"{name}: no file there is one of its `files`{_install(corpus)}")
            files = _copied(origin, found, draft, progress)
        sha256 = digests.sha256(files)
        if corpus.fetched and sha256 != corpus.fetched.sha256:
            raise CorpusError(_others(store, name, corpus.fetched, files) + _install(corpus))
        place = corpora.folder(sha256)
        store.upload_folder(f"{place}/files", draft / "files")
        store.create(f"{place}/{FILES_OF}", digests.listed(files))
        if wrong := damaged(store, sha256):
            words = f"{name}: the store has other bytes of {first_of(wrong, MAX_NAMED)}"
            raise CorpusError(f"{words}; remove {store.place(place)}, fetch it again")
        shutil.rmtree(draft)
    size = sum(file.bytes for file in files.values())
    return Fetched(sha256=sha256, files=len(files), bytes=size)


def is_there(store: Store, sha256: str) -> bool:
    """Whether the store has all files of the corpus with this digest."""
    return store.peek(f"{corpora.folder(sha256)}/{FILES_OF}", most=1) is not None


def files_of(store: Store, sha256: str) -> dict[str, FileDigest]:
    """The digest of each file, as it was fetched. Raises CorpusError."""
    said = store.peek(f"{corpora.folder(sha256)}/{FILES_OF}") or b"{}"
    try:
        files = bounds.parse(digests.FILES, said, MAX_LIST)
    except ValueError:
        files = {}
    if digests.sha256(files) != sha256:
        place = store.place(corpora.folder(sha256))
        raise CorpusError(f"{place} has no list of files with this digest; remove it, fetch again")
    return files


def damaged(store: Store, sha256: str) -> list[str]:
    """The files in the store that are missing or are not the fetched ones. Reads all of them.
    Raises CorpusError and StoreError."""
    wanted = files_of(store, sha256)
    folder = store.fetch(corpora.folder(sha256)) / "files"
    return [path for path, of in sorted(wanted.items()) if _digest(folder / path) != of]


def _digest(path: Path) -> FileDigest | None:
    try:
        return digests.digest(path)
    except OSError:
        return None


@contextmanager
def _alone(draft: Path, name: str) -> Iterator[None]:
    """Refuses a second fetch of the same corpus on this machine. Raises CorpusError."""
    draft.mkdir(parents=True, exist_ok=True)
    with draft.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            words = f"{name} is being fetched by another process of this machine"
            raise CorpusError(f"{words}; wait for it") from error
        yield


def _copied(
    origin: _Origin, found: Mapping[str, Listed], draft: Path, progress: Progress
) -> dict[str, FileDigest]:
    """Copy these files to `draft`, as far as an earlier call has not. Returns their digests."""
    _forget_changed(draft, found)
    total = sum(of.bytes or 0 for of in found.values())
    done = 0
    for path, of in sorted(found.items()):
        target = _inside(draft / "files", path)
        if not target.exists():
            part = draft / "parts" / hashlib.sha256(path.encode()).hexdigest()
            part.parent.mkdir(parents=True, exist_ok=True)
            with part.open("ab") as file:
                for block in origin.blocks(path, file.tell()):
                    file.write(block)
                    progress(done + file.tell(), total, path)
                size = file.tell()
            if of.bytes is not None and size != of.bytes:
                part.unlink()
                words = f"{path} should have {of.bytes:,} bytes and came with {size:,}"
                raise CorpusError(f"{words}; fetch it again")
            target.parent.mkdir(parents=True, exist_ok=True)
            part.rename(target)
        done += target.stat().st_size
        progress(done, total, path)
    return digests.digests((draft / "files").resolve())


def _forget_changed(draft: Path, found: Mapping[str, Listed]) -> None:
    """Delete what an earlier call copied of files that have changed since, or are gone."""
    listing = draft / "listing.json"
    try:
        before = {path: Listed(*of) for path, of in json.loads(listing.read_bytes()).items()}
    except (OSError, ValueError, TypeError):
        shutil.rmtree(draft, ignore_errors=True)
        before = {}
    for path in (path for path, of in before.items() if found.get(path) != of):
        _inside(draft / "files", path).unlink(missing_ok=True)
        (draft / "parts" / hashlib.sha256(path.encode()).hexdigest()).unlink(missing_ok=True)
    draft.mkdir(parents=True, exist_ok=True)
    listing.write_text(json.dumps(found))


def _inside(folder: Path, path: str) -> Path:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or not path.isprintable():
        raise CorpusError(f"{path!r} is no name of a file; leave it out (`without`)")
    return folder / path


def _key(name: str, where: str) -> str:
    return hashlib.sha256(f"{name}\0{where}".encode()).hexdigest()[:32]


def _others(store: Store, name: str, fetched: Fetched, files: Mapping[str, FileDigest]) -> str:
    """What to say where the files are not those that the registry names."""
    words = f"the files of {name} are others than when its digest was written"
    if is_there(store, fetched.sha256):
        before = files_of(store, fetched.sha256)
        differ = sorted(x for x in before.keys() | files.keys() if before.get(x) != files.get(x))
        words += f" ({first_of(differ, MAX_NAMED)})"
    return f"{words}; add them as another version, such as {name.partition('@')[0]}@NEW"


@contextmanager
def _explained(name: str, corpus: Corpus) -> Iterator[None]:
    """Errors of the `with` body as CorpusError; clients of different places raise different
    ones."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as error:
        raise CorpusError(
            f"{name} could not be fetched from {corpus.where}: {first_line(error)}; what was "
            f"copied stays, so fetch it again{_install(corpus)}"
        ) from error


def _install(corpus: Corpus) -> str:
    return f" (it is part of a package: apt-get install {corpus.package})" if corpus.package else ""
