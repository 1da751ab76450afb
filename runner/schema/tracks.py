"""Speedrun tracks, as the lab's `tracks.yml` declares them (`runner.schema.lab_config`). A plan
carries the one that it enters.

There are four kinds: reach a target quality at the lowest cost; the best quality within a budget;
the shortest time to a quality on named hardware; and scaling, which projects the losses of a row's
sizes to more compute. `runner.analysis.speedrun_ranking` ranks them.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from runner.lib.base_record import Record, Sha256

SIZES = 4  # that a projection needs

Kind = Literal["target", "budget", "time", "scaling"]
Positive = Annotated[float, Field(gt=0)]


class Scored(Record):
    """What a track scores: so many tokens of one validation text."""

    source: str  # its name in a declaration
    validation_sha256: Sha256  # of the text's bytes
    eval_tokens: int = Field(gt=0)
    tokenizer: str = "byte"  # the tokenizer


class Hardware(Record):
    """Devices of `runner.schema.devices`."""

    kind: str
    count: int = Field(default=1, gt=0)

    def __str__(self) -> str:
        return f"{self.count} × {self.kind}"


class Terms(Record):
    """What wins. The kind decides which of the numbers there are."""

    title: str = Field(min_length=1, max_length=200)
    kind: Kind
    target: Positive | None = None  # bits per byte to reach, for target and time
    budget: Positive | None = None  # maximum FLOPs of a run, for budget
    at: Positive | None = None  # FLOPs to project to, for scaling
    hardware: Hardware | None = None  # for time
    cost: Literal["model", "hardware"] = "hardware"  # which FLOPs count, for the lab's own models
    spread: Positive  # relative standard deviation of the ranked figure between seeds


class Track(Terms):
    """One competition."""

    name: str
    data: Scored

    @property
    def sentence(self) -> str:
        """The rule for winning, as a sentence."""
        flops = f"{self.cost} FLOPs" + (
            " (of own models: hardware FLOPs)" if self.cost == "model" else ""
        )
        if self.kind == "target":
            return f"the fewest {flops} to {self.target:g} bits per byte"
        if self.kind == "budget":
            return f"the fewest bits per byte within {self.budget:g} {flops}"
        if self.kind == "time":
            return f"the shortest training to {self.target:g} bits per byte on {self.hardware}"
        return f"the fewest bits per byte that {SIZES} sizes project to {self.at:g} {flops}"


NEEDS: Mapping[Kind, tuple[str, ...]] = {
    "target": ("target",),
    "budget": ("budget",),
    "time": ("target", "hardware"),
    "scaling": ("at",),
}
