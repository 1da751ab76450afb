"""Reads the file of a model's parameters, which is untrusted. Callers that only need arrays do not
import the lab's models."""

import re
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from engine.config.schema import MAX_SNAPSHOTS
from engine.training.digest import array_bytes
from runner.lib import untrusted_files
from runner.lib.own_code_errors import BadOwnCode

PARAMS = "params.safetensors"
MOMENTS = "moments.safetensors"  # and everything else that training continues with
SNAPSHOTS = "snapshots"  # a folder for each step whose parameters were kept
NUMBER = re.compile(r"[1-9][0-9]{0,11}")
MAX_HEADER = 8 << 20  # bytes of names, shapes and offsets before the arrays


def snapshot_of(folder: Path, step: int) -> Path:
    """The folder with a model's parameters after a step, in the folder of the model."""
    return folder / SNAPSHOTS / str(step)


def snapshots_in(folder: Path) -> list[int]:
    """The steps of which a model's folder has the parameters, at most MAX_SNAPSHOTS."""
    place = folder / SNAPSHOTS
    if place.is_symlink() or not place.is_dir():
        return []
    names = islice(place.iterdir(), MAX_SNAPSHOTS)
    return sorted(int(path.name) for path in names if NUMBER.fullmatch(path.name))


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
