"""The lab's own sealed forecasts, from the files beside the experiments: each forecast, its basis,
its outcome, and alternatives."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, takewhile
from pathlib import Path
from statistics import fmean

from runner.analysis import scaling, sealed_forecast
from runner.analysis.forecast import Point, Refusal
from runner.analysis.sealed_forecast import Beside, Outcome, Seal
from runner.schema.prediction_forms import AXES, Axis

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
NEWEST_FIRST = ("delphi-mini-3", "delphi-mini-100", "delphi-mini")
FOLDERS = tuple(EXPERIMENTS / name for name in NEWEST_FIRST)
OTHER_AXES: tuple[Axis, ...] = ("tokens", "parameters")


@dataclass(frozen=True)
class Rung:
    """A size of the ladder."""

    points: tuple[Point, ...]
    said: float  # by the law
    by_others: float | None  # by the law through the other rungs, if there is one

    @property
    def mean(self) -> float:
        """The mean over its seeds."""
        return fmean(point.loss for point in self.points)

    @property
    def left(self) -> float:
        """The relative residual of the law."""
        return self.mean / self.said - 1

    @property
    def left_out(self) -> float | None:
        """The error of the law through the other rungs, relative to the measured value."""
        return self.by_others / self.mean - 1 if self.by_others is not None else None


@dataclass(frozen=True)
class Other:
    """An alternative forecast from the same points, computed afterwards."""

    words: str
    loss: float | None
    why: str = ""  # why there is none
    error: float | None = None  # relative to the measured value, if known


@dataclass(frozen=True)
class Delphi:
    """The seal and, once there is one, its outcome."""

    name: str  # of its folder, and of its page
    seal: Seal
    seal_sha256: str
    outcome: Outcome | None
    trouble: str | None  # as a sentence, if the seal is invalid
    words: str = ""  # the comment at the top of its declaration
    afterwards: Beside | None = None  # what was run after the outcome was known

    @property
    def stated_floor(self) -> float | None:
        """The law's floor, if it was given."""
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
    """The files in the experiment's folder; None without a seal."""
    seal, outcome = folder / "seal.json", folder / "outcome.json"
    if not seal.is_file():
        return None
    content = seal.read_bytes()
    trouble: str | None = None
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
    """The comment at the top of a file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return "\n".join(line[2:] for line in takewhile(lambda line: line.startswith("#"), lines))


def others(delphi: Delphi) -> list[Other]:
    """The alternatives from the same points."""
    measured = delphi.outcome.point.loss if delphi.outcome else None
    return [
        replace(one, error=one.loss / measured - 1) if measured and one.loss is not None else one
        for one in _others(delphi)
    ]


def _others(delphi: Delphi) -> Iterator[Other]:
    seal, stated, last = delphi.seal, delphi.stated_floor, delphi.rungs[-1]
    means = {rung.points[0].model_flops: rung.mean for rung in delphi.rungs}
    smaller, larger = dict(sorted(means.items())[1:]), dict(sorted(means.items())[:-1])
    other_floor = (
        (f"stated floor, c = {scaling.FLOOR:g}", means, scaling.FLOOR, scaling.fit)
        if stated is None
        else ("fitted floor", means, None, scaling.fit)
    )
    for words, points, floor, fit in (
        other_floor,
        ("no floor (a straight line on logarithmic axes)", means, 0.0, scaling.fit),
        ("without the smallest size", smaller, stated, scaling.fit),
        ("without the largest size", larger, stated, scaling.fit),
        ("Huber loss instead of squared error", means, stated, scaling.fit_huber),
    ):
        try:
            yield Other(words, fit(points, floor=floor).loss(seal.forecast.at))
        except scaling.Refused as error:
            yield Other(words, None, str(error))
    for axis in OTHER_AXES:
        words = f"{AXES[axis]} instead of {AXES[seal.forecast.axis]}"
        at = seal.design.on(axis) or 0.0
        said = sealed_forecast.forecast_again(seal, at, axis)
        if isinstance(said, Refusal):
            yield Other(words, None, said.words)
        else:
            yield Other(words, said.loss)
    yield Other("no scaling law: the score of the largest size", last.mean)
