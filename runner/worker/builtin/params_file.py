"""Reads the file of a model's parameters, which is untrusted. Callers that only need arrays do not
import the lab's models."""

from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from engine.training.digest import array_bytes
from runner.lib import untrusted_files
from runner.worker.builtin.own_code_errors import BadOwnCode

PARAMS = "params.safetensors"
MOMENTS = "moments.safetensors"  # and everything else that training continues with
MAX_HEADER = 8 << 20  # bytes of names, shapes and offsets before the arrays


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    """All arrays of a model of unknown shape, by name. Raises BadOwnCode."""
    with opened(folder) as file:
        return {name: float32(name, file) for name in sorted(file.keys())}


def measured(folder: Path) -> tuple[str, int]:
    """(SHA-256, number) of the parameters in a folder, with one array at a time in memory. The
    digest is `engine.training.digest.tree_sha256` of all. Raises BadOwnCode."""
    digest, size = sha256(), 0
    with opened(folder) as file:
        for name in sorted(file.keys()):
            array = float32(name, file)
            size += array.size
            for part in array_bytes(name, array):
                digest.update(part)
    return digest.hexdigest(), size


def float32(name: str, file: Any) -> np.ndarray:
    """One array of an opened file. Raises BadOwnCode if it has another dtype."""
    found: np.ndarray = file.get_tensor(name)
    if found.dtype != np.float32:
        raise BadOwnCode(f"{PARAMS} has {name} as {found.dtype}; parameters are float32")
    return found


@contextmanager
def opened(folder: Path, name: str = PARAMS) -> Any:
    """A file of arrays, of which only names and shapes are read. Raises BadOwnCode."""
    path = folder / name
    try:
        with untrusted_files.refusing(path), untrusted_files.open_regular(path) as raw:
            header = int.from_bytes(raw.read(8), "little")
        if header > MAX_HEADER:
            raise BadOwnCode(f"{name}: its header has {header:,} bytes, and {MAX_HEADER:,} at most")
        with safe_open(path, framework="numpy") as file:
            yield file
    except (untrusted_files.Refused, SafetensorError, OSError) as error:
        raise BadOwnCode(f"{name} cannot be read: {error}") from error
