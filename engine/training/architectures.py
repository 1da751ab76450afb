"""The architectures of Hugging Face's `transformers` that hold the lab's models: which parts each
of them has, and where their tensors are in our tree of parameters."""

from typing import Any, NamedTuple

import numpy as np

from engine.config.schema import ModelConfig


class CannotExchange(Exception):
    """A model cannot be written or read in this format; the message says why and what to do."""


# ── Parts ────────────────────────────────────────────────────────────────────────────────────

QKV_BIAS, ALL_BIAS = "attention_bias: qkv", "attention_bias: all"
HEAD_NORM, WHOLE_NORM = "qk_norm of each head", "qk_norm: whole"
AFTER = "norm_position: after"
WINDOW, SOME_WINDOWS = "a window on all layers", "a window on some layers only"
NOPE = "nope layers"
WIDTH = "heads that do not divide hidden_dim"
SOFTMAX, ONE_EXPERT = "experts weighed by a softmax", "one expert for each token"


class Architecture(NamedTuple):
    name: str  # of its class
    needs: frozenset[str]  # parts that its models always have
    may: frozenset[str] = frozenset()  # parts that they can have, too


def _of(name: str, needs: tuple[str, ...], *may: str) -> Architecture:
    return Architecture(f"{name}ForCausalLM", frozenset(needs), frozenset(may))


# By their `model_type`; the first that holds a model is its own.
ARCHITECTURES = {
    "llama": _of("Llama", (), ALL_BIAS),
    "mistral": _of("Mistral", (), WINDOW, WIDTH),
    "qwen2": _of("Qwen2", (QKV_BIAS,), WINDOW, SOME_WINDOWS, WIDTH),
    "qwen3": _of("Qwen3", (HEAD_NORM,), ALL_BIAS, WINDOW, SOME_WINDOWS, WIDTH),
    "smollm3": _of("SmolLM3", (), ALL_BIAS, WINDOW, SOME_WINDOWS, NOPE, WIDTH),
    "olmo2": _of("Olmo2", (AFTER, WHOLE_NORM), ALL_BIAS, WIDTH),
    "mixtral": _of("Mixtral", (SOFTMAX,), WINDOW, WIDTH),
    "qwen3_moe": _of("Qwen3Moe", (SOFTMAX, HEAD_NORM), ALL_BIAS, WINDOW, WIDTH, ONE_EXPERT),
}


def parts(config: ModelConfig, params: Any) -> set[str]:
    """What the model has beside Llama's parts, in words."""
    kinds, moe = set(config.kinds), config.moe
    windows = kinds & {"window"} if hides(config) else set()
    there: dict[str, Any] = {
        f"attention_bias: {config.attention_bias}": config.attention_bias != "none",
        HEAD_NORM: config.qk_norm in ("rms", "learned"),
        WHOLE_NORM: config.qk_norm == "whole",
        AFTER: config.norm_position == "after",
        WINDOW: windows and kinds == windows,
        SOME_WINDOWS: windows and kinds != windows,
        NOPE: "nope" in kinds,
        "linear layers": "linear" in kinds,
        WIDTH: config.hidden_dim % config.num_heads,
        f"rope_fraction: {config.rope_fraction:g}": config.rope_fraction != 1,
        f"logit_soft_cap: {config.logit_soft_cap}": config.logit_soft_cap is not None,
    }
    for key in ("gated_norm", "attention_gate", "exclusive_attention", "short_convolution"):
        there[f"{key}: {str(getattr(config, key)).lower()}"] = getattr(config, key)
    if moe:
        bias_LE = np.asarray(params["blocks"]["mlp"]["bias"])
        there |= {
            SOFTMAX: moe.scores == "softmax",
            "experts weighed by sigmoids": moe.scores == "sigmoid",
            ONE_EXPERT: moe.top_k == 1,
            "an MLP beside the experts (shared_dim)": moe.shared_dim,
            "experts on a latent_dim": moe.latent_dim,
            "a bias in the choice of experts": moe.top_k < moe.num_experts
            and np.ptp(bias_LE, 1).any(),
        }
    return {words for words, is_there in there.items() if is_there}


def hides(config: ModelConfig) -> bool:
    """Whether a window hides anything in a training window."""
    return config.sliding_window is not None and config.sliding_window < config.seq_len


def architecture(has: set[str]) -> str:
    """Which of ARCHITECTURES has exactly these parts. Raises CannotExchange with those that none
    has, or not together."""
    for kind, one in ARCHITECTURES.items():
        if one.needs <= has <= one.needs | one.may:
            return kind
    nobody = has - {x for one in ARCHITECTURES.values() for x in (*one.needs, *one.may)}
    if nobody:
        missing = f"the model has {' and '.join(sorted(nobody))}, which none of them has"
    else:
        missing = f"the model has {' and '.join(sorted(has))}, which none of them has together"
        if len(has) == 1:
            holders = [one for one in ARCHITECTURES.values() if has <= one.needs | one.may]
            needed = min((sorted(one.needs - has) for one in holders), key=len)
            missing = f"the model has {min(has)}, and theirs go with {' and '.join(needed)}"
    raise CannotExchange(
        f"{missing} ({', '.join(one.name[:-11] for one in ARCHITECTURES.values())} were tried); "
        "train without that, or keep Orbax checkpoints and load them with Regatta"
    )


