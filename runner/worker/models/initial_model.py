"""The model that training starts from, read from the output of another step. It is untrusted,
because own code may have made it: every array is read only in its expected shape and dtype."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from engine.data.sampling import Batches
from engine.data.token_store import Batch
from engine.training.digest import leaves, path_of
from engine.training.optim import Rates
from engine.training.step import Recipe, initial
from runner.lib.own_code_errors import BadOwnCode
from runner.worker.models.params_file import MOMENTS, PARAMS, opened


class Start(NamedTuple):
    """What `engine.training.train.train` takes."""

    params: Any | None  # None: they are drawn
    rest: Any | None  # the moments, and all else of the state


NOTHING = Start(None, None)


def rest_like(recipe: Recipe) -> Any:
    """Structure, shapes and dtypes of the state beside the scored parameters."""
    key = jax.random.key(0)
    return jax.eval_shape(lambda: initial(recipe, recipe.decoder.init(key)).rest)


def read(folder: Path, init: Mapping[str, Any], recipe: Recipe, seed: int) -> Start:
    """The parameters in a folder, and the moments if `init` asks for them. Parameters that the
    folder lacks are drawn by the seed if `init` names them (or, for an own model, names none), and
    their moments are 0. Raises BadOwnCode."""
    like = jax.eval_shape(recipe.decoder.init, jax.random.key(0))
    with opened(folder) as file:
        have = set(file.keys())
        fresh = _fresh(have, set(leaves(like)), init["fresh"])
        params = _read(like, file, have, PARAMS, fresh)
    if fresh:
        drawn = leaves(jax.device_get(jax.jit(recipe.decoder.init)(jax.random.key(seed))))
        params = jax.tree_util.tree_map_with_path(
            lambda path, x: drawn[name] if (name := path_of(path)) in fresh else x, params
        )
        print(f"drawn by the seed, as the input has none: {', '.join(sorted(fresh))}", flush=True)
    if not init["moments"]:
        return Start(params, None)
    rest = rest_like(recipe)
    ending = tuple(f"/{name}" for name in fresh)
    with opened(folder, MOMENTS) as file:
        have = set(file.keys())
        lacking = (
            {name for name in leaves(rest) if name.endswith(ending)} - have if fresh else set()
        )
        found = _read(rest, file, have, MOMENTS, lacking)
    for name in sorted(fresh):
        if "params" in found:  # beside a running average, which starts where they do
            _put(found["params"], name.split("/"), leaves(params)[name])
    return Start(params, found)


def _fresh(have: set[str], need: set[str], named: Sequence[str] | None) -> set[str]:
    """The parameters to draw. Raises BadOwnCode unless they are those that were planned."""
    missing, left = need - have, have - need
    if left:
        raise BadOwnCode(
            f"the model that is continued has {', '.join(sorted(left))}, and this model has not; "
            "make the two models fit"
        )
    if named is not None and missing != set(named):
        raise BadOwnCode(
            f"the model that is continued lacks {', '.join(sorted(missing)) or 'nothing'}, and the "
            f"plan says {', '.join(named) or 'nothing'}; plan again"
        )
    return missing


def _read(like: Any, file: Any, have: set[str], source: str, but: set[str]) -> Any:
    """The arrays of a file in the tree of `like`; zeros for those in `but`. Raises BadOwnCode."""

    def one(path: Any, wanted: jax.ShapeDtypeStruct) -> np.ndarray:
        name = path_of(path)
        if name in but:
            return np.zeros(wanted.shape, wanted.dtype)
        shape = tuple(file.get_slice(name).get_shape()) if name in have else None
        if shape != wanted.shape:
            raise BadOwnCode(
                f"{source} of the model that is continued has {name} as {shape or 'nothing'}, and "
                f"this step needs {wanted.shape}; make model and optimizer the same in both"
            )
        found: np.ndarray = file.get_tensor(name)
        if found.dtype != wanted.dtype:
            raise BadOwnCode(f"{source} has {name} as {found.dtype} and not {wanted.dtype}")
        return found

    return jax.tree_util.tree_map_with_path(one, like)


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


# ── A schedule that continues ────────────────────────────────────────────────────────────────


def later(rates: Callable[[int], Rates], before: int) -> Callable[[int], Rates]:
    """The rates of a run after its first `before` steps."""
    return lambda step: rates(before + step)


class LaterBatches:
    """The batches of a run after its first `before` steps."""

    def __init__(self, batches: Batches, before: int) -> None:
        self._batches, self._before = batches, before
        self.seq_len, self.batch_sizes = batches.seq_len, batches.batch_sizes
        self.packed, self.vocab_size = batches.packed, batches.vocab_size

    def bytes_per_token(self, step: int) -> float:
        """Mean number of bytes of text per token of this step's batch."""
        return self._batches.bytes_per_token(self._before + step)

    def rows(self, step: int, rows: Sequence[int] | np.ndarray) -> Batch:
        """These rows of the batch of `step`."""
        return self._batches.rows(self._before + step, rows)
