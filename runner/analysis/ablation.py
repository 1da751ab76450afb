"""The board of an ablation: what each part of a recipe pays, in FLOPs and in seconds. Pure.

All figures are about the part itself, whether it was held out or added: a difference below 0 and a
speed-up above 1 are in its favour. A difference is of `eval/bpb` with the part minus without it, at
one size, paired by seed, with the interval of its mean by the t distribution. Speed-ups are those
of `speedup`, against the law through the baseline's runs at all sizes; of a part that was held out
it is the inverse of what its arms have. Seconds are tokens over the tokens per second that the
lab's training code reported; those of own code are not known.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from runner.analysis import speedup
from runner.analysis.estimates import Interval, figure, interval_of, two_digits
from runner.analysis.scaling import Refused
from runner.analysis.speedup import Axis, Laws, Pair, Speedup
from runner.lib.format import first_of, many
from runner.schema.record import AblatedPart, Plan, Run
from runner.schema.record.studies import FEWEST_SEEDS

AXES: dict[Axis, str] = {"flops": "FLOPs", "seconds": "seconds"}
VERBS = {"gain": "pays", "loss": "costs", "tie": "ties"}
TIE = ", a tie"


@dataclass(frozen=True)
class Cell:
    """A part at one size."""

    size: str
    difference: float | None
    interval: Interval | None
    speedups: dict[Axis, Speedup | None]
    seeds: int

    @property
    def difference_words(self) -> str:
        """The difference and its interval; a dash for none."""
        if self.difference is None:
            return "–"
        if self.interval is None:
            return figure(self.difference, 4)
        decimals = min(max(3, two_digits(self.interval[1] / 2 - self.interval[0] / 2)), 6)
        value, *ends = (figure(one, decimals) for one in (self.difference, *self.interval))
        return f"{value} ({' to '.join(ends)})"


@dataclass(frozen=True)
class Row:
    """A part over all sizes."""

    part: AblatedPart
    cells: tuple[Cell, ...]
    speedups: dict[Axis, Speedup | None]
    why: str = ""  # why there is a figure missing
    flops_per_token: float | None = None  # with the part, relative to without it
    speed: float | None = None  # tokens per second, likewise

    @property
    def name(self) -> str:
        """The part's name."""
        return self.part.name

    @property
    def sentence(self) -> str:
        """What it pays, on both axes; the name as a code span."""
        said = {axis: one for axis, one in self.speedups.items() if one}
        if not said:
            return f"`{self.name}`: no speed-up is known, because {self.why}"
        words = [
            f"{VERBS[one.outcome]} in {AXES[axis]} ({ratio(one).removesuffix(TIE)})"
            for axis, one in said.items()
        ]
        outcomes = {one.outcome for one in said.values()}
        turn = "; the axis decides" if len(outcomes) > 1 else ""
        missing = f"; {self.why}" if self.why else ""
        return f"`{self.name}` {' and '.join(words)}{turn}{self._trend}{missing}"

    @property
    def _trend(self) -> str:
        """That the speed-up in FLOPs depends on the size, if the intervals of the first and the
        last size are apart. The interval over all sizes does not have this."""
        ends = (self.cells[0], self.cells[-1]) if self.cells else ()
        said = [(cell.size, one) for cell in ends if (one := cell.speedups["flops"])]
        if len(said) < 2 or any(one.low is None or one.high is None for _, one in said):
            return ""
        (small, first), (large, last) = said
        if not ((first.high or 0) < (last.low or 0) or (last.high or 0) < (first.low or 0)):
            return ""
        turns = "grows" if last.estimate > first.estimate else "falls"
        sizes = f"{first.estimate:.3g} × at {small}, {last.estimate:.3g} × at {large}"
        return f"; in FLOPs it {turns} with the size ({sizes})"


@dataclass(frozen=True)
class Board:
    """The rows, best first by FLOPs; ties keep their order by the estimate."""

    rows: tuple[Row, ...]
    sizes: tuple[str, ...]
    notes: tuple[str, ...]  # how it was computed, and what it lacks


def ratio(one: Speedup | None) -> str:
    """A speed-up with its interval: `1.21 ×, 1.08 to 1.36`; says if it is a tie."""
    if one is None:
        return "–"
    if one.low is None or one.high is None:
        return f"{one.estimate:.3g} ×, no interval"
    tie = TIE if one.outcome == "tie" else ""
    return f"{one.estimate:.3g} ×, {one.low:.3g} to {one.high:.3g}{tie}"


def board(plan: Plan, runs: Iterable[Run]) -> Board | None:
    """The board of a plan's ablation; None if it is none."""
    if (study := plan.ablation) is None:
        return None
    of = _Runs(plan, runs)
    points = [
        (flops, loss)
        for arm in study.baseline
        if (flops := of.flops(arm)) is not None
        for loss in of.losses(arm).values()
    ]
    rows = [_row(of, study.sizes, study.baseline, part, points) for part in study.parts]
    rows.sort(key=lambda row: -(known.estimate if (known := row.speedups["flops"]) else 0.0))
    notes = []
    try:
        found = speedup.laws(points, min((loss for _, loss in points), default=0.0))
        notes.append(f"Law of the baseline: {found.words}")
    except Refused as error:
        notes.append(f"No speed-up: {error}")
    if len(plan.seeds) < FEWEST_SEEDS:
        notes.append(f"Exploratory: {many(len(plan.seeds), 'seed')}, and {FEWEST_SEEDS} are needed")
    return Board(tuple(rows), study.sizes, tuple(notes))


