"""Named recipes: from a width, a batch and a number of steps, everything else that a declaration
may leave out. A key that the declaration names wins. Each recipe is one public run or fit, with its
source.

In the formulas, d is hidden_dim, B the tokens of a step (with phases: of the first one), T the
tokens of the run, with all its phases."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from engine.config.phases import BatchSizes
from engine.config.train_config import HYPERBALL, ONE_RATE

Section = dict[str, Any]


def delphi(d: int, B: float, T: float) -> tuple[Section, Section]:
    """Marin's Delphi (`experiments/scaling_law_sweeps/completed_adamh.py`, 2026;
    openathena.ai/blog/delphi): AdamH, with rates that fall with the horizon. Fitted at B0 = 64
    windows of 4,096 tokens and T0 = 2.5 billion tokens, and capped at 0.01; the layers are those of
    its sweep. Adam moves the output matrix here, which AdamH moves there."""
    many, longer = B / (64 * 4096), 2.5e9 / T
    ratio = many * longer
    model = {
        **_layers(d),
        **_heads(d, groups=1),
        "intermediate_dim": 4 * d,
        "qk_norm": "learned",
    }
    train = {
        "optimizer": "adamh",
        "learning_rate": min(0.01, 0.00630 * math.sqrt(many) * longer**0.3),
        "adam_learning_rate": min(0.01, 0.000656 * math.sqrt(ratio)),
        "beta1": 0.9,
        "beta2": _between(0.9, 0.9999**many, 0.9999),
        "epsilon": 1.85e-8 / math.sqrt(ratio),
        "max_grad_norm": 0.1,
        "z_loss_weight": 1e-7,
        "lr_schedule": "wsd",
        "warmup": 0.1,
        "decay": 0.2,
    }
    return model, train


def marin_moe(d: int, B: float, T: float) -> tuple[Section, Section]:
    """Marin's mixture of experts (`experiments/grug/moe/heuristic`, its issue #5951, a fit with R²
    0.996): MuonH, 256 experts of about half the width of which a token goes through 4, and one of
    the whole width that all go through. Gradients are not clipped, rates are capped at 0.05. MuonH
    moves a matrix as Levanter's does, in float32 where its Newton–Schulz steps have bfloat16. Adam
    moves the output matrix, which AdamH moves there. Its windows of 2,048 and the factor 1.3 on
    queries are left out; gates and half RoPE are keys of their own."""
    adam = min(0.05, 0.06602 * T**-0.395 * d**-0.150 * math.sqrt(B))
    experts = {
        "num_experts": 256,
        "top_k": 4,
        "expert_dim": 128 * math.ceil(d / 2 / 128),
        "shared_dim": d,
        "weight_sum": 2.5,
        "capacity_factor": 1.0,
    }
    model = {
        **_layers(d),
        **_heads(d, groups=4),
        **{"moe": experts, "qk_norm": "rms", "init": "marin"},
    }
    train = {
        "optimizer": "muonh",
        "newton_schulz": "quintic",
        "learning_rate": min(0.05, 13 / 3 * adam),
        "adam_learning_rate": adam,
        "beta1": 0.9062,
        "beta2": _between(0.95, 0.999 ** (B / 131_072), 0.9999),
        "epsilon": 9.676e-18 * math.sqrt(T / B),
        "max_grad_norm": 1e9,
        "lr_schedule": "linear",
        "min_lr_ratio": 0.05,
        "warmup": 0.01,
    }
    return model, train


def marin_8b(d: int, B: float, T: float) -> tuple[Section, Section]:  # noqa: ARG001
    """Marin's 8B (`docs/reports/marin-8b-retro.md`): AdamW at 0.001 for batches of 4 Mi tokens, and
    with the root of the batch for others, as its second phase was; a running average, and the
    z-loss that it ended with. Warm-up and decay are fractions here, in place of its many phases.
    Llama's proportions at that size: heads of 128 in groups of 4, a layer for each 128 of width."""
    model = {
        "num_layers": max(1, round(d / 128)),
        **_heads(d, groups=4),
        "intermediate_dim": 7 * d // 2,
    }
    train = {
        "optimizer": "adamw",
        "learning_rate": 1e-3 * math.sqrt(B / 2**22),
        "weight_decay": 0.05,
        "ema_decay": 0.995,
        "z_loss_weight": 1e-4,
        "lr_schedule": "wsd",
        "warmup": 0.01,
        "decay": 0.2,
    }
    return model, train


