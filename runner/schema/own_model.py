"""The parts of a declaration for own functions and own models."""

from pydantic import ConfigDict, Field, model_validator

from engine.config.schema import Config, Count, refusal
from runner.lib.canonical_json import to_json


class Options(Config):
    """Options of own functions: any keys."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _is_finite(self) -> "Options":
        try:
            to_json(self.model_extra)
        except ValueError:
            raise refusal("it has a number that is not finite") from None
        return self


class OwnModel(Options):
    """The configuration of an own model: what the lab must know, and any other keys."""

    seq_len: Count = Field(description="tokens in a training window")
    vocab_size: Count = Field(default=256, description="how many logits a position has")
