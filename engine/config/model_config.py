"""The shape of a model: its keys in a declaration, and names for some shapes."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from engine.config.fields import Config, Count, divisors, listed, refusal

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


class ExpertsConfig(Config):
    """A mixture of experts, which takes the place of the MLP in every block."""

    num_experts: Annotated[int, Field(gt=1, le=2**16)] = Field(
        description="MLPs in a block, of which a router chooses top_k for each token"
    )
    top_k: Count = Field(description="experts that a token goes through")
    expert_dim: Count = Field(description="width inside each expert")
    shared_dim: Annotated[int, Field(ge=0)] = Field(
        default=0, description="width inside an MLP that every token goes through beside them"
    )
    balance: Literal["quantile", "bias", "auxiliary", "none"] = Field(
        default=None,
        validate_default=True,
        description="what keeps the load of the experts even: a bias of the choice, set to "
        "quantiles of the last batch or moved by balance_rate, or an auxiliary loss; quantile if "
        "left out",
    )
    balance_rate: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        validate_default=True,
        description="of bias: its step, 0.001 if left out; of auxiliary: the weight of the loss, "
        "0.01 if left out",
    )
    weight_sum: float = Field(
        default=1.0, gt=0, description="what the weights of a token's experts add up to"
    )
    router_z_loss: float = Field(
        default=0.0, ge=0, description="weight of the squared logsumexp of the router's logits"
    )
    capacity_factor: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="in training an expert takes at most so many times the even load, and drops "
        "what is more; drops nothing if left out",
    )

    @field_validator("top_k")
    @classmethod
    def _there_are_so_many(cls, top_k: int, info: ValidationInfo) -> int:
        experts = info.data.get("num_experts")
        if experts is not None and top_k > experts:
            raise refusal(
                f"top_k {top_k} is more than num_experts {experts}; make it at most {experts}"
            )
        return top_k

    @field_validator("balance", mode="before")
    @classmethod
    def _there_is_a_choice(cls, balance: Any, info: ValidationInfo) -> Any:
        top_k, experts = info.data.get("top_k"), info.data.get("num_experts")
        if top_k is None or top_k != experts:
            return balance or "quantile"
        if balance not in (None, "none"):
            raise refusal(
                f"balance {balance} has nothing to do, because each token goes through all "
                f"{experts} experts; remove it, or make top_k smaller"
            )
        return "none"

    @field_validator("balance_rate")
    @classmethod
    def _rate_is_used(cls, rate: float | None, info: ValidationInfo) -> float | None:
        balance = info.data.get("balance")
        if balance in ("bias", "auxiliary"):
            return rate or (0.001 if balance == "bias" else 0.01)
        if rate is not None and balance is not None:
            raise refusal(
                f"balance_rate {rate} goes with balance bias and auxiliary, and balance is "
                f"{balance}; remove it, or name one of them"
            )
        return None

    @property
    def active_dim(self) -> int:
        """The width that a token goes through, shared and chosen."""
        return self.top_k * self.expert_dim + self.shared_dim


class ModelConfig(Config):
    """The shape of a Llama-style decoder without biases.

    `size` and `depth` are short forms for other keys: a key beside them wins, and after validation
    both are None, so that equal shapes are equal configurations.
    """

    size: Literal["130m", "300m", "520m", "1.2b"] | None = Field(
        default=None, exclude=True, description="a shape of the public speedrun, by its name"
    )
    depth: Annotated[int, Field(gt=0, le=4096)] | None = Field(
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
    hidden_dim: Count = Field(
        default=None, validate_default=True, description="width of the residual stream"
    )
    intermediate_dim: Count = Field(
        default=None,
        validate_default=True,
        description="width inside the SwiGLU MLP; with moe left out: it is then the width that a "
        "token goes through, top_k · expert_dim + shared_dim",
    )
    num_layers: Count = Field(default=None, validate_default=True, description="decoder blocks")
    head_dim: Count = Field(  # type: ignore[assignment]  # filled in below
        default=None, description="width of a head, even; hidden_dim / num_heads if left out"
    )
    num_heads: Count = Field(default=None, validate_default=True, description="query heads")
    num_kv_heads: Count = Field(
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
    qk_norm: Literal["none", "rms", "learned"] = Field(
        default="none",
        description="RMS norm of each query and key head before rotation, without or with weights",
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

    @field_validator("depth")
    @classmethod
    def _one_name(cls, depth: int | None, info: ValidationInfo) -> int | None:
        size = info.data.get("size")
        if depth is not None and size is not None:
            raise refusal(f"size {size} and depth {depth} both name a shape; remove one of them")
        return depth

    @field_validator(*SHAPE, mode="before")
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
        return window

    @model_validator(mode="after")
    def _names_have_done_their_work(self) -> "ModelConfig":
        object.__setattr__(self, "size", None)
        object.__setattr__(self, "depth", None)
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", self.hidden_dim // self.num_heads)
        return self
