"""What a `train` step leaves of its model, read as a claim: who wrote it may have run code of the
experiment's own. A file is read as far as it can be long, and an array only in the shape that is
expected of it."""

from collections.abc import Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from engine.config.schema import ModelConfig
from engine.model.decoder import Decoder, Model
from engine.training.checkpoint import array_bytes
from runner.lib import bounds, untrusted_files
from runner.schema.own_model import OwnModel
from runner.worker.builtin.own_code_errors import BadOwnCode
from runner.worker.builtin.plugin_model import OWN, Functions, own_model

PARAMS, MODEL = "params.safetensors", "model.json"
MAX_CONFIG = 1 << 20  # bytes of model.json and own.json
MAX_HEADER = 8 << 20  # bytes of names, shapes and places before the arrays
NOT_PLANNED = (
    "{} made the model, and this step was not planned with it; let its input `models` come from "
    "the `train` step"
)


class Planned(NamedTuple):
    """The model that a step is to find in a folder."""

    config: Mapping[str, Any]  # what `model:` says
    own: str  # module:function that makes it; empty for the lab's Decoder


def planned(folder: Path) -> Planned:
    """The model in a folder as its files say. Only for a folder of which no plan says it: what own
    code made of trained models. Raises BadOwnCode."""
    config = _json(folder / MODEL)
    own = _json(folder / OWN).get("model", "") if (folder / OWN).is_file() else ""
    schema = OwnModel if own else ModelConfig
    try:
        schema.model_validate(config)
    except ValidationError as error:
        words = "; ".join(f"{of['loc']}: {of['msg']}" for of in error.errors()[:3])
        raise BadOwnCode(f"{MODEL} in {folder} describes no model ({words})") from error
    return Planned(config, str(own))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = bounds.plain(untrusted_files.read(path, MAX_CONFIG) or b"null")
    except (untrusted_files.Refused, ValueError) as error:
        raise BadOwnCode(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise BadOwnCode(f"{path} holds no JSON object")
    return found


def model_of(this: Planned, functions: Functions) -> Model:
    """The model itself, by one of `functions` if it is an own one. Raises BadOwnCode."""
    if not this.own:
        return Decoder(ModelConfig.model_validate(this.config))
    if this.own not in functions:
        raise BadOwnCode(NOT_PLANNED.format(this.own))
    return own_model(this.config, this.own, functions[this.own])


def path_of(path: Any) -> str:
    """The name in the file of a parameter in nested dictionaries."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def params_of(folder: Path, model: Model) -> Any:
    """Its parameters, which have the names, shapes and dtypes of the model's. Raises BadOwnCode."""
    like = jax.eval_shape(model.init, jax.random.key(0))
    with _opened(folder) as file:
        names = set(file.keys())

        def read(path: Any, wanted: jax.ShapeDtypeStruct) -> np.ndarray:
            name = path_of(path)
            shape = tuple(file.get_slice(name).get_shape()) if name in names else None
            if shape != wanted.shape:
                raise BadOwnCode(
                    f"{PARAMS} has {name} as {shape or 'nothing'}, and the model's is "
                    f"{wanted.shape}; train it with the model that is scored"
                )
            return _float32(name, file)

        return jax.tree_util.tree_map_with_path(read, like)


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    """All arrays of a model that is not known here, by name. Raises BadOwnCode."""
    with _opened(folder) as file:
        return {name: _float32(name, file) for name in sorted(file.keys())}


def measured(folder: Path) -> tuple[str, int]:
    """(SHA-256, number) of the parameters in a folder, of which one array at a time is in memory.
    The digest is `engine.training.checkpoint.tree_sha256` of all. Raises BadOwnCode."""
    digest, size = sha256(), 0
    with _opened(folder) as file:
        for name in sorted(file.keys()):
            array = _float32(name, file)
            size += array.size
            for part in array_bytes(name, array):
                digest.update(part)
    return digest.hexdigest(), size


def _float32(name: str, file: Any) -> np.ndarray:
    found: np.ndarray = file.get_tensor(name)
    if found.dtype != np.float32:
        raise BadOwnCode(f"{PARAMS} has {name} as {found.dtype}; parameters are float32")
    return found


@contextmanager
def _opened(folder: Path) -> Any:
    """The file of parameters, of which only names and shapes are read as yet."""
    path = folder / PARAMS
    try:
        with untrusted_files.refusing(path), untrusted_files.open_regular(path) as raw:
            header = int.from_bytes(raw.read(8), "little")
        if header > MAX_HEADER:
            raise BadOwnCode(
                f"{PARAMS}: its header has {header:,} bytes, and {MAX_HEADER:,} at most"
            )
        with safe_open(path, framework="numpy") as file:
            yield file
    except (untrusted_files.Refused, SafetensorError, OSError) as error:
        raise BadOwnCode(f"{PARAMS} cannot be read: {error}") from error
