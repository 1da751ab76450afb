"""The lab's own sealed forecasts: a list of them all, and for each a page on what was said before
the run, from what, and how it came out. Drawn from the files that are committed beside the
experiments."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, takewhile
from pathlib import Path
from statistics import fmean

import jinja2

from bot.site.base.files import File, made_from
from bot.site.pages.public import signed
from runner.analysis import forecast as forecasting
from runner.analysis import scaling, sealed_forecast
from runner.analysis.forecast import Forecast, Point, Refusal
from runner.analysis.sealed_forecast import Beside, Outcome, Seal
from runner.lib.canonical_json import to_json
from runner.schema.prediction_forms import AXES, Axis

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
FOLDERS = tuple(EXPERIMENTS / name for name in ("delphi-mini-100", "delphi-mini"))  # newest first
ROOM = 0.04  # of the drawing's width and height, around what is drawn
OTHER_AXES: tuple[Axis, ...] = ("tokens", "parameters")


@dataclass(frozen=True)
class Rung:
    """A size of the ladder."""

    points: tuple[Point, ...]
    said: float  # by the law
    by_others: float | None  # by the law through the other rungs, where they give one

    @property
    def mean(self) -> float:
        """Of its seeds."""
        return fmean(point.loss for point in self.points)

    @property
    def left(self) -> float:
        """What the law leaves, relative."""
        return self.mean / self.said - 1

    @property
    def left_out(self) -> float | None:
        """The error of the law through the other rungs, relative to what was measured."""
        return self.by_others / self.mean - 1 if self.by_others is not None else None


@dataclass(frozen=True)
class Other:
    """Another way to forecast from the same points, looked at afterwards."""

    words: str
    loss: float | None
    error: float | None  # relative to what was measured, where that is known
    why: str = ""  # there is none


@dataclass(frozen=True)
class Delphi:
    """The seal and, once there is one, its outcome."""

    name: str  # of its folder, and of its page
    seal: Seal
    seal_sha256: str
    outcome: Outcome | None
    trouble: str  # in a sentence, where the seal is not what it says
    words: str = ""  # with which its declaration begins
    afterwards: Beside | None = None  # what was run when the outcome was known

    @property
    def stated_floor(self) -> float | None:
        """The law's floor, where it was stated."""
        law = self.seal.forecast.law
        return law.c if law.stated_floor else None

    @cached_property
    def rungs(self) -> list[Rung]:
        """Smallest first."""
        law = self.seal.forecast.law
        of = sorted(self.seal.points, key=lambda point: (point.model_flops, point.seed))
        sizes = {
            size: tuple(group) for size, group in groupby(of, key=lambda point: point.model_flops)
        }
        means = {size: fmean(point.loss for point in group) for size, group in sizes.items()}

        def by_others(size: float) -> float | None:
            others = {other: mean for other, mean in means.items() if other != size}
            try:
                return scaling.fit(others, floor=self.stated_floor).loss(size)
            except scaling.Refused:
                return None

        return [Rung(group, law.loss(size), by_others(size)) for size, group in sizes.items()]


def sealed_ones(folders: Sequence[Path] = FOLDERS) -> list[Path]:
    """The experiments' folders that have a seal, newest first."""
    return [folder for folder in folders if (folder / "seal.json").is_file()]


def read(folder: Path) -> Delphi | None:
    """What lies in the experiment's folder; None without a seal."""
    seal, outcome = folder / "seal.json", folder / "outcome.json"
    if not seal.is_file():
        return None
    content, trouble = seal.read_bytes(), ""
    said = Seal.model_validate_json(content)
    digest = hashlib.sha256(content).hexdigest()
    found = Outcome.model_validate_json(outcome.read_bytes()) if outcome.is_file() else None
    try:
        sealed_forecast.check(said)
    except sealed_forecast.NoSeal as error:
        trouble = str(error)
    if found and found.seal_sha256 != digest:
        trouble = "the outcome is of another seal"
    words, after = _words(folder / "experiment.yaml"), folder / "afterwards.json"
    beside = Beside.model_validate_json(after.read_bytes()) if after.is_file() else None
    return Delphi(folder.name, said, digest, found, trouble, words, beside)


