"""The speedrun's page: each track with its rows and the frontier of cost and quality. Rows that are
not ranked say why."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from statistics import fmean
from typing import Any, Literal

from bot.site.base.chart import Chart, rounded
from bot.site.base.files import File, made_from
from bot.site.base.rows import Rows
from bot.site.charts import frontier_chart
from bot.site.charts.frontier_chart import Point
from bot.site.facts import frontier
from bot.site.facts.board import Lab
from bot.site.facts.frontier import Front
from bot.site.pages.boards import TIERS, whisker
from bot.site.pages.templating import Look
from runner.analysis import estimates, ranking, verdicts
from runner.analysis.ranking import Ranked, Row
from runner.analysis.verdicts import ArmSummary
from runner.lib import format
from runner.lib.canonical_json import to_json
from runner.schema import tracks
from runner.schema.tracks import Track


@dataclass(frozen=True)
class Scored:
    """A row that is scored on its track's text, as the frontier looks at it."""

    row: Row

    @cached_property
    def summary(self) -> ArmSummary:
        """Its seeds; all have a figure, or it would be void."""
        return verdicts.summary(list(self.row.figures), len(self.row.figures))

    @property
    def mean(self) -> float:
        """Bits per byte over its seeds."""
        return fmean(self.row.figures)

    @property
    def band(self) -> tuple[float, float]:
        """Mean ± spread."""
        around = self.summary.spread or 0.0
        return self.mean - around, self.mean + around


COSTS: Mapping[str, tuple[str, Callable[[Row], float | None]]] = {
    "hardware_flops": ("Hardware FLOPs", lambda row: _mean(row.hardware_flops)),
    # What a model of the author's own does is only its own word, which buys no place.
    "flops": ("Model FLOPs", lambda row: None if row.custom else _mean(row.model_flops)),
    "seconds": ("Training time, s", lambda row: _mean(row.seconds)),
    "tokens": ("Tokens", lambda row: row.tokens),
    "parameters": ("Parameters", lambda row: row.parameters),
}


@dataclass(frozen=True)
class Line:
    """A row as it stands on the page."""

    track: Track
    ranked: Ranked
    place: int  # best first, from 1
    tied: int  # how many rows share its rank
    scored: Scored | None  # None: not on the track's text, or not believed
    fronts: Mapping[str, Front]  # by cost

    @property
    def row(self) -> Row:
        """What was entered."""
        return self.ranked.row


@dataclass(frozen=True)
class Competition:
    """A track with its rows."""

    track: Track
    ranked: Sequence[Ranked]
    entered: Sequence[Row]  # on all tracks

    @property
    def id(self) -> str:
        """Of its table."""
        return f"{self.track.name}-rows"

    @cached_property
    def lines(self) -> list[Line]:
        """The ranked ones, best first, then those that are not."""
        kept = [Scored(one.row) for one in self.ranked if not ranking.refusal(self.track, one.row)]
        fronts: dict[str, dict[str, Front]] = {one.row.id: {} for one in kept}
        for name, (_, cost) in COSTS.items():
            found = frontier.fronts(kept, lambda one, cost=cost: cost(one.row))  # type: ignore[misc]
            for one, front in zip(kept, found, strict=True):
                fronts[one.row.id][name] = front
        scored = {one.row.id: one for one in kept}
        shared = Counter(one.rank for one in self.ranked)
        return [
            Line(
                self.track,
                one,
                at + 1,
                shared[one.rank],
                scored.get(one.row.id),
                fronts.get(one.row.id, {}),
            )
            for at, one in enumerate(self.ranked)
        ]

    @property
    def otherwise(self) -> str:
        """Whether who leads would change if the lab's own models, too, were counted in the other
        kind of FLOPs; empty where neither is what decides."""
        if self.track.kind not in ("target", "scaling") or not self.lines:
            return ""
        other: Literal["model", "hardware"] = "hardware" if self.track.cost == "model" else "model"
        told = self.track.model_copy(update={"cost": other})
        leads = [one.row.title for one in self.ranked if one.rank == 1]
        would = [one.row.title for one in ranking.rank(told, self.entered) if one.rank == 1]
        if not would or set(would) == set(leads):
            return f"Counted in {other} FLOPs, the same would lead." if would else ""
        return f"Counted in {other} FLOPs, {' and '.join(would)} would lead."

    @cached_property
    def rows(self) -> Rows:
        """Its table."""
        path = f"speedrun/{self.track.name}"
        return Rows(path, self.id, self.lines, keys, "speedrun_row.html", ROW)

    @cached_property
    def chart(self) -> Chart:
        """What quality costs on it."""
        points = [
            Point(
                line.row.title,
                line.row.author.name,
                line.scored.mean,
                line.scored.band,
                line.row.tier,
                line.scored.summary.n,
                {name: cost(line.row) for name, (_, cost) in COSTS.items()},
                line.fronts,
            )
            for line in self.lines
            if line.scored
        ]
        return frontier_chart.chart(
            points,
            {name: title for name, (title, _) in COSTS.items()},
            name=f"{self.track.name}-cost",
            script=f"speedrun/{self.track.name}.chart.js",
            note=", and hardware FLOPs are measured from outside; what own models count of "
            "themselves is not in it",
        )

    @property
    def scale(self) -> str:
        """The ends of the scale on which the spreads of the first rows are drawn, as CSS."""
        bands = [line.scored.band for line in self.rows.first if line.scored]
        low, high = min((b[0] for b in bands), default=0.0), max((b[1] for b in bands), default=0.0)
        return f"--from:{rounded(low)};--to:{rounded(high if high > low else low + 1)}"


