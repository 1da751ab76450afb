"""The step that scores trained models: bits per byte on the validation tokens, as `scores.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import safetensors.numpy

from engine.checkpoint import tree_sha256
from engine.config import ModelConfig
from engine.data import TokenStore
from engine.evaluate import bits_per_byte
from engine.model import Decoder


def evaluate(
    config: Mapping[str, Any], inputs: Mapping[str, Path | Mapping[str, Path]], out: Path
) -> None:
    """{label: {bpb, loss, targets, params_sha256}} of each model of the input `models`."""
    models, tokens = inputs["models"], inputs["tokens"]
    assert isinstance(tokens, Path)
    validation = TokenStore.open(tokens / "validation")
    scores = {}
    for label, folder in models.items() if isinstance(models, Mapping) else [("", models)]:
        decoder = Decoder(ModelConfig.model_validate_json((folder / "model.json").read_bytes()))
        params = read_params(folder, decoder)
        figures = bits_per_byte(decoder, params, validation, config["tokens"])._asdict()
        scores[label] = figures | {"params_sha256": tree_sha256(params)}
    (out / "scores.json").write_text(json.dumps(scores, indent=1, sort_keys=True) + "\n")


def read_params(folder: Path, decoder: Decoder) -> Any:
    """The parameters that a `train` step left."""
    arrays = safetensors.numpy.load_file(folder / "params.safetensors")
    like = jax.eval_shape(decoder.init, jax.random.key(0))
    return jax.tree_util.tree_map_with_path(
        lambda path, _: arrays[jax.tree_util.keystr(path, simple=True, separator="/")], like
    )
