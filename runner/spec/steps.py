"""A declared step, and the points of its sweep."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, StringConstraints

from engine.config.phases import InputName
from engine.config.schema import refusal
from runner.lib.yaml_lines import Path
from runner.schema.record import Resources

MAX_DEPTH = 10  # sections in a key of a sweep

StepName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
SEEDS = 2**31  # upper bound of a seed, exclusive
Seed = Annotated[int, Field(ge=0, lt=SEEDS, strict=True)]


class Point(NamedTuple):
    """One point of a sweep."""

    label: str = ""  # empty: the step has no sweep
    values: Mapping[str, Any] = {}  # {dotted key: value}


NO_POINT = Point()


Sweep = dict[str, list[Any]] | list[dict[str, Any]]  # a grid, or a list of points


def _sweep(value: Any) -> Sweep:
    points = value if isinstance(value, list) else [value]
    for key in (key for one in points if isinstance(one, dict) for key in one):
        if str(key).count(".") >= MAX_DEPTH:
            raise refusal("a key leads through {most} sections at most", most=MAX_DEPTH)
    if isinstance(value, dict) and "name" in value:
        raise refusal("`name` names a point of a list; in a grid it varies nothing")
    if isinstance(value, dict) and all(isinstance(x, list) and x for x in value.values()):
        return value
    if isinstance(value, list) and all(isinstance(x, dict) and x for x in value):
        return value
    raise refusal(
        "a sweep is a grid, such as {grid}, or a list of points, such as {points}",
        grid="{seed: [0, 1], train.learning_rate: [0.1, 0.2]}",
        points="[{name: wide, model.hidden_dim: 96}]",
    )


def _alias(name: str) -> str:
    if name and not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name):
        raise refusal(
            "an alias has a–z, 0–9, `.`, `_` and `-`, at most 64, a letter or digit first; write "
            "one such as fineweb-2026-11"
        )
    return name


AliasName = Annotated[str, AfterValidator(_alias)]


class Step(BaseModel):
    """A declared step."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True)

    do: str = Field(description="a built-in step, or module:function of the experiment's folder")
    config: dict[str, Any] = Field(default={}, description="the keys of what it does")
    inputs: dict[InputName, str] = Field(default={}, description="the steps whose outputs it reads")
    sweep: Annotated[Sweep, PlainValidator(_sweep, json_schema_input_type=Sweep)] = Field(
        default={},
        description="makes it many steps: a grid, such as {train.learning_rate: [0.1, 0.2]}, or a "
        "list of points, such as [{name: wide, model.hidden_dim: 96}]",
    )
    seeds: tuple[Seed, ...] = Field(
        default=(), description="each point of the sweep is trained with each of them"
    )
    resources: Resources | None = Field(
        default=None, description="its devices; those of the experiment if left out"
    )
    alias: AliasName = Field(
        default="", alias="as", description="a readable name for its output, such as fineweb-2026"
    )

    @property
    def is_swept(self) -> bool:
        """Whether it expands to many steps, named by their points."""
        return bool(self.sweep or self.seeds)

    @property
    def first(self) -> Sweep:
        """Its sweep, cut to its first point."""
        if isinstance(self.sweep, list):
            return self.sweep[:1]
        return {key: values[:1] for key, values in self.sweep.items()}

    @property
    def combinations(self) -> int:
        """The number of its points, seeds included."""
        seeds = len(set(self.seeds)) or 1
        if isinstance(self.sweep, list):
            return (len(self.sweep) or 1) * seeds
        return math.prod(map(len, self.sweep.values())) * seeds

    @property
    def size(self) -> int:
        """The approximate length of the configurations of all its points."""
        count, seeds = self.combinations, len(set(self.seeds)) or 1
        if isinstance(self.sweep, list):
            swept = len(str(self.sweep)) * seeds
        else:
            swept = sum(len(str(one)) * count // len(one) for one in self.sweep.values())
        return len(str(self.config)) * count + swept

    def swept(self, values: Mapping[str, Any], place: Path) -> Path | None:
        """Where the sweep has the value at `place` of the configuration, for the point with these
        values; None if the value is not from the sweep."""
        for key, value in values.items():
            parts = tuple(key.split("."))
            if place[: len(parts)] != parts:
                continue
            below = place[len(parts) :]
            if isinstance(self.sweep, dict):
                written = self.sweep.get(key, [])  # it does not contain the step's `seeds`
                return next(
                    ((key, n, *below) for n, one in enumerate(written) if one is value), None
                )
            for number, point in enumerate(self.sweep):
                if key in point and all(values[x] is y for x, y in point.items() if x != "name"):
                    return (number, key, *below)
        return None