def marin_32b(d: int, B: float, T: float) -> tuple[Section, Section]:
    """Marin's 32B (`docs/reports/marin-32b-retro.md`), with its guards against spikes (updates are
    compared with the last 64, not 128), and the normed queries and keys that cured them. Its one
    rate of 0.0007 was for 32 Mi tokens; it is scaled with the root of the batch."""
    model, train = marin_8b(d, B, T)
    guards = {
        "learning_rate": 7e-4 * math.sqrt(B / 2**25),
        "max_grad_norm": 0.2,
        "max_update_sigma": 2.0,
        "on_bad_step": "skip",
        "decay": 0.4,
    }
    shape = {
        **{"num_layers": max(1, round(d / 80)), "intermediate_dim": max(1, 27 * d // 5)},
        **{**_heads(d, groups=5), "qk_norm": "learned"},
    }
    return {**model, **shape}, {**train, **guards}


RECIPES: Mapping[str, Callable[[int, float, float], tuple[Section, Section]]] = {
    "delphi": delphi,
    "marin-moe": marin_moe,
    "marin-8b": marin_8b,
    "marin-32b": marin_32b,
}


def filled(config: Mapping[str, Any]) -> Section:
    """The configuration of a `train` step with what the recipe in its `train` adds, numbers with
    four significant digits; as it is without a known recipe. An own model has keys of its own, so
    that only `train` is filled in. What the recipe needs and is not there, or is no number, counts
    as 1: validation refuses it anyway."""
    model, train, own = (config.get(key, {}) for key in ("model", "train", "own"))
    if not all(isinstance(section, dict) for section in (model, train, own)):
        return dict(config)
    if (recipe := RECIPES.get(str(train.get("recipe")))) is None:
        return dict(config)
    d, seq_len = _number(model.get("hidden_dim")), _number(model.get("seq_len"))
    B = _number(train.get("train_batch_size")) * seq_len
    shape, how = recipe(d, B, _windows(train) * seq_len)
    if own.get("model") or {"size", "depth"} & model.keys():
        shape = {}  # it is told already
    for one, other in (("moe", "intermediate_dim"), ("intermediate_dim", "moe")):
        if model.get(one):
            shape.pop(other, None)
    if "num_heads" in model:
        shape.pop("num_kv_heads", None)
    optimizer, schedule = train.get("optimizer"), train.get("lr_schedule")
    if optimizer in ONE_RATE:
        how.pop("adam_learning_rate", None)
    if optimizer not in (None, "muon", "muonh"):
        how.pop("newton_schulz", None)
    if optimizer in HYPERBALL:
        how.pop("weight_decay", None)
        how.pop("max_update_sigma", None)
    if schedule not in (None, "wsd"):
        how.pop("decay", None)
    if schedule == "constant":
        how.pop("min_lr_ratio", None)
    rounded = {
        key: float(f"{value:.4g}") if isinstance(value, float) else value
        for key, value in how.items()
    }
    return {**config, "model": {**shape, **model}, "train": {**rounded, **train}}


def _layers(d: int) -> Section:
    """Wider ones are also deeper, but less than in proportion (Marin's sweep over sizes)."""
    return {"num_layers": max(1, round(d / (64 + 4 * math.log2(d) - 9)))}


def _heads(d: int, groups: int) -> Section:
    """Heads of 128 (narrower ones if d is no multiple), at least so many of which share keys and
    values."""
    size = next(size for size in (128, 64, 32, 16, 8, 4, 2, d) if d % size == 0)
    heads = d // size
    most = max(1, heads // groups)
    shared = max(count for count in range(1, most + 1) if heads % count == 0)
    return {"num_heads": heads, "num_kv_heads": shared}


def _between(low: float, x: float, high: float) -> float:
    return min(max(x, low), high)


def _windows(train: Mapping[str, Any]) -> int:
    """The windows of the whole run."""
    steps = _number(train.get("num_train_steps"))
    phases = train.get("phases")
    grows = isinstance(phases, list) and all(isinstance(one, Mapping) for one in phases)
    named = [one for one in phases if "train_batch_size" in one] if grows else []  # type: ignore[union-attr]
    turns = {_number(one.get("at")): _number(one["train_batch_size"]) for one in named}
    first = {"train_batch_size": _number(train.get("train_batch_size"))}
    later = [{"at": at, "train_batch_size": size} for at, size in sorted(turns.items())]
    return BatchSizes.of({**first, "phases": later}).until(steps)


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1
