"""Imports a public checkpoint to start training from: a folder that `transformers` wrote for a
Llama, a Qwen3 or a SmolLM3. It is untrusted data: only numbers are read, never pickled code, and
every name, shape and setting is checked, because a model that is read almost correctly trains
almost as well."""

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy's bfloat16, which safetensors then reads)
import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from engine.config.schema import ModelConfig
from engine.data.chat_template import FILE as CHAT_TEMPLATE
from engine.data.chat_template import BadTemplate, with_tokens
from engine.data.tokenize import BadTokenizer, Tokenizer, load_tokenizer
from engine.model.decoder import Params
from engine.training.export import ARCHITECTURES, FIELDS, CannotExchange, tensors

MAX_LAYERS = 4096
MAX_TEMPLATE = 200_000  # characters
MAX_SPECIAL = 200  # characters of a special token's text
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token")  # which templates name
STORED = ("F32", "BF16", "F16")  # dtypes that can be read, by safetensors' names

# Their settings that change the computation and have only one value here.
FIXED = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
    "quantization_config": None,
}
COUNTS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)
# transformers' defaults for fields that a config.json leaves out.
IF_ABSENT: dict[str, dict[str, Any]] = {
    "llama": {"rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
    "qwen3": {
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32768,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "smollm3": {
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32768,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
        "rope_theta": 2_000_000.0,
        "no_rope_layer_interval": 4,
    },
}


def read(folder: Path, seq_len: int | None) -> tuple[ModelConfig, Params]:
    """Read the model in `folder`, for windows of `seq_len` tokens; None means as many as it has
    positions. Returns its configuration and float32 parameters (NumPy) for Decoder(config). Stored
    dtypes may be float32, bfloat16 and float16. Besides the result, memory holds one tensor. Raises
    CannotExchange."""
    config = _model_config(folder / "config.json", seq_len)
    try:
        with ExitStack() as stack:
            found: dict[str, Any] = {}
            for path in _weight_files(folder):
                opened = stack.enter_context(safe_open(path, framework="np"))
                found |= dict.fromkeys(opened.keys(), opened)
            return config, _read_tensors(folder, config, found)
    except (SafetensorError, OSError) as error:
        raise CannotExchange(
            f"the safetensors in {folder} cannot be read: {error}; download them again"
        ) from error


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer in `folder`, with the token that the model ends a document with; None if there
    is no tokenizer.json. Raises CannotExchange."""
    if not (folder / "tokenizer.json").is_file():
        return None
    ending = _json(folder / "config.json").get("eos_token_id")
    if isinstance(ending, list):
        ending = ending[0] if ending else None
    try:
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        if type(ending) is not int or not 0 <= ending < tokenizer.vocab_size:
            return tokenizer
        return Tokenizer(tokenizer.definition, ending)
    except BadTokenizer as error:
        raise CannotExchange(str(error)) from error


def read_chat_template(folder: Path) -> str | None:
    """The chat template in `folder` (Jinja), with the texts of the tokenizer's special tokens; None
    if there is none. Raises CannotExchange."""
    config = folder / "tokenizer_config.json"
    fields = _json(config) if config.is_file() else {}
    template = fields.get("chat_template")
    if isinstance(template, list):  # older folders name several
        named = [one for one in template if isinstance(one, dict) and one.get("name") == "default"]
        template = named[0].get("template") if named else None
    if (path := folder / CHAT_TEMPLATE).is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            template = file.read(MAX_TEMPLATE + 1)
    if not isinstance(template, str):
        return None
    if len(template) > MAX_TEMPLATE:
        raise CannotExchange(
            f"the chat template in {folder} has more than {MAX_TEMPLATE:,} characters; shorten it, "
            "or remove it"
        )
    texts = {}
    for name in SPECIAL:
        of = fields.get(name)
        text = of.get("content") if isinstance(of, dict) else of
        if isinstance(text, str):
            if len(text) > MAX_SPECIAL or re.search("[\ud800-\udfff]", text):
                raise CannotExchange(
                    f"`{name}` in {config} is longer than {MAX_SPECIAL} characters or not Unicode; "
                    "write the token's text, such as </s>"
                )
            texts[name] = text
    try:
        return with_tokens(template, texts)
    except BadTemplate as error:
        raise CannotExchange(f"{folder}: {error}, or remove the template") from error


def _weight_files(folder: Path) -> list[Path]:
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
            raise CannotExchange(
                f"{folder} has pickled weights and no safetensors; a pickle can run code, so it is "
                "not read. Take the model's safetensors, or convert it (save_pretrained of "
                "transformers writes them) where you trust it"
            )
        raise CannotExchange(f"{folder} has no model.safetensors; name a folder with a model")
    where = _json(index).get("weight_map")
    names = sorted(set(map(str, where.values()))) if isinstance(where, dict) else []
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CannotExchange(
                f"{index} names {name!r}, which is not a safetensors file beside it; download the "
                "model again from someone whom you trust"
            )
        if not (folder / name).is_file():
            raise CannotExchange(f"{index} names {name}, which is missing; download it")
    return [folder / name for name in names]


def _read_tensors(folder: Path, config: ModelConfig, found: dict[str, Any]) -> Params:
    _check_names(folder, config, found)
    places = tensors(config)
    for name, place in places.items():
        stored = found[name].get_slice(name)
        shape, dtype = tuple(stored.get_shape()), stored.get_dtype()
        if shape != place.shape:
            raise CannotExchange(
                f"{name} in {folder} has shape {shape} and config.json says {place.shape}; the "
                "files are of different models"
            )
        if dtype not in STORED:
            raise CannotExchange(
                f"{name} in {folder} is stored as {dtype}, and {', '.join(STORED)} are read; take "
                "the model without quantization"
            )
    params: Params = {}
    for name, place in places.items():
        array = found[name].get_tensor(name)
        branch = params
        for key in place.path[:-1]:
            branch = branch.setdefault(key, {})
        array = array.T if place.turned else array
        if place.layer is None:
            # In C order: safetensors would write the bytes of a transposed view as they are.
            branch[place.path[-1]] = np.ascontiguousarray(array, np.float32)
            continue
        if place.path[-1] not in branch:
            branch[place.path[-1]] = np.empty((config.num_layers, *array.shape), np.float32)
        branch[place.path[-1]][place.layer] = array
    return params


def _check_names(folder: Path, config: ModelConfig, found: dict[str, Any]) -> None:
    if config.num_layers > len(found):  # anyone can write this number, so no table is made from it
        raise CannotExchange(
            f"{folder} has {len(found)} tensors and config.json {config.num_layers} layers; "
            "download it again"
        )
    wanted = tensors(config)
    if missing := sorted(wanted.keys() - found.keys()):
        raise CannotExchange(
            f"{folder} lacks {missing[0]} ({len(missing)} tensors are missing in all); download "
            "all of it"
        )
    # Old Llamas also store what follows from rope_theta, and tied models the output matrix.
    extra = {
        x for x in found if not re.fullmatch(r"model\..*rotary_emb\.inv_freq", x)
    } - wanted.keys()
    if config.tie_word_embeddings and "lm_head.weight" in extra:
        embedding = found["model.embed_tokens.weight"].get_tensor("model.embed_tokens.weight")
        head = found["lm_head.weight"].get_tensor("lm_head.weight")
        if not np.array_equal(embedding, head):
            raise CannotExchange(
                f"{folder} says tie_word_embeddings and holds an lm_head.weight that is not the "
                "embedding; set tie_word_embeddings to false in its config.json if that is meant"
            )
        extra.discard("lm_head.weight")
    if extra:
        raise CannotExchange(
            f"{folder} holds {min(extra)} ({len(extra)} such tensors), which the engine's model "
            "has no place for; it is of another kind than its config.json says"
        )


def _model_config(path: Path, seq_len: int | None) -> ModelConfig:
    written = _json(path)
    kind = written.get("model_type")
    if kind not in list(ARCHITECTURES):  # may be any value
        raise CannotExchange(
            f"{path} is of model_type {kind!r}, and llama, qwen3 and smollm3 are read; start from "
            "one of these"
        )
    declared = {**IF_ABSENT[kind], **written}
    for field, value in FIXED.items():
        if declared.get(field, value) not in (value, None):
            raise CannotExchange(
                f"{path} has {field} {declared[field]!r}, and the engine's model has {value!r}; "
                "start from a model without it"
            )
    for field in COUNTS:
        if type(declared.get(field)) is not int:
            raise CannotExchange(f"{path} has no whole number {field}; download it again")
    longest = declared["max_position_embeddings"]
    seq_len = longest if seq_len is None else seq_len
    if seq_len > longest:
        raise CannotExchange(
            f"seq_len {seq_len} is longer than the {longest} positions (max_position_embeddings) "
            f"of {path}; lower seq_len"
        )
    fields = {x: declared[theirs] for x, theirs in FIELDS.items() if theirs in declared}
    try:
        return ModelConfig(
            **{ours: value for ours, value in fields.items() if value is not None},
            seq_len=seq_len,
            qk_norm="learned" if kind == "qwen3" else "none",
            **(_layers(path, declared, seq_len) if kind != "llama" else {}),
            rope_theta=_rope_theta(path, declared),
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "model"
        raise CannotExchange(
            f"{path}: {FIELDS.get(field, field)} {str(first.get('input'))[:80]} cannot be: "
            f"{first['msg']}"
        ) from error


def _rope_theta(path: Path, declared: dict[str, Any]) -> Any:
    rope = declared.get("rope_scaling") or declared.get("rope_parameters") or {}
    plain = isinstance(rope, dict) and not rope.keys() - {"rope_type", "type", "rope_theta"}
    if not plain or rope.get("rope_type", rope.get("type", "default")) != "default":
        raise CannotExchange(
            f"{path} scales its rotary positions ({json.dumps(rope)[:200]}), and the engine's are "
            "plain; start from a model without rope_scaling"
        )
    return rope.get("rope_theta", declared.get("rope_theta", 10_000.0))


def _layers(path: Path, declared: dict[str, Any], seq_len: int) -> dict[str, Any]:
    """Which layers have a window and which have no rotary positions, as keys of a ModelConfig. A
    window that hides nothing is none."""
    n = declared["num_hidden_layers"]
    window, types = declared.get("sliding_window"), declared.get("layer_types")
    first, rotary = declared.get("max_window_layers", 0), declared.get("no_rope_layers")
    if not 0 < n <= MAX_LAYERS:  # refused as a number, or because the tensors are missing
        return {}
    if declared["model_type"] == "qwen3":
        rotary = [1] * n
    elif not rotary:
        every = declared["no_rope_layer_interval"]
        rotary = [int(not every or (number + 1) % every != 0) for number in range(n)]
    if not declared.get("use_sliding_window") or window is None:
        window, types = None, ["full_attention"] * n
    lists = isinstance(types, list | None) and isinstance(rotary, list) and len(rotary) >= n
    if type(window) not in (int, type(None)) or type(first) is not int or not lists:
        raise CannotExchange(f"{path} does not say where its sliding window is; download it again")
    if not types:  # older files leave it out
        slide = [number >= first for number in range(n)]
        if declared["model_type"] == "smollm3":
            slide = [not turns for turns in rotary]
        types = ["sliding_attention" if one else "full_attention" for one in slide]
    if window is None or window >= seq_len:
        window, types = None, ["full_attention"] * n
    known = {("full_attention", True): "full", ("full_attention", False): "nope"}
    known["sliding_attention", True] = "window"
    layers = [(str(of), bool(turns)) for of, turns in zip(types, rotary, strict=False)][:n]
    kinds = tuple(known.get(layer, "") for layer in layers)
    if "" in kinds or len(kinds) < n:
        different = " and ".join(sorted({of for of, _ in layers}))
        raise CannotExchange(
            f"{path} has layers of {different}, of which the engine knows full_attention, and "
            f"sliding_attention with rotary positions, for all {n} layers; start from another "
            "model, or use a seq_len within its window"
        )
    period = next(p for p in range(1, n + 1) if kinds[p:] == kinds[: n - p])
    found = {"sliding_window": window if "window" in kinds else None}
    plain = kinds[:period] in (("full",), ("window",))
    return found if plain else found | {"layer_pattern": kinds[:period]}


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CannotExchange(
            f"{path} cannot be read: {error}; name a folder with a model"
        ) from error
    if not isinstance(value, dict):
        raise CannotExchange(f"{path} is not a JSON object; download it again")
    return value
