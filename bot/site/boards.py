"""The leaderboards: a page for each text, whose rows can be sorted, filtered and compared.

A page holds its first rows. All of them lie in script files beside it, as the same HTML with what
they are sorted and filtered by, and are loaded when somebody asks for more than the page holds.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from bot.site import frontier
from bot.site.board import Entry, Group, Lab, Row
from bot.site.chart import Chart, rounded, taken
from bot.site.drawn import Axis, Drawing, Mark
from bot.site.files import File
from bot.site.frontier import Front
from bot.site.frontier_chart import COSTS, frontier_spec
from bot.site.templating import Look
from runner.record import run_name

SHOWN = 50  # rows of a page
CHUNK = 1_000  # rows of a script file
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

    @property
    def keys(self) -> list[Any]:
        """What it is sorted and filtered by, in the order of `KEYS`."""
        row, origin = self.row, self.row.entry.execution.origin
        words = [row.arm, row.entry.plan.title, self.author, row.entry.execution.id]
        words += [f"#{origin.pull}", origin.commit] if origin else ["local run"]
        return [
            self.place,
            rounded(row.mean, 9),
            *map(rounded, row.band),
            row.summary.n,
            row.planned.parameters,
            row.planned.tokens,
            row.planned.model_flops,
            rounded(row.hardware_flops, 6) if row.hardware_flops else None,
            self.tier,
            self.author,
            self.hardware,
            [self.fronts[cost] for cost in COSTS],
            " ".join(words).lower(),
        ]


KEYS = (
    *("place", "mean", "low", "high", "seeds", "parameters", "tokens", "flops", "hardware_flops"),
    *("tier", "author", "hardware", "fronts", "text"),
)


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
            Line(row, at + 1, {name: fronts[name][at] for name in COSTS}, shared[row.rank])
            for at, row in enumerate(rows)
        ]

    @cached_property
    def broken(self) -> list[frontier.Broken]:
        """Its records, newest first."""
        return frontier.broken(self.group.rows)

    @property
    def below(self) -> int:
        """How many rows that count have a lower mean than the record, which they did not break."""
        if not self.broken:
            return 0
        best = self.broken[0].row
        return sum(row.mean < best.mean and frontier.is_certain(row) for row in self.group.rows)

    @property
    def chunks(self) -> list[str]:
        """Where the scripts with all of its rows lie."""
        return [f"boards/{self.id}.{n}.js" for n in range(-(-len(self.lines) // CHUNK))]

    def choices(self, name: str) -> list[str]:
        """What its rows can be filtered by."""
        return sorted({str(getattr(line, name)) for line in self.lines})


def files(facts: Lab, look: Look) -> Iterator[File]:
    """Each board's page and scripts; the first one is `leaderboards.html` too."""
    boards = [Board(group) for group in facts.groups]
    for board in boards:
        yield File(f"boards/{board.id}.chart.js", partial(_chart_source, board))
        for n, path in enumerate(board.chunks):
            yield File(path, partial(_chunk, board, n, path, look))
        yield _page(board.path, board, boards, facts, look)
    yield _page("leaderboards.html", boards[0] if boards else None, boards, facts, look)


def _page(path: str, board: Board | None, boards: list[Board], facts: Lab, look: Look) -> File:
    return look.page(
        path,
        "board.html",
        board=board,
        boards=boards,
        shown=SHOWN,
        chart=partial(chart, board) if board else None,
        whisker=whisker,
        scale=scale,
        costs=COSTS,
        tiers=TIERS,
        without=facts.without_figures,
    )


def _chart_source(board: Board) -> str:
    return chart(board).source()


def _chunk(board: Board, n: int, path: str, look: Look) -> str:
    # Rows link to what is above the page's own folder, as leaderboards.html is and boards/ is not:
    # the script puts the right root in its place.
    names = {"root": "{root}", "whisker": whisker}
    module: Any = look.pages.get_template("board_row.html").make_module(names)
    rows = [
        [str(module.row(line)), *line.keys] for line in board.lines[n * CHUNK : (n + 1) * CHUNK]
    ]
    return taken(path, {"keys": KEYS, "rows": rows})


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
    edge: dict[str, list[Any]] = {"mean": []}
    on = [line for line in lines if "on" in line.fronts.values()]
    edge["mean"] = [rounded(line.row.mean) for line in on]
    for name, cost in COSTS.items():
        values = [cost.of(line.row) for line in lines]
        columns[name] = [None if value is None else rounded(value) for value in values]
        edge[name] = [
            rounded(cost.of(line.row) or 0) if line.fronts[name] == "on" else None for line in on
        ]
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
