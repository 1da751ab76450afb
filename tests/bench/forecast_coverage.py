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
  it; it is here to say what the interval does not promise.

The constants of `runner.analysis.bends` were chosen on the *inner* half, with the middle half of the
exponents; the table is of the *outer* half, with the other exponents, and other seeds. `today` is the
profile-likelihood interval of the exact law alone.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from runner.analysis import forecast as forecasting
from runner.analysis.forecast import Forecast, Point

RESULTS = Path(__file__).parent / "results" / "forecast_coverage.json"
Kind = Literal["exact", "second", "bend", "falling", "late"]
Half = Literal["inner", "outer"]
Array = NDArray[np.float64]
KINDS: tuple[Kind, ...] = ("exact", "second", "bend", "falling", "late")
LADDERS = ((8, 90.0, 3), (8, 90.0, 2), (6, 14.0, 1))  # rungs, largest over smallest C, seeds
NOISE = (0.003, 0.01)
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

        def run(there: float) -> float:
            return float(loss(np.array(there)) * (1 + deviation * random.standard_normal()))

        points = tuple(
            _point(float(there), seed, run(float(there)))
            for there, repeat in zip(t, repeats, strict=True)
            for seed in range(repeat)
        )
        targets = {reach: run(math.log(span * reach)) for reach in REACHES}
        yield Board(points, targets, points[-1].model_flops)


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
