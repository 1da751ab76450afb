"""A store's files in a bucket of Google Cloud Storage: `gs://bucket/prefix`.

Create-once is the precondition `ifGenerationMatch=0`: an existing object is never replaced, an
object appears completely or not at all, and reads and lists after a write see it. Credentials are
those of the machine or the user (application default credentials); with STORAGE_EMULATOR_HOST in
the environment, requests go there instead, without credentials.

What must be a folder (a step's output while it is made, an Orbax checkpoint) is one on this
machine, below REGATTA_CACHE (~/.cache/regatta), in a tree of its own per store. It can be deleted
when no job runs.
"""

import contextlib
import hashlib
import os
import re
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import google_crc32c
import requests
from google.api_core.exceptions import (
    ClientError,
    Forbidden,
    GoogleAPIError,
    NotFound,
    PreconditionFailed,
    RequestRangeNotSatisfiable,
    RetryError,
    Unauthorized,
)
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY

from runner.store.backends import (
    BLOCK,
    CACHE,
    ELSEWHERE,
    BadName,
    Entry,
    StoreError,
    StoreFault,
    cache,
)

RETRY = DEFAULT_RETRY.with_timeout(60.0)  # seconds in total; every request here may be repeated
LISTED = "items(name,size,updated),prefixes,nextPageToken"  # the fields of each object in a listing
TIMEOUT = (5.0, 60.0)  # seconds to connect, and between two bytes
MOST_NAME = 1024  # bytes of an object's name
EMULATOR = "STORAGE_EMULATOR_HOST"
JOBS_KEY = "REGATTA_JOBS_CREDENTIALS"  # names the key file of the jobs' identity
WRITER = "writer"  # key of an object's metadata that identifies the call that wrote it
TROUBLES = (
    GoogleAPIError,
    GoogleAuthError,
    DataCorruption,
    InvalidResponse,
    requests.RequestException,
    ConnectionError,
)


