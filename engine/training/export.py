"""Exports a model for other tools: a folder with `config.json`, `safetensors` files and a
tokenizer, in the layout of Hugging Face's `transformers`. With QK-norm a model is a Qwen3; without
it a Llama, or a SmolLM3 if some layers have a window or no rotary positions. CannotExchange says
what none of them can hold. The table `tensors` maps their tensors to ours; `pretrained` uses it in
the other direction."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from engine.config.schema import ModelConfig
from engine.data.chat_template import FILE as CHAT_TEMPLATE
from engine.data.tokenize import Tokenizer
from engine.model.decoder import Decoder, Params
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
# This class loads a tokenizer.json unchanged; Llama's own class would replace it.
TOKENIZER = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
# Parts of a block that none of them has.
PARTS = ("gated_norm", "attention_gate", "exclusive_attention", "short_convolution")


class CannotExchange(Exception):
    """A model cannot be written or read in this format; the message says why and what to do."""


class Place(NamedTuple):
    """Where one of their tensors is in our tree."""

    path: tuple[str, ...]  # in the tree of parameters
    layer: int | None  # its index in a stack of layers
    shape: tuple[int, ...]  # theirs
    turned: bool  # a matrix is (out, in) there and (in, out) here


def tensors(config: ModelConfig) -> dict[str, Place]:
    """All tensors of `config` by their names in Llama and Qwen3, in the order of computation."""
    D, F, V, h = config.hidden_dim, config.intermediate_dim, config.vocab_size, config.head_dim
    queries, keys = config.num_heads * h, config.num_kv_heads * h
    block: dict[str, tuple[tuple[str, str], tuple[int, ...]]] = {
        "input_layernorm": (("attention_norm", "gain"), (D,)),
        "self_attn.q_proj": (("attention", "q_proj"), (queries, D)),
        "self_attn.k_proj": (("attention", "k_proj"), (keys, D)),
        "self_attn.v_proj": (("attention", "v_proj"), (keys, D)),
        "self_attn.q_norm": (("attention", "q_norm"), (h,)),
        "self_attn.k_norm": (("attention", "k_norm"), (h,)),
        "self_attn.o_proj": (("attention", "o_proj"), (D, queries)),
        "post_attention_layernorm": (("mlp_norm", "gain"), (D,)),
        "mlp.gate_proj": (("mlp", "gate_proj"), (F, D)),
        "mlp.up_proj": (("mlp", "up_proj"), (F, D)),
        "mlp.down_proj": (("mlp", "down_proj"), (D, F)),
    }
    if config.qk_norm != "learned":
        del block["self_attn.q_norm"], block["self_attn.k_norm"]
    found = {"model.embed_tokens.weight": Place(("embedding",), None, (V, D), turned=False)}
    for layer in range(config.num_layers):
        for name, (path, shape) in block.items():
            place = Place(("blocks", *path), layer, shape, turned=len(shape) == 2)
            found[f"model.layers.{layer}.{name}.weight"] = place
    found["model.norm.weight"] = Place(("final_norm", "gain"), None, (D,), turned=False)
    if not config.tie_word_embeddings:
        found["lm_head.weight"] = Place(("lm_head",), None, (V, D), turned=True)
    return found


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
    config = _holdable(decoder)
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
    if config.qk_norm == "rms":
        config, params = _with_gains(config, params)
    folder.mkdir(parents=True, exist_ok=True)
    _write_tensors(folder, config, params, DTYPES[dtype], shard_bytes)
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
    _write_json(folder / "config.json", _config_json(config, dtype, ending))


def _special(tokenizer: Tokenizer) -> dict[str, str]:
    ending = tokenizer.end_of_document
    return {} if ending is None else {"eos_token": tokenizer.decode([ending])}


def _holdable(decoder: Any) -> ModelConfig:
    """The decoder's configuration. Raises CannotExchange unless one of ARCHITECTURES holds it."""
    other = (
        "neither Llama nor Qwen3 nor SmolLM3 has that; keep Orbax checkpoints and load them with "
        "Regatta"
    )
    if type(decoder) is not Decoder:
        raise CannotExchange(f"the model is a {type(decoder).__name__} of its own, and {other}")
    for part in fields(Decoder):
        if part.name not in ("config", "compute") and getattr(decoder, part.name) != part.default:
            name = getattr(getattr(decoder, part.name), "__name__", "another one")
            raise CannotExchange(f"the decoder's {part.name} is {name}, and {other}")
    config: ModelConfig = decoder.config
    if config.moe is not None:
        raise CannotExchange(
            f"the model has {config.moe.num_experts} experts, weighed by sigmoids and chosen with "
            f"a bias, and {other}"
        )
    if config.logit_soft_cap is not None:
        raise CannotExchange(
            f"logit_soft_cap is {config.logit_soft_cap}, and neither Llama nor Qwen3 caps its "
            "logits; train without logit_soft_cap (z_loss_weight also keeps logits small)"
        )
    for key in PARTS:
        if value := getattr(config, key):
            raise CannotExchange(f"the model has {key}: {str(value).lower()}, and {other}")
    if config.rope_fraction != 1:
        raise CannotExchange(
            f"rope_fraction is {config.rope_fraction:g}, a part of each head, and {other}"
        )
    if "linear" in config.kinds:
        raise CannotExchange(f"the model has linear layers, and {other}")
    if "nope" in config.kinds and config.qk_norm != "none":
        raise CannotExchange(
            f"the model has nope layers and qk_norm: {config.qk_norm}, and SmolLM3 has the one and "
            "Qwen3 the other; train with qk_norm: none, or with full layers"
        )
    if architecture(config) == "llama" and config.hidden_dim % config.num_heads:
        raise CannotExchange(
            f"num_heads {config.num_heads} does not divide hidden_dim {config.hidden_dim}, which "
            "transformers refuses for Llama and not for Qwen3; train with qk_norm: learned, or "
            "with heads that divide hidden_dim"
        )
    return config


