"""The leaderboards: a page for each text, whose rows can be sorted, filtered and compared."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from bot.site.base.chart import Chart, rounded
from bot.site.base.files import File, made_from
from bot.site.base.rows import SHOWN, Rows
from bot.site.charts import frontier_chart
from bot.site.charts.frontier_chart import Point
from bot.site.facts import frontier
from bot.site.facts.board import Entry, Group, Lab, Row
from bot.site.facts.frontier import Front
from bot.site.pages.preview import Line as Pictured
from bot.site.pages.preview import Preview, many, spread
from bot.site.pages.templating import Look
from runner.schema.record import run_name

TIERS = {
    "reproduced": "the lab ran it, from an approved commit",
    "replayed": "a random stretch of its training came out the same once more",
    "self-reported": "somebody ran it elsewhere",
}


@dataclass(frozen=True)
class Cost:
    """Something that a run spends."""

    title: str
    of: Callable[[Row], float | None]


COSTS: Mapping[str, Cost] = {
    "flops": Cost("Model FLOPs", lambda row: row.model_flops),
    "hardware_flops": Cost("Hardware FLOPs", lambda row: row.hardware_flops),
    "tokens": Cost("Tokens", lambda row: row.planned.tokens),
    "parameters": Cost("Parameters", lambda row: row.parameters),
}


@dataclass(frozen=True)
class Line:
    """A row as it stands on its page."""

    row: Row
    place: int  # best first, from 1
    fronts: Mapping[str, Front]  # by cost
    tied: int  # how many rows share its rank
    why_not: str = ""  # why its verdicts are not its preregistration's

    @property
    def tier(self) -> str:
        """Who vouches for its figures."""
        return self.row.entry.tier(self.row.arm)

    @property
    def author(self) -> str:
        """Who asked: the preregistration's author, or who approved it."""
        return author_of(self.row.entry)

    @property
    def hardware(self) -> str:
        """What it ran on."""
        return self.row.entry.plan.cost.device

    @property
    def names(self) -> list[str]:
        """What its runs are called."""
        entry = self.row.entry
        return [f"{entry.execution.id}.{run_name(self.row.arm, seed)}" for seed in entry.plan.seeds]


def keys(line: Line) -> dict[str, Any]:
    """What a row is sorted and filtered by."""
    row, origin = line.row, line.row.entry.execution.origin
    words = [row.arm, row.entry.plan.title, line.author, row.entry.execution.id]
    words += [f"#{origin.pull}", origin.commit] if origin else ["local run"]
    low, high = row.band
    return {
        "place": line.place,
        "mean": rounded(row.mean, 9),
        "low": rounded(low),
        "high": rounded(high),
        "seeds": row.summary.n,
        "parameters": row.parameters,
        "tokens": row.planned.tokens,
        "flops": row.model_flops,
        "hardware_flops": rounded(math.sqrt(row.spent.low * row.spent.high)) if row.spent else None,
        "tier": line.tier,
        "author": line.author,
        "hardware": line.hardware,
        "front": [cost for cost, front in line.fronts.items() if front],
        "text": " ".join(words).lower(),
    }


def author_of(entry: Entry) -> str:
    """Who asked: the preregistration's author, or who approved it."""
    if entry.seal:
        return entry.seal.author.login
    origin = entry.execution.origin
    return origin.approved_by.login if origin else "local"


