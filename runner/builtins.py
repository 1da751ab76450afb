"""The built-in steps: what each is called, which configuration and inputs it takes, and where its
function is. Light: the functions (`runner.builtin`) are imported only where a step is made.

A step's function is called as `function(config, inputs, out)`: its configuration, {input: folder}
(of an input that is a whole sweep {input: {label: folder}}), and an empty folder for its output.
Texts are folders with `train.jsonl` and `validation.jsonl`, one {"text": …} a line.
"""

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, Field, StringConstraints, ValidationInfo, field_validator

from engine.config import (
    ComputeConfig,
    Config,
    Count,
    EvalConfig,
    ModelConfig,
    TrainConfig,
    refusal,
)
from engine.phases import Weights

FUNCTION = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
Function = Annotated[str, StringConstraints(pattern=f"^{FUNCTION}$")]


class Tokenize(Config):
    """Texts to token stores, `train` and `validation`."""

    source: Literal["stdlib"] | None = Field(
        default=None, description="Python's own standard library, in the place of an input"
    )
    tokenizer: Literal["byte", "bpe", "given"] = Field(
        default="byte",
        description="a token is a byte; a byte-level BPE trained on the spot; or that of the token "
        "store that is the input `tokenizer`",
    )
    vocab_size: Count | None = Field(
        default=None, validate_default=True, description="bpe only: most tokens it may have"
    )
    sha256: dict[str, str] = Field(
        default={}, description="of the source's splits; filled in by the plan"
    )

    @field_validator("vocab_size")
    @classmethod
    def _a_bpe_has_a_size(cls, size: int | None, info: ValidationInfo) -> int | None:
        kind = info.data.get("tokenizer")
        if kind == "bpe" and size is None:
            raise refusal("a bpe needs a vocab_size; write one, 512 for a start")
        if kind == "byte" and size is not None:
            raise refusal("bytes have no vocab_size to choose; remove it, or write tokenizer: bpe")
        if kind == "given" and size is not None:
            raise refusal("the given tokenizer has its own vocab_size; remove this one")
        return size


class Mix(Config):
    """Token stores, by names of the author's, to a mixture of them."""

    weights: Weights = Field(
        description="each input's share of the rows that are trained on; their sum does not matter"
    )


class Filter(Config):
    """Texts to the documents among them that pass."""

    least_characters: Count | None = Field(default=None, description="documents as long pass")
    most_characters: Count | None = Field(default=None, description="documents no longer pass")
    matching: str | None = Field(
        default=None, description="a regular expression that is found in what passes"
    )


class Map(Config):
    """Texts to what a function makes of each document, one after the other."""

    function: Function = Field(
        description="module:function of the experiment's folder, from a document to a document, or "
        "to None, which leaves it out"
    )


class Train(Config):
    """A token store to a trained model."""

    model: ModelConfig
    train: TrainConfig
    compute: ComputeConfig = ComputeConfig()
    seed: int = Field(default=0, ge=0, lt=2**31)


class Evaluate(EvalConfig):
    """Trained models to their bits per byte on the validation tokens."""


class BuiltIn(NamedTuple):
    function: str  # module:function
    config: type[BaseModel]
    inputs: tuple[str, ...]
    optional: tuple[str, ...] = ()


BUILT_IN = {
    "tokenize": BuiltIn("runner.builtin.tokens:tokenize", Tokenize, (), ("text", "tokenizer")),
    "filter": BuiltIn("runner.builtin.texts:filter_documents", Filter, ("text",)),
    "map": BuiltIn("runner.builtin.mapping:map_documents", Map, ("text",)),
    "mix": BuiltIn("runner.builtin.mix:mix", Mix, ()),
    "train": BuiltIn("runner.builtin.train:train", Train, ("tokens",)),
    "evaluate": BuiltIn("runner.builtin.evaluate:evaluate", Evaluate, ("models", "tokens")),
}
