"""Public figures of other labs, and how good forecasts of them would have been. Pure, except that
it reads the file beside it.

For each group with at least four sizes, a law is fitted to all but the largest size and then
forecasts that one. No fit uses the largest sizes, not even that of the pooled floor.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median
from typing import Any, Literal

from runner.analysis import scaling

Axis = Literal["model_flops", "training_hardware_flops", "model_size"]
FEWEST_SIZES = 4
QUALITY = "eval_paloma_c4_en_bpb"


@dataclass(frozen=True)
class Tested:
    """The forecasts of one group's largest size; errors are relative to the measured value,
    negative if the forecast was too low."""

    group: str
    sizes: int
    measured: float  # bits per byte
    pinned: float  # error with c = scaling.FLOOR
    pooled: float  # error with one floor for the whole board


@dataclass(frozen=True)
class Board:
    """All groups of a leaderboard along one axis."""

    axis: Axis
    floor: float  # the pooled one
    groups: tuple[Tested, ...]

    @property
    def median_pinned(self) -> float:
        """The median of the absolute errors with c = scaling.FLOOR."""
        return median(abs(group.pinned) for group in self.groups)

    @property
    def median_pooled(self) -> float:
        """The median of the absolute errors with the pooled floor."""
        return median(abs(group.pooled) for group in self.groups)


@cache
def rows() -> tuple[Mapping[str, Any], ...]:
    """The public rows of Marin's speedrun leaderboard."""
    return tuple(_file()["rows"])


def source() -> str:
    """Where they come from."""
    return str(_file()["source"])


def _file() -> dict[str, Any]:
    text = files("runner.analysis").joinpath("public/marin_speedrun.json").read_text("utf-8")
    return dict(json.loads(text))


def groups(axis: Axis) -> dict[str, list[tuple[float, float]]]:
    """{folder: its (C, bits per byte), smallest size first}, for rows that have a folder, with at
    least FEWEST_SIZES sizes; if a size was run twice, the first submission. Runs directly in the
    leaderboard's own folder have no common author and form no group."""
    found = defaultdict[str, dict[int, tuple[float, float]]](dict)
    for row in sorted(rows(), key=lambda row: str(row["run_completion_timestamp"])):
        group = str(row["results_filepath"]).rpartition("/")[0]
        if row[axis] and row[QUALITY] and group != "experiments/speedrun":
            point = (float(row[axis]), float(row[QUALITY]))
            found[group].setdefault(int(row["model_size"]), point)
    return {
        group: [point for _, point in sorted(sizes.items())]
        for group, sizes in sorted(found.items())
        if len(sizes) >= FEWEST_SIZES
    }


@cache
def tested(axis: Axis) -> Board:
    """Forecasts of each group's largest size from its smaller ones."""
    boards = groups(axis)
    floor = scaling.pooled_floor(points[:-1] for points in boards.values())

    def error(points: list[tuple[float, float]], c: float) -> float:
        at, measured = points[-1]
        return scaling.fit(points[:-1], floor=c).loss(at) / measured - 1

    outcomes = (
        Tested(group, len(of), of[-1][1], error(of, scaling.FLOOR), error(of, floor))
        for group, of in boards.items()
    )
    return Board(axis, floor, tuple(outcomes))
