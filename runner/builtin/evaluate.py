"""The step that scores trained models: bits per byte on the validation tokens, as `scores.json`.
Each part of a mixture gives an equal share of the tokens, whatever its weight, so that mixtures of
the same parts are scored on the same text; `parts.json` has the parts' own scores. Where models of
the experiment's own run isolated, they are asked for logits and scored here (`apart`)."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import safetensors.numpy

from engine.checkpoint import tree_sha256
from engine.config import ModelConfig
from engine.data import TokenStore
from engine.evaluate import Evaluation, bits_per_byte, together
from engine.model import Decoder, Model
from engine.sampling import apportion
from runner.builtin import apart
from runner.builtin.blame import BadOwnCode, blamed
from runner.builtin.mixtures import parts_of
from runner.builtin.own_model import OWN, Functions, own_model


def evaluate(
    config: Mapping[str, Any],
    inputs: Mapping[str, Path | Mapping[str, Path]],
    out: Path,
    functions: Functions = {},  # noqa: B006  # never changed
    ask: apart.Ask | None = None,
) -> None:
    """{label: {bpb, loss, targets, params_sha256}} of each model of the input `models`."""
    models, tokens = inputs["models"], inputs["tokens"]
    assert isinstance(tokens, Path)
    validation = parts_of(tokens, "validation")
    shares = apportion([1] * len(validation), config["tokens"])
    parts = {
        name: (store, share)
        for (name, (store, _)), share in zip(validation.items(), shares, strict=True)
    }
    scores, by_part = {}, {}
    every = models.items() if isinstance(models, Mapping) else [("", models)]
    # What is asked comes first: children are forked, and JAX has many threads once it is used.
    for label, folder in sorted(every, key=lambda of: not (of[1] / OWN).is_file()):
        if ask and (folder / OWN).is_file():
            scores[label], by_part[label] = _asked(ask, folder, parts, label)
            continue
        model, own = read_model(folder, functions)
        params = read_params(folder, model)
        with blamed(own, f"scoring {label}") if own else nullcontext():
            found = {
                name: bits_per_byte(model, params, store, share)
                for name, (store, share) in parts.items()
            }
        digest = {"params_sha256": tree_sha256(params)}
        scores[label] = _figures(together(list(found.values()))) | digest
        by_part[label] = {name: _figures(part) for name, part in found.items()}
    _write(out / "scores.json", scores)
    if len(validation) > 1:
        _write(out / "parts.json", by_part)


def _asked(
    ask: apart.Ask, folder: Path, parts: Mapping[str, tuple[TokenStore, int]], label: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of a model that none of whose code runs here, and those of the parts."""
    with blamed(f"the model {label}".strip(), "scored"):
        config = json.loads((folder / "model.json").read_bytes())
        shape = {key: int(config[key]) for key in ("seq_len", "vocab_size")}
        params = safetensors.numpy.load_file(folder / "params.safetensors")
        found, examined = apart.scored(ask, folder, shape, parts)
    about = {
        "params_sha256": tree_sha256(params),
        "parameters": sum(x.size for x in params.values()),
        "examined": examined._asdict(),
    }
    by_part = {name: _figures(part) for name, part in found.items()}
    return _figures(together(list(found.values()))) | about, by_part


def _figures(of: Evaluation) -> dict[str, Any]:
    return {"bpb": of.bpb, "loss": of.loss, "targets": of.targets}


def _write(path: Path, scores: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(scores, indent=1, sort_keys=True) + "\n")


def read_model(folder: Path, functions: Functions) -> tuple[Model, str]:
    """The model that a `train` step left, and which of `functions` made it; "" for the lab's."""
    config = json.loads((folder / "model.json").read_bytes())
    if not (folder / OWN).is_file():
        return Decoder(ModelConfig.model_validate(config)), ""
    name = json.loads((folder / OWN).read_bytes())["model"]
    if name not in functions:
        raise BadOwnCode(
            f"{name} made the model in {folder}, and this step was not planned with it; let its "
            "input `models` come from the `train` step"
        )
    return own_model(config, name, functions[name]), name


def read_params(folder: Path, decoder: Model) -> Any:
    """The parameters that a `train` step left."""
    arrays = safetensors.numpy.load_file(folder / "params.safetensors")
    like = jax.eval_shape(decoder.init, jax.random.key(0))
    return jax.tree_util.tree_map_with_path(
        lambda path, _: arrays[jax.tree_util.keystr(path, simple=True, separator="/")], like
    )
