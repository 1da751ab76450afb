"""Checkpoints: a folder a step, written by Orbax in the background and visible only when complete.
The parameters are an item of their own, so that a checkpoint can be scored without the optimizer;
`rest` is what else it takes to continue. Two digests exist for two questions: this one is over the
parameters, because two copies of the same parameters differ as files."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

KEEP = 2  # newest checkpoints that stay


class BadCheckpoint(Exception):
    """A checkpoint cannot be read, or is of another model; the message says which and why."""


def manager(folder: Path) -> ocp.CheckpointManager:
    """What writes to `folder`; close it (or leave its `with`) to wait for the last save. Remains
    of a save that a kill cut short stay unseen until that step is saved again."""
    options = ocp.CheckpointManagerOptions(max_to_keep=KEEP)
    return ocp.CheckpointManager(folder.absolute(), options=options)


def save(manager: ocp.CheckpointManager, step: int, params: Any, rest: Any) -> None:
    """Begin to save under `<folder>/<step>`; it appears there when it is complete."""
    # The next step donates these buffers while the save still reads, so it gets copies.
    params, rest = jax.tree.map(lambda x: np.array(x, copy=True), (params, rest))
    items = {"params": ocp.args.StandardSave(params), "rest": ocp.args.StandardSave(rest)}
    manager.save(step, args=ocp.args.Composite(**items))


def latest(folder: Path) -> int | None:
    """The newest complete checkpoint's step, or None where there is none."""
    return max(ocp.utils.checkpoint_steps(folder.absolute()), default=None)


def restore(checkpoint: Path, item: str, like: Any) -> Any:
    """Read "params" or "rest" of `<folder>/<step>` as a tree of arrays with the structure, shapes
    and dtypes of `like` (arrays or jax.ShapeDtypeStruct). Raises BadCheckpoint."""
    folder = checkpoint.absolute() / item
    if not folder.is_dir():
        raise BadCheckpoint(f"{checkpoint} has no {item}; name a complete checkpoint's folder")
    reader = ocp.StandardCheckpointHandler()
    try:
        difference = _difference(reader.metadata(folder).tree, like)
        if difference:
            raise BadCheckpoint(
                f"{item} in {checkpoint} is of another model: {difference}; use the "
                "configuration that it was trained with"
            )
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        target = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), like
        )
        return reader.restore(folder, args=ocp.args.StandardRestore(target))
    except BadCheckpoint:
        raise
    except Exception as error:  # Orbax and TensorStore raise many kinds for a damaged folder
        raise BadCheckpoint(
            f"{item} in {checkpoint} cannot be read: {str(error)[:300]}; remove it to "
            "continue from an earlier one"
        ) from error
    finally:
        reader.close()


def params_sha256(params: Any) -> str:
    """SHA-256 over each parameter in the order of its path: path, dtype, shape, bytes."""
    digest = sha256()
    for path, x in sorted(_leaves(params).items()):
        array = np.asarray(x)
        digest.update(f"{path} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _difference(stored: Any, like: Any) -> str | None:
    """The first difference of two trees, in words."""
    have = {path: (x.shape, np.dtype(x.dtype).name) for path, x in _leaves(stored).items()}
    want = {path: (x.shape, np.dtype(x.dtype).name) for path, x in _leaves(like).items()}
    for path in sorted(have.keys() | want.keys()):
        if path not in have:
            return f"{path} is missing"
        if path not in want:
            return f"{path} is not expected"
        if have[path] != want[path]:
            return "{} is {} {} and not {} {}".format(path, *have[path], *want[path])
    return None


def _leaves(tree: Any) -> dict[str, Any]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
