"""The result of a study (an ablation, an IsoFLOP analysis, a search for settings) as sentences,
tables and JSON: the same for the comment, the page and the terminal. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.analysis import ablation, isoflop
from runner.analysis.ablation import Board, Cell, ratio
from runner.analysis.isoflop import Figure, Found, Law, Optimum
from runner.analysis.scaling import Refused
from runner.analysis.speedup import Speedup
from runner.lib import format
from runner.lib.format import UNKNOWN, flops
from runner.schema.record import Plan, Run, Tuned


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is a name."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    details: str = ""  # if it is folded, what it shows


@dataclass(frozen=True)
class Shown:
    """The result of a study."""

    title: str
    tables: tuple[Table, ...]
    sentences: tuple[str, ...]  # names between backticks
    data: dict[str, Any]
    finding: str = ""  # the first thing to say about it; empty if it has no finding of its own


def of(plan: Plan, runs: Sequence[Run]) -> list[Shown]:
    """The results of a plan's study and of its search for settings; empty if it has none, or no
    score yet."""
    found = list[Shown]()
    if not any(run.evaluated for run in runs):
        return found
    if board := ablation.board(plan, runs):
        found.append(_of_ablation(board))
    if plan.isoflop:
        try:
            cells = isoflop.of_runs(plan, runs)
            found.append(_of_isoflop(isoflop.analyse(cells, plan.isoflop.ahead)))
        except Refused as error:
            data = {"kind": "isoflop", "why": str(error)}
            words = f"There is no optimum. {error}"
            found.append(Shown("IsoFLOP", (), (words,), data, words))
    if tuned := {run.arm: run.tuned for run in runs if run.tuned}:
        found.append(_of_searches(tuned))
    return found


# ── Searches for settings ────────────────────────────────────────────────────────────────────


def _of_searches(tuned: Mapping[str, Tuned]) -> Shown:
    chosen = Table(
        head=("arm", "settings", "trials", "standard error of a setting's mean", "why it stopped"),
        rows=tuple(
            (
                arm,
                format.flow(one.settings),
                str(len(one.trials)),
                UNKNOWN if one.noise is None else f"{one.noise:.2g}",
                one.why,
            )
            for arm, one in tuned.items()
        ),
    )
    trials = Table(
        head=("arm", "settings", "seed", "eval/bpb"),
        rows=tuple(
            (
                arm,
                format.flow(trial.settings),
                str(trial.seed),
                "diverged" if trial.bpb is None else f"{trial.bpb:.4f}",
            )
            for arm, one in tuned.items()
            for trial in one.trials
        ),
        details="All trials",
    )
    words = (
        "Each arm ran with the settings that its search found, and with other seeds than those of "
        "its trials. A trial is scored at the end of its schedule. A setting is better only by "
        "more than the noise between seeds; a tie keeps what was there before."
    )
    data = {
        "kind": "tuning",
        "arms": {arm: one.model_dump(mode="json") for arm, one in tuned.items()},
    }
    return Shown("Tuning", (chosen, trials), (words,), data)


# ── Ablations ────────────────────────────────────────────────────────────────────────────────


def _of_ablation(board: Board) -> Shown:
    head = (
        "part",
        "",
        "speed-up in FLOPs",
        "speed-up in seconds",
        "FLOPs per token",
        "tokens per second",
    )
    whole = Table(
        head=head,
        rows=tuple(
            (
                row.name,
                "held out" if row.part.held_out else "added",
                *(ratio(row.speedups[axis]) for axis in ablation.AXES),
                _times(row.flops_per_token),
                _times(row.speed),
            )
            for row in board.rows
        ),
    )
    by_size = Table(
        head=("part", "size", "eval/bpb, with minus without", *head[2:4], "seeds"),
        rows=tuple(
            (
                row.name,
                cell.size,
                cell.difference_words,
                *(ratio(cell.speedups[axis]) for axis in ablation.AXES),
                str(cell.seeds),
            )
            for row in board.rows
            for cell in row.cells
        ),
        details="Each size",
    )
    how = (
        "A speed-up is how many times the compute the recipe without the part would need for the "
        "loss that it has with the part. Above 1, the part pays. Intervals are of 95 %, over "
        "seeds (paired), the exponent and the floor of the baseline's law. If one includes 1, it "
        "is a tie."
    )
    sentences = (*(f"{row.sentence}." for row in board.rows), how)
    notes = tuple(f"{note}." for note in board.notes)
    finding = board.rows[0].sentence if board.rows else ""
    return Shown("Ablation", (whole, by_size), (*sentences, *notes), _board_data(board), finding)


def _times(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g} ×"


def _board_data(board: Board) -> dict[str, Any]:
    return {
        "kind": "ablation",
        "level": 0.95,
        "sizes": list(board.sizes),
        "parts": [
            {
                "name": row.name,
                "held_out": row.part.held_out,
                "speedup": {axis: _ratio_data(one) for axis, one in row.speedups.items()},
                "flops_per_token": row.flops_per_token,
                "tokens_per_second": row.speed,
                "sizes": [_cell_data(cell) for cell in row.cells],
                "why": row.why,
            }
            for row in board.rows
        ],
        "notes": list(board.notes),
    }


def _cell_data(cell: Cell) -> dict[str, Any]:
    return {
        "size": cell.size,
        "seeds": cell.seeds,
        "difference": cell.difference,
        "interval": cell.interval,
        "speedup": {axis: _ratio_data(one) for axis, one in cell.speedups.items()},
    }


def _ratio_data(one: Speedup | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"value": one.estimate, "low": one.low, "high": one.high, "outcome": one.outcome}


# ── IsoFLOP ──────────────────────────────────────────────────────────────────────────────────


def _of_isoflop(found: Found) -> Shown:
    optima = Table(
        head=("budget", "best tokens D*", "best parameters N*", "D*/N*", "eval/bpb there"),
        rows=tuple(map(_optimum, (*found.optima, *found.ahead))),
    )
    recipes = Table(
        head=("size", "parameters", "tokens", "FLOPs"),
        rows=tuple(
            (one.size, f"{one.parameters:,}", _figure(one.tokens), _figure(one.flops))
            for one in found.recipes
        ),
        details="How long each size should be trained",
    )
    sentences = [
        f"{name}*(C) = {law.factor:.4g} · C^{law.exponent.value:.4g}{_interval(law.exponent)}."
        for name, law in (("D", found.tokens), ("N", found.parameters))
        if law
    ]
    sentences += [f"Not covered: {words}." for words in found.left_out]
    sentences.append(
        "D* is the minimum of a parabola through the losses of a budget over the logarithm of "
        "tokens. Intervals are of 95 %, from a bootstrap of the losses."
    )
    tables = (optima, recipes) if found.recipes else (optima,)
    return Shown("IsoFLOP", tables, tuple(sentences), _found_data(found), sentences[0])


def _optimum(one: Optimum) -> tuple[str, ...]:
    return (
        flops(one.budget),
        _figure(one.tokens),
        _figure(one.parameters),
        f"{one.tokens_per_parameter:.3g}",
        "by the law" if one.loss is None else f"{one.loss:.4f}",
    )


def _figure(one: Figure) -> str:
    return f"{_large(one.value)}{_interval(one)}"


def _interval(one: Figure) -> str:
    return f" ({' to '.join(map(_large, one.interval))})" if one.interval else ", no interval"


def _large(value: float) -> str:
    return f"{value:.3g}".replace("e+", "e")


def _found_data(found: Found) -> dict[str, Any]:
    return {
        "kind": "isoflop",
        "level": 0.95,
        "optima": [_optimum_data(one) for one in (*found.optima, *found.ahead)],
        "laws": {
            name: _law_data(law)
            for name, law in (("tokens", found.tokens), ("parameters", found.parameters))
        },
        "sizes": [
            {
                "size": one.size,
                "parameters": one.parameters,
                "tokens": vars(one.tokens),
                "flops": vars(one.flops),
            }
            for one in found.recipes
        ],
        "notes": list(found.left_out),
    }


def _optimum_data(one: Optimum) -> dict[str, Any]:
    return {
        "budget": one.budget,
        "tokens": vars(one.tokens),
        "parameters": vars(one.parameters),
        "loss": one.loss,
        "parabola": one.parabola if one.loss is not None else None,
    }


def _law_data(law: Law | None) -> dict[str, Any] | None:
    return {"factor": law.factor, "exponent": vars(law.exponent)} if law else None
