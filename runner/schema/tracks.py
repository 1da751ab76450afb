"""Speedrun tracks: what is competed in, as `tracks.yaml` declares it.

There are four kinds: a target quality at least cost; a fixed budget, whose best quality wins; the
time to a quality on named hardware; and scaling, where the loss counts that a row's sizes project
to more compute. Who is where on them is `runner.analysis.speedrun_ranking`'s to say.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from runner.lib import yaml_lines
from runner.lib.base_record import Record, Sha256

FILE = Path(__file__).parent / "tracks.yaml"
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


class Track(Record):
    """One competition. Which of the numbers it has is up to its kind."""

    name: str
    title: str
    kind: Kind
    data: Scored
    target: Positive | None = None  # bits per byte that count as reached: target, time
    budget: Positive | None = None  # FLOPs that a run may cost: budget
    at: Positive | None = None  # FLOPs that sizes are projected to: scaling
    hardware: Hardware | None = None  # time
    cost: Literal["model", "hardware"] = "hardware"  # which FLOPs of the lab's own models count
    spread: Positive  # relative standard deviation of what is ranked between two seeds

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


_NEEDS: Mapping[Kind, tuple[str, ...]] = {
    "target": ("target",),
    "budget": ("budget",),
    "time": ("target", "hardware"),
    "scaling": ("at",),
}


class BadTracks(ValueError):
    """The tracks' file says something that is no track; the message says where."""


def read(path: Path = FILE) -> dict[str, Track]:
    """The tracks of a file, by name. Raises BadTracks."""
    try:
        said = yaml_lines.read(path.read_text(encoding="utf-8")).value
        found = {
            name: Track.model_validate({**told, "name": name, "data": said["data"][told["data"]]})
            for name, told in said["tracks"].items()
        }
    except (yaml_lines.BadYaml, OSError, KeyError, TypeError, ValueError) as error:
        raise BadTracks(f"{path}: {error}") from error
    for track in found.values():
        for key in _NEEDS[track.kind]:
            if getattr(track, key) is None:
                raise BadTracks(f"{path}, `{track.name}`: a track of kind {track.kind} has `{key}`")
    return found


@cache
def known() -> Mapping[str, Track]:
    """The lab's tracks, by name."""
    return read()
