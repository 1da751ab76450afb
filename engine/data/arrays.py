"""Long arrays of integers in a folder on disk or in a bucket (gs://…), written by TensorStore as
zarr 3. A file holds 2^22 values in pieces of 2^14; each piece has a checksum (CRC-32C) and can be
read alone. Opening reads a page of metadata, however long the array is. The manifest of a folder is
written last: a folder without one is unfinished."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts

FILE = 2**22  # values in one file
PIECE = 2**14  # values that are read and checked together
ENDLESS = 2**60  # the length of an array while it is being written
CACHE_BYTES = 2**26  # for pieces that were read, for the whole process

MANIFEST = "manifest.json"
TO_WRITE = "look into the folder's rights and the room on its disk"

Array = ts.TensorStore | np.ndarray  # both have the same indexing; see `read`


class WrongTokens(Exception):
    """The tokens are not those that were asked for, or too few; the message says which."""


class Folder:
    """Where arrays and their manifest are: a path, or a URL that TensorStore knows."""

    def __init__(self, place: Path | str) -> None:
        self.name = str(place)
        if isinstance(place, Path) and re.match(r"[a-z][a-z0-9+.-]+:/", self.name):
            raise WrongTokens(
                f"{place} is a URL that was made a Path, which takes a slash from it; give it as "
                "it was written"
            )
        path = {"driver": "file", "path": f"{Path(place).absolute()}/"}
        kvstore = f"{str(place).rstrip('/')}/" if "://" in str(place) else path
        with _in_words(f"{place} is no place for tokens", "name a folder or a gs:// URL"):
            self._files = ts.KvStore.open(kvstore, context=_context()).result()

    def __truediv__(self, name: str) -> "Folder":
        inside = Folder.__new__(Folder)
        inside.name, inside._files = f"{self.name.rstrip('/')}/{name}", self._files / f"{name}/"
        return inside

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if there is none."""
        with _in_words(f"{name} in {self.name} cannot be read", "look into the folder's rights"):
            found = self._files.read(name).result()
        return bytes(found.value) if found.state == "value" else None

    def write(self, name: str, content: bytes | None) -> None:
        """Write a small file atomically; None removes it."""
        with _in_words(f"{name} cannot be written in {self.name}", TO_WRITE):
            self._files.write(name, content).result()

    def create(self, name: str, dtype: str) -> "Growing":
        """Create an empty array, in place of the remains of an unfinished build."""
        metadata = {
            "shape": [ENDLESS],
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [FILE]}},
            "codecs": [
                {
                    "name": "sharding_indexed",
                    "configuration": {
                        "chunk_shape": [PIECE],
                        "codecs": [_LITTLE_ENDIAN, {"name": "crc32c"}],
                        "index_codecs": [_LITTLE_ENDIAN, {"name": "crc32c"}],
                    },
                }
            ],
        }
        spec = {**self._spec(name), "metadata": metadata}
        name = f"the array {name} of {self.name}"
        with _in_words(f"{name} cannot be written", TO_WRITE):
            array = ts.open(spec, create=True, delete_existing=True, context=_context()).result()
        return Growing(array, name)

    def open(self, name: str, dtype: str, length: int) -> ts.TensorStore:
        """Open an array that must have this type and length. Raises WrongTokens."""
        with _in_words(f"{self.name} has no array {name} that can be read", "build it again"):
            array = ts.open(
                self._spec(name), open=True, read=True, rank=1, context=_context()
            ).result()
        found = array.dtype.name, array.shape[0]
        if found != (dtype, length):
            raise WrongTokens(
                f"the array {name} in {self.name} has {found[1]:,} values of type {found[0]} and "
                f"its manifest says {length:,} of {dtype}; build it again"
            )
        return array

    def _spec(self, name: str) -> dict[str, Any]:
        return {
            "driver": "zarr3",
            "kvstore": (self._files / f"{name}/").spec().to_json(),
            # A missing piece is an error, never zeros; so zeros are stored, too.
            "fill_missing_data_reads": False,
            "store_data_equal_to_fill_value": True,
            # Nobody changes a finished array, so the cached metadata stays valid.
            "recheck_cached_metadata": "open",
            "recheck_cached_data": "open",
        }


class Growing:
    """An array whose length is known only at its end. Memory: the values of one file."""

    def __init__(self, array: ts.TensorStore, name: str) -> None:
        self._array, self._name = array, name
        self._buffer = np.empty(FILE, array.dtype.numpy_dtype)
        self._filled = self._written = 0
        self._digest = sha256()

    def append(self, values: np.ndarray) -> None:
        while len(values):
            part = values[: FILE - self._filled]
            self._buffer[self._filled : self._filled + len(part)] = part
            self._filled, values = self._filled + len(part), values[len(part) :]
            if self._filled == FILE:
                self._flush()

    def finish(self) -> tuple[int, str]:
        """Write the rest. Returns the length and the SHA-256 of all values, little-endian."""
        self._flush()
        with _in_words(f"{self._name} cannot be written", TO_WRITE):
            self._array.resize(exclusive_max=[self._written], resize_metadata_only=True).result()
        return self._written, self._digest.hexdigest()

    def _flush(self) -> None:
        values = self._buffer[: self._filled]
        if len(values):
            place = slice(self._written, self._written + len(values))
            with _in_words(f"{self._name} cannot be written", TO_WRITE):
                self._array[place].write(values).result()
        self._digest.update(little_endian(values))
        self._written, self._filled = self._written + len(values), 0


def read(array: Array, where: Any, name: str) -> np.ndarray:
    """Read `array[where]` from memory or from files. Raises WrongTokens with `name` in its message
    if a piece is missing or damaged."""
    if isinstance(array, np.ndarray):
        return array[where]
    with _in_words(f"{name} is truncated or damaged", "copy a whole one here, or build it again"):
        return np.asarray(array[where].read().result())


def little_endian(values: np.ndarray) -> memoryview:
    """The bytes that digests are computed from."""
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return values.view(np.uint8).data


@cache
def _context() -> ts.Context:
    return ts.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES}})


@contextmanager
def _in_words(sentence: str, remedy: str) -> Iterator[None]:
    """Turn TensorStore's ValueErrors into WrongTokens."""
    try:
        yield
    except ValueError as error:
        why = str(error).partition(" [")[0][:300]  # the rest repeats its whole specification
        raise WrongTokens(f"{sentence}: {why}; {remedy}") from error


_LITTLE_ENDIAN = {"name": "bytes", "configuration": {"endian": "little"}}