class _Runs:
    """What the runs of a plan gave, by arm and seed."""

    def __init__(self, plan: Plan, runs: Iterable[Run]) -> None:
        self._plan, self._of = plan, {(run.arm, run.seed): run for run in runs}

    def losses(self, arm: str) -> dict[int, float]:
        """{seed: eval/bpb} of the scored runs."""
        runs = ((seed, run) for (of, seed), run in self._of.items() if of == arm)
        return {seed: run.evaluated.bpb for seed, run in runs if run.evaluated}

    def flops(self, arm: str) -> float | None:
        """Model FLOPs of one run: by the shape, of an own model by its trace."""
        planned = self._plan.arms.get(arm)
        if planned is None or planned.model_flops is not None:
            return planned.model_flops if planned else None
        for (of, _), run in self._of.items():
            examined = run.evaluated.examined if of == arm and run.evaluated else None
            if examined and examined.forward_flops_per_token:
                return 3.0 * examined.forward_flops_per_token * planned.tokens
        return None

    def seconds(self, arm: str, seed: int) -> float | None:
        """How long a run trained; None if that is not known."""
        planned, run = self._plan.arms.get(arm), self._of.get((arm, seed))
        if planned is None or planned.own or run is None or not run.tokens_per_second:
            return None
        return planned.tokens / run.tokens_per_second

    def tokens(self, arm: str) -> int:
        """Tokens of one run."""
        return self._plan.arms[arm].tokens

    def pair(self, baseline: str, variant: str) -> Pair | str:
        """Both arms at one size; or why they cannot be compared."""
        losses = self.losses(baseline), self.losses(variant)
        seeds = sorted(losses[0].keys() & losses[1].keys())
        if not seeds:
            return f"no seed has a score of both `{baseline}` and `{variant}`"
        flops = self.flops(baseline), self.flops(variant)
        if flops[0] is None or flops[1] is None:
            return f"the FLOPs of `{baseline if flops[0] is None else variant}` are not known"
        times = [(self.seconds(baseline, seed), self.seconds(variant, seed)) for seed in seeds]
        known = [(one, other) for one, other in times if one and other]
        return Pair(
            flops=(flops[0], flops[1]),
            losses=tuple((losses[0][seed], losses[1][seed]) for seed in seeds),
            seconds=tuple(known) if len(known) == len(seeds) else (),
        )


def _row(
    of: _Runs,
    sizes: Sequence[str],
    baseline: Sequence[str],
    part: AblatedPart,
    points: Sequence[tuple[float, float]],
) -> Row:
    pairs = [of.pair(one, other) for one, other in zip(baseline, part.arms, strict=True)]
    known = [pair for pair in pairs if isinstance(pair, Pair)]
    missing = [pair for pair in pairs if isinstance(pair, str)]
    found: Laws | None = None
    why = [first_of(missing, 2)] if missing else []
    try:
        least = min((loss for pair in known for _, loss in pair.losses), default=0.0)
        found = speedup.laws(points, least)
    except Refused as error:
        why.append(str(error))
    whole: dict[Axis, Speedup | None] = {"flops": None, "seconds": None}
    for axis in AXES:
        try:
            whole[axis] = _speedup(found, known, axis, part.held_out) if found else None
        except Refused as error:
            why.append(f"in {AXES[axis]}: {error}")
    cells = [
        _cell(found, size, pair, part.held_out) for size, pair in zip(sizes, pairs, strict=True)
    ]
    tokens = [
        of.tokens(one) / of.tokens(other)
        for one, other, pair in zip(baseline, part.arms, pairs, strict=True)
        if isinstance(pair, Pair)
    ]
    counted = [pair.flops[1] / pair.flops[0] * tokens[n] for n, pair in enumerate(known)]
    timed = [
        pair_seconds[0] / pair_seconds[1] / tokens[n]
        for n, pair in enumerate(known)
        for pair_seconds in pair.seconds
    ]
    return Row(
        part=part,
        cells=tuple(cells),
        speedups=whole,
        why="; ".join(why),
        flops_per_token=_mean(counted, part.held_out),
        speed=_mean(timed, part.held_out),
    )


def _cell(found: Laws | None, size: str, pair: Pair | str, held_out: bool) -> Cell:
    ratios: dict[Axis, Speedup | None] = {"flops": None, "seconds": None}
    if isinstance(pair, str):
        return Cell(size, None, None, ratios, 0)
    sign = -1 if held_out else 1
    differences = [sign * (variant - baseline) for baseline, variant in pair.losses]
    for axis in AXES:
        with suppress(Refused):  # the row says why
            ratios[axis] = _speedup(found, [pair], axis, held_out) if found else None
    return Cell(
        size=size,
        difference=sum(differences) / len(differences),
        interval=interval_of(differences) if len({*differences}) > 1 else None,
        speedups=ratios,
        seeds=len(differences),
    )


def _speedup(found: Laws, pairs: Sequence[Pair], axis: Axis, held_out: bool) -> Speedup:
    one = speedup.speedup(found, pairs, axis)
    return one.inverse if held_out else one


def _mean(values: Sequence[float], held_out: bool) -> float | None:
    """The geometric mean of the variant's values, as seen from the part."""
    if not values:
        return None
    product = 1.0
    for value in values:
        product *= value ** (1 / len(values))
    return 1 / product if held_out else product