# ── Tensors ──────────────────────────────────────────────────────────────────────────────────


class Place(NamedTuple):
    """Where one of their tensors is in our tree."""

    path: tuple[str, ...]  # in the tree of parameters
    at: tuple[int, ...]  # its indices in a stack: a layer, or a layer and an expert
    shape: tuple[int, ...]  # theirs
    turned: bool  # a matrix is (out, in) there and (in, out) here


Names = dict[str, tuple[tuple[str, ...], tuple[int, ...]]]  # our path and their shape
MLP = ("gate_proj", "up_proj", "down_proj")
MIXTRAL = dict(zip(MLP, ("w1", "w3", "w2"), strict=True))


def tensors(config: ModelConfig, kind: str) -> dict[str, Place]:
    """All tensors of `config` by their names in this one of ARCHITECTURES, in the order of
    computation."""
    D, V, moe = config.hidden_dim, config.vocab_size, config.moe
    mlp = _experts(config, kind) if moe else _mlp("mlp", ("mlp",), D, config.intermediate_dim)
    block = _attention(config) | mlp
    found = {"model.embed_tokens.weight": Place(("embedding",), (), (V, D), turned=False)}
    for layer in range(config.num_layers):
        for name, (path, shape) in block.items():
            place = Place(("blocks", *path), (layer,), shape, turned=len(shape) == 2)
            numbers = range(moe.num_experts) if moe and "{}" in name else [None]
            for number in numbers:
                at = (layer,) if number is None else (layer, number)
                found[f"model.layers.{layer}.{name.format(number)}"] = place._replace(at=at)
    found["model.norm.weight"] = Place(("final_norm", "gain"), (), (D,), turned=False)
    if not config.tie_word_embeddings:
        found["lm_head.weight"] = Place(("lm_head",), (), (V, D), turned=True)
    return found


def _attention(config: ModelConfig) -> Names:
    D, h = config.hidden_dim, config.head_dim
    queries, keys = config.num_heads * h, config.num_kv_heads * h
    norms = ("input_layernorm", "post_attention_layernorm")
    if config.norm_position == "after":
        norms = ("post_attention_layernorm", "post_feedforward_layernorm")
    found: Names = {
        f"{theirs}.weight": ((ours, "gain"), (D,))
        for theirs, ours in zip(norms, ("attention_norm", "mlp_norm"), strict=True)
    }
    widths = {"q": queries, "k": keys, "v": keys}
    for name, width in widths.items():
        found[f"self_attn.{name}_proj.weight"] = (("attention", f"{name}_proj"), (width, D))
    found["self_attn.o_proj.weight"] = (("attention", "o_proj"), (D, queries))
    biases = {"none": {}, "qkv": widths, "all": widths | {"o": D}}[config.attention_bias]
    for name, width in biases.items():
        found[f"self_attn.{name}_proj.bias"] = (("attention", f"{name}_bias"), (width,))
    if config.qk_norm in ("learned", "whole"):
        for name in ("q", "k"):
            width = widths[name] if config.qk_norm == "whole" else h
            found[f"self_attn.{name}_norm.weight"] = (("attention", f"{name}_norm"), (width,))
    return found


def _mlp(theirs: str, ours: tuple[str, ...], D: int, F: int) -> Names:
    shapes = dict.fromkeys(MLP, (F, D)) | {"down_proj": (D, F)}
    return {f"{theirs}.{name}.weight": ((*ours, name), of) for name, of in shapes.items()}


def _experts(config: ModelConfig, kind: str) -> Names:
    moe, D = config.moe, config.hidden_dim
    assert moe is not None
    place = "block_sparse_moe" if kind == "mixtral" else "mlp"
    found: Names = {f"{place}.gate.weight": (("mlp", "router"), (moe.num_experts, D))}
    for name, of in _mlp(f"{place}.experts.{{}}", ("mlp",), D, moe.expert_dim).items():
        if kind == "mixtral":
            name = name.replace(of[0][-1], MIXTRAL[of[0][-1]])
        found[name] = of
    return found


def exportable(config: ModelConfig, params: Any) -> tuple[ModelConfig, Any]:
    """The same model, with what none of them has written otherwise: QK-norm without weights as the
    learned one with all weights 1, a sum of experts' weights in their last matrix."""
    blocks = dict(params["blocks"])
    changes: dict[str, Any] = {}
    if config.qk_norm == "rms":
        ones_Lh = np.ones((config.num_layers, config.head_dim), np.float32)
        blocks["attention"] = {**blocks["attention"], "q_norm": ones_Lh, "k_norm": ones_Lh}
        changes["qk_norm"] = "learned"
    if config.moe and config.moe.weight_sum != 1:
        down_LEFD = blocks["mlp"]["down_proj"] * np.float32(config.moe.weight_sum)
        blocks["mlp"] = blocks["mlp"] | {"down_proj": down_LEFD}
        changes["moe"] = config.moe.model_copy(update={"weight_sum": 1.0})
    return config.model_copy(update=changes), {**params, "blocks": blocks}


def states(config: ModelConfig) -> dict[str, np.ndarray]:
    """The parameters of a mixture that no architecture has: how even its load was."""
    assert config.moe is not None
    L, E = config.num_layers, config.moe.num_experts
    zeros = np.zeros((L, E), np.float32)
    return {"bias": zeros, "load": zeros + 1, "dropped": zeros[:, 0]}
