"""Public groups of other labs along an axis: their curves, how reliable they are, and which groups
the axis favours. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import altair as alt
import numpy as np

from bot.site.base.chart import Chart, columns, rounded
from bot.site.base.drawn import Axis as DrawnAxis
from bot.site.base.drawn import Drawing, Mark, short
from bot.site.charts.curves import plain
from runner.analysis import public_boards, scaling
from runner.analysis.public_boards import Axis

# The C to project groups to: that of the public leaderboard, and ten times its largest size.
AT: Mapping[Axis, float] = {
    "model_flops": 1e22,
    "training_hardware_flops": 1e22,
    "model_size": 1e10,
}
COLOURED = 6  # groups in colour, with a band; others are grey
GRID = 16  # points of a curve
LOSS = "Bits per byte on C4-en"


@dataclass(frozen=True)
class Projected:
    """A group's law and its projection to a larger run. `rank`: one more than the number of groups
    whose whole interval is better; `tied`: how many have that rank."""

    group: str
    points: tuple[tuple[float, float], ...]
    forecast: scaling.Forecast
    left_out: tuple[float, float]  # with one size left out, the minimum and maximum
    rank: int = 0
    tied: int = 1

    @property
    def short(self) -> str:
        """The group without the leaderboard's own folder."""
        return self.group.removeprefix("experiments/speedrun/")

    @property
    def place(self) -> str:
        """Its rank as text."""
        return f"{self.rank}{' tied' if self.tied > 1 else ''}"


@dataclass(frozen=True)
class Side:
    """All groups along one axis, best projection first."""

    axis: Axis
    at: float
    floor: float  # common to all
    groups: tuple[Projected, ...]
    refused: Mapping[str, str]  # group: why there is no projection


@cache
def side(axis: Axis) -> Side:
    """Every group with at least four sizes, fitted on all of them with one floor for the
    leaderboard."""
    boards = {group: tuple(points) for group, points in public_boards.groups(axis).items()}
    floor, at = scaling.pooled_floor(boards.values()), AT[axis]
    found, refused = [], {}
    for group, points in boards.items():
        try:
            forecast = scaling.forecast(points, at, floor=floor)
            left = scaling.leave_one_out(points, at, floor=floor)
        except scaling.Refused as error:
            refused[group] = str(error)
            continue
        found.append(Projected(group, points, forecast, left))
    found.sort(key=lambda one: (one.forecast.loss, one.group))
    ranks = [1 + sum(other.forecast.high < one.forecast.low for other in found) for one in found]
    ranked = [
        replace(one, rank=rank, tied=ranks.count(rank))
        for one, rank in zip(found, ranks, strict=True)
    ]
    return Side(axis, at, floor, tuple(ranked), refused)


def changed(sides: Sequence[Side]) -> list[tuple[str, list[Projected | None]]]:
    """Each group's place along each axis, sorted by the size of the change."""
    along = [{one.group: one for one in side.groups} for side in sides]
    rows = [(group, [one.get(group) for one in along]) for group in sorted(set().union(*along))]

    def moved(row: tuple[str, list[Projected | None]]) -> int:
        ranks = [place.rank for place in row[1] if place]
        return max(ranks) - min(ranks)

    return sorted(rows, key=lambda row: (-moved(row), row[0]))


