"""Checkpoints: one folder per step, written by Orbax in the background and visible only when
complete. The parameters that are scored (their average if one is kept) are an item of their own, so
that a checkpoint can be scored without the optimizer; `rest` is the remaining state. A checkpoint
does not depend on its mesh: it can be restored onto any other.

For a digest of the parameters use `engine.training.digest`: two copies of the same parameters can
differ as files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from engine.training.digest import leaves, tree_sha256


class BadCheckpoint(Exception):
    """A checkpoint cannot be read, or belongs to another model; the message says which and why."""


def whole(folder: Path) -> Path:
    """The folder from the root of its disk. One in a bucket (`etils.epath.Path("gs://…")`, which
    has the methods of a Path) stays as it is."""
    return folder if str(folder).startswith("gs://") else folder.absolute()


def manager(
    folder: Path, keep: int = 2, keep_every: Iterable[int | None] = ()
) -> ocp.CheckpointManager:
    """The writer for `folder`. Close it (or leave its `with`) to wait for the last save. It keeps
    the newest `keep` checkpoints and those at multiples of each number in `keep_every`. The remains
    of an interrupted save stay invisible until that step is saved again."""
    kept = [policies.EveryNSteps(interval_steps=every) for every in keep_every if every]
    options = ocp.CheckpointManagerOptions(
        preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(n=keep), *kept])
    )
    return ocp.CheckpointManager(whole(folder), options=options)


def save(manager: ocp.CheckpointManager, step: int, params: Any, rest: Any) -> None:
    """Start to save under `<folder>/<step>`; the folder appears when it is complete."""
    if any(isinstance(x, jax.Array) and _on_cpu(x) for x in jax.tree.leaves(params)):
        # Orbax reads a CPU's buffers in place while the next step, which owns them (donation),
        # overwrites them. From other devices it copies before it returns.
        params, rest = jax.tree.map(jnp.copy, (params, rest))
    items = {"params": ocp.args.StandardSave(params), "rest": ocp.args.StandardSave(rest)}
    manager.save(step, args=ocp.args.Composite(**items))


def latest(folder: Path) -> int | None:
    """The step of the newest complete checkpoint, or None if there is none."""
    return max(ocp.utils.checkpoint_steps(whole(folder)), default=None)


def of_step(step: int, folders: Iterable[Path]) -> Path:
    """The complete checkpoint of a step in the first of these folders that has one. Raises
    BadCheckpoint if none has."""
    for folder in folders:
        if step in ocp.utils.checkpoint_steps(whole(folder)):
            return folder / str(step)
    raise BadCheckpoint(f"the checkpoint of step {step} is gone; train again from the beginning")


def restore(checkpoint: Path, item: str, like: Any = None, shardings: Any = None) -> Any:
    """Read "params" or "rest" of `<folder>/<step>` as a tree of arrays with the structure, shapes
    and dtypes of `like` (arrays or jax.ShapeDtypeStruct; by default those that were saved), placed
    by `shardings` (a tree like it) or on the first device. Raises BadCheckpoint."""
    folder = whole(checkpoint) / item
    if not folder.is_dir():
        raise BadCheckpoint(f"{checkpoint} has no {item}; name a complete checkpoint's folder")
    reader = ocp.StandardCheckpointHandler()
    try:
        stored = reader.metadata(folder).tree
        like = stored if like is None else like
        if problem := difference(stored, like):
            raise BadCheckpoint(
                f"{item} in {checkpoint} is of another model: {problem}; use the "
                "configuration that it was trained with"
            )
        if shardings is None:
            here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            shardings = jax.tree.map(lambda _: here, like)
        target = jax.tree.map(
            lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
            like,
            shardings,
        )
        return reader.restore(folder, args=ocp.args.StandardRestore(target))
    except BadCheckpoint:
        raise
    except jax.errors.JaxRuntimeError:
        raise  # an error of the device, such as out of memory
    except Exception as error:  # Orbax and TensorStore raise many types for a damaged folder
        raise BadCheckpoint(
            f"{item} in {checkpoint} cannot be read: {str(error)[:300]}; remove it to "
            "continue from an earlier one"
        ) from error
    finally:
        reader.close()


def params_sha256(checkpoint: Path) -> str:
    """`tree_sha256` of the parameters in `<folder>/<step>`, of any model. Raises BadCheckpoint."""
    return tree_sha256(restore(checkpoint, "params"))


def difference(stored: Any, like: Any) -> str | None:
    """The first difference between the names, shapes and dtypes of two trees, as text."""
    have = {path: (x.shape, np.dtype(x.dtype).name) for path, x in leaves(stored).items()}
    want = {path: (x.shape, np.dtype(x.dtype).name) for path, x in leaves(like).items()}
    for path in sorted(have.keys() | want.keys()):
        if path not in have:
            return f"{path} is missing"
        if path not in want:
            return f"{path} is not expected"
        if have[path] != want[path]:
            return "{} is {} {} and not {} {}".format(path, *have[path], *want[path])
    return None


def _on_cpu(x: jax.Array) -> bool:
    return any(device.platform == "cpu" for device in x.devices())