@dataclass(frozen=True)
class Board:
    """One group as a page."""

    group: Group
    facts: Lab

    @property
    def id(self) -> str:
        """Of its files; a text and a number of tokens have one board."""
        data = self.group.data
        return f"{data.validation_sha256[:12]}-{data.eval_tokens}"

    @property
    def path(self) -> str:
        """Where its page lies."""
        return f"boards/{self.id}.html"

    @property
    def title(self) -> str:
        """What it ranks."""
        return f"Bits per byte on {self.group.data.source}"

    @cached_property
    def lines(self) -> list[Line]:
        """Its rows, best first."""
        rows = self.group.rows
        fronts = {name: frontier.fronts(rows, cost.of) for name, cost in COSTS.items()}
        shared = Counter(row.rank for row in rows)
        return [
            Line(
                row,
                at + 1,
                {name: fronts[name][at] for name in COSTS},
                shared[row.rank],
                self.facts.why_not(row.entry),
            )
            for at, row in enumerate(rows)
        ]

    @cached_property
    def broken(self) -> list[frontier.Broken]:
        """Its records, newest first."""
        return frontier.broken(self.group.rows)

    @cached_property
    def chart(self) -> Chart:
        """What quality costs on it."""
        return chart(self)

    @property
    def below(self) -> int:
        """How many rows that count have a lower mean than the record, which they did not break."""
        if not self.broken:
            return 0
        best = self.broken[0].row
        return sum(row.mean < best.mean and frontier.is_certain(row) for row in self.group.rows)

    @cached_property
    def preview(self) -> Preview:
        """Its best rows with their spread, ties as ties."""
        rows = self.group.rows
        lines = [
            Pictured(f"{_place(row)} {row.arm}", str(row.summary), bar=bar)
            for row, bar in spread(rows)
        ]
        told = f"{many(len(rows), 'row')}, each with its spread over seeds"
        record = f"; the record is {self.broken[0].row.summary}" if self.broken else ""
        return Preview(
            self.path.removesuffix(".html"),
            "Leaderboard",
            self.title,
            f"{told}{record}; lower is better.",
            tuple(lines),
            foot=f"{told}; = cannot be told apart; lower is better",
        )

    @cached_property
    def rows(self) -> Rows:
        """Its table."""
        names = {"whisker": whisker}
        return Rows(f"boards/{self.id}", "board", self.lines, keys, "board_row.html", names)


def boards_of(facts: Lab) -> list[Board]:
    """Every board, the one with most rows first."""
    return [Board(group, facts) for group in facts.groups]


def files(boards: list[Board], facts: Lab, look: Look) -> Iterator[File]:
    """Each board's page and scripts; the first one is `leaderboards.html` too."""
    for board in boards:
        made = made_from(look.told, facts.told)
        yield File(f"boards/{board.id}.chart.js", partial(_chart_source, board), made)
        yield from board.rows.files(look.pages, made)
        yield from board.preview.files(look)
        yield _page(board.path, board, boards, facts, look)
    yield _page("leaderboards.html", boards[0] if boards else None, boards, facts, look)


def _page(path: str, board: Board | None, boards: list[Board], facts: Lab, look: Look) -> File:
    return look.page(
        path,
        "board.html",
        made_from(look.told, facts.told),
        board=board,
        preview=board.preview if board else None,
        boards=boards,
        shown=SHOWN,
        chart=(lambda: board.chart) if board else None,
        whisker=whisker,
        scale=scale,
        costs=COSTS,
        tiers=TIERS,
        without=facts.without_figures,
    )


def _chart_source(board: Board) -> str:
    return board.chart.source()


def chart(board: Board) -> Chart:
    """What each row costs against how good it is, and the frontier."""
    points = [
        Point(
            line.row.arm,
            line.row.entry.plan.title,
            line.row.mean,
            line.row.band,
            line.tier,
            line.row.summary.n,
            {name: cost.of(line.row) for name, cost in COSTS.items()},
            line.fronts,
        )
        for line in board.lines
    ]
    return frontier_chart.chart(
        points,
        {name: cost.title for name, cost in COSTS.items()},
        name="frontier",
        script=f"boards/{board.id}.chart.js",
        note=", and hardware FLOPs that are only estimated are not in it",
    )


def _place(row: Row) -> str:
    return "–" if row.rank is None else f"{'=' if row.shared else ''}{row.rank}"


def whisker(row: Row) -> str:
    """A row's mean and spread, as CSS."""
    low, high = row.band
    return f"--lo:{rounded(low)};--mid:{rounded(row.mean)};--hi:{rounded(high)}"


def scale(lines: Sequence[Line]) -> str:
    """The ends of the scale on which the spreads of some rows are drawn, as CSS."""
    low = min(line.row.band[0] for line in lines)
    high = max(line.row.band[1] for line in lines)
    return f"--from:{rounded(low)};--to:{rounded(high if high > low else low + 1)}"