def chart(along: Side, title: str) -> Chart:
    """The curves of an axis with the bands of the best groups."""
    points, law, marks = list[dict[str, Any]](), list[dict[str, Any]](), list[Mark]()
    for place, one in enumerate(along.groups):
        coloured = place < COLOURED
        named = {"group": one.short, "colour": one.short if coloured else "others"}
        points += [{**named, "c": rounded(c), "loss": rounded(loss)} for c, loss in one.points]
        least = min(c for c, _ in one.points)
        grid = [float(c) for c in np.geomspace(least, along.at, GRID)]
        curve = [(c, one.forecast.law.loss(c)) for c in grid]
        for c, loss in curve:
            told = scaling.forecast(one.points, c, floor=along.floor) if coloured else None
            low, high = (told.low, told.high) if told else (None, None)
            band = {"low": rounded(low), "high": rounded(high)}
            law.append({**named, "c": rounded(c), "loss": rounded(loss), **band})
        shade = min(place, COLOURED)
        marks.append(Mark(curve, colour=shade, faint=not coloured))
        marks.append(Mark(one.points, "dots", shade, faint=not coloured))
    best = along.groups[0]
    return Chart(
        name=along.axis,
        title=f"{title}: scaling laws and projections to {short(along.at)}",
        words=f"Scaling laws of {len(along.groups)} groups. Best projection: {best.short}, "
        f"{best.forecast.loss:.3f}, 90 % interval {best.forecast.low:.3f} to "
        f"{best.forecast.high:.3f}; with one size left out {best.left_out[0]:.3f} to "
        f"{best.left_out[1]:.3f}.",
        spec=_spec(title, [one.short for one in along.groups[:COLOURED]]),
        data={
            "points": columns(points),
            "law": columns(law),
            "projected": columns(map(_projected, along.groups)),
        },
        script=f"scaling.{along.axis}.js",
        table="projected",
        columns={
            "rank": "Rank",
            "group": "Group",
            "sizes": "Sizes",
            "law": "Law",
            "loss": "Projected",
            "low": "90 % from",
            "high": "to",
            "left_low": "Without one size: from",
            "left_high": "to ",
        },
        drawing=Drawing(DrawnAxis(title, log=True), DrawnAxis(LOSS), marks),
        logged=("x",),
        note=f"Dots: measured. Lines: scaling laws with the common floor c = {along.floor:.3f}. "
        f"Bands (best {COLOURED} groups): 90 % intervals if this floor is right. To the right of "
        "the dots, everything is projection.",
    )


def _projected(one: Projected) -> dict[str, Any]:
    return {
        "rank": one.place,
        "group": one.short,
        "sizes": len(one.points),
        "law": one.forecast.law.sentence,
        "loss": rounded(one.forecast.loss, 4),
        "low": rounded(one.forecast.low, 4),
        "high": rounded(one.forecast.high, 4),
        "left_low": rounded(one.left_out[0], 4),
        "left_high": rounded(one.left_out[1], 4),
    }


def _spec(title: str, names: Sequence[str]) -> Mapping[str, Any]:
    x = alt.X("c:Q").title(title).scale(type="log", nice=False)
    x = x.axis(format=".0e", tickCount=6, labelOverlap=True)
    y = alt.Y("loss:Q").title(LOSS).scale(zero=False)
    colour = alt.Color("colour:N").title(None).scale(domain=[*names, "others"])
    colour = colour.legend(
        orient="top",
        columns=1,
        labelLimit=0,
        labelExpr="length(datum.label) > 40 ? '…' + slice(datum.label, -38) : datum.label",
        offset=30,
        symbolOpacity=1,
    )
    faint = alt.when(alt.datum.colour == "others").then(alt.value(0.35)).otherwise(alt.value(1))
    law = alt.Chart(alt.NamedData("law"))
    band = (
        law.transform_filter("isValid(datum.low)")
        .mark_area(opacity=0.15)
        .encode(x=x, y=alt.Y("low:Q").title(LOSS).scale(zero=False), y2="high:Q", color=colour)
    )
    line = law.mark_line(strokeWidth=1.75).encode(
        x=x, y=y, color=colour, detail="group:N", opacity=faint, tooltip="group:N"
    )
    dots = (
        alt.Chart(alt.NamedData("points"))
        .mark_point(filled=True, size=35)
        .encode(
            x=x,
            y=y,
            color=colour,
            opacity=faint,
            tooltip=["group:N", alt.Tooltip("c:Q", format=".3e"), alt.Tooltip("loss:Q")],
        )
    )
    return plain(alt.layer(band, line, dots, height=380, width="container"))
