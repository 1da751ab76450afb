"""Exports a model for other tools: a folder with `config.json`, `safetensors` files and a
tokenizer, in the layout of Hugging Face's `transformers`, as the architecture that has the model's
parts (`architectures`)."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import jax
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from engine.config.schema import ModelConfig
from engine.data.chat_template import FILE as CHAT_TEMPLATE
from engine.data.tokenize import Tokenizer
from engine.model.decoder import Decoder, Params
from engine.training.architectures import (
    ARCHITECTURES,
    CannotExchange,
    Place,
    architecture,
    exportable,
    hides,
    parts,
    tensors,
)
from engine.training.checkpoint import difference

SHARD_BYTES = 5_000_000_000  # a larger model is written as several files
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}

# Our fields and theirs with the same meaning.
FIELDS = {
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "tie_word_embeddings": "tie_word_embeddings",
    "norm_epsilon": "rms_norm_eps",
}
ROPE_FIELDS = {
    "factor": "factor",
    "original_seq_len": "original_max_position_embeddings",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
}
# This class loads a tokenizer.json unchanged; Llama's own class would replace it.
TOKENIZER = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}


def export(
    folder: Path,
    decoder: Any,
    params: Params,
    tokenizer: Tokenizer | None = None,
    *,
    chat_template: str | None = None,
    end_of_turn: str | None = None,
    dtype: Literal["float32", "bfloat16"] = "float32",
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write the model to the new or empty `folder`, so that transformers' AutoModelForCausalLM
    loads it: exactly in float32, rounded in bfloat16. AutoTokenizer loads `tokenizer`, with its
    `chat_template` (Jinja). Generation ends at `end_of_turn` if that is one token. Host memory
    holds one file, of about `shard_bytes`, at a time. This process must be able to address all of
    `params`. Raises CannotExchange."""
    config = _config_of(decoder)
    if problem := difference(params, jax.eval_shape(decoder.init, jax.random.key(0))):
        raise CannotExchange(
            f"these are parameters of another model: {problem}; export with the configuration "
            "that they were trained with"
        )
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise CannotExchange(
            f"the tokenizer has {tokenizer.vocab_size} tokens and the model a vocab_size of "
            f"{config.vocab_size}; export with the tokenizer that it was trained with"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CannotExchange(f"{folder} is not an empty folder; name a new one to export to")
    kind = architecture(parts(config, params))
    config, params = exportable(config, params)
    folder.mkdir(parents=True, exist_ok=True)
    _write_tensors(folder, tensors(config, kind), params, DTYPES[dtype], shard_bytes)
    if tokenizer is not None:
        tokenizer.save(folder / "tokenizer.json")
        _write_json(folder / "tokenizer_config.json", TOKENIZER | _special(tokenizer))
    if chat_template is not None:
        (folder / CHAT_TEMPLATE).write_text(chat_template, encoding="utf-8")
    ending = tokenizer.end_of_document if tokenizer else None
    turn = tokenizer.as_token(end_of_turn) if tokenizer and end_of_turn else None
    ends = list(dict.fromkeys(one for one in (turn, ending) if one is not None))
    eos = ends if len(ends) > 1 else next(iter(ends), None)
    _write_json(folder / "generation_config.json", {"eos_token_id": eos})
    # Last: a folder without it is not taken for a model.
    _write_json(folder / "config.json", _config_json(config, kind, dtype, ending))


def _special(tokenizer: Tokenizer) -> dict[str, str]:
    ending = tokenizer.end_of_document
    return {} if ending is None else {"eos_token": tokenizer.decode([ending])}


def _config_of(decoder: Any) -> ModelConfig:
    """The decoder's configuration. Raises CannotExchange if it has code of its own."""
    other = "which no architecture of transformers has; keep Orbax checkpoints"
    if type(decoder) is not Decoder:
        raise CannotExchange(f"the model is a {type(decoder).__name__} of its own, {other}")
    for part in fields(Decoder):
        if part.name not in ("config", "compute") and getattr(decoder, part.name) != part.default:
            name = getattr(getattr(decoder, part.name), "__name__", "another one")
            raise CannotExchange(f"the decoder's {part.name} is {name}, {other}")
    config: ModelConfig = decoder.config
    return config


def _write_tensors(
    folder: Path, places: dict[str, Place], params: Params, dtype: np.dtype, shard_bytes: int
) -> None:
    shards: list[list[str]] = [[]]
    total = room = 0
    for name, place in places.items():
        size = int(np.prod(place.shape)) * dtype.itemsize
        if shards[-1] and size > room:
            shards.append([])
        room = (room if shards[-1] else shard_bytes) - size
        shards[-1].append(name)
        total += size
    files = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    if len(shards) == 1:
        files = ["model.safetensors"]
    for file, names in zip(files, shards, strict=True):
        arrays = {name: _taken(params, places[name], dtype) for name in names}
        save_file(arrays, folder / file, metadata={"format": "pt"})  # transformers needs this
    if len(shards) > 1:
        where = {name: file for file, names in zip(files, shards, strict=True) for name in names}
        index = {"metadata": {"total_size": total}, "weight_map": where}
        _write_json(folder / "model.safetensors.index.json", index)


def _taken(params: Params, place: Place, dtype: np.dtype) -> np.ndarray:
    x: Any = params
    for key in place.path:
        x = x[key]
    array = np.asarray(x[place.at] if place.at else x)
    return np.ascontiguousarray(array.T if place.turned else array, dtype)


def _config_json(config: ModelConfig, kind: str, dtype: str, ending: int | None) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default"}
    if scaling := config.rope_scaling:
        rope = {"rope_type": "llama3"} | {
            theirs: getattr(scaling, ours) for ours, theirs in ROPE_FIELDS.items()
        }
    declared = {
        "architectures": [ARCHITECTURES[kind].name],
        "model_type": kind,
        "dtype": dtype,
        **{theirs: getattr(config, ours) for ours, theirs in FIELDS.items()},
        "max_position_embeddings": config.seq_len,
        "hidden_act": "silu",
        "attention_bias": config.attention_bias != "none",
        "rope_parameters": rope | {"rope_theta": config.rope_theta},
        # Where transformers 4 and others look.
        "rope_theta": config.rope_theta,
        **({"rope_scaling": rope} if scaling else {}),
        # Without these two, Llama's defaults would be 1 and 2.
        "bos_token_id": None,
        "eos_token_id": ending,  # where generation stops
        "pad_token_id": None,
        "sliding_window": config.sliding_window if hides(config) else None,
    }
    if kind == "qwen2":
        del declared["attention_bias"]  # it always has them
    if hides(config) and kind not in ("mistral", "mixtral"):
        # As here, a position sees itself and the sliding_window − 1 before it.
        declared |= {"use_sliding_window": True, "max_window_layers": 0}
    if kind in ("qwen2", "qwen3", "smollm3"):
        slides = hides(config)
        declared["layer_types"] = [
            "sliding_attention" if of == "window" and slides else "full_attention"
            for of in config.kinds
        ]
    if kind == "smollm3":
        declared["no_rope_layers"] = [int(of != "nope") for of in config.kinds]  # 1: it has them
    if moe := config.moe:
        declared |= {
            "num_local_experts" if kind == "mixtral" else "num_experts": moe.num_experts,
            "num_experts_per_tok": moe.top_k,
            "intermediate_size": moe.expert_dim,
            "moe_intermediate_size": moe.expert_dim,
            "norm_topk_prob": moe.top_k > 1,
        }
    return declared


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
