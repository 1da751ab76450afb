"""Reads the `config.json` of a public checkpoint. A model is judged by its fields and its tensors,
whatever architecture it names: a part that the engine's model does not have is refused by its name,
and so is a field that nobody here knows, because it may change what is computed."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.config.fields import MAX_LAYERS
from engine.config.schema import ModelConfig
from engine.training.architectures import CannotExchange
from engine.training.export import FIELDS, ROPE_FIELDS

Shapes = Mapping[str, tuple[int, ...]]  # of the tensors, by their names

# Fields that change the computation and have only these values here.
FIXED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"), "mlp_bias": (False,), "use_bias": (False,),
    "auto_map": (), "quantization_config": (), "rope_interleaved": (False,),
    "is_encoder_decoder": (False,), "add_cross_attention": (False,), "decoder_sparse_step": (1,),
    "mlp_only_layers": ([],), "partial_rotary_factor": (1,),
}  # fmt: skip
COUNTS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip
READ = {
    *FIXED, *COUNTS, *FIELDS.values(), "attention_bias", "sliding_window", "use_sliding_window",
    "max_window_layers", "layer_types", "no_rope_layers", "no_rope_layer_interval", "rope_theta",
    "rope_scaling", "rope_parameters", "num_experts", "num_local_experts", "num_experts_per_tok",
    "moe_intermediate_size", "norm_topk_prob",
}  # fmt: skip
# Fields that change nothing of what a trained model computes: names, tokens, dtypes, what holds
# while somebody trains, how text is drawn, and how another tool computes the same.
IGNORED = re.compile(
    r"architectures|model_type|_?name_or_path|transformers(_version|\.js_config)|(torch_)?dtype|"
    r"(bos|eos|pad|unk|sep|cls|decoder_start|forced_bos|forced_eos)_token_id|tokenizer_class|"
    r"use_cache|cache_implementation|initializer_(range|factor)|\w*(dropout|pdrop)(_prob)?|"
    r"output_(attentions|hidden_states|router_logits)|router_(aux_loss_coef|jitter_noise)|"
    r"(use_)?return_dict|torchscript|pretraining_tp|pruned_heads|gradient_checkpointing|"
    r"_?attn_implementation(_autoset)?|_flash_attn_2_enabled|use_flash_attn|id2label|label2id|"
    r"problem_type|finetuning_task|task_specific_params|chunk_size_feed_forward|is_decoder|"
    r"keys_to_ignore_at_inference|is_llama_config|unsloth_\w+|license|do_sample|temperature|"
    r"top_[kp]|(max|min)_length|max_new_tokens|repetition_penalty|seq_length|model_max_length"
)
# What these compute and neither their fields nor their tensors say.
UNSAID = dict.fromkeys(("ernie4_5", "helium"), "rotary positions of neighbouring dimensions")
# transformers' defaults for fields that a config.json leaves out.
EPS = {"rms_norm_eps": 1e-6}
LONG = EPS | {"max_position_embeddings": 131072, "num_key_value_heads": 8}
QWEN = EPS | {
    "max_position_embeddings": 32768, "num_key_value_heads": 32, "use_sliding_window": False,
    "sliding_window": 4096, "max_window_layers": 28,
}  # fmt: skip
IF_ABSENT: dict[str, dict[str, Any]] = {
    "llama": EPS | {"max_position_embeddings": 2048},
    "mistral": LONG | {"sliding_window": 4096},
    "qwen2": QWEN,
    "qwen3": QWEN | {"head_dim": 128},
    "smollm3": EPS | {
        "max_position_embeddings": 32768, "num_key_value_heads": 4, "tie_word_embeddings": True,
        "rope_theta": 2_000_000.0, "no_rope_layer_interval": 4, "use_sliding_window": False,
    },
    "olmo2": {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048},
    "olmo3": {"layer_types": "unknown"},  # which nobody may leave out
    "mixtral": LONG | {
        "rms_norm_eps": 1e-5, "rope_theta": 1_000_000.0, "num_local_experts": 8,
        "num_experts_per_tok": 2, "norm_topk_prob": True,
    },
    "qwen3_moe": QWEN | {
        "max_window_layers": 0, "num_key_value_heads": 4, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": False,
    },
}  # fmt: skip
BY_SOFTMAX = ("mixtral", "qwen3_moe")  # their experts are weighed so, which no field says


def model_config(path: Path, seq_len: int | None, shapes: Shapes) -> ModelConfig:
    """The configuration of the model whose config.json is `path`, for windows of `seq_len` tokens;
    None means as many as it has positions. Raises CannotExchange with every part that is
    missing."""
    written = json_of(path)
    kind = str(written.get("model_type"))
    declared = {**IF_ABSENT.get(kind, {}), **written}
    missing = _missing(declared, kind)
    rope, rope_missing = _rope(declared)
    missing += rope_missing
    if missing:
        raise CannotExchange(
            f"{path}: {'; '.join(missing)}. The engine's model has no such part; start from "
            "another model"
        )
    for field in COUNTS:
        if type(declared.get(field)) is not int:
            raise CannotExchange(f"{path} has no whole number {field}; download it again")
    if "rms_norm_eps" not in declared:
        raise CannotExchange(f"{path} has no rms_norm_eps; download it again")
    longest = declared["max_position_embeddings"]
    seq_len = longest if seq_len is None else seq_len
    if seq_len > longest:
        raise CannotExchange(
            f"seq_len {seq_len} is longer than the {longest} positions (max_position_embeddings) "
            f"of {path}; lower seq_len"
        )
    fields = {ours: declared.get(theirs) for ours, theirs in FIELDS.items()}
    if moe := _experts(path, declared, kind):
        del fields["intermediate_dim"]
        fields["moe"] = moe
    try:
        return ModelConfig(
            **{ours: value for ours, value in fields.items() if value is not None},
            **_by_tensors(path, declared, shapes),
            **_layers(path, declared, kind, seq_len),
            **rope,
            seq_len=seq_len,
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "model"
        raise CannotExchange(
            f"{path}: {FIELDS.get(field, field)} {str(first.get('input'))[:80]} cannot be: "
            f"{first['msg']}"
        ) from error


def _missing(declared: dict[str, Any], kind: str) -> list[str]:
    """What the model has and the engine's has not, in words."""
    found = [f"a {kind} has {UNSAID[kind]}"] if kind in UNSAID else []
    for field, value in declared.items():
        shown = f"`{field}` is {json.dumps(value)[:80]}"
        if value is None or IGNORED.fullmatch(field):
            continue
        if field not in READ:
            found.append(f"{shown}, a field that the lab does not know")
        elif field in FIXED and value not in FIXED[field]:
            only = FIXED[field]
            found.append(f"{shown}, and only {json.dumps(only[0])} is read" if only else shown)
    if kind == "llama" and declared.get("sliding_window"):
        found.append(
            f"`sliding_window` is {declared['sliding_window']}, which transformers passes over in "
            "a llama and other tools do not: write null, or model_type mistral"
        )
    if kind == "olmo3" and declared.get("rope_scaling"):
        found.append("`rope_scaling` of some layers only")
    if kind not in BY_SOFTMAX and (
        declared.get("num_experts") or declared.get("num_local_experts")
    ):
        found.append("its experts are weighed in a way that no field says")
    return found