class Bucket:
    """Files as objects of a bucket. It has no folders: one exists while it contains a file."""

    def __init__(self, url: str) -> None:
        """Open `gs://bucket/prefix`. Raises StoreError for another URL, and without credentials."""
        match = re.fullmatch(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(/.*?)?/*", url)
        prefix = (match[2] or "")[1:] if match else ""
        if not match or (prefix and any(x in ("", ".", "..") for x in prefix.split("/"))):
            raise StoreError(
                f"{url} is no place for a store; write gs://bucket or gs://bucket/prefix. A "
                "bucket's name has at least 3 of a to z, 0 to 9, `-`, `_` and `.`."
            )
        self.place = f"gs://{match[1]}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        with self._in_words("the store was not opened"):
            self._client = storage.Client(project=None)
        self._bucket = self._client.bucket(match[1])

    def url(self, name: str) -> str:
        """`gs://bucket/prefix/name`, percent-encoded."""
        key = quote(self._key(name), safe="/!$&'()*+,;=:@~")
        return f"gs://{self._bucket.name}/{key}"

    def local(self, name: str) -> Path:
        """The path of a copy of it on this machine."""
        return cache() / hashlib.sha256(self.place.encode()).hexdigest()[:16] / name

    def put(self, name: str, data: BinaryIO, *, lasting: bool = True) -> bool:  # noqa: ARG002
        """Create the object `name` if its generation is 0, that is, if there is none. Objects
        always last."""
        blob = self._bucket.blob(self._key(name))
        writer = secrets.token_hex(16)
        blob.metadata = {WRITER: writer}
        with self._in_words(f"{name} was not written", StoreFault):
            try:
                blob.upload_from_file(
                    data,
                    size=data.seek(0, os.SEEK_END),
                    rewind=True,
                    content_type="application/json" if name.endswith(".json") else None,
                    if_generation_match=0,
                    checksum="crc32c",
                    timeout=TIMEOUT,
                    retry=RETRY,
                )
            except PreconditionFailed:
                # Another writer was first; or we were, and the reply was lost.
                there = self._bucket.get_blob(blob.name, timeout=TIMEOUT, retry=RETRY)
                return there is not None and (there.metadata or {}).get(WRITER) == writer
            return True

    def same(self, name: str, data: BinaryIO) -> bool:
        """Compare size and CRC-32C, without a download: finds accidents, not forgeries."""
        with self._in_words(f"{name} cannot be read"):
            there = self._bucket.get_blob(self._key(name), timeout=TIMEOUT, retry=RETRY)
        digest, size = google_crc32c.Checksum(), 0
        while block := data.read(BLOCK):
            digest.update(block)
            size += len(block)
        found = (there.size, there.crc32c) if there else None
        return found == (size, b64encode(digest.digest()).decode())

    def get(self, name: str, into: BinaryIO, most: int | None = None, start: int = 0) -> bool:
        """Download; checks the checksum of a whole object."""
        blob = self._bucket.blob(self._key(name))
        with self._in_words(f"{name} cannot be read"):
            try:
                blob.download_to_file(
                    into,
                    start=start or None,
                    end=None if most is None or start < 0 else start + most - 1,
                    checksum="crc32c",
                    timeout=TIMEOUT,
                    retry=RETRY,
                )
            except RequestRangeNotSatisfiable:  # beyond its end
                return True
            except NotFound as error:
                self._look(error)
                return False
        return True

    def names(self, folder: str) -> Iterable[str]:
        """The entries directly in `folder`, page by page."""
        found = (entry.name for entry in self.walk(folder, deep=False))
        return {name.removeprefix(f"{folder}/") if folder else name for name in found}

    def walk(self, folder: str, deep: bool) -> Iterator[Entry]:
        """All objects below `folder`, sorted by name."""
        prefix = self._key(f"{folder}/") if folder else self._prefix
        with self._in_words(f"{folder or 'the store'} cannot be listed"):
            found = self._list(prefix, delimiter=None if deep else "/")
            for blob in found:
                if not blob.name.endswith("/"):  # the console makes these to show folders
                    name = blob.name.removeprefix(self._prefix)
                    yield Entry(name, blob.size, blob.updated.timestamp())
            for inner in sorted(found.prefixes):
                yield Entry(inner.removeprefix(self._prefix).rstrip("/"), folder=True)

    def delete(self, name: str) -> None:
        """Delete the object."""
        with self._in_words(f"{name} was not removed", StoreFault):
            try:
                self._bucket.blob(self._key(name)).delete(timeout=TIMEOUT, retry=RETRY)
            except NotFound as error:
                self._look(error)

    def _key(self, name: str) -> str:
        key = self._prefix + name
        try:
            if len(key.encode()) <= MOST_NAME and not set("\r\n") & set(key):
                return key
        except UnicodeEncodeError:
            pass
        raise BadName(
            f"{name!r} is no name in a bucket; one has at most {MOST_NAME} bytes of UTF-8 with "
            "the prefix, and no line breaks."
        )

    def _list(self, prefix: str, **how: Any) -> Any:
        return self._client.list_blobs(
            self._bucket, prefix=prefix, fields=LISTED, timeout=TIMEOUT, retry=RETRY, **how
        )

    def _look(self, error: NotFound) -> None:
        """Check that the bucket exists: a missing object and a missing bucket both give 404."""
        if "No such object" not in str(error):
            for _ in self._list(self._prefix, max_results=1):
                break

    @contextlib.contextmanager
    def _in_words(self, what: str, kind: type[StoreError] = StoreError) -> Iterator[None]:
        """Turn errors into `kind`. A failed listing is no OSError, because a watcher of a lease
        would take that for a job's odd files and the job for dead."""
        try:
            yield
        except TROUBLES as error:
            words, remedy = _reason(error)
            raise kind(f"{self.place}: {what}: {words}; {remedy}.") from error


def for_jobs() -> dict[str, str]:
    """The environment for jobs on this machine: it lets them reach their bucket with a key of their
    own, if there is one, because ours may do more."""
    told = {CACHE: str(cache())}
    if emulator := os.environ.get(EMULATOR):
        told[EMULATOR] = emulator
    if key := os.environ.get(JOBS_KEY):
        told["GOOGLE_APPLICATION_CREDENTIALS"] = str(Path(key).resolve())
    return told


def for_orbax() -> dict[str, str]:
    """The environment of a process in which Orbax writes to a bucket, by TensorStore and gcsfs:
    they use the JSON API, and the emulator if we do."""
    told = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
    if emulator := os.environ.get(EMULATOR):
        told |= {"TENSORSTORE_GCS_HTTP_URL": emulator, "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none"}
        told |= {EMULATOR: emulator, "FSSPEC_GS_TOKEN": "anon"}
    return told


def _reason(error: Exception) -> tuple[str, str]:
    """What went wrong, and what to do."""
    if isinstance(error, RetryError) and isinstance(error.cause, Exception):
        words, remedy = _reason(error.cause)
        return f"{words}, for {RETRY.timeout:g} s", remedy
    words = _said(error)
    if isinstance(error, NotFound):
        return "there is no such bucket", f"was it deleted? Make it again, or {ELSEWHERE}"
    if isinstance(error, TransportError):
        return words, "Google was not reached; look at the network and do it again"
    if isinstance(error, (Unauthorized, Forbidden, GoogleAuthError)):
        return (
            f"these credentials are not accepted ({words})",
            "give this identity the role Storage Object User on the bucket, or use another: "
            "`gcloud auth application-default login`, or GOOGLE_APPLICATION_CREDENTIALS",
        )
    if isinstance(error, DataCorruption):
        return "what arrived is not what was sent (checksums differ)", "do it again"
    if isinstance(error, ClientError):
        return words, "nothing was done; do it again, and if it stays look at the bucket's settings"
    return words, "it may have been done or not, and doing it again is safe"


def _said(error: Exception) -> str:
    """The server's message, or the client library's."""
    response = getattr(error, "response", None)
    words = getattr(error, "message", "") or str(error)
    if isinstance(response, requests.Response) and response.status_code >= 400:
        try:
            words = response.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            words = response.text or response.reason
        words = f"{response.status_code}: {words}"
    return " ".join(words.split())[:300].rstrip(".")
