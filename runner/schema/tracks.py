"""Speedrun tracks, as the lab's `tracks.yml` declares them (`runner.schema.lab_config`). A plan
carries the one that it enters.

There are four kinds: reach a target quality at the lowest cost; the best quality within a budget of
FLOPs, or of seconds on named hardware; the shortest time to a quality on named hardware; and
scaling, which projects the losses of a row's sizes to more compute.
`runner.analysis.speedrun_ranking` ranks them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from runner.lib import format
from runner.lib.base_record import Record, Sha256

SIZES = 4  # that a projection needs
BYTE_TOKENIZER = "7d3370162d595f7bc5ce5e0f32de4077bbb8a1b868a699608171f1a45fd09347"  # its digest

Kind = Literal["target", "budget", "time", "scaling"]
Positive = Annotated[float, Field(gt=0)]


def _later() -> Any:
    """A key that older records do not have: without a value it is left out."""
    return Field(default=None, exclude_if=lambda value: value is None)


class Scored(Record):
    """What a track scores: so many tokens of one validation text."""

    source: str  # its name in a declaration: of a text, or the name@version of a corpus
    # Of the text's bytes; of a corpus as plans compute it. None: nobody fetched the corpus yet.
    validation_sha256: Sha256 | None = None
    train_sha256: Sha256 | None = _later()  # likewise of what is trained on; None: not compared
    eval_tokens: int = Field(gt=0)
    tokenizer: str = "byte"  # the tokenizer
    # Of its definition (`engine.data.tokenize`). None: of bytes, known; of another one, no rank.
    tokenizer_sha256: Sha256 | None = _later()

    @property
    def tokenizer_digest(self) -> str | None:
        """The digest of the tokenizer that the track prescribes."""
        return self.tokenizer_sha256 or (BYTE_TOKENIZER if self.tokenizer == "byte" else None)

    @property
    def declared(self) -> str:
        """How an experiment names it."""
        return f"{'corpus' if '@' in self.source else 'source'}: {self.source}"


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
    seconds: Positive | None = _later()  # in its place: maximum training time of a run
    at: Positive | None = None  # FLOPs to project to, for scaling
    hardware: Hardware | None = None  # rows of other devices have no rank
    cost: Literal["model", "hardware"] = "hardware"  # which FLOPs count, for the lab's own models
    spread: Positive  # relative standard deviation of the ranked figure between seeds
    seeds: Annotated[int, Field(ge=1, le=100)] | None = _later()  # exactly so many; None: any


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
        on = f" on {self.hardware}" if self.hardware else ""
        if self.kind == "target":
            return f"the fewest {flops} to {self.target:g} bits per byte{on}"
        if self.kind == "budget" and self.seconds:
            return f"the fewest bits per byte after {format.duration(self.seconds)} of training{on}"
        if self.kind == "budget":
            return f"the fewest bits per byte within {format.flops(self.budget)} {flops}{on}"
        if self.kind == "time":
            return f"the shortest training to {self.target:g} bits per byte{on}"
        reach = f"{format.flops(self.at)} {flops}{on}"
        return f"the fewest bits per byte that {SIZES} sizes project to {reach}"


NEEDS: Mapping[Kind, tuple[str, ...]] = {
    "target": ("target",),
    "budget": (),  # `budget`, or `seconds` and `hardware`
    "time": ("target", "hardware"),
    "scaling": ("at",),
}
