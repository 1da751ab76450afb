"""Imports a public checkpoint to start training from: a folder that `transformers` wrote for a
model whose parts the engine's has, too. It is untrusted data: only numbers are read, never pickled
code, and every name, shape and setting is checked, because a model that is read almost correctly
trains almost as well."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy's bfloat16, which safetensors then reads)
import numpy as np
from safetensors import SafetensorError, safe_open

from engine.config.schema import ModelConfig
from engine.data.chat_template import FILE as CHAT_TEMPLATE
from engine.data.chat_template import BadTemplate, with_tokens
from engine.data.tokenize import BadTokenizer, Tokenizer, load_tokenizer
from engine.model.decoder import Params
from engine.training.architectures import CannotExchange, states, tensors
from engine.training.pretrained_config import json_of, model_config

MAX_TEMPLATE = 200_000  # characters
MAX_SPECIAL = 200  # characters of a special token's text
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token")  # which templates name
STORED = ("F32", "BF16", "F16")  # dtypes that can be read, by safetensors' names


def read(folder: Path, seq_len: int | None) -> tuple[ModelConfig, Params]:
    """Read the model in `folder`, for windows of `seq_len` tokens; None means as many as it has
    positions. Returns its configuration and float32 parameters (NumPy) for Decoder(config). Stored
    dtypes may be float32, bfloat16 and float16. Besides the result, memory holds one tensor. Raises
    CannotExchange."""
    written = folder / "config.json"
    kind = str(json_of(written).get("model_type"))
    try:
        with ExitStack() as stack:
            found: dict[str, Any] = {}
            for path in _weight_files(folder):
                opened = stack.enter_context(safe_open(path, framework="np"))
                found |= dict.fromkeys(opened.keys(), opened)
            shapes = {x: tuple(of.get_slice(x).get_shape()) for x, of in found.items()}
            config = model_config(written, seq_len, shapes)
            return config, _read_tensors(folder, config, kind, found)
    except (SafetensorError, OSError) as error:
        raise CannotExchange(
            f"the safetensors in {folder} cannot be read: {error}; download them again"
        ) from error


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer in `folder`, with the token that the model ends a document with; None if there
    is no tokenizer.json. Raises CannotExchange."""
    if not (folder / "tokenizer.json").is_file():
        return None
    ending = json_of(folder / "config.json").get("eos_token_id")
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
    fields = json_of(config) if config.is_file() else {}
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
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        if index.is_file() and whole.name not in index.read_text(encoding="utf-8"):
            raise CannotExchange(
                f"{folder} has both {whole.name} and an index of other files, and tools read "
                "different ones; remove the one that is not meant"
            )
        return [whole]
    if not index.is_file():
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
            raise CannotExchange(
                f"{folder} has pickled weights and no safetensors; a pickle can run code, so it is "
                "not read. Take the model's safetensors, or convert it (save_pretrained of "
                "transformers writes them) where you trust it"
            )
        raise CannotExchange(f"{folder} has no model.safetensors; name a folder with a model")
    where = json_of(index).get("weight_map")
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


def _read_tensors(folder: Path, config: ModelConfig, kind: str, found: dict[str, Any]) -> Params:
    _check_names(folder, config, kind, found)
    places = tensors(config, kind)
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
        if not place.at:
            # In C order: safetensors would write the bytes of a transposed view as they are.
            branch[place.path[-1]] = np.ascontiguousarray(array, np.float32)
            continue
        if place.path[-1] not in branch:
            experts = (config.moe.num_experts,) if config.moe and len(place.at) > 1 else ()
            stacked = (config.num_layers, *experts, *array.shape)
            branch[place.path[-1]] = np.empty(stacked, np.float32)
        branch[place.path[-1]][place.at] = array
    if config.moe:
        params["blocks"]["mlp"] |= states(config)
    return params


def _check_names(folder: Path, config: ModelConfig, kind: str, found: dict[str, Any]) -> None:
    if config.num_layers > len(found):  # anyone can write this number, so no table is made from it
        raise CannotExchange(
            f"{folder} has {len(found)} tensors and config.json {config.num_layers} layers; "
            "download it again"
        )
    wanted = tensors(config, kind)
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
