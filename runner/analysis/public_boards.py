"""Other labs' public figures, and how well forecasts would have done on them. Pure but for reading
the file that lies beside it.

For each group with four sizes or more, a law is fitted to all but the largest size and asked for
that one. The largest sizes are looked at by nothing that is fitted, the pooled floor included.
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
    """How forecasts of one group's largest size came out; errors are relative to what was measured
    there, negative where the forecast was too low."""

    group: str
    sizes: int
    measured: float  # bits per byte
    pinned: float  # error with c = scaling.FLOOR
    pooled: float  # error with one floor for the whole board


@dataclass(frozen=True)
class Board:
    """All groups of a board along one axis."""

    axis: Axis
    floor: float  # that was pooled
    groups: tuple[Tested, ...]

    @property
    def median_pinned(self) -> float:
        """Of the absolute errors with c = scaling.FLOOR."""
        return median(abs(group.pinned) for group in self.groups)

    @property
    def median_pooled(self) -> float:
        """Of the absolute errors with the pooled floor."""
        return median(abs(group.pooled) for group in self.groups)


@cache
def rows() -> tuple[Mapping[str, Any], ...]:
    """The public rows of Marin's speedrun leaderboard."""
    return tuple(_file()["rows"])


def source() -> str:
    """Where they are from."""
    return str(_file()["source"])


def _file() -> dict[str, Any]:
    text = files("runner.analysis").joinpath("public/marin_speedrun.json").read_text("utf-8")
    return dict(json.loads(text))


def groups(axis: Axis) -> dict[str, list[tuple[float, float]]]:
    """{folder: its (C, bits per byte), smallest size first}, of rows that have one, where they are
    of FEWEST_SIZES or more; of a size that was run twice, what was submitted first. The runs
    directly in the board's own folder belong to nobody together and are no group."""
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
