"""The keys of a mixture of experts in a declaration."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from engine.config.fields import MAX_WIDTH, Config, Count, Width, refusal


class ExpertsConfig(Config):
    """A mixture of experts, which takes the place of the MLP in every block."""

    num_experts: Annotated[int, Field(gt=1, le=2**16)] = Field(
        description="MLPs in a block, of which a router chooses top_k for each token"
    )
    top_k: Count = Field(description="experts that a token goes through")
    expert_dim: Width = Field(description="width inside each expert")
    shared_dim: Annotated[int, Field(ge=0, le=MAX_WIDTH)] = Field(
        default=0, description="width inside an MLP that every token goes through beside them"
    )
    latent_dim: Width | None = Field(
        default=None,
        exclude_if=lambda width: width is None,  # old records have no such key
        description="width that a token is projected to before its experts and back from after "
        "them (LatentMoE); hidden_dim, without projections, if left out",
    )
    scores: Literal["sigmoid", "softmax"] = Field(
        default="sigmoid",
        exclude_if=lambda scores: scores == "sigmoid",  # nor this one
        description="what weighs an expert: the sigmoid of its logit (DeepSeek-V3), or its share "
        "in the softmax of all (Mixtral, Qwen3-MoE)",
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
        default=1.0,
        gt=0,
        description="what the weights of a token's experts add up to; with top_k 1, what the "
        "expert's score, from 0 to 1, is multiplied by",
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
