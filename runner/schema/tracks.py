"""Speedrun tracks: what is competed in, as the lab's `tracks.yml` declares it
(`runner.schema.lab_config`); a plan carries the one that it enters.

There are four kinds: a target quality at least cost; a fixed budget, whose best quality wins; the
time to a quality on named hardware; and scaling, where the loss counts that a row's sizes project
to more compute. Who is where on them is `runner.analysis.speedrun_ranking`'s to say.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from runner.lib.base_record import Record, Sha256

SIZES = 4  # that a projection takes

Kind = Literal["target", "budget", "time", "scaling"]
Positive = Annotated[float, Field(gt=0)]


class Scored(Record):
    """What a track's figures are figures of: so many tokens of one validation text."""

    source: str  # how an experiment names it
    validation_sha256: Sha256  # of the text's bytes
    eval_tokens: int = Field(gt=0)
    tokenizer: str = "byte"  # whose tokens they are


class Hardware(Record):
    """Devices of `runner.schema.devices`."""

    kind: str
    count: int = Field(default=1, gt=0)

    def __str__(self) -> str:
        return f"{self.count} × {self.kind}"


class Terms(Record):
    """What wins. Which of the numbers there are is up to the kind."""

    title: str = Field(min_length=1, max_length=200)
    kind: Kind
    target: Positive | None = None  # bits per byte that count as reached: target, time
    budget: Positive | None = None  # FLOPs that a run may cost: budget
    at: Positive | None = None  # FLOPs that sizes are projected to: scaling
    hardware: Hardware | None = None  # time
    cost: Literal["model", "hardware"] = "hardware"  # which FLOPs of the lab's own models count
    spread: Positive  # relative standard deviation of what is ranked between two seeds


class Track(Terms):
    """One competition."""

    name: str
    data: Scored

    @property
    def sentence(self) -> str:
        """What wins, in words."""
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
