"""The leaderboards: one page for each metric and text, with rows to sort, filter and compare."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from bot.site.base.chart import Chart, rounded
from bot.site.base.files import File, made_from
from bot.site.base.rows import SHOWN, Rows
from bot.site.charts import frontier_chart, record_chart
from bot.site.charts.record_chart import Dated
from bot.site.facts import frontier
from bot.site.facts.frontier import Point
from bot.site.facts.lab import Lab
from bot.site.facts.leaderboard import Group, Row
from bot.site.facts.reproductions import Again
from bot.site.pages.preview import Preview, spread
from bot.site.pages.templating import Look
from runner.analysis.estimates import Interval
from runner.analysis.speedrun_ranking import Tier
from runner.analysis.verdicts import ArmSummary
from runner.lib.format import many
from runner.schema import metrics
from runner.schema.metrics import BPB
from runner.schema.record import run_name

TIERS: dict[Tier, tuple[str, str]] = {  # what a page calls it, and what that means
    "reproduced": ("run by the lab", "the lab ran the approved commit once and scored it"),
    "replayed": (
        "replayed",
        "the lab repeated a random part of the training and got the same bits",
    ),
    "self-reported": ("self-reported", "only its author ran it"),
}
DISQUALIFIED = ("disqualified", "the lab found that the score does not count; the row says why")
AGAIN = (
    "reproduced ×n",
    "the lab ran the whole plan again n times, and the scores were the same within 1 %",
)

T = TypeVar("T")
HEIGHT = 130  # pixels of a chart above the table, without its axes
COSTS = {  # of one run
    "flops": "Model FLOPs",
    "hardware_flops": "Hardware FLOPs",
    "tokens": "Tokens",
    "parameters": "Parameters",
}
NAMED = 4  # leaderboards in the list at the top; the others are folded


def point(row: Row) -> Point:
    """A row with its cost and quality."""
    costs = {
        "flops": row.model_flops,
        "hardware_flops": row.hardware_flops,
        "tokens": row.planned.tokens,
        "parameters": row.parameters,
    }
    called, _ = TIERS[row.entry.tier(row.arm)]
    called = AGAIN[0].split()[0] if row.again.same else called
    return Point(row.arm, row.entry.plan.title, row.summary, called, costs, metric=row.metric)


@dataclass(frozen=True)
class Line:
    """A row on its page."""

    row: Row
    point: Point
    place: int  # best first, from 1

    @property
    def names(self) -> list[str]:
        """The names of its runs."""
        entry = self.row.entry
        return [f"{entry.execution.id}.{run_name(self.row.arm, seed)}" for seed in entry.plan.seeds]

    @property
    def told(self) -> str:
        """A text that differs whenever the row would: its records, its place among the other rows,
        and the name of its repository."""
        row, origin = self.row, self.row.entry.execution.origin
        among = row.rank, row.tied, row.leads, row.again, self.place, self.point.fronts
        return f"{row.entry.told} {row.arm} {among} {origin and origin.repository_name}"


def keys(line: Line) -> dict[str, Any]:
    """A row's keys for sorting and filtering."""
    row, entry, origin = line.row, line.row.entry, line.row.entry.execution.origin
    words = [row.arm, entry.plan.title, entry.author, entry.execution.id]
    words += [f"#{origin.pull}", origin.commit] if origin else ["local run"]
    spent = math.sqrt(row.spent.low * row.spent.high) if row.spent else None
    return {
        "place": line.place,
        **keys_of(line.point, words),
        **line.point.costs,
        "hardware_flops": rounded(spent),
        "at": round(row.ended.timestamp()),
        "author": entry.author,
        "hardware": entry.plan.cost.device,
    }


def keys_of(point: Point, words: Iterable[str]) -> dict[str, Any]:
    """The keys for sorting and filtering a row of any leaderboard. A row that is not compared has
    no fronts and no figure to sort by."""
    low, high = point.summary.band if point.fronts else (None, None)  # of the scale
    return {
        "mean": rounded(point.summary.mean if point.fronts else None, 9),
        "low": rounded(low),
        "high": rounded(high),
        "seeds": point.summary.n,
        "tier": point.tier,
        "front": [cost for cost, front in point.fronts.items() if front],
        "text": " ".join(words).lower(),
    }


