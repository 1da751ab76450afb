"""How often the interval of a forecast holds the run that it is of: on the exact law, and on curves
that are almost one.

    python -m tests.bench.forecast_coverage [BOARDS]

The stated family. A board is a ladder of runs, and one run more at 6, 25 and 100 times its largest
compute. Ladders are the three that the lab has sealed (rungs, range of compute, seeds); a run's
relative error is drawn from 0.3 to 1 %, even in its logarithm (the lab's own: 0.63, 0.74, 0.86 %).
L(C) = E + A·f(t), t = log(C/smallest C), with E from 0.3 to 1.2, A from 1.5 to 3 and an exponent α
from 0.1 to 0.35, and f one of

- exact: e^(−αt);
- second: (1 − s)·e^(−αt) + s·e^(−βt), with β from 0.3 to 0.7 of α and s from 0.2 to 0.6;
- bend: the exponent changes by up to 0.4 of itself, either way, over 0.3 to 1.5 e-folds, in the
  upper two thirds of the ladder;
- falling: (1 + gt)^(−α/g), whose exponent has fallen by 5 to 30 % after the first two decades;
- late: the same as bend, but between the largest rung and three times its compute. No ladder shows
  it, so nothing is promised.

The constants of `runner.analysis.bends` were chosen on boards of seed 0, mostly of the *inner*
half, with the middle half of the exponents. The tables are of seed 1. The *outer* half has the
other exponents. *Law alone* is the interval of before: profile likelihood of the exact law, the
wider one of means and runs. Writes `results/forecast_coverage.md`.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from runner.analysis import forecast as forecasting
from runner.analysis.forecast import Forecast, Point

RESULTS = Path(__file__).parent / "results" / "forecast_coverage.md"
Kind = Literal["exact", "second", "bend", "falling", "late"]
Half = Literal["inner", "outer"]
Array = NDArray[np.float64]
KINDS: tuple[Kind, ...] = ("exact", "second", "bend", "falling", "late")
LADDERS = ((8, 90.0, 3), (8, 90.0, 2), (6, 14.0, 1))  # rungs, largest over smallest C, seeds
NOISE = (0.003, 0.01)
QUIET = (0.0005, 0.002)  # quieter than any ladder of the lab
REACHES = (6.0, 25.0, 100.0)
SMALLEST = 1e10  # FLOPs


@dataclass(frozen=True)
class Board:
    """A ladder, and one run more at each reach."""

    points: tuple[Point, ...]
    targets: dict[float, float]  # {reach: loss of the run there}
    largest: float


def boards(
    kind: Kind, half: Half, count: int, noise: tuple[float, float] = NOISE, seed: int = 0
) -> Iterator[Board]:
    """Boards of one kind, over the ladders in turn."""
    random = np.random.default_rng([KINDS.index(kind), half == "outer", seed])
    for number in range(count):
        rungs, span, seeds = LADDERS[number % len(LADDERS)]
        t = np.linspace(0, math.log(span), rungs)
        loss = _curve(kind, half, random, math.log(span))
        deviation = float(np.exp(random.uniform(*np.log(noise))))
        repeats = [3 if seeds == 1 and rung == 0 else seeds for rung in range(rungs)]

        there = np.append(np.repeat(t, repeats), [math.log(span * reach) for reach in REACHES])
        runs = loss(there) * (1 + deviation * random.standard_normal(len(there)))
        losses, names = iter(runs.tolist()), zip(t.tolist(), repeats, strict=True)
        points = tuple(_point(at, n, next(losses)) for at, repeat in names for n in range(repeat))
        yield Board(points, dict(zip(REACHES, losses, strict=True)), points[-1].model_flops)


def _curve(
    kind: Kind, half: Half, random: np.random.Generator, end: float
) -> Callable[[Array], Array]:
    """L of t = log(C/smallest C)."""
    floor, above = random.uniform(0.3, 1.2), random.uniform(1.5, 3.0)
    share = random.uniform(-0.25, 0.25)  # of the range of exponents, from its middle
    if half == "outer":
        share += math.copysign(0.25, share)
    b = 0.225 + 0.25 * share
    if kind == "second":
        slow, part = b * random.uniform(0.3, 0.7), random.uniform(0.2, 0.6)
        return lambda t: floor + above * ((1 - part) * np.exp(-b * t) + part * np.exp(-slow * t))
    if kind in ("bend", "late"):
        first, last = (end / 3, end) if kind == "bend" else (end, end + math.log(3))
        place, width = random.uniform(first, last), random.uniform(0.3, 1.5)
        change = b * random.uniform(-0.4, 0.4) * width

        def bent(t: Array) -> Array:
            rest = np.logaddexp(0.0, (t - place) / width) - np.logaddexp(0.0, -place / width)
            return np.asarray(floor + above * np.exp(-b * t + change * rest))

        return bent
    if kind == "falling":
        fallen = random.uniform(0.05, 0.3)
        rate = (1 / (1 - fallen) - 1) / math.log(100)
        return lambda t: floor + above * (1 + rate * t) ** (-b / rate)
    return lambda t: np.asarray(floor + above * np.exp(-b * t))


def _point(t: float, seed: int, loss: float) -> Point:
    compute, name = SMALLEST * math.exp(t), f"w{t:.3f}"
    return Point(
        run=f"x.{name}.s{seed}",
        arm=name,
        seed=seed,
        loss=loss,
        model_flops=compute,
        tokens=math.sqrt(compute),
        parameters=math.sqrt(compute),
        text="a text",
        targets=1024,
        recipe="a recipe",
        config=name,
    )


@dataclass(frozen=True)
class Judged:
    """A forecast, its outcome, and that of the exact law's interval."""

    inside: bool
    width: float  # relative to the forecast
    inside_alone: bool
    width_alone: float


def judged(kind: Kind, half: Half, count: int, reach: float, **more: Any) -> list[Judged]:
    """The forecasts of boards at one reach; those that are refused are left out."""
    found = []
    for board in boards(kind, half, count, **more):
        target, at = board.targets[reach], board.largest * reach
        now = forecasting.forecast(board.points, at)
        alone = forecasting.forecast(board.points, at, family=None)
        if isinstance(now, Forecast) and isinstance(alone, Forecast):
            found.append(
                Judged(
                    now.low <= target <= now.high,
                    (now.high - now.low) / now.loss,
                    alone.low <= target <= alone.high,
                    (alone.high - alone.low) / alone.loss,
                )
            )
    return found


def coverage(found: Sequence[Judged]) -> float:
    """The share of forecasts whose interval holds the run."""
    return fmean(one.inside for one in found)


def widening(found: Sequence[Judged]) -> float:
    """The median of the widths relative to those of the law alone."""
    return median(one.width / one.width_alone for one in found)


def table(count: int, noise: tuple[float, float]) -> str:
    """The figures in Markdown."""
    head = "".join(f" | {reach:.0f}×: law alone | now | width" for reach in REACHES)
    lines = [
        f"| 90 % intervals, noise {noise[0]:.1%} to {noise[1]:.1%}{head} |",
        f"| ---{' | ---: | ---: | ---:' * len(REACHES)} |",
    ]
    halves: tuple[Half, ...] = ("inner", "outer")
    for half in halves:
        for kind in KINDS:
            cells = []
            for reach in REACHES:
                found = judged(kind, half, count, reach, noise=noise, seed=1)
                alone = fmean(one.inside_alone for one in found)
                cells.append(f"{alone:.1%} | {coverage(found):.1%} | {widening(found):.2f}×")
            lines.append(f"| {kind}, {half} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    text = "\n".join(table(count, noise) for noise in (NOISE, QUIET))
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