def architecture(config: ModelConfig) -> str:
    """Which of ARCHITECTURES the model is."""
    if config.qk_norm != "none":
        return "qwen3"
    hides = config.sliding_window is not None and config.sliding_window < config.seq_len
    plain = set(config.kinds) <= ({"full"} if hides else {"full", "window"})
    return "llama" if plain else "smollm3"


def _with_gains(config: ModelConfig, params: Params) -> tuple[ModelConfig, Params]:
    """QK-norm without weights, written as the learned one with all weights 1."""
    ones_Lh = np.ones((config.num_layers, config.head_dim), np.float32)
    attention = {**params["blocks"]["attention"], "q_norm": ones_Lh, "k_norm": ones_Lh}
    blocks = {**params["blocks"], "attention": attention}
    return config.model_copy(update={"qk_norm": "learned"}), {**params, "blocks": blocks}


def _write_tensors(
    folder: Path, config: ModelConfig, params: Params, dtype: np.dtype, shard_bytes: int
) -> None:
    places = tensors(config)
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
    array = np.asarray(x if place.layer is None else x[place.layer])
    return np.ascontiguousarray(array.T if place.turned else array, dtype)


def _config_json(config: ModelConfig, dtype: str, ending: int | None) -> dict[str, Any]:
    kind = architecture(config)
    declared = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
        "dtype": dtype,
        **{theirs: getattr(config, ours) for ours, theirs in FIELDS.items()},
        "max_position_embeddings": config.seq_len,
        "hidden_act": "silu",
        "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rope_theta": config.rope_theta,  # where transformers 4 looks
        # Without these two, Llama's defaults would be 1 and 2.
        "bos_token_id": None,
        "eos_token_id": ending,  # where generation stops
        "pad_token_id": None,
    }
    if config.sliding_window is not None and kind != "llama":
        # As here, a position sees itself and the sliding_window − 1 before it.
        declared |= {"use_sliding_window": True, "sliding_window": config.sliding_window}
        declared |= {"max_window_layers": 0} if kind == "qwen3" else {}
        declared["layer_types"] = [
            "sliding_attention" if of == "window" else "full_attention" for of in config.kinds
        ]
    if kind == "smollm3":
        declared["no_rope_layers"] = [int(of != "nope") for of in config.kinds]  # 1: it has them
    return declared


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
