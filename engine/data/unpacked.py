"""Reads compressed files as what they hold, whole or not at all."""

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

PACKED = (".gz", ".dz", ".zst", ".bz2")
ZSTD_WINDOW = 1 << 31  # bytes, the longest that zstd writes (`--long=31`)
READ = 4096  # bytes of zstd at once, which unpack to 128 MiB at most


def opened(path: Path) -> io.BufferedReader:
    """The content of a file, unpacked if its name ends in one of PACKED: all members or frames, and
    nothing of the zeros that tapes and copies leave behind gzip's. Reading raises OSError or
    EOFError for a file that is damaged or cut off."""
    if path.suffix not in PACKED:
        return path.open("rb")
    return io.BufferedReader(_Unpacked(path), 1 << 20)


class _Unpacked(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        if path.suffix == ".zst":
            self._parts = _frames(self._file)
        else:
            whole = bz2.open if path.suffix == ".bz2" else gzip.open
            self._parts = iter(partial(whole(self._file).read, 1 << 20), b"")
        self._part = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            while not self._part:
                self._part = memoryview(next(self._parts))
        except StopIteration:
            return 0
        except zlib.error as error:
            raise OSError(str(error)) from error
        count = min(len(buffer), len(self._part))
        buffer[:count], self._part = self._part[:count], self._part[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _frames(file: io.BufferedReader) -> Iterator[bytes]:
    """The content of zstd's frames. The library's own stream takes a truncated one for whole."""
    import zstandard

    frame, data = None, b""
    try:
        while data := data or file.read(READ):
            frame = frame or zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
            yield frame.decompress(data)
            data, frame = frame.unused_data, None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from error
    if frame:
        raise EOFError("its last frame has no end")
