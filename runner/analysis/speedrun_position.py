"""Where an entry stands on its track: its rank, whether it is a record and by how much, what it
changed, and what its rank would be under other terms. Comments and boards show the same. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from runner.analysis import estimates, speedrun_ranking
from runner.analysis.speedrun_ranking import Ranked, Row
from runner.lib import format
from runner.lib.format import duration, flops, many
from runner.schema.tracks import Track

# Settings that only say where code is, how it runs and what is kept of it on the way.
NOTHING = ("own.", "compute.", "options.", "train.checkpoint_", "train.keep_")
BUDGETS = (2.0, 10.0)  # multiples of a track's budget
TARGETS = (1.05, 0.95)  # of its target
REACHES = (10.0, 100.0)  # of the compute that it projects to


@dataclass(frozen=True)
class Change:
    """A setting in which two entries differ; None where one of them does not have it."""

    name: str
    before: str | None
    now: str | None


@dataclass(frozen=True)
class Diff:
    """What an entry changed of another one."""

    settings: tuple[Change, ...]
    lines: int  # of own modules, added or removed

    def __str__(self) -> str:
        parts = [many(len(self.settings), "setting")] * bool(self.settings)
        parts += [f"{many(self.lines, 'line')} of code"] * bool(self.lines)
        return " and ".join(parts) or "nothing"


@dataclass(frozen=True)
class Elsewhere:
    """The rank of an entry if its track had another budget, target or reach."""

    terms: str
    rank: int | None
    of: int  # ranked rows there
    why: str = ""


@dataclass(frozen=True)
class Position:
    """An entry on its track."""

    track: Track
    ranked: Ranked
    of: int  # ranked rows
    tied: int  # rows that share its rank, itself included
    before: Ranked | None = None  # the record that it had to beat; None: it was the first
    diff: Diff | None = None  # against that record
    elsewhere: tuple[Elsewhere, ...] = ()

    @property
    def row(self) -> Row:
        """The entry."""
        return self.ranked.row

    @property
    def below(self) -> float | None:
        """By how much its value is below that of the record before; negative if it is above."""
        if self.before is None or self.before.value is None or self.ranked.value is None:
            return None
        return self.before.value - self.ranked.value

    @property
    def by(self) -> str:
        """The same as text; empty if there was no record."""
        if self.below is None:
            return ""
        amount, side = abs(self.below), "below" if self.below > 0 else "above"
        if self.track.kind == "target":
            return f"{flops(amount)} FLOPs {side}"
        if self.track.kind == "time":
            return f"{duration(amount)} {side}"
        return f"{amount:.4f} bits per byte {side}"

    @property
    def short(self) -> str:
        """The same as a signed number, negative if it is below; empty if there was no record."""
        if self.below is None:
            return ""
        sign, amount = "−" if self.below > 0 else "+", abs(self.below)
        if self.track.kind == "target":
            return sign + flops(amount)
        return sign + (duration(amount) if self.track.kind == "time" else f"{amount:.4f}")

    @property
    def place(self) -> str:
        """`rank 2 of 7`, `rank 2 of 7, tied with 1 other row`."""
        if self.ranked.rank is None:
            return "no rank"
        tied = f", tied with {many(self.tied - 1, 'other row')}" if self.tied > 1 else ""
        return f"rank {self.ranked.rank} of {self.of}{tied}"


def standing(ranked: Iterable[Ranked]) -> Ranked | None:
    """The record now: the newest of those that were records at their time; None without any."""
    records = (one for one in ranked if one.record)
    return max(records, key=lambda one: (one.row.at, one.row.id), default=None)


def value(track: Track, ranked: Ranked) -> str:
    """A row's ranked value as text, with its spread over seeds or the interval of its projection; a
    dash without a rank."""
    if ranked.value is None:
        return format.UNKNOWN
    if track.kind == "target":
        spread = estimates.deviation(list(ranked.row.cost(track)))
        words = flops(ranked.value) + (f" ± {flops(spread)}" if spread else "")
        return f"{words} {'hardware' if ranked.row.custom else track.cost}"
    if track.kind == "time":
        spread = estimates.deviation(list(ranked.row.seconds))
        return duration(ranked.value) + (f" ± {spread:.2g} s" if spread else "")
    if ranked.interval:
        low, high = ranked.interval
        return f"{ranked.value:.4f} ({low:.4f} to {high:.4f})"
    spread = estimates.deviation(list(ranked.row.figures))
    return f"{fmean(ranked.row.figures):.4f}" + (f" ± {spread:.4f}" if spread else "")


def p_value(p: float | None) -> str:
    """`p = 0.012`, `p < 0.0001`; empty if there is none."""
    if p is None:
        return ""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def positions(
    track: Track,
    rows: Sequence[Row],
    lines: Callable[[str, str], int],
    only: Callable[[Row], bool] = lambda _: True,
    *,
    elsewhere: bool = False,
) -> list[Position]:
    """Every entry of a track (or `only` some), best first. `rows`: of all tracks. `lines`: how many
    lines the own modules in two folders of the store differ in."""
    ranked = speedrun_ranking.rank(track, rows)
    known = {one.row.id: one for one in ranked}
    placed = [one.rank for one in ranked if one.rank is not None]
    other = list(_variants(track, rows)) if elsewhere else []
    found = []
    for one in ranked:
        if not only(one.row):
            continue
        before = known.get(one.against)
        found.append(
            Position(
                track=track,
                ranked=one,
                of=len(placed),
                tied=placed.count(one.rank) if one.rank is not None else 1,
                before=before,
                diff=diff(before.row, one.row, lines) if before else None,
                elsewhere=tuple(_elsewhere(one, *variant) for variant in other),
            )
        )
    return found


def diff(before: Row, now: Row, lines: Callable[[str, str], int]) -> Diff:
    """What `now` changed of `before`."""
    old, new = dict(before.settings), dict(now.settings)
    changes = tuple(
        Change(name, old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name) and not name.startswith(NOTHING)
    )
    alike = before.code == now.code
    return Diff(changes, 0 if alike else lines(before.code, now.code))


def _variants(track: Track, rows: Iterable[Row]) -> Iterator[tuple[str, list[Ranked]]]:
    """Its terms with other numbers, with the rows of all tracks on the same text ranked by them.
    There, any number of seeds counts."""
    wanted = track.data.validation_sha256, track.data.eval_tokens
    alike = [
        replace(row, track=track.name)
        for row in rows
        if row.scored and (row.scored.validation_sha256, row.scored.eval_tokens) == wanted
        if track.kind != "scaling" or row.track == track.name
    ]
    for words, terms in _terms(track):
        other = track.model_copy(update={**terms, "seeds": None})
        yield words, speedrun_ranking.rank(other, alike)


def _terms(track: Track) -> Iterator[tuple[str, dict[str, float]]]:
    if track.kind == "budget" and track.seconds:
        for times in BUDGETS:
            yield duration(times * track.seconds), {"seconds": times * track.seconds}
    elif track.kind == "budget":
        for times in BUDGETS:
            budget = times * (track.budget or 0.0)
            yield f"{flops(budget)} FLOPs", {"budget": budget}
    elif track.kind == "scaling":
        for times in REACHES:
            yield f"{flops(times * (track.at or 0.0))} FLOPs", {"at": times * (track.at or 0.0)}
    else:
        for times in TARGETS:
            target = times * (track.target or 0.0)
            yield f"a target of {target:.4g} bits per byte", {"target": target}


def _elsewhere(one: Ranked, terms: str, ranked: Sequence[Ranked]) -> Elsewhere:
    of = sum(other.rank is not None for other in ranked)
    found = next((other for other in ranked if other.row.id == one.row.id), None)
    return Elsewhere(terms, found.rank if found else None, of, found.why if found else "")
