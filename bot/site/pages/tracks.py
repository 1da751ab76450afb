"""The speedrun's page: each track with its rows and the frontier of cost and quality. Rows without
a rank say why."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from statistics import fmean
from typing import Any, Literal

from bot.site.base.chart import Chart, rounded
from bot.site.base.files import File, made_from
from bot.site.base.rows import Rows
from bot.site.charts import frontier_chart, record_chart
from bot.site.charts.record_chart import Dated
from bot.site.facts import frontier
from bot.site.facts.frontier import Point
from bot.site.facts.lab import Lab
from bot.site.pages.boards import DISQUALIFIED, HEIGHT, TIERS, alike, keys_of
from bot.site.pages.templating import Look
from runner.analysis import speedrun_checks, speedrun_position, speedrun_ranking, verdicts
from runner.analysis.speedrun_position import Position
from runner.analysis.speedrun_ranking import Ranked, Row
from runner.analysis.verdicts import ArmSummary
from runner.history import own_modules
from runner.lib.canonical_json import to_json
from runner.lib.format import many
from runner.schema.tracks import Track
from runner.store.store import Store

COSTS = {  # of one run
    "hardware_flops": "Hardware FLOPs",
    "flops": "Model FLOPs",
    "seconds": "Training time, s",
    "tokens": "Tokens",
    "parameters": "Parameters",
}
RANKED_BY = {
    "target": "FLOPs to the target",
    "budget": "bits per byte",
    "time": "seconds to the target",
    "scaling": "bits per byte, projected",
}


def point(row: Row) -> Point:
    """A row with its cost and quality."""
    costs = {
        "hardware_flops": mean(row.hardware_flops),
        # The FLOPs of an own model are a claim, which must not give a place on the frontier.
        "flops": None if row.custom else mean(row.model_flops),
        "seconds": mean(row.seconds),
        "tokens": row.tokens,
        "parameters": row.parameters,
    }
    seeds = verdicts.summary(list(row.figures), len(row.figures))
    called, _ = DISQUALIFIED if row.failed else TIERS[row.tier]
    return Point(row.title, row.author.name, seeds, called, costs)


@dataclass(frozen=True)
class Line:
    """A row on the page."""

    position: Position
    place: int  # best first, from 1
    point: Point  # on no frontier if it is not on the track's text, or rejected
    leads: bool  # the first row of its rank

    @property
    def track(self) -> Track:
        """Its track."""
        return self.position.track

    @property
    def ranked(self) -> Ranked:
        """Its rank, or why it has none."""
        return self.position.ranked

    @property
    def row(self) -> Row:
        """The entry."""
        return self.ranked.row

    @property
    def stated(self) -> float | None:
        """The relative spread that its track states, if it is ranked by one seed with it."""
        lone = self.ranked.rank is not None and len(self.row.figures) == 1
        return self.track.spread if lone and self.track.kind != "scaling" else None

    @property
    def summary(self) -> ArmSummary | None:
        """Its figures, if they are on the track's text."""
        return self.point.summary if self.point.fronts else None


@dataclass(frozen=True)
class Competition:
    """A track with its rows."""

    track: Track
    positions: Sequence[Position]
    entered: Sequence[Row]  # on all tracks

    @property
    def ranked(self) -> list[Ranked]:
        """Its rows: the ranked ones, best first, then the others."""
        return [one.ranked for one in self.positions]

    @property
    def standing(self) -> Ranked | None:
        """The record now."""
        return speedrun_position.standing(self.ranked)

    @property
    def id(self) -> str:
        """The id of its table."""
        return f"{self.track.name}-rows"

    @cached_property
    def lines(self) -> list[Line]:
        """The ranked rows, best first, then the others."""
        points = [point(one.row) for one in self.ranked]
        kept = [
            n
            for n, one in enumerate(self.ranked)
            if not speedrun_ranking.refusal(self.track, one.row)
        ]
        for n, placed in zip(kept, frontier.placed([points[n] for n in kept]), strict=True):
            points[n] = placed
        ranks = [None, *(one.rank for one in self.ranked)]
        return [
            Line(one, n + 1, points[n], leads=one.ranked.rank != ranks[n])
            for n, one in enumerate(self.positions)
        ]

    @property
    def otherwise(self) -> str | None:
        """Who would lead if the other kind of FLOPs counted for the lab's own models, as a
        sentence; None if FLOPs do not decide."""
        if self.track.kind not in ("target", "scaling") or not self.ranked:
            return None
        other: Literal["model", "hardware"] = "hardware" if self.track.cost == "model" else "model"
        told = self.track.model_copy(update={"cost": other})
        leads = [one.row.title for one in self.ranked if one.rank == 1]
        would = [
            one.row.title for one in speedrun_ranking.rank(told, self.entered) if one.rank == 1
        ]
        if not would:
            return None
        same = "the same row" if len(leads) == 1 else "the same rows"
        who = same if set(would) == set(leads) else " and ".join(would)
        return f"If the track counted {other} FLOPs, {who} would lead."

    @cached_property
    def same(self) -> dict[str, str]:
        """What is alike in all rows, by column. The page says it once, without the column."""
        return alike(
            self.lines,
            {
                "author": lambda one: one.row.author.name,
                "seeds": lambda one: "" if one.stated else many(len(one.row.figures), "seed"),
                "tried": lambda one: "" if (n := _tried(one.row)) is None else f"{n} tried before",
                "status": lambda one: (
                    "" if one.row.custom or one.row.reproduced else one.point.tier
                ),
            },
        )

    @cached_property
    def rows(self) -> Rows:
        """Its table."""
        path = f"speedrun/{self.track.name}"
        names = {**ROW, "same": self.same}
        return Rows(path, self.id, self.lines, keys, "speedrun_row.html", names)

    @cached_property
    def history(self) -> Chart:
        """Its rows by date, and the record."""
        ranked = [one for one in self.ranked if one.value is not None]
        records = sorted((one for one in ranked if one.record), key=lambda one: one.row.at)
        return record_chart.chart(
            [*map(_dated, ranked)],
            [*map(_dated, records)],
            f"{RANKED_BY[self.track.kind]}, lower is better",
            name=f"{self.track.name}-records",
            heading=f"Record over time, {self.track.name}",
            of="Author",
            script=f"speedrun/{self.track.name}.records.js",
            height=HEIGHT,
        )

    @cached_property
    def chart(self) -> Chart:
        """Its chart of quality against cost."""
        return frontier_chart.chart(
            [line.point for line in self.lines if line.summary],
            COSTS,
            name=f"{self.track.name}-cost",
            title=f"Cost and quality, {self.track.name}",
            script=f"speedrun/{self.track.name}.chart.js",
            height=HEIGHT,
        )


