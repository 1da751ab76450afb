"""The shape of a model: its keys in a declaration, and names for some shapes."""

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from engine.config.experts_config import ExpertsConfig
from engine.config.fields import MAX_LAYERS, Config, Count, Width, divisors, listed, refusal
from engine.config.layer_pattern import (
    LayerKind,
    counted,
    kinds_in,
    no_attention,
    repeated,
    something_turns,
)
from engine.config.rope_scaling import RopeScaling

SHAPE = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads")

# The sizes of the public speedrun; intermediate_dim is 3.5 × hidden_dim.
SIZES = {
    "130m": (512, 1792, 6, 8, 8),
    "300m": (768, 2688, 12, 12, 12),
    "520m": (1024, 3584, 24, 16, 8),
    "1.2b": (2048, 7168, 16, 16, 8),
}


def ladder(depth: int) -> tuple[int, int, int, int, int]:
    """The shape of rung `depth`, in the order of SHAPE: `depth` layers of width 64 · depth, with
    `depth` heads of 64 and an MLP 3.5 times as wide. All matrices together hold
    (4 + 3 · 3.5) · 64² · depth³ = 59,392 · depth³ weights."""
    return 64 * depth, 224 * depth, depth, depth, depth


class ModelConfig(Config):
    """The shape of a Llama-style decoder, and the parts of its blocks.

    `size` and `depth` are short forms for other keys: a key beside them wins, and after validation
    both are None, so that equal shapes are equal configurations.
    """

    size: Literal["130m", "300m", "520m", "1.2b"] | None = Field(
        default=None, exclude=True, description="a shape of the public speedrun, by its name"
    )
    depth: Annotated[int, Field(gt=0, le=MAX_LAYERS)] | None = Field(
        default=None,
        validate_default=True,
        exclude=True,
        description="a shape from one dial, for ladders: num_layers and num_heads are depth, "
        "hidden_dim is 64 · depth, intermediate_dim 224 · depth",
    )
    moe: ExpertsConfig | None = Field(
        default=None,
        exclude_if=lambda moe: moe is None,  # old records have no such key
        description="a mixture of experts in the place of each MLP",
    )
    hidden_dim: Width = Field(
        default=None, validate_default=True, description="width of the residual stream"
    )
    intermediate_dim: Width = Field(
        default=None,
        validate_default=True,
        description="width inside the SwiGLU MLP; with moe left out: it is then the width that a "
        "token goes through, top_k · expert_dim + shared_dim",
    )
    num_layers: Annotated[int, Field(gt=0, le=MAX_LAYERS)] = Field(
        default=None, validate_default=True, description="decoder blocks"
    )
    head_dim: Width = Field(  # type: ignore[assignment]  # filled in below
        default=None, description="width of a head, even; hidden_dim / num_heads if left out"
    )
    num_heads: Width = Field(default=None, validate_default=True, description="query heads")
    num_kv_heads: Width = Field(
        default=None,
        validate_default=True,
        description="key/value heads, each shared by num_heads / num_kv_heads query heads; "
        "num_heads of them if left out",
    )
    seq_len: Count = Field(description="tokens in a training window")
    vocab_size: Count = Field(default=256, description="rows of the embedding; 256 for bytes")
    tie_word_embeddings: bool = Field(
        default=False, description="whether the embedding is also the output matrix"
    )
    qk_norm: Literal["none", "rms", "learned", "whole"] = Field(
        default="none",
        description="RMS norm of each query and key head before rotation, without (rms) or with "
        "weights (learned); whole: with weights, of all query heads and all key heads together",
    )
    sliding_window: Count | None = Field(
        default=None,
        description="a position sees itself and the sliding_window − 1 before it; all if left out",
    )
    logit_soft_cap: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="c: logits become c · tanh(logit / c)"
    )
    rope_theta: float = Field(default=10_000.0, gt=1, description="base of the rotary positions")
    norm_epsilon: float = Field(default=1e-5, gt=0, description="of every RMS norm")
    # Old records have none of the keys below.
    init: Literal["gpt2", "marin", "mup"] = Field(
        default="gpt2",
        exclude_if=lambda name: name == "gpt2",
        description="how large weights begin: gpt2 (0.02, and less with depth for what writes to "
        "the stream), marin (0.5/√hidden_dim) or mup (1/√in; 1 for the embedding, 1/in for the "
        "output), which suits rates that carry over from width to width",
    )
    layer_pattern: tuple[LayerKind, ...] = Field(
        default=(),
        strict=False,  # YAML and JSON have lists
        exclude_if=lambda kinds: not kinds,
        description="what the layers see, repeated over the depth: full (all positions), window "
        "(sliding_window of them), nope (all, without rotary positions) or linear (a gated delta "
        "rule in the place of attention); if left out, all layers are window with a "
        "sliding_window, else full",
    )
    last_layer: LayerKind | None = Field(
        default=None,
        validate_default=True,
        exclude_if=lambda kind: kind is None,
        description="what the last layer is, whatever layer_pattern says",
    )
    rope_fraction: float = Field(
        default=1.0,
        ge=0,
        le=1,
        exclude_if=lambda fraction: fraction == 1,
        description="of each head's dimensions, how many the rotary positions turn: the first ones",
    )
    rope_scaling: RopeScaling | None = Field(
        default=None,
        exclude_if=lambda scaling: scaling is None,
        description="slower rotary positions for contexts longer than original_seq_len (Llama 3.1)",
    )
    attention_bias: Literal["none", "qkv", "all"] = Field(
        default="none",
        exclude_if=lambda where: where == "none",
        description="what is added to queries, keys and values (qkv, as in Qwen2), or also to "
        "attention's output (all); 0 at the start",
    )
    norm_position: Literal["before", "after"] = Field(
        default="before",
        exclude_if=lambda position: position == "before",
        description="whether a block norms what goes into attention and MLP, or what they add to "
        "the residual stream (after, as in OLMo 2)",
    )
    attention_gate: bool = Field(
        default=False,
        exclude_if=lambda gate: not gate,
        description="multiply each head's output by 2σ(x · W), where W is 0 at the start",
    )
    exclusive_attention: bool = Field(
        default=False,
        exclude_if=lambda exclusive: not exclusive,
        description="take out of each head's output what is parallel to the position's own value "
        "(XSA)",
    )
    gated_norm: Width | None = Field(
        default=None,
        exclude_if=lambda rank: rank is None,
        description="rank of a gate σ(silu(x · W) · W') behind each norm, and behind one more norm "
        "after the embedding; 128 is usual",
    )
    short_convolution: Width | None = Field(
        default=None,
        exclude_if=lambda taps: taps is None,
        description="taps of causal convolutions by channel over keys, attention's output and the "
        "MLP's output, which are the identity at the start; 4 is usual",
    )

    @field_validator("depth")
    @classmethod
    def _one_name(cls, depth: int | None, info: ValidationInfo) -> int | None:
        size = info.data.get("size")
        if depth is not None and size is not None:
            raise refusal(f"size {size} and depth {depth} both name a shape; remove one of them")
        return depth

    @field_validator(*SHAPE, mode="before", json_schema_input_type=Count | None)
    @classmethod
    def _from_a_name(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None:
            return value
        size, depth = info.data.get("size"), info.data.get("depth")
        if info.field_name == "intermediate_dim" and (moe := info.data.get("moe")):
            return moe.active_dim
        if size or depth:
            return dict(zip(SHAPE, SIZES[size] if size else ladder(depth or 1), strict=True))[
                str(info.field_name)
            ]
        if info.field_name == "num_kv_heads":
            return info.data.get("num_heads", 1)
        if {"size", "depth", "moe"} <= info.data.keys():
            raise PydanticCustomError("missing", "is missing; write it, or size, or depth")
        return ladder(1)[SHAPE.index(str(info.field_name))]  # report the problem once only

    @field_validator("intermediate_dim")
    @classmethod
    def _experts_say_it(cls, intermediate_dim: int, info: ValidationInfo) -> int:
        moe = info.data.get("moe")
        if moe is not None and intermediate_dim != moe.active_dim:
            raise refusal(
                f"intermediate_dim {intermediate_dim} is the width of an MLP, and the model has "
                "experts in its place; remove it, or moe"
            )
        return intermediate_dim

    @field_validator("num_kv_heads")
    @classmethod
    def _kv_heads_fit(cls, kv_heads: int, info: ValidationInfo) -> int:
        heads = info.data.get("num_heads")
        if heads is not None and heads % kv_heads:
            raise refusal(
                f"num_kv_heads {kv_heads} does not divide num_heads {heads}; choose one of "
                + listed(divisors(heads))
            )
        return kv_heads

    @field_validator("head_dim")
    @classmethod
    def _head_dim_turns(cls, head_dim: int) -> int:
        if head_dim % 2:
            raise refusal(
                f"head_dim {head_dim} is odd, and rotary positions turn dimensions in pairs; "
                "make it even"
            )
        return head_dim

    @field_validator("num_heads")
    @classmethod
    def _heads_fit(cls, heads: int, info: ValidationInfo) -> int:
        hidden = info.data.get("hidden_dim")
        if hidden is None or info.data.get("head_dim", 0) is not None:
            return heads  # already reported, or heads have a width of their own
        fitting = [n for n in divisors(hidden) if hidden // n % 2 == 0]
        choose = f"choose one of {listed(fitting)}" if fitting else "make hidden_dim even"
        if hidden % heads:
            raise refusal(f"num_heads {heads} does not divide hidden_dim {hidden}; {choose}")
        if (hidden // heads) % 2:
            raise refusal(
                f"num_heads {heads} splits hidden_dim {hidden} into heads of an odd size, which "
                f"rotary positions cannot turn in pairs; {choose}"
            )
        return heads

    @field_validator("sliding_window")
    @classmethod
    def _window_fits(cls, window: int | None, info: ValidationInfo) -> int | None:
        seq_len = info.data.get("seq_len")
        if window is not None and seq_len is not None and window > seq_len:
            raise refusal(
                f"sliding_window {window} is longer than seq_len {seq_len}, so that it would hide "
                f"nothing; make it at most {seq_len}, or remove it"
            )
        if window == 1:
            raise refusal(
                "sliding_window 1 lets a position see only itself, so that queries and keys change "
                "nothing and learn nothing; make it at least 2, or remove it"
            )
        return window

    @field_validator("init")
    @classmethod
    def _output_is_its_own(cls, init: str, info: ValidationInfo) -> str:
        if init == "mup" and info.data.get("tie_word_embeddings"):
            raise refusal(
                "init mup begins with another size for the embedding than for the output matrix, "
                "and tie_word_embeddings makes them one; remove one of the two"
            )
        return init

    @field_validator("layer_pattern")
    @classmethod
    def _pattern_fits(cls, pattern: tuple[LayerKind, ...], info: ValidationInfo) -> Any:
        layers = info.data.get("num_layers")
        if layers is not None and len(pattern) > layers:
            raise refusal(
                f"layer_pattern names {len(pattern)} layers and num_layers is {layers}; make it "
                f"at most {layers} long, or num_layers larger"
            )
        return pattern

    @field_validator("last_layer")
    @classmethod
    def _kinds_fit(cls, last: LayerKind | None, info: ValidationInfo) -> LayerKind | None:
        needed = {"num_layers", "layer_pattern", "sliding_window"}
        if not needed <= info.data.keys():
            return last  # already reported
        pattern, window = info.data["layer_pattern"], info.data["sliding_window"]
        if not pattern:
            if last is not None:
                raise refusal(
                    f"last_layer {last} goes with layer_pattern; write layer_pattern: "
                    f"[{'window' if window else 'full'}], too"
                )
            return last
        kinds = counted(pattern, last, info.data["num_layers"])
        if "window" in kinds and window is None:
            raise refusal(
                "layer_pattern has window layers and sliding_window is left out; write it, or "
                "full in the place of window"
            )
        if "window" not in kinds and window is not None:
            raise refusal(
                f"sliding_window {window} is for window layers, and layer_pattern has none; remove "
                "it, or write window for some layers"
            )
        if set(kinds) == {"linear"} and info.data.get("qk_norm", "none") != "none":
            raise refusal(f"qk_norm {no_attention('has its own norm of them')}")
        return last

    @field_validator("rope_fraction")
    @classmethod
    def _pairs_turn(cls, fraction: float, info: ValidationInfo) -> float:
        head, hidden, heads = (info.data.get(x) for x in ("head_dim", "hidden_dim", "num_heads"))
        if hidden is None or heads is None:
            return fraction  # already reported
        head = head or hidden // heads
        if (turned := fraction * head) % 2:
            lower = int(turned) // 2 * 2
            choose = " or ".join(f"{n / head:g}" for n in (lower, lower + 2))
            raise refusal(
                f"rope_fraction {fraction:g} turns {turned:g} of a head's {head} dimensions, and "
                f"rotary positions turn them in pairs; write {choose}"
            )
        if fraction < 1:
            something_turns(f"rope_fraction {fraction:g}", info)
        return fraction

    @field_validator("rope_scaling")
    @classmethod
    def _scales_what_turns(
        cls, scaling: RopeScaling | None, info: ValidationInfo
    ) -> RopeScaling | None:
        if scaling is not None:
            something_turns("rope_scaling", info)
        return scaling

    @field_validator("attention_bias", "attention_gate", "exclusive_attention")
    @classmethod
    def _attention_is_there(cls, value: bool | str, info: ValidationInfo) -> bool | str:
        if value not in (False, "none") and kinds_in(info) == {"linear"}:
            own = "has none" if info.field_name == "attention_bias" else "has a gate of its own"
            raise refusal(f"{info.field_name} {no_attention(own)}")
        return value

    @model_validator(mode="after")
    def _names_have_done_their_work(self) -> "ModelConfig":
        object.__setattr__(self, "size", None)
        object.__setattr__(self, "depth", None)
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", self.hidden_dim // self.num_heads)
        return self

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """What each layer is, from the first to the last."""
        pattern: tuple[LayerKind, ...] = ("window" if self.sliding_window else "full",)
        return repeated(self.layer_pattern or pattern, self.last_layer, self.num_layers)

    @property
    def kind_counts(self) -> Counter[LayerKind]:
        """How many layers of each kind it has, without a list of them."""
        pattern: tuple[LayerKind, ...] = ("window" if self.sliding_window else "full",)
        return counted(self.layer_pattern or pattern, self.last_layer, self.num_layers)

    @property
    def periods(self) -> tuple[tuple[LayerKind, ...], int]:
        """The layers of one period, and how many whole periods the model begins with."""
        period = self.layer_pattern or self.kinds[:1]
        times = self.num_layers // len(period)
        return period, times if self.kinds[: times * len(period)] == period * times else times - 1

    def of(self, kind: LayerKind) -> "ModelConfig":
        """The model as its layers of this kind see it, if these were all."""
        if not self.layer_pattern:
            return self
        changes: dict[str, Any] = {"layer_pattern": (kind,), "last_layer": None}
        if kind != "window":
            changes["sliding_window"] = None
        if kind == "nope":
            changes["rope_fraction"] = 0.0
        return self.model_copy(update=changes)
