"""The leaderboards: a page for each text, whose rows can be sorted, filtered and compared."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from bot.site import frontier
from bot.site.board import Entry, Group, Lab, Row
from bot.site.chart import Chart, rounded
from bot.site.drawn import Axis, Drawing, Mark
from bot.site.files import File, made_from
from bot.site.frontier import Front
from bot.site.frontier_chart import COSTS, frontier_spec
from bot.site.rows import SHOWN, Rows
from bot.site.templating import Look
from runner.record import run_name

TIERS = {
    "reproduced": "the lab ran it, from an approved commit",
    "self-reported": "somebody ran it elsewhere",
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
        return "reproduced" if self.row.entry.execution.origin else "self-reported"

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
        "parameters": row.planned.parameters,
        "tokens": row.planned.tokens,
        "flops": row.planned.model_flops,
        "hardware_flops": rounded(row.hardware_flops) if row.hardware_flops else None,
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
        yield _page(board.path, board, boards, facts, look)
    yield _page("leaderboards.html", boards[0] if boards else None, boards, facts, look)


def _page(path: str, board: Board | None, boards: list[Board], facts: Lab, look: Look) -> File:
    return look.page(
        path,
        "board.html",
        made_from(look.told, facts.told),
        board=board,
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
    lines = board.lines
    columns: dict[str, list[Any]] = {
        "arm": [line.row.arm for line in lines],
        "experiment": [line.row.entry.plan.title for line in lines],
        "mean": [rounded(line.row.mean) for line in lines],
        "low": [rounded(line.row.band[0]) for line in lines],
        "high": [rounded(line.row.band[1]) for line in lines],
        "tier": [line.tier for line in lines],
        "seeds": [line.row.summary.n for line in lines],
    }
    on = [line for line in lines if "on" in line.fronts.values()]
    edge: dict[str, list[Any]] = {"mean": [rounded(line.row.mean) for line in on]}
    for name, cost in COSTS.items():
        values = [cost.of(line.row) for line in lines]
        columns[name] = [None if value is None else rounded(value) for value in values]
        edge[name] = [
            rounded(cost.of(line.row) or 0) if line.fronts[name] == "on" else None for line in on
        ]
        if on:  # what costs more than the best row buys nothing so far
            edge[name].append(max((x for x in columns[name] if x is not None), default=None))
    if on:
        edge["mean"].append(min(edge["mean"]))
    front = [line for line in on if line.fronts["flops"] == "on"]
    words = "; ".join(
        f"{line.row.arm} {line.row.mean:.3f} at {line.row.planned.model_flops:.2e}"
        for line in sorted(front, key=lambda line: line.row.planned.model_flops)[:12]
    )
    return Chart(
        name="frontier",
        title="What quality costs",
        words="Bits per byte of each row over the model FLOPs of one run, with the spread over "
        f"seeds. On the Pareto frontier: {words or 'no row, since none has two seeds'}.",
        spec=frontier_spec(),
        data={"rows": columns, "frontier": edge},
        script=f"boards/{board.id}.chart.js",
        table="rows",
        columns={
            "arm": "Arm",
            "experiment": "Experiment",
            "flops": "Model FLOPs",
            "hardware_flops": "Hardware FLOPs",
            "mean": "Bits per byte",
            "low": "Mean − spread",
            "high": "Mean + spread",
        },
        drawing=_drawing(lines, front),
        choices={"x": {name: cost.title for name, cost in COSTS.items()}},
        logs=("x", "y"),
        logged=("x",),
        note="The line is the frontier: no row that costs as little has a better mean. Costs are "
        "those of one run; hardware FLOPs follow from the speed that jobs reported. Hollow: one "
        "seed, or runs missing.",
    )


def _drawing(lines: Sequence[Line], front: Sequence[Line]) -> Drawing:
    # A picture of thousands of rows is mostly one cloud; its best thousand tell as much.
    points = [(line.row.planned.model_flops, line.row) for line in lines[:1000]]
    edge = sorted((line.row.planned.model_flops, line.row.mean) for line in front)
    edge += [(max(cost for cost, _ in points), edge[-1][1])] if edge else []
    return Drawing(
        Axis("Model FLOPs", log=True),
        Axis("Bits per byte"),
        [
            Mark([(cost, *row.band) for cost, row in points], "whiskers", 6, faint=True),
            Mark([(cost, row.mean) for cost, row in points], "dots", 0),
            Mark(edge, "steps", 1),
        ],
    )


def whisker(row: Row) -> str:
    """A row's mean and spread, as CSS."""
    low, high = row.band
    return f"--lo:{rounded(low)};--mid:{rounded(row.mean)};--hi:{rounded(high)}"


def scale(lines: Sequence[Line]) -> str:
    """The ends of the scale on which the spreads of some rows are drawn, as CSS."""
    low = min(line.row.band[0] for line in lines)
    high = max(line.row.band[1] for line in lines)
    return f"--from:{rounded(low)};--to:{rounded(high if high > low else low + 1)}"
