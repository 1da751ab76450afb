"""Reads what a `train` step wrote about its model. It is untrusted, because own code may have
written it: a file is read up to a maximum length, and an array only in its expected shape
(`runner.worker.models.params_file`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from pydantic import ValidationError

from engine.config.schema import ModelConfig
from engine.model.decoder import Decoder, Model
from engine.training.digest import path_of
from runner.lib import bounds, untrusted_files
from runner.lib.own_code_errors import BadOwnCode
from runner.schema.own_model import OwnModel
from runner.worker.models.params_file import PARAMS, float32, opened
from runner.worker.models.plugin_model import OWN, Functions, own_model

MODEL = "model.json"
MAX_CONFIG = 1 << 20  # bytes of model.json and own.json
NOT_PLANNED = (
    "{} made the model, and this step was not planned with it; let its input `models` come from "
    "the `train` step"
)


class Planned(NamedTuple):
    """The model that a step should find in a folder."""

    config: Mapping[str, Any]  # the declared `model:`
    own: str  # module:function that makes it; empty for the lab's Decoder


def planned(folder: Path) -> Planned:
    """The model in a folder as its files describe it. Only for folders that no plan describes:
    those that own code made from trained models. Raises BadOwnCode."""
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
    """The model, made by one of `functions` if it is an own one. Raises BadOwnCode."""
    if not this.own:
        return Decoder(ModelConfig.model_validate(this.config))
    if this.own not in functions:
        raise BadOwnCode(NOT_PLANNED.format(this.own))
    return own_model(this.config, this.own, functions[this.own])


def params_of(folder: Path, model: Model) -> Any:
    """Its parameters, checked against the names, shapes and dtypes of the model. Raises
    BadOwnCode."""
    like = jax.eval_shape(model.init, jax.random.key(0))
    with opened(folder) as file:
        names = set(file.keys())

        def read(path: Any, wanted: jax.ShapeDtypeStruct) -> np.ndarray:
            name = path_of(path)
            shape = tuple(file.get_slice(name).get_shape()) if name in names else None
            if shape != wanted.shape:
                raise BadOwnCode(
                    f"{PARAMS} has {name} as {shape or 'nothing'}, and the model's is "
                    f"{wanted.shape}; train it with the model that is scored"
                )
            return float32(name, file)

        return jax.tree_util.tree_map_with_path(read, like)
