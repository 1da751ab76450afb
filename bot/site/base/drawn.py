"""Charts as plain SVG: shown before any script has run, on paper, and without scripts. Pure, and
fast enough for ten thousand runs.

Colours are classes (`c0`, `c1`, …), so that a drawing follows the page's theme.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal

import numpy as np
from markupsafe import Markup, escape

from runner.lib.downsample import kept

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 26, 40
SMALLEST = 1e-300  # between the ends of an axis; less cannot be divided
MAX_POINTS = 240  # points of a line; more are invisible at this width
COLOURS = 7
LETTER, LINE = 8.0, 16  # pixels of a letter of a name, about, and of its height
HOUR, DAY = 3600, 86_400  # seconds
TIMES = (60, 600, HOUR, 3 * HOUR, 12 * HOUR, *(n * DAY for n in (1, 2, 7, 14, 30, 91, 182, 365)))

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """One axis: its title, and whether it is logarithmic, or seconds since 1970 (UTC)."""

    title: str
    log: bool = False
    time: bool = False


@dataclass(frozen=True)
class Mark:
    """Points, drawn as a line, steps, a band (x, low, high), dots, crosses, or whiskers (x, low,
    high)."""

    points: Sequence[tuple[float, ...]]
    kind: Literal["line", "steps", "band", "dots", "crosses", "whiskers"] = "line"
    colour: int = 0
    faint: bool = False
    name: str = ""  # written at its end
    names: Sequence[str] = ()  # of its points, written beside them where there is room


@dataclass(frozen=True)
class Drawing:
    """Marks on two axes."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    height: int = HEIGHT

    @property
    def svg(self) -> Markup:
        """The drawing; empty if there is no point."""
        shown = [mark for mark in self.marks if mark.points]
        if not shown:
            return Markup("")
        xs = [point[0] for mark in shown for point in mark.points]
        ys = [y for mark in shown for point in mark.points for y in point[1:]]
        x, y = _Scale(self.x, xs, 0, self.height), _Scale(self.y, ys, 1, self.height)
        return Markup("".join(self._parts(shown, x, y)))

    # Plain strings, because there are thousands of drawings; everything in them except `_text` is
    # our own.
    def _parts(self, shown: Iterable[Mark], x: "_Scale", y: "_Scale") -> Iterator[str]:
        yield f'<svg class="drawing" viewBox="0 0 {WIDTH} {self.height}" aria-hidden="true">'
        for value in y.ticks():
            yield f'<path class="grid" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>'
            yield _text(LEFT - 7, y(value) + 4, y.words(value), "end")
        for value in x.ticks():
            anchor = "end" if x(value) > WIDTH - RIGHT - 30 else "middle"
            yield _text(x(value), self.height - BOTTOM + 17, x.words(value), anchor)
        yield f'<path class="axis" d="M{LEFT} {self.height - BOTTOM}H{WIDTH - RIGHT}"/>'
        yield _text(2, 12, self.y.title, "start")
        yield _text((LEFT + WIDTH - RIGHT) / 2, self.height - 6, self.x.title, "middle")
        for mark in shown:
            yield from _mark(mark, x, y)
        yield "</svg>"