@dataclass(frozen=True)
class Board:
    """One group as a page."""

    group: Group
    facts: Lab

    @property
    def id(self) -> str:
        """The id of its files; a text and a number of tokens have one leaderboard of a metric."""
        data, metric = self.group.data, self.group.metric
        if metric != BPB or data is None:
            return f"{self.group.identity[:12]}-{metric.replace('/', '-')}"
        return data.id

    @property
    def path(self) -> str:
        """The path of its page."""
        return f"boards/{self.id}.html"

    @property
    def text(self) -> str:
        """What its rows are scored on."""
        source = _source_of(self.group)
        return f"{source} (Python's standard library)" if source == "stdlib" else source

    @cached_property
    def source(self) -> str:
        """The name of that text, with what tells it apart from others of the same name."""
        same = [
            one
            for one in self.facts.groups
            if (one.metric, _source_of(one)) == (self.group.metric, _source_of(self.group))
        ]
        return ", ".join([_source_of(self.group), *_apart(self.group, same)])

    @property
    def name(self) -> str:
        """What a list of leaderboards calls it."""
        return self.source if self.group.metric == BPB else self.group.metric

    @property
    def unit(self) -> str:
        """The unit after a score; empty for none."""
        return metrics.what(self.group.metric).unit

    @property
    def better(self) -> str:
        """`lower` or `higher`."""
        return metrics.better(self.group.metric) or "lower"

    @property
    def title(self) -> str:
        """What it ranks."""
        if self.group.metric == BPB:
            return f"Bits per byte on {self.source}"
        return f"{self.group.metric} on {self.source}"

    @cached_property
    def lines(self) -> list[Line]:
        """Its rows, best first."""
        rows = self.group.rows
        found = zip(rows, frontier.placed([point(row) for row in rows]), strict=True)
        return [Line(row, at, place) for place, (row, at) in enumerate(found, 1)]

    @cached_property
    def broken(self) -> list[frontier.Broken]:
        """Its records, newest first."""
        return frontier.broken(self.group.rows)

    @cached_property
    def chart(self) -> Chart:
        """The quality of each row against its cost, and the frontier."""
        return frontier_chart.chart(
            [line.point for line in self.lines],
            COSTS,
            name="frontier",
            title="Cost and quality",
            script=f"boards/{self.id}.chart.js",
            height=HEIGHT,
        )

    @cached_property
    def history(self) -> Chart:
        """All rows by date, and the record."""
        what = metrics.what(self.group.metric)
        records = [one.row for one in reversed(self.broken)]
        return record_chart.chart(
            [*map(_dated, self.group.rows)],
            [*map(_dated, records)],
            f"{what.unit or what.words}, {metrics.better(self.group.metric)} is better",
            script=f"boards/{self.id}.records.js",
            height=HEIGHT,
        )

    @property
    def below(self) -> int:
        """How many rows that count have a lower mean than the record without breaking it."""
        if not self.broken:
            return 0
        best = self.broken[0].row.turned.middle
        return sum(row.turned.middle < best and row.summary.certain for row in self.group.rows)

    @cached_property
    def preview(self) -> Preview:
        """Its best rows with their spread, ties as ties."""
        rows = self.group.rows
        told = f"{many(len(rows), 'row')}, mean ± standard deviation over seeds"
        record = f"; the record is {self.broken[0].row.summary}" if self.broken else ""
        return Preview(
            self.path.removesuffix(".html"),
            "Leaderboard",
            self.title,
            f"{told}{record}; {self.better} is better.",
            spread([(f"{row.arm}, rank {row.place}", row.summary) for row in rows]),
            foot=f"{told}; {self.better} is better",
        )

    @cached_property
    def same(self) -> dict[str, str]:
        """What is alike in all rows, by column. The page says it once, without the column."""
        return alike(
            self.group.rows,
            {
                "author": lambda row: row.entry.author,
                "seeds": lambda row: _seeds(row.summary),
                "parameters": lambda row: _amount(row.parameters, "parameters"),
                "tokens": lambda row: _amount(row.planned.tokens, "tokens"),
                "status": lambda row: "" if row.again != Again() else status(row)[1],
            },
        )

    @cached_property
    def rows(self) -> Rows:
        """Its table."""
        names = {"whisker": whisker, "status": status, "same": self.same}
        return Rows(
            f"boards/{self.id}",
            "board",
            self.lines,
            keys,
            "board_row.html",
            names,
            told=[line.told for line in self.lines],
        )


