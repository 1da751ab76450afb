"""Every knob of the engine, once: the model, its training, its evaluation and its data. These are
the keys that people write in a declaration, so each says what it means, and a value that cannot
work is refused here in a sentence, before anything is compiled or paid for."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

MAX_COUNT = 2**31 - 1  # what an int32 index on the device can count

Count = Annotated[int, Field(gt=0, le=MAX_COUNT)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def refusal(sentence: str, **values: Any) -> PydanticCustomError:
    """A validation error whose message is `sentence`, with `{name}` filled in from `values`."""
    return PydanticCustomError("cannot_work", sentence, values)


class Config(BaseModel):
    """Frozen and hashable; unknown keys are refused; "128", 128.0 and true are no integers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ModelConfig(Config):
    """The shape of a Llama-style decoder. Fixed: RMSNorm epsilon 1e-5, RoPE theta 10,000, no
    biases, float32."""

    hidden_dim: Count = Field(description="width of the residual stream")
    intermediate_dim: Count = Field(description="width inside the SwiGLU MLP")
    num_layers: Count = Field(description="decoder blocks")
    num_heads: Count = Field(description="query heads; their size is hidden_dim / num_heads")
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

    @property
    def head_dim(self) -> int:
        return self.hidden_dim // self.num_heads

    @field_validator("num_heads")
    @classmethod
    def _heads_fit(cls, heads: int, info: ValidationInfo) -> int:
        hidden = info.data.get("hidden_dim")
        if hidden is None:  # already refused; one complaint is enough
            return heads
        values = {"heads": heads, "hidden": hidden, "choices": _choices(hidden)}
        if hidden % heads:
            raise refusal(
                "num_heads {heads} does not divide hidden_dim {hidden}; {choices}", **values
            )
        if (hidden // heads) % 2:
            raise refusal(
                "num_heads {heads} splits hidden_dim {hidden} into heads of an odd size, which "
                "rotary positions cannot turn in pairs; {choices}",
                **values,
            )
        return heads

    @field_validator("num_kv_heads", mode="before")
    @classmethod
    def _one_for_each_query_head(cls, kv_heads: Any, info: ValidationInfo) -> Any:
        return info.data.get("num_heads", 1) if kv_heads is None else kv_heads

    @field_validator("num_kv_heads")
    @classmethod
    def _kv_heads_fit(cls, kv_heads: int, info: ValidationInfo) -> int:
        heads = info.data.get("num_heads")
        if heads is not None and heads % kv_heads:
            raise refusal(
                "num_kv_heads {kv} does not divide num_heads {heads}; choose one of {choices}",
                kv=kv_heads,
                heads=heads,
                choices=_listed([n for n in range(1, min(heads, 512) + 1) if heads % n == 0]),
            )
        return kv_heads


class TrainConfig(Config):
    """How the model is trained: batch, length, schedule and AdamW with global-norm clipping."""

    train_batch_size: Count = Field(description="windows in a step")
    num_train_steps: Count = Field(description="optimizer steps")
    learning_rate: float = Field(gt=0, description="the schedule's peak")
    optimizer: Literal["adamw"] = "adamw"
    lr_schedule: Literal["constant", "linear", "cosine"] = Field(
        default="linear", description="what follows the warm-up"
    )
    warmup: float = Field(default=0.0, ge=0, lt=1, description="fraction of steps spent rising")
    decay: Fraction | None = Field(
        default=None,
        validate_default=True,
        description="linear only: fraction of steps spent falling at the end, after holding the "
        "peak; all that the warm-up leaves if left out",
    )
    weight_decay: float = Field(
        default=0.1, ge=0, description="decoupled, on every weight but the gains of the norms"
    )
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    max_grad_norm: float = Field(
        default=1.0, gt=0, description="gradients with a larger global norm are scaled down to it"
    )
    checkpoint_every: Count = Field(
        default=None,
        validate_default=True,
        description="steps between checkpoints; a tenth of the run, at least 1, if left out",
    )

    @field_validator("decay")
    @classmethod
    def _decay_fits(cls, decay: float | None, info: ValidationInfo) -> float | None:
        if decay is None:
            return None
        schedule, warmup = info.data.get("lr_schedule"), info.data.get("warmup")
        if schedule in ("constant", "cosine"):
            raise refusal(
                "decay {decay} goes with lr_schedule linear only, and lr_schedule is {schedule}; "
                "remove decay or write lr_schedule: linear",
                decay=decay,
                schedule=schedule,
            )
        if warmup is not None and warmup + decay > 1 + 1e-9:  # 0.9 + 0.1 may round above 1
            raise refusal(
                "warmup {warmup} and decay {decay} are more than the whole run together; "
                "make their sum at most 1",
                warmup=warmup,
                decay=decay,
            )
        return decay

    @field_validator("checkpoint_every", mode="before")
    @classmethod
    def _every_tenth(cls, every: Any, info: ValidationInfo) -> Any:
        return max(1, info.data.get("num_train_steps", 1) // 10) if every is None else every


class EvalConfig(Config):
    """How a trained model is scored: bits per byte on the validation split."""

    tokens: Count = Field(default=16_384, description="targets of the validation split to score")


class DataConfig(Config):
    """What text is trained on."""

    source: str = Field(
        min_length=1,
        description="stdlib (Python's own standard library) or the path of a UTF-8 text file, "
        "relative to the experiment's folder",
    )
    tokenizer: Literal["byte"] = Field(default="byte", description="a token is a byte")


def _choices(hidden: int) -> str:
    fitting = [
        n for n in range(1, min(hidden, 512) + 1) if hidden % n == 0 and hidden // n % 2 == 0
    ]
    return f"choose one of {_listed(fitting)}" if fitting else "make hidden_dim even"


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