class _Scale:
    """Maps figures to positions along one axis."""

    def __init__(self, axis: Axis, values: Sequence[float], side: int, tall: int = HEIGHT) -> None:
        usable = [value for value in values if value > 0] if axis.log else list(values)
        low, high = (min(usable), max(usable)) if usable else (1.0, 10.0)
        self.log, self.time, self.side, self.tall = axis.log, axis.time, side, tall
        if axis.log:
            low, high = math.log10(low), math.log10(high)
        wide = high - low or (HOUR if axis.time else abs(high)) or 1.0
        room = wide * (0.05 if side else 0.01)
        if high - low + 2 * room < SMALLEST:
            room = 1.0
        self.low, self.high = low - room, high + room
        if not axis.log and min(usable, default=0) >= 0 and self.low < 0:
            self.low = 0.0

    def __call__(self, value: float) -> float:
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        share = (value - self.low) / (self.high - self.low)
        if self.side:
            return TOP + (1 - share) * (self.tall - TOP - BOTTOM)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[float]:
        """About five round figures within the axis."""
        if self.time:
            wide = (self.high - self.low) / 5
            step = next(
                (unit for unit in TIMES if unit >= wide), 365 * DAY * math.ceil(wide / 365 / DAY)
            )
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            return [float(n * step) for n in range(first, last + 1)]
        if self.log and self.high - self.low >= 1:
            decades = range(math.ceil(self.low), math.floor(self.high) + 1)
            every = -(-len(decades) // 6)
            return [10.0**decade for decade in decades[::every]]
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        rough = (high - low) / 5
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
        first = math.ceil(low / step)
        return [round(n * step, 12) for n in range(first, math.floor(high / step) + 1)]

    def words(self, value: float) -> str:
        """A figure at this axis."""
        if not self.time:
            return short(value)
        at = datetime.fromtimestamp(value, UTC)
        wide = self.high - self.low
        if wide > 400 * DAY:
            return f"{at:%b %Y}"
        return f"{at:%b} {at.day}" if wide > 4 * DAY else f"{at:%b} {at.day}, {at:%H:%M}"


def beside(height: int) -> int:
    """The height of a drawing that is as tall as a chart of so many pixels without its axes."""
    return min(HEIGHT, height + TOP + BOTTOM + 24)


def _mark(mark: Mark, x: _Scale, y: _Scale) -> Iterator[str]:
    look = f"c{mark.colour % COLOURS}" + (" faint" if mark.faint else "")
    if mark.kind == "dots":
        path = "".join(f"M{x(at):.1f} {y(up):.1f}h0" for at, up, *_ in mark.points)
        yield f'<path class="dots {look}" d="{path}"/>'
    elif mark.kind == "crosses":
        path = "".join(f"M{x(at) - 6:.1f} {y(up):.1f}h12m-6-6v12" for at, up, *_ in mark.points)
        yield f'<path class="line {look}" d="{path}"/>'
    elif mark.kind == "whiskers":
        path = "".join(f"M{x(p[0]):.1f} {y(p[1]):.1f}V{y(p[2]):.1f}" for p in mark.points)
        yield f'<path class="line thin {look}" d="{path}"/>'
    elif mark.kind == "band":
        there = [(p[0], p[1]) for p in mark.points]
        back = [(p[0], p[2]) for p in reversed(mark.points)]
        path = _line([*there, *back], x, y) + "Z"
        yield f'<path class="band {look}" d="{path}"/>'
    else:
        stay = kept([point[1] for point in mark.points], MAX_POINTS)
        points = [(mark.points[at][0], mark.points[at][1]) for at in stay]
        if mark.kind == "steps":
            points = [p for a, b in pairwise(points) for p in (a, (b[0], a[1]))]
            points += [(mark.points[-1][0], mark.points[-1][1])]
        yield f'<path class="line {look}" d="{_line(points, x, y)}"/>'
    taken: list[tuple[float, float, float]] = []  # left, right, up
    for point, name in sorted(zip(mark.points, mark.names, strict=False), reverse=True):
        at, up = x(point[0]), y(point[1])
        left = min(at + 6, WIDTH - RIGHT - LETTER * len(name))
        right = left + LETTER * len(name)
        if name and not any(left < b and a < right and abs(up - c) < LINE for a, b, c in taken):
            yield _text(left, up - 6, name, "start", "name")
            taken.append((left, right, up))
    if mark.name:
        last = mark.points[-1]
        yield _text(x(last[0]) - 4, y(last[1]) - 7, mark.name, "end", look + " name")


def _line(points: Iterable[Point], x: _Scale, y: _Scale) -> str:
    return "M" + "L".join(f"{x(at):.1f} {y(up):.1f}" for at, up in points)


def _text(at: float, up: float, words: str, anchor: str, look: str = "") -> str:
    kind = f' class="{look}"' if look else ""
    return f'<text x="{at:.1f}" y="{up:.1f}" text-anchor="{anchor}"{kind}>{escape(words)}</text>'


def short(value: float) -> str:
    """A figure at an axis: 0.25, 12, 1.5M, 3e18."""
    size = abs(value)
    if size >= 1e10 or 0 < size < 1e-4:
        written = np.format_float_scientific(value, precision=2, trim="-")
        mantissa, _, exponent = written.partition("e")
        return f"{mantissa}e{int(exponent)}"
    for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.4g}"
