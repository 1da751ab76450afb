"""Own models, for training and scoring. `runner.worker.models.plugins` says how to write them.
They are checked on shapes before anything is computed."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from engine.model.decoder import Decoder, Model
from engine.model.mesh import SHARDINGS
from engine.model.plain import PlainConfig, PlainModel
from runner.lib.own_code_errors import BadOwnCode, blamed

OWN = "own.json"  # beside the parameters: which function made the model

Functions = Mapping[str, Callable[..., Any]]  # {module:function: callable}


def own_model(config: Mapping[str, Any], name: str, function: Callable[..., Any]) -> Model:
    """The model that the function `name` makes of a configuration. Raises BadOwnCode."""
    with blamed(name):
        made = function(dict(config))
    shape = PlainConfig(config["vocab_size"], config["seq_len"])
    if isinstance(made, Decoder):
        if (made.config.vocab_size, made.config.seq_len) != shape[:2]:
            raise BadOwnCode(
                f"{name} gives a Decoder with vocab_size {made.config.vocab_size} and seq_len "
                f"{made.config.seq_len}, and `model:` says {shape.vocab_size} and {shape.seq_len}"
            )
        return made
    if missing := [key for key in ("init", "logits") if not callable(getattr(made, key, None))]:
        raise BadOwnCode(
            f"{name} gives a {type(made).__name__} without {' and '.join(missing)}; a model is an "
            "object with `init(key)` and `logits(params, tokens)`"
        )
    return PlainModel(made.init, made.logits, shape, getattr(made, "roles", None))


def check_model(name: str, model: Model, batch_size: int, seq_len: int) -> None:
    """Check the model `name` on shapes alone. Raises BadOwnCode."""
    raw = (
        (model.draw, model.answer) if isinstance(model, PlainModel) else (model.init, model.logits)
    )
    with blamed(name, "init"):
        params = jax.eval_shape(raw[0], jax.random.key(0))
        leaves = jax.tree_util.tree_leaves_with_path(params)
    for path, x in leaves:
        keys = [getattr(part, "key", None) for part in path]
        where = jax.tree_util.keystr(path, simple=True, separator="/")
        if not keys or not all(isinstance(key, str) and key and "/" not in key for key in keys):
            raise BadOwnCode(
                f"{name}, init: the parameter {where or '(all)'} does not lie in nested "
                'dictionaries with names as keys; make them {"layer0": {"w": …}, …}'
            )
        if x.dtype != jnp.float32:
            raise BadOwnCode(
                f"{name}, init: the parameter {where} is {x.dtype}; make it float32, and cast "
                "where you multiply"
            )
    if not leaves:
        raise BadOwnCode(f"{name}, init: there are no parameters")
    with blamed(name, "logits"):
        found = jax.eval_shape(
            raw[1], params, jax.ShapeDtypeStruct((batch_size, seq_len), jnp.int32)
        )
    wanted = (batch_size, seq_len, model.config.vocab_size)
    as_wanted(f"{name}, logits: for tokens {(batch_size, seq_len)}", found, wanted)
    with blamed(name, "roles"):
        roles = model.roles()
        apart = str(jax.tree.structure(roles)) != str(jax.tree.structure(params))
    if apart:
        raise BadOwnCode(f"{name}, roles: they are not in the tree that `init` gives")
    if unknown := {str(role) for role in jax.tree.leaves(roles)} - SHARDINGS.keys():
        raise BadOwnCode(
            f"{name}, roles: there is no role {', '.join(sorted(unknown))}; there are "
            f"{', '.join(SHARDINGS)}"
        )


def as_wanted(where: str, found: Any, wanted: tuple[int, ...]) -> None:
    """Raises BadOwnCode unless `found` is an array of floats of this shape."""
    shape, dtype = getattr(found, "shape", None), getattr(found, "dtype", None)
    if shape is None or dtype is None:
        raise BadOwnCode(f"{where} it gives a {type(found).__name__}; make it an array {wanted}")
    if shape != wanted or not jnp.issubdtype(dtype, jnp.floating):
        raise BadOwnCode(f"{where} it gives {dtype} {shape}; make it float32 {wanted}")
