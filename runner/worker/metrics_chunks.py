"""A run's metrics as numbered files, `000000.jsonl` and on, each written once and atomically. So
readers during training, on this machine or of a bucket, never see half a line. Light, because code
in a box imports it, too."""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.lib.canonical_json import to_json
from runner.lib.untrusted_files import MOST_BYTES

if TYPE_CHECKING:
    from runner.store.store import Remote

FLUSH_EVERY = 2.0  # seconds between two chunks
MOST_CHUNK = MOST_BYTES // 2


def write_whole(path: "Path | Remote", data: bytes) -> None:
    """Write a file atomically."""
    if not isinstance(path, Path):
        path.create(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


class MetricsChunks:
    """The chunks in a folder."""

    def __init__(self, folder: "Path | Remote") -> None:
        self._folder = folder
        self._number = 0
        self._lines = b""
        self._flushed_at = time.monotonic()

    def add(self, figures: Mapping[str, Any]) -> None:
        """Buffer a step's metrics; write a chunk when it is time. Values that are not finite become
        None."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in figures.items()
        }
        self._lines += to_json(finite)
        if time.monotonic() - self._flushed_at >= FLUSH_EVERY or len(self._lines) > MOST_CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        if self._lines:
            write_whole(self._folder / f"{self._number:06d}.jsonl", self._lines)
            self._number, self._lines = self._number + 1, b""
        self._flushed_at = time.monotonic()