def keys(line: Line) -> dict[str, Any]:
    """A row's keys for sorting and filtering."""
    row, author = line.row, line.row.author
    words = [row.title, author.name, author.affiliation, row.id, line.ranked.why]
    return {
        "place": line.place,
        "value": line.ranked.value,
        **keys_of(line.point, words),
        **{name: rounded(cost, 9) for name, cost in line.point.costs.items()},
        "ships": row.shipped and row.shipped.size,
        "tried": _tried(row),
        "price": row.price,
        "author": author.name,
        "ranked": "not ranked" if line.ranked.rank is None else "ranked",
    }


def files(facts: Lab, look: Look, store: Store) -> Iterator[File]:
    """`speedrun.html`, its JSON, and the rows and charts of its tracks."""
    competing, tracks = facts.competing, facts.tracks
    made = made_from(look.told, *map(repr, competing), *(one.digest() for one in tracks.values()))
    found = competitions(competing, tracks, partial(own_modules.changed_in, store))
    yield File("api/speedrun.json", lambda: to_json(_twin(found)), made)
    for one in found:
        if one.ranked:
            yield from one.rows.files(look.pages, made)
            for drawn in (one.history, one.chart):
                yield File(drawn.script, drawn.source, made)
    yield look.page(
        "speedrun.html",
        "speedrun.html",
        made,
        boards=found,
        costs=COSTS,
        tiers=[*TIERS.values(), DISQUALIFIED],
        checks=speedrun_checks.CHECKS,
        **ROW,
    )


def competitions(
    rows: Iterable[Row],
    tracks: Mapping[str, Track],
    lines: Callable[[str, str], int] = lambda *_: 0,
) -> list[Competition]:
    """Every track with its rows; those with rows first. `lines`: as `speedrun_position.positions`
    wants it."""
    every, known, count = list(rows), tracks.values(), cache(lines)
    found = [
        Competition(track, speedrun_position.positions(track, every, count), every)
        for track in known
    ]
    return sorted(found, key=lambda one: not one.ranked)


def _tried(row: Row) -> int | None:
    told = row.trials is not None or row.searched
    return (row.trials or 0) + row.searched if told else None


def _dated(ranked: Ranked) -> Dated:
    row = ranked.row
    return Dated(row.title, row.author.name, row.at, ranked.value or 0.0)


def mean(values: Sequence[float]) -> float | None:
    """Over a row's seeds; None if unknown."""
    return fmean(values) if values else None


ROW = {
    "p_value": speedrun_position.p_value,
    "value": speedrun_position.value,
    "mean": mean,
}  # for its template


def _twin(found: Sequence[Competition]) -> dict[str, Any]:
    return {
        one.track.name: {
            "track": one.track.model_dump(mode="json"),
            "rows": [
                _row(line.position)
                | {"front": [name for name, on in line.point.fronts.items() if on]}
                for line in one.lines
            ],
        }
        for one in found
    }


def _row(position: Position) -> dict[str, Any]:
    ranked = position.ranked
    told = asdict(ranked) | {"of": position.of, "below": position.below}
    told["changes"] = position.diff and asdict(position.diff)
    row = told.pop("row")
    row["author"] = ranked.row.author.model_dump(mode="json")
    row["at"] = ranked.row.at.isoformat()
    row["failed"] = str(ranked.row.failed or "")
    row["shipped"] = ranked.row.shipped and ranked.row.shipped.model_dump(mode="json")
    return told | row