def keys(line: Line) -> dict[str, Any]:
    """What a row is sorted and filtered by."""
    row, scored = line.row, line.scored
    low, high = scored.band if scored else (None, None)
    words = [row.title, row.author.name, row.author.affiliation, row.id, line.ranked.why]
    return {
        "place": line.place,
        "value": line.ranked.value,
        "mean": _rounded(scored.mean if scored else None),
        "low": _rounded(low),
        "high": _rounded(high),
        "seeds": len(row.figures),
        **{name: _rounded(cost(row)) for name, (_, cost) in COSTS.items()},
        "price": row.price,
        "tier": row.tier,
        "author": row.author.name,
        "ranked": "not ranked" if line.ranked.rank is None else "ranked",
        "front": [cost for cost, front in line.fronts.items() if front],
        "text": " ".join(words).lower(),
    }


def files(facts: Lab, look: Look) -> Iterator[File]:
    """`speedrun.html`, its twin, and the rows and charts of its tracks."""
    found, made = competitions(facts.competing), made_from(look.told, facts.told)
    yield File("api/speedrun.json", lambda: to_json(_twin(found)), made)
    for one in found:
        if one.ranked:
            yield from one.rows.files(look.pages, made)
            yield File(one.chart.script, partial(_source, one), made)
    yield look.page(
        "speedrun.html",
        "speedrun.html",
        made,
        boards=found,
        costs={name: title for name, (title, _) in COSTS.items()},
        tiers=TIERS,
        **ROW,
    )


def _source(one: Competition) -> str:
    return one.chart.source()


def competitions(rows: Iterable[Row]) -> list[Competition]:
    """Every track with its rows; those with rows first."""
    every = list(rows)
    known = tracks.known().values()
    found = [Competition(track, ranking.rank(track, every), every) for track in known]
    return sorted(found, key=lambda one: not one.ranked)


def value(track: Track, ranked: Ranked) -> str:
    """What a row is ranked by, in words, with its spread over seeds or the interval of its
    projection; empty where it is not ranked."""
    if ranked.value is None:
        return ""
    if track.kind == "target":
        spread = estimates.deviation(list(ranked.row.cost(track)))
        words = format.flops(ranked.value) + (f" ± {format.flops(spread)}" if spread else "")
        return f"{words} {'hardware' if ranked.row.custom else track.cost}"
    if track.kind == "time":
        spread = estimates.deviation(list(ranked.row.seconds))
        return format.duration(ranked.value) + (f" ± {spread:.2g} s" if spread else "")
    if ranked.interval:
        low, high = ranked.interval
        return f"{ranked.value:.4f} ({low:.4f} to {high:.4f})"
    return str(Scored(ranked.row).summary)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else rounded(value, 9)


ROW = {"value": value, "whisker": whisker, "mean": _mean}  # what its template needs


def _twin(found: Sequence[Competition]) -> dict[str, Any]:
    return {
        one.track.name: {
            "track": one.track.model_dump(mode="json"),
            "rows": [
                _row(line.ranked) | {"front": [name for name, on in line.fronts.items() if on]}
                for line in one.lines
            ],
        }
        for one in found
    }


def _row(ranked: Ranked) -> dict[str, Any]:
    told = asdict(ranked)
    row = told.pop("row")
    row["author"] = ranked.row.author.model_dump(mode="json")
    row["at"] = ranked.row.at.isoformat()
    row["void"] = ranked.row.void or ""  # as programs know it
    return told | row
