"""Charts of studies: the speed-ups of an ablation, and the parabolas of an IsoFLOP analysis."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt
import numpy as np

from bot.site.base.chart import Chart, columns, rounded
from bot.site.base.drawn import Axis, Drawing, Mark
from bot.site.charts.curves import layered
from bot.site.facts.entries import Entry
from runner.analysis import ablation, isoflop
from runner.analysis.ablation import AXES, Board
from runner.analysis.isoflop import Cell, Optimum
from runner.analysis.scaling import Refused
from runner.lib.format import flops

GRID = 41  # points of a parabola
BPB = "Bits per byte on the validation text"
SPEEDUP = "Effective speed-up"
TOKENS = "Tokens"


def of_execution(entry: Entry) -> Chart:
    """The chart of an execution's study."""
    script = f"executions/{entry.execution.id}/study.js"
    if board := ablation.board(entry.plan, entry.runs):
        return _of_board(board, script)
    cells = isoflop.of_runs(entry.plan, entry.runs)
    try:
        return _of_parabolas(cells, isoflop.analyse(cells).optima, script)
    except Refused:
        return _of_parabolas(cells, (), script)


# ── Ablations ────────────────────────────────────────────────────────────────────────────────


def _of_board(board: Board, script: str) -> Chart:
    rows = [
        {
            "part": row.name,
            "axis": AXES[axis],
            "speedup": one.estimate,
            "low": rounded(one.low),
            "high": rounded(one.high),
            "outcome": one.outcome,
        }
        for row in board.rows
        for axis, one in row.speedups.items()
        if one
    ]
    marks = []
    for colour, axis in enumerate(AXES.values()):
        mine = [(n + colour / 5, row) for n, row in enumerate(rows, 1) if row["axis"] == axis]
        marks.append(Mark([(n, row["speedup"]) for n, row in mine], "dots", colour, name=axis))
        ends = [(n, row["low"], row["high"]) for n, row in mine if row["low"] is not None]
        marks.append(Mark(ends, "whiskers", colour))
    best = f" The largest in {rows[0]['axis']}: {rows[0]['part']}." if rows else ""
    return Chart(
        name="speedups",
        title=SPEEDUP,
        words=f"{SPEEDUP} of {len(board.rows)} parts in FLOPs and in seconds, with 95 % intervals."
        + best,
        spec=_speedups(),
        data={"speedups": columns(rows)},
        script=script,
        table="speedups",
        columns={
            "part": "Part",
            "axis": "In",
            "speedup": SPEEDUP,
            "low": "From",
            "high": "To",
            "outcome": "Outcome",
        },
        drawing=Drawing(Axis("Row of the data table"), Axis(SPEEDUP, log=True), marks),
        logs=(),
        note="Above 1, the part pays. A whisker is the 95 % interval; if it includes 1, it is a "
        "tie.",
    )


@cache
def _speedups() -> Mapping[str, Any]:
    base = alt.Chart(alt.NamedData("speedups"))
    y = alt.Y("part:N").title(None).sort(None)
    offset = alt.YOffset("axis:N")
    x = alt.X("speedup:Q").title(SPEEDUP).scale(type="log", nice=False, padding=12)
    colour = alt.Color("axis:N").title(None).legend(orient="top")
    tips = ["part:N", "axis:N", alt.Tooltip("speedup:Q", format=".3g"), "outcome:N"]
    one = alt.Chart(alt.NamedData("speedups")).mark_rule(strokeDash=[4, 4])
    return layered(
        one.encode(x=alt.datum(1)),
        base.mark_rule(strokeWidth=2).encode(
            x=alt.X("low:Q").title(SPEEDUP).scale(type="log", nice=False, padding=12),
            x2="high:Q",
            y=y,
            yOffset=offset,
            color=colour,
        ),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, yOffset=offset, color=colour, tooltip=tips
        ),
        height={"step": 18},
    )


# ── IsoFLOP ──────────────────────────────────────────────────────────────────────────────────


def _of_parabolas(cells: Sequence[Cell], optima: Sequence[Optimum], script: str) -> Chart:
    points = [
        {
            "budget": flops(cell.budget),
            "size": cell.size,
            "parameters": cell.parameters,
            "tokens": cell.tokens,
            "bpb": rounded(cell.loss),
            "seeds": len(cell.losses),
        }
        for cell in cells
    ]
    lines, best, marks = [], [], []
    known = {one.budget: one for one in optima}
    for colour, budget in enumerate(dict.fromkeys(cell.budget for cell in cells)):
        mine = [cell for cell in cells if cell.budget == budget]
        dots = [(cell.tokens, cell.loss) for cell in mine]
        marks.append(Mark(dots, "dots", colour, name=flops(budget)))
        if (one := known.get(budget)) is None or one.loss is None:
            continue
        ends = min(cell.tokens for cell in mine), max(cell.tokens for cell in mine)
        grid = np.geomspace(*ends, GRID)
        losses = np.polynomial.polynomial.polyval(np.log10(grid), one.parabola)
        curve = list(zip(grid.tolist(), losses.tolist(), strict=True))
        cross = [(one.tokens.value, one.loss)]
        marks += [Mark(curve, "line", colour), Mark(cross, "crosses", colour)]
        lines += [
            {"budget": flops(budget), "tokens": rounded(x), "bpb": rounded(y)} for x, y in curve
        ]
        best.append({"budget": flops(budget), "tokens": one.tokens.value, "bpb": one.loss})
    return Chart(
        name="isoflop",
        title="IsoFLOP",
        words=f"{BPB} over tokens at {len(known)} budgets of compute, each "
        "with a parabola and its minimum.",
        spec=_parabolas(),
        data={"points": columns(points), "lines": columns(lines), "best": columns(best)},
        script=script,
        table="points",
        columns={
            "budget": "FLOPs",
            "size": "Size",
            "parameters": "Parameters",
            "tokens": TOKENS,
            "bpb": BPB,
            "seeds": "Seeds",
        },
        drawing=Drawing(Axis(TOKENS, log=True), Axis(BPB), marks),
        logs=("x",),
        logged=("x",),
        note="Dots: means over seeds. Lines: parabolas in the logarithm of tokens. Crosses: their "
        "minima, the best number of tokens for each budget.",
    )


@cache
def _parabolas() -> Mapping[str, Any]:
    x = alt.X("tokens:Q").title(TOKENS).scale(type="log", nice=False)
    y = alt.Y("bpb:Q").title(BPB).scale(zero=False)
    colour = alt.Color("budget:N").title("FLOPs").sort(None).legend(orient="top")
    points, lines, best = (alt.Chart(alt.NamedData(name)) for name in ("points", "lines", "best"))
    tips = ["budget:N", "size:N", alt.Tooltip("tokens:Q", format=","), alt.Tooltip("bpb:Q")]
    return layered(
        lines.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=colour),
        points.mark_point(filled=True, size=50, opacity=1).encode(
            x=x, y=y, color=colour, tooltip=tips
        ),
        best.mark_point(shape="cross", size=120, strokeWidth=2).encode(
            x=x, y=y, color=colour, tooltip=["budget:N", alt.Tooltip("tokens:Q", format=".3g")]
        ),
    )
