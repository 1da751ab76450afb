"""A digest of a tree of arrays: two copies of the same parameters have the same digest. A module of
its own, so that its callers need not import Orbax, which is slow."""

from hashlib import sha256
from typing import Any

import jax
import numpy as np


def tree_sha256(tree: Any) -> str:
    """SHA-256 over each array of `tree` in the order of its path: path, dtype, shape, bytes."""
    digest = sha256()
    for path, x in sorted(leaves(tree).items()):
        for part in array_bytes(path, np.asarray(x)):
            digest.update(part)
    return digest.hexdigest()


def array_bytes(path: str, array: np.ndarray) -> tuple[bytes, bytes]:
    """The bytes of one array that `tree_sha256` hashes."""
    return f"{path} {array.dtype} {array.shape}\n".encode(), array.tobytes()


def leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by path, with slashes between the names."""
    return {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def path_of(path: Any) -> str:
    """A leaf's path from JAX as a string."""
    return jax.tree_util.keystr(path, simple=True, separator="/")
