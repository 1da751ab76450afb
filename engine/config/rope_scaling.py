"""Rotary positions for contexts longer than those that a model began with."""

import math

from pydantic import Field, ValidationInfo, field_validator

from engine.config.fields import Config, Count, refusal


class RopeScaling(Config):
    """Llama 3.1's: pairs that turn less than low_freq_factor times in original_seq_len positions
    turn `factor` times more slowly, those that turn more than high_freq_factor times as ever, and
    between the two the frequency is interpolated. (`rope_type: llama3` in Hugging Face's files.)"""

    factor: float = Field(ge=1, allow_inf_nan=False, description="how many times more slowly")
    original_seq_len: Count = Field(description="the context before, in tokens")
    low_freq_factor: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="turns in original_seq_len below which a pair is slowed by the whole factor",
    )
    high_freq_factor: float = Field(
        default=4.0,
        gt=0,
        allow_inf_nan=False,
        description="turns in original_seq_len above which a pair turns as ever",
    )

    @field_validator("high_freq_factor")
    @classmethod
    def _higher(cls, high: float, info: ValidationInfo) -> float:
        low = info.data.get("low_freq_factor")
        if low is not None and high <= low:
            raise refusal(
                f"high_freq_factor {high:g} is not above low_freq_factor {low:g}; make it larger"
            )
        return high

    def slowed(self, frequency: float) -> float:
        """The frequency in the place of `frequency`, both in radians for each position."""
        turns = self.original_seq_len * frequency / (2 * math.pi)
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = min(max(share, 0.0), 1.0)
        return frequency * (kept + (1 - kept) / self.factor)
