"""The leaderboards: one page per text, with rows to sort, filter and compare."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bot.site.base.chart import Chart, rounded
from bot.site.base.files import File, made_from
from bot.site.base.rows import SHOWN, Rows
from bot.site.charts import frontier_chart
from bot.site.facts import frontier
from bot.site.facts.frontier import Point
from bot.site.facts.lab import Lab
from bot.site.facts.leaderboard import Group, Row
from bot.site.pages.preview import Preview, spread
from bot.site.pages.templating import Look
from runner.analysis.speedrun_ranking import Tier
from runner.analysis.verdicts import ArmSummary
from runner.lib.format import many
from runner.schema.record import run_name

TIERS: dict[Tier, tuple[str, str]] = {  # what a page calls it, and what that means
    "reproduced": ("run by the lab", "the lab ran the approved commit and scored it"),
    "replayed": (
        "replayed",
        "the lab repeated a random part of the training and got the same bits",
    ),
    "self-reported": ("self-reported", "only its author ran it"),
}
DISQUALIFIED = ("disqualified", "the lab found that the score does not count; the row says why")


COSTS = {  # of one run
    "flops": "Model FLOPs",
    "hardware_flops": "Hardware FLOPs",
    "tokens": "Tokens",
    "parameters": "Parameters",
}


def point(row: Row) -> Point:
    """A row with its cost and quality."""
    costs = {
        "flops": row.model_flops,
        "hardware_flops": row.hardware_flops,
        "tokens": row.planned.tokens,
        "parameters": row.parameters,
    }
    called, _ = TIERS[row.entry.tier(row.arm)]
    return Point(row.arm, row.entry.plan.title, row.summary, called, costs)


@dataclass(frozen=True)
class Line:
    """A row on its page."""

    row: Row
    point: Point
    place: int  # best first, from 1
    why_not: str | None = None  # why its verdicts are not those of its preregistration

    @property
    def names(self) -> list[str]:
        """The names of its runs."""
        entry = self.row.entry
        return [f"{entry.execution.id}.{run_name(self.row.arm, seed)}" for seed in entry.plan.seeds]


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
        "author": entry.author,
        "hardware": entry.plan.cost.device,
    }


def keys_of(point: Point, words: Iterable[str]) -> dict[str, Any]:
    """The keys for sorting and filtering a row of any leaderboard. A row that is not compared has
    no fronts and no figure to sort by."""
    low, high = point.summary.band if point.fronts else (None, None)
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
        """The id of its files."""
        return self.group.data.id

    @property
    def path(self) -> str:
        """The path of its page."""
        return f"boards/{self.id}.html"

    @property
    def text(self) -> str:
        """What its rows are scored on."""
        source = self.group.data.source
        return f"{source} (Python's standard library)" if source == "stdlib" else source

    @property
    def title(self) -> str:
        """What it ranks."""
        return f"Bits per byte on {self.group.data.source}"

    @cached_property
    def lines(self) -> list[Line]:
        """Its rows, best first."""
        rows = self.group.rows
        found = zip(rows, frontier.placed([point(row) for row in rows]), strict=True)
        return [
            Line(row, at, place, self.facts.why_not(row.entry))
            for place, (row, at) in enumerate(found, 1)
        ]

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
            note=" Hardware FLOPs are training time × devices × their peak speed; the chart "
            "leaves out rows for which they were only estimated before the run.",
        )

    def figures(self) -> str:
        """Its chart's script."""
        return self.chart.source()

    @property
    def below(self) -> int:
        """How many rows that count have a lower mean than the record without breaking it."""
        if not self.broken:
            return 0
        best = self.broken[0].row
        return sum(row.mean < best.mean and row.summary.certain for row in self.group.rows)

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
            f"{told}{record}; lower is better.",
            spread([(f"{row.place} {row.arm}", row.summary) for row in rows]),
            foot=f"{told}; = means tied; lower is better",
        )

    @cached_property
    def rows(self) -> Rows:
        """Its table."""
        names = {"whisker": whisker}
        return Rows(f"boards/{self.id}", "board", self.lines, keys, "board_row.html", names)


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
            shown=SHOWN,
            chart=(lambda: board.chart) if board else None,
            whisker=whisker,
            scale=scale,
            costs=COSTS,
            tiers=TIERS.values(),
            without=facts.without_figures,
        )

    for board in boards:
        yield File(f"boards/{board.id}.chart.js", board.figures, made)
        yield from board.rows.files(look.pages, made)
        yield from board.preview.files(look)
        yield page(board.path, board)
    yield page("leaderboards.html", boards[0] if boards else None)


def whisker(summary: ArmSummary) -> str:
    """A row's mean and spread, as CSS."""
    low, high = summary.band
    return f"--lo:{rounded(low)};--mid:{rounded(summary.mean)};--hi:{rounded(high)}"


def scale(points: Iterable[Point]) -> str:
    """The ends of the common scale for the spreads of these rows, as CSS."""
    bands = [one.summary.band for one in points]
    low, high = min((b[0] for b in bands), default=0.0), max((b[1] for b in bands), default=0.0)
    return f"--from:{rounded(low)};--to:{rounded(high if high > low else low + 1)}"