def _words(file: Path) -> str:
    """The comment at the head of a file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return "\n".join(line[2:] for line in takewhile(lambda line: line.startswith("#"), lines))


def files(
    pages: jinja2.Environment, told: str, folders: Sequence[Path] = FOLDERS
) -> Iterator[File]:
    """A page and its twin for each seal, and `delphi.html`, which lists them in this order, where
    there is one; `told` is a digest of what is on every page."""
    all_made, found = [told], list(filter(None, map(read, folders)))
    for one in found:
        there = filter(None, [one.outcome, one.afterwards])
        made = made_from(told, one.name, one.words, one.seal, *there)
        all_made.append(made)
        yield File(f"api/delphi/{one.name}.json", partial(_json, one), made)
        yield File(f"delphi/{one.name}.html", partial(_page, one, pages), made)
    if found:
        made = made_from(*all_made)
        yield File(
            "api/delphi.json", lambda: to_json({one.name: _twin(one) for one in found}), made
        )
        yield File("delphi.html", lambda: _list(found, pages), made)


def _list(found: list[Delphi], pages: jinja2.Environment) -> str:
    return pages.get_template("delphi.html").render(
        root="", found=found, ended=[one for one in found if one.outcome], signed=signed
    )


def _page(delphi: Delphi, pages: jinja2.Environment) -> str:
    found, outcome = others(delphi), delphi.outcome
    errors = [abs(other.error) for other in found if other.error is not None]
    return pages.get_template("foretold.html").render(
        root="../",
        delphi=delphi,
        others=found,
        nearer=sum(error < abs(outcome.error) for error in errors) if outcome else 0,
        drawing=drawing(delphi),
        signed=signed,
    )


def _json(delphi: Delphi) -> bytes:
    return to_json(_twin(delphi))


def _twin(delphi: Delphi) -> dict[str, object]:
    return {
        "seal": delphi.seal.model_dump(mode="json"),
        "seal_sha256": delphi.seal_sha256,
        "outcome": delphi.outcome.model_dump(mode="json") if delphi.outcome else None,
        "afterwards": delphi.afterwards.model_dump(mode="json") if delphi.afterwards else None,
        "made_again": delphi.trouble or True,
    }


# ── What would have been worse ───────────────────────────────────────────────────────────────


def others(delphi: Delphi) -> list[Other]:
    """What other ways of reading the same points say."""
    seal, measured = delphi.seal, delphi.outcome.point.loss if delphi.outcome else None
    at = seal.forecast.at
    means = {rung.points[0].model_flops: rung.mean for rung in delphi.rungs}

    def told(words: str, loss: float | None, why: str = "") -> Other:
        error = loss / measured - 1 if loss is not None and measured is not None else None
        return Other(words, loss, error, why)

    stated = delphi.stated_floor
    smaller, larger = dict(sorted(means.items())[1:]), dict(sorted(means.items())[:-1])
    other_floor = (
        (f"the floor stated, c = {scaling.FLOOR:g}", means, scaling.FLOOR, scaling.fit)
        if stated is None
        else ("the floor fitted with the rest", means, None, scaling.fit)
    )
    found = []
    for words, points, floor, fit in (
        other_floor,
        ("a straight line in the logarithms, without a floor", means, 0.0, scaling.fit),
        ("without the smallest rung", smaller, stated, scaling.fit),
        ("without the largest rung", larger, stated, scaling.fit),
        ("Huber’s loss instead of squares", means, stated, scaling.fit_huber),
    ):
        try:
            found.append(told(words, fit(points, floor=floor).loss(at)))
        except scaling.Refused as error:
            found.append(told(words, None, str(error)))
    for axis in OTHER_AXES:
        there = seal.design.on(axis)
        words = f"{AXES[axis]} instead of {AXES[seal.forecast.axis]}"
        said = forecasting.forecast(seal.points, there or 0.0, axis=axis, floor=stated)
        if isinstance(said, Refusal):
            found.append(told(words, None, said.words))
        else:
            found.append(told(words, said.loss))
    last = delphi.rungs[-1]
    found.append(told("no law at all: the largest rung’s own figure", last.mean))
    return found


# ── The drawing ──────────────────────────────────────────────────────────────────────────────

WIDTH, HEIGHT = 700.0, 340.0
LEFT, BOTTOM, TOP, RIGHT = 46.0, 34.0, 10.0, 16.0  # margins
STEPS = 24  # of the curve


@dataclass(frozen=True)
class Drawing:
    """Places of everything on a drawing of WIDTH × HEIGHT, both axes logarithmic."""

    law: str  # points of a polyline
    band: str  # of a polygon
    dots: list[tuple[float, float]]  # runs of the ladder
    said: tuple[float, float, float, float]  # x, and y of the forecast and of the interval's ends
    measured: tuple[float, float] | None
    across: list[tuple[float, str]]  # x and label
    up: list[tuple[float, str]]


def _band(delphi: Delphi, at: float) -> tuple[float, float]:
    """The interval of the law at this C."""
    said = forecasting.forecast(
        delphi.seal.points, at, level=delphi.seal.forecast.level, floor=delphi.stated_floor
    )
    assert isinstance(said, Forecast)  # the seal has one
    return said.of_the_law


def drawing(delphi: Delphi) -> Drawing:
    """The ladder, its law with the interval, and the run that it foretold."""
    said, rungs = delphi.seal.forecast, delphi.rungs
    first = rungs[0].points[0].model_flops
    places = [first * (said.at / first) ** (n / STEPS) for n in range(STEPS + 1)]
    bands = list(map(partial(_band, delphi), places))
    losses = [point.loss for point in delphi.seal.points] + [said.low, said.high]
    losses += [delphi.outcome.point.loss] if delphi.outcome else []
    ends = math.log(min(losses)), math.log(max(losses))
    room = ROOM * (ends[1] - ends[0])
    lowest, highest = ends[0] - room, ends[1] + room
    begin, end = math.log(first), math.log(said.at)
    room = ROOM * (end - begin)
    begin, end = begin - room, end + room

    def x(compute: float) -> float:
        share = (math.log(compute) - begin) / (end - begin)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(loss: float) -> float:
        share = (math.log(loss) - lowest) / (highest - lowest)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    def line(values: list[tuple[float, float]]) -> str:
        return " ".join(f"{x(compute)},{y(loss)}" for compute, loss in values)

    decades = range(math.ceil(begin / math.log(10)), math.floor(end / math.log(10)) + 1)
    tenths = range(math.ceil(math.exp(lowest) * 10), math.floor(math.exp(highest) * 10) + 1)
    every = max(1, len(tenths) // 6)
    return Drawing(
        law=line([(place, said.law.loss(place)) for place in places]),
        band=line(
            [(place, high) for place, (_, high) in zip(places, bands, strict=True)]
            + [(place, low) for place, (low, _) in zip(places, bands, strict=True)][::-1]
        ),
        dots=[(x(point.model_flops), y(point.loss)) for point in delphi.seal.points],
        said=(x(said.at), y(said.loss), y(said.low), y(said.high)),
        measured=(x(said.at), y(delphi.outcome.point.loss)) if delphi.outcome else None,
        across=[(x(10.0**n), f"1e{n}") for n in decades],
        up=[(y(n / 10), f"{n / 10:.1f}") for n in tenths if n % every == 0],
    )
