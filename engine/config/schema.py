"""Every option of the engine: the model (in `engine.config.model_config`), training (in
`engine.config.train_config`), computation, evaluation and data. These are the keys of a
declaration. Values that cannot work are refused here with a sentence, before anything is
compiled."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from engine.config.experts_config import ExpertsConfig as ExpertsConfig
from engine.config.fields import Config as Config
from engine.config.fields import Count as Count
from engine.config.fields import Parts as Parts
from engine.config.fields import refusal as refusal
from engine.config.fields import span_steps as span_steps
from engine.config.layer_pattern import LayerKind as LayerKind
from engine.config.model_config import ModelConfig as ModelConfig
from engine.config.phases import BatchSizes as BatchSizes
from engine.config.train_config import GUARD_WINDOW as GUARD_WINDOW
from engine.config.train_config import HYPERBALL as HYPERBALL
from engine.config.train_config import MAX_SNAPSHOTS as MAX_SNAPSHOTS
from engine.config.train_config import TrainConfig as TrainConfig
from engine.config.train_config import snapshots as snapshots

# ── How it is computed ───────────────────────────────────────────────────────────────────────


class MeshConfig(Config):
    """How many devices share the work along each axis; the product is the number of devices."""

    data: Parts = Field(default=1, description="copies of the model, each with a part of the batch")
    fsdp: Parts = Field(
        default=1, description="parts of the batch among which the parameters are split as well"
    )
    tensor: Parts = Field(default=1, description="parts of each matrix, of heads and of the MLP")
    expert: Parts = Field(
        default=1,
        exclude_if=lambda parts: parts == 1,  # old records have no such key
        description="parts of the batch among which the experts are divided as well",
    )

    @property
    def devices(self) -> int:
        return self.rows * self.tensor

    @property
    def rows(self) -> int:
        """The groups of devices that a batch's rows are spread over."""
        return self.data * self.fsdp * self.expert


UNROLLED = 16  # layers up to which unrolling is the default


class ComputeConfig(Config):
    """How training is computed. Results depend on it only by rounding."""

    mesh: MeshConfig = MeshConfig()
    dtype: Literal["float32", "bfloat16"] | None = Field(
        default=None,
        description="of activations and of the copies that are multiplied; parameters, moments and "
        "sums are always float32. If left out: bfloat16 on a GPU or TPU, float32 on a CPU",
    )
    layers: Literal["scan", "unroll"] | None = Field(
        default=None,
        description="one compiled block for all layers, which compiles in the same time whatever "
        "their number, or each layer on its own, which runs faster; unroll up to 16 layers if left "
        "out",
    )
    remat: Literal["none", "block"] = Field(
        default="none", description="what the backward pass computes again instead of keeping it"
    )
    attention: Literal["fast", "reference"] = Field(
        default="fast", description="the platform's fast path, or the plain one in float32"
    )
    experts: Literal["blocks", "ragged"] | None = Field(
        default=None,
        exclude_if=lambda how: how is None,  # old records have no such key
        description="how a mixture is multiplied: in blocks of tokens of one expert, padded to one "
        "size, or in groups of any size, which GPUs and TPUs are good at; if left out: blocks on "
        "a CPU, else ragged",
    )

    def unrolls(self, num_layers: int) -> bool:
        """Whether the layers are compiled one by one."""
        return self.layers == "unroll" or (self.layers is None and num_layers <= UNROLLED)


# ── Scoring and data ─────────────────────────────────────────────────────────────────────────


class EvalConfig(Config):
    """How a trained model is scored: bits per byte on the validation split."""

    tokens: Count = Field(default=16_384, description="targets of the validation split to score")


class DataConfig(Config):
    """What text is trained on: a `source` or a `corpus`."""

    corpus: str | None = Field(
        default=None, description="name@version of a corpus that the lab has fetched"
    )
    source: str | None = Field(
        default=None,
        min_length=1,
        validate_default=True,
        description="in its place: stdlib (Python's own standard library), lab-2026-11 (which "
        "ships with the lab) or the path of a UTF-8 text file, relative to the experiment's folder",
    )
    tokenizer: Literal["byte"] = Field(default="byte", description="a token is a byte")

    @field_validator("source")
    @classmethod
    def _one_text(cls, source: str | None, info: ValidationInfo) -> str | None:
        corpus = info.data.get("corpus")
        if source is None and corpus is None and "corpus" in info.data:
            raise PydanticKnownError("missing")
        if source is not None and corpus is not None:
            raise refusal("`corpus` names the text already; take one of the two out")
        return source