def _by_tensors(path: Path, declared: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
    """The parts of a block that are told by the tensors of the first layer."""
    first = "model.layers.0."
    found: dict[str, Any] = {}
    biased = f"{first}self_attn.q_proj.bias" in shapes
    if declared.get("attention_bias", biased) not in (biased, None):
        raise CannotExchange(
            f"{path} has attention_bias {json.dumps(declared['attention_bias'])}, and its tensors "
            f"have {'' if biased else 'no '}biases; the files are of different models"
        )
    if biased:
        whole = f"{first}self_attn.o_proj.bias" in shapes
        found["attention_bias"] = "all" if whole else "qkv"
    if norm := shapes.get(f"{first}self_attn.q_norm.weight"):
        queries = shapes.get(f"{first}self_attn.q_proj.weight", (0,))
        found["qk_norm"] = "whole" if norm == queries[:1] else "learned"
    after = f"{first}post_feedforward_layernorm.weight" in shapes
    if after and f"{first}input_layernorm.weight" not in shapes:
        found["norm_position"] = "after"
    return found


def _rope(declared: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The keys of a ModelConfig about rotary positions, and what is missing for them."""
    rope = declared.get("rope_scaling") or declared.get("rope_parameters") or {}
    each = list(rope.values()) if isinstance(rope, dict) else []
    if each and all(isinstance(one, dict) and one == each[0] for one in each):
        rope = each[0]  # by types of layers, which do not differ
    if not isinstance(rope, dict):
        return {}, [f"`rope_scaling` is {json.dumps(rope)[:80]}"]
    if any(isinstance(one, dict) for one in rope.values()):
        return {}, ["rotary positions that differ by type of layer (`rope_parameters`)"]
    of = rope.get("rope_type", rope.get("type", "default"))
    missing = []
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    known |= set(ROPE_FIELDS.values()) if of == "llama3" else set()
    if of not in ("default", "llama3"):
        missing.append(f"`rope_scaling` of type {of}")
    elif more := sorted(rope.keys() - known):
        missing.append(f"`rope_scaling` has {', '.join(more)}")
    if (fraction := rope.get("partial_rotary_factor", 1)) not in (1, None):
        missing.append(f"`partial_rotary_factor` is {json.dumps(fraction)[:80]}")
    found = {"rope_theta": rope.get("rope_theta", declared.get("rope_theta", 10_000.0))}
    if of == "llama3":
        longest = declared.get("max_position_embeddings")
        values = {"original_max_position_embeddings": longest} | rope
        found["rope_scaling"] = {
            ours: values[theirs] for ours, theirs in ROPE_FIELDS.items() if theirs in values
        }
    return found, missing


def _layers(path: Path, declared: dict[str, Any], kind: str, seq_len: int) -> dict[str, Any]:
    """Which layers have a window and which have no rotary positions, as keys of a ModelConfig. A
    window that hides nothing is none."""
    n = declared["num_hidden_layers"]
    window, types = declared.get("sliding_window"), declared.get("layer_types")
    first, rotary = declared.get("max_window_layers", 0), declared.get("no_rope_layers")
    if not 0 < n <= MAX_LAYERS:  # refused as a number, or because the tensors are missing
        return {}
    if not rotary:
        every = declared.get("no_rope_layer_interval")
        rotary = [int(not every or (number + 1) % every != 0) for number in range(n)]
    if not declared.get("use_sliding_window", True) or window is None:
        window, types = None, ["full_attention"] * n
    lists = isinstance(types, list | None) and isinstance(rotary, list) and len(rotary) >= n
    if type(window) not in (int, type(None)) or type(first) is not int or not lists:
        raise CannotExchange(f"{path} does not say where its sliding window is; download it again")
    if not types:  # older files leave it out
        slide = [number >= first for number in range(n)]
        if kind == "smollm3":
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
            f"{path} has layers of {different} (`layer_types`), of which the engine knows "
            f"full_attention, and sliding_attention with rotary positions, for all {n} layers; "
            "start from another model, or use a seq_len within its window"
        )
    period = next(p for p in range(1, n + 1) if kinds[p:] == kinds[: n - p])
    found = {"sliding_window": window if "window" in kinds else None}
    plain = kinds[:period] in (("full",), ("window",))
    return found if plain else found | {"layer_pattern": kinds[:period]}


def _experts(path: Path, declared: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The keys of a mixture of experts; None if the model has none."""
    if kind not in BY_SOFTMAX:
        return None
    count = declared.get("num_local_experts") or declared.get("num_experts")
    top_k: Any = declared.get("num_experts_per_tok")
    width = declared.get("moe_intermediate_size") or declared["intermediate_size"]
    if any(type(x) is not int for x in (count, top_k, width)):
        raise CannotExchange(f"{path} does not say how many experts it has; download it again")
    if declared.get("norm_topk_prob") != (top_k > 1):
        raise CannotExchange(
            f"{path} has weights of experts that do not add up to one number (`norm_topk_prob` is "
            f"{json.dumps(declared.get('norm_topk_prob'))}), which the engine's model has not; "
            "start from another model"
        )
    found = {"num_experts": count, "top_k": top_k, "expert_dim": width}
    return found | {"scores": "softmax", "balance": "none"}


def json_of(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises CannotExchange."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CannotExchange(
            f"{path} cannot be read: {error}; name a folder with a model"
        ) from error
    if not isinstance(value, dict):
        raise CannotExchange(f"{path} is not a JSON object; download it again")
    return value