def _dated(row: Row) -> Dated:
    return Dated(row.arm, row.entry.plan.title, row.ended, row.mean)


def files(boards: list[Board], facts: Lab, look: Look) -> Iterator[File]:
    """Each leaderboard's page and scripts; the first one is also `leaderboards.html`."""
    made = made_from(look.told, facts.told)

    def page(path: str, board: Board | None) -> File:
        return look.page(
            path,
            "board.html",
            made,
            board=board,
            preview=board.preview if board else None,
            boards=boards,
            named=named(boards, board),
            shown=SHOWN,
            whisker=whisker,
            status=status,
            same=board.same if board else {},
            scale=scale,
            ends=ends,
            costs=COSTS,
            tiers=[*TIERS.values(), AGAIN, DISQUALIFIED],
            without=facts.without_figures,
        )

    for board in boards:
        of = made_from(look.told, board.group.metric, board.group.identity, str(board.same))
        rows = made_from(of, *board.rows.told)
        for drawn in (board.chart, board.history):
            yield File(drawn.script, drawn.source, rows)
        yield from board.rows.files(look.pages, of)
        yield from board.preview.files(look)
        yield page(board.path, board)
    yield page("leaderboards.html", boards[0] if boards else None)


def alike(rows: Sequence[T], columns: Mapping[str, Callable[[T], str]]) -> dict[str, str]:
    """The cell of each column whose cells are all alike, of at least two rows, unless it is empty.
    `columns`: by name, what gives the cell of a row."""
    if len(rows) < 2:
        return {}
    return {
        name: first
        for name, cell in columns.items()
        if (first := cell(rows[0])) and all(cell(row) == first for row in rows)
    }


def _seeds(summary: ArmSummary) -> str:
    return many(summary.n, "seed") if summary.n == summary.of else ""


def _amount(of: int | None, what: str) -> str:
    return f"{of:,} {what}" if of else ""


def _source_of(group: Group) -> str:
    return group.data.source if group.data else "its own items"


def _apart(group: Group, same: Sequence[Group]) -> list[str]:
    """What tells a group apart from those whose text has the same name."""
    told = [_details(one) for one in same]
    mine = _details(group)
    found = [words for n, words in enumerate(mine) if len({one[n] for one in told}) > 1]
    if sum(one == mine for one in told) > 1:  # in the text itself, or in how it is measured
        found.append(group.identity[:6])
    return found


def _details(group: Group) -> tuple[str, str]:
    data = group.data
    return (f"{data.tokenizer} tokens", f"{data.eval_tokens:,} tokens") if data else ("", "")


def named(boards: Sequence[Board], here: Board | None) -> list[Board]:
    """The leaderboards that a page of one names: the first ones of bits per byte, and itself."""
    first = [one for one in boards if one.group.metric == BPB][:NAMED]
    return [*first, *([here] if here and here not in first else [])]


def whisker(summary: ArmSummary, interval: Interval | None = None) -> str:
    """A row's mean, spread and interval, as CSS."""
    low, high = summary.band
    ends = f";--from95:{rounded(interval[0])};--to95:{rounded(interval[1])}" if interval else ""
    return f"--lo:{rounded(low)};--mid:{rounded(summary.mean)};--hi:{rounded(high)}{ends}"


def ends(points: Iterable[Point]) -> Interval:
    """The ends of the common scale for the spreads of these rows."""
    bands = [one.summary.band for one in points]
    low, high = min((b[0] for b in bands), default=0.0), max((b[1] for b in bands), default=0.0)
    return low, high if high > low else low + 1


def scale(points: Iterable[Point]) -> str:
    """The same as CSS."""
    low, high = ends(points)
    return f"--from:{rounded(low)};--to:{rounded(high)}"


def status(row: Row) -> tuple[str, str, str]:
    """Who ran a row: a class of the style, what the page calls it, and what that means."""
    tier = row.entry.tier(row.arm)
    called, means = TIERS[tier]
    if row.again.same:
        return "again", f"reproduced ×{row.again.same}", row.again.words
    if row.again.differ:
        return "void", "not reproduced", row.again.words
    return tier, called, means
