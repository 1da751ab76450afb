"""Ranks the rows of a speedrun track (`runner.schema.tracks`). Pure.

A row is ranked only among rows that were scored on the text and number of tokens that its track
names; a row without a rank says why.

Rows with the lab's own models cost the model FLOPs of the formula. For an own model only a claim
exists, so such a row costs the hardware FLOPs that were measured from outside. As utilisation is
below 1, this is never an advantage.

Rows are compared by Welch's t-test over seeds, one-sided. A row of one seed has the spread that its
track states. So does a row with own code whose seeds differ by less, because that code decides what
a seed changes; and seeds that change nothing are one run.

A rank is one more than the number of rows that are significantly better, by Holm's step-down
procedure (Holm 1979) over all ordered pairs of the track's rows: where all are equal, there is more
than one rank in at most 5 % of tracks. Rows without a significant difference share a rank.

The p-value that is shown is against the record at the time of the row. A record is defended at 5 %
in all, however many challenge it: its n-th challenger needs p below 0.8·0.05/(n(n+1)), which sums
to 0.8·0.05. Rows with p above 0.8 are not counted as challengers, so that bad entries cost others
nothing (spending with discarding: Tian and Ramdas 2021), nor are rows with the values of another
one. A new record starts again, so that at most 5 % of a track's records are luck in the mean (alpha
investing: Foster and Stine 2008, their mFDR with η = 1). 0.05/(n + 1) would not hold: its sum has
no bound. `tests/bench/records.py` simulates both rules.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate, combinations
from statistics import fmean, variance
from typing import Literal, NamedTuple

from scipy.special import ndtr, stdtr

from runner.analysis import scaling, speedrun_checks
from runner.analysis.comparability import Scored
from runner.analysis.speedrun_checks import Failed
from runner.schema.record import Author, Shipped
from runner.schema.tracks import BYTE_TOKENIZER, SIZES, Track

SURE = 0.05  # the probability of a false record, of a false rank, and of a target reached by luck
CHALLENGES = 0.8  # the p-value up to which a row is counted as a challenger of the record
TIERS = ("self-reported", "replayed", "reproduced")

Tier = Literal["self-reported", "replayed", "reproduced"]


# ── Rows ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Row:
    """An entry: an arm of an execution with its seeds, or a self-reported run.

    `figures`, `seconds`, `model_flops` and `hardware_flops` have one value per seed, in the same
    order; an empty one is unknown. Costs are per run.
    """

    id: str  # unique; for an arm of an execution `<execution>/<arm>`
    title: str
    author: Author
    track: str
    tier: Tier
    at: datetime  # when it ended
    figures: tuple[float, ...]  # bits per byte
    scored: Scored | None = None  # None: unknown
    tokenizer_sha256: str | None = None  # with which it was scored; None: not measured
    family: str = ""  # rows of one family are sizes of one recipe, for scaling
    hardware: str = ""  # as `Hardware` prints it
    seconds: tuple[float, ...] = ()  # of training
    parameters: int | None = None
    tokens: int | None = None
    model_flops: tuple[float, ...] = ()
    hardware_flops: tuple[float, ...] = ()
    flops_by: str = ""  # how model FLOPs were counted, as text
    price: float | None = None  # US dollars
    custom: bool = False  # its training has own code
    failed: Failed | None = None  # the check that rejects it
    settings: tuple[tuple[str, str], ...] = ()  # of its model and training
    code: str = ""  # the folder in the store with its own modules; empty if it has none
    shipped: Shipped | None = None  # None: not measured
    trials: int | None = None  # trainings before this entry, as its author says; None: not said
    searched: int = 0  # trainings of its own search for settings, which the lab ran
    reproduced: int = 0  # how many times the lab ran it again with the same scores
    notes: tuple[str, ...] = ()  # notes for readers
    page: str = ""  # relative to the site, or a URL

    @property
    def execution(self) -> str:
        """The execution that it is of."""
        return self.id.partition("/")[0]

    @property
    def arm(self) -> str:
        """Its arm there."""
        return self.id.partition("/")[2]

    def cost(self, track: Track) -> tuple[float, ...]:
        """The cost of its runs on a track, in FLOPs."""
        return self.hardware_flops if self.custom else getattr(self, f"{track.cost}_flops")


@dataclass(frozen=True)
class Ranked:
    """A row on its track. Without a rank, `why` says why."""

    row: Row
    rank: int | None = None
    shared: bool = False  # with rows that are not significantly different
    value: float | None = None  # the ranked value: FLOPs, bits per byte or seconds
    interval: tuple[float, float] | None = None  # 90 %, of a projection
    record: bool = False  # it was significantly the best at its time
    against: str = ""  # the record at that time
    p_value: float | None = None  # for the hypothesis that it is no better than that one
    needs: float | None = None  # the p-value below which it would be a record
    why: str = ""
    check: str = ""  # the one of `speedrun_checks.CHECKS` that says so


@dataclass(frozen=True)
class _Case:
    """The compared values of a row; lower is better."""

    row: Row
    values: tuple[float, ...]
    exact: bool  # counted, so without chance
    forecast: scaling.Forecast | None = None


def rank(track: Track, rows: Iterable[Row]) -> list[Ranked]:
    """All rows of a track: the ranked ones, best first, then the others, newest first."""
    found: list[Ranked] = []
    cases: list[_Case] = []
    for row in _united(track, rows):
        case = _case(track, *row)
        if isinstance(case, _Case):
            cases.append(case)
        else:
            found.append(Ranked(row[0], why=case.words, check=case.check))
    ordered = sorted(cases, key=lambda case: (fmean(case.values), case.row.at, case.row.id))
    # Ranks never decrease in this order, although a row may differ significantly only from distant
    # ones.
    ranks = list(accumulate((1 + n for n in _significantly_better(track, ordered)), max))
    history = {case.row.id: told for case, told in _records(track, cases)[0]}
    return [
        replace(
            history[case.row.id],
            rank=place,
            shared=ranks.count(place) > 1,
            value=fmean(case.values),
            interval=(case.forecast.low, case.forecast.high) if case.forecast else None,
        )
        for case, place in zip(ordered, ranks, strict=True)
    ] + sorted(found, key=lambda one: (one.row.at, one.row.id), reverse=True)


def _united(track: Track, rows: Iterable[Row]) -> list[tuple[Row, ...]]:
    """Each row alone; for scaling, the rows of one family together, the largest first."""
    mine = [row for row in rows if row.track == track.name]
    if track.kind != "scaling":
        return [(row,) for row in mine]
    families: dict[str, list[Row]] = {}
    for row in mine:
        families.setdefault(row.family or row.id, []).append(row)
    return [
        tuple(sorted(these, key=lambda row: (-max(row.cost(track), default=0.0), row.id)))
        for these in families.values()
    ]


def refusal(track: Track, row: Row) -> Failed | None:
    """Why a row cannot be compared with others at all; None if it can."""
    if row.failed:
        return row.failed
    if not row.figures:
        return Failed("no run of it has a figure")
    if row.scored is None:
        return Failed("on which text it was scored is not known", "data")
    if failed := other_data(track, row.scored):
        return failed
    if failed := other_tokenizer(track, row.tokenizer_sha256):
        return failed
    if failed := speedrun_checks.of_device(track, row.hardware):
        return failed
    if not row.cost(track) and track.kind != "time" and not track.seconds:
        measured = "hardware" if row.custom else track.cost
        return Failed(f"its {measured} FLOPs are not known")
    if (track.kind == "time" or track.seconds) and not row.seconds:
        return Failed("how long it took is not known", "device")
    return speedrun_checks.of_seeds(track, len(row.figures))


def other_data(track: Track, scored: Scored) -> Failed | None:
    """Why figures on these data do not belong to the track; None if they do."""
    wanted = track.data
    if wanted.validation_sha256 is None:
        words = f"this track is on {wanted.source}, which was not fetched in this lab"
        return Failed(f"{words}; `regatta corpus fetch {wanted.source}` does", "data")
    if scored.validation_sha256 != wanted.validation_sha256:
        return Failed(
            f"it is scored on the text with SHA-256 {scored.validation_sha256[:12]}…, and this "
            f"track is on {wanted.source}, {wanted.validation_sha256[:12]}…",
            "data",
        )
    if (scored.eval_tokens, scored.tokenizer) != (wanted.eval_tokens, wanted.tokenizer):
        return Failed(
            f"it is scored on {scored.eval_tokens:,} tokens ({scored.tokenizer}), and this track "
            f"is on {wanted.eval_tokens:,} ({wanted.tokenizer})",
            "data",
        )
    return None


def other_tokenizer(track: Track, measured: str | None) -> Failed | None:
    """Why figures that were scored with this tokenizer do not belong to the track; None if they
    do. What older records of bytes do not say, their plan has said."""
    wanted = track.data.tokenizer_digest
    if wanted and (measured or BYTE_TOKENIZER) == wanted:
        return None
    words = (
        f"it is not scored with this track's tokenizer, which has SHA-256 {(wanted or '')[:12]}…"
    )
    if wanted is None:
        words = f"this track names no digest of its tokenizer ({track.data.tokenizer}); write "
        words += "`tokenizer_sha256` below its `data`"
    own = f"; this entry's tokenizer has SHA-256 {measured}" if measured else ""
    return Failed(words + own, "data")


def _case(track: Track, row: Row, *others: Row) -> _Case | Failed:
    """The compared values of a row, or why there are none."""
    for one in (row, *others):
        if failed := refusal(track, one):
            other = "" if one is row else f"{one.title}: "
            return failed._replace(words=other + failed.words)
    quality, cost = fmean(row.figures), row.cost(track)
    if track.kind in ("target", "time") and quality > (track.target or 0):
        return Failed(f"its {quality:.4f} bits per byte do not reach {track.target:g}")
    if track.kind == "target":
        return _Case(row, cost, exact=track.cost == "model" and not row.custom)
    if track.kind == "budget":
        if words := _dearer(track, row, cost):
            return Failed(words)
        return _Case(row, row.figures, exact=False)
    if track.kind == "time":
        return _timed(track, row)
    return _projected(track, (row, *others))


def _dearer(track: Track, row: Row, cost: Sequence[float]) -> str | None:
    """Whether a run is beyond its track's budget, as a clause; None if none is."""
    if track.seconds:
        if (longest := max(row.seconds)) > track.seconds:
            return f"a run of it took {longest:.4g} s, and the budget is {track.seconds:g} s"
    elif (dearest := max(cost)) > (track.budget or 0):
        return f"a run of it costs {dearest:.4g} FLOPs, and the budget is {track.budget:.4g}"
    return None


def _timed(track: Track, row: Row) -> _Case | Failed:
    if len(row.figures) < 2:
        words = "one seed reaches a target by luck too; this track takes two or more"
        return Failed(words, "seeds")
    below = (track.target or 0.0) - fmean(row.figures)
    p = _p_value(below, [_error(row.figures, track.spread, row.custom)])
    if p >= SURE:
        words = f"that its seeds reach {track.target:g} on average has p = {p:.2g}"
        return Failed(f"{words}, not below {SURE}")
    return _Case(row, row.seconds, exact=False)


def _projected(track: Track, rows: Sequence[Row]) -> _Case | Failed:
    points = [(fmean(row.cost(track)), fmean(row.figures)) for row in rows]
    at = track.at or 0.0
    if len({cost for cost, _ in points}) < SIZES:
        return Failed(f"a projection takes {SIZES} sizes, and here are {len(points)}")
    if (largest := max(cost for cost, _ in points)) > at:
        words = f"its largest size takes {largest:.4g} FLOPs, more than is projected to"
        return Failed(f"{words}, {at:.4g}")
    try:
        found = scaling.forecast(points, at)
    except scaling.Refused as error:
        return Failed(str(error))
    return _Case(rows[0], (found.loss,), exact=False, forecast=found)


# ── Chance ───────────────────────────────────────────────────────────────────────────────────


def _significantly_better(track: Track, ordered: Sequence[_Case]) -> list[int]:
    """How many rows are better than each of these (best first), by Holm: of m hypotheses, one for
    each ordered pair, the one with the i-th smallest p-value is rejected if all before it are and p
    is below SURE/(m − i + 1)."""
    better = [0] * len(ordered)
    pairs = [
        (_better(track, ordered[one], ordered[other]), other)
        for one, other in combinations(range(len(ordered)), 2)
    ]
    left = 2 * len(pairs)
    for p, other in sorted(pairs):
        if p >= SURE / left:
            break
        better[other] += 1
        left -= 1
    return better


def _better(track: Track, one: _Case, other: _Case) -> float:
    """The p-value for the hypothesis that `one` is no better than `other`."""
    if one.forecast and other.forecast:  # different if neither is in the other's interval
        return 0.0 if one.forecast.high < other.forecast.low else 1.0
    errors = [_error(x.values, track.spread, x.row.custom, x.exact) for x in (one, other)]
    return _p_value(fmean(other.values) - fmean(one.values), errors)


class _Error(NamedTuple):
    """The standard error of a mean over seeds."""

    square: float
    freedom: int | None  # degrees of freedom; None: the spread is stated


def _error(values: Sequence[float], spread: float, custom: bool, exact: bool = False) -> _Error:
    """From the seeds, or from the stated relative spread if the seeds are not usable; 0 if
    exact."""
    if exact:
        return _Error(0.0, None)
    stated = (spread * fmean(values)) ** 2
    seen = variance(values) if len(values) > 1 else stated
    if len(values) < 2 or (custom and seen < stated):
        return _Error(stated, None)
    return _Error(seen / len(values), len(values) - 1)


def _p_value(below: float, errors: Iterable[_Error]) -> float:
    """One-sided: the probability of such a difference of means if the one were not below the other.
    Welch (1947) if both have seeds; otherwise by a normal distribution, because the spread counts
    as known."""
    parts = [error for error in errors if error.square]
    whole = sum(error.square for error in parts)
    if whole == 0:
        return 0.0 if below > 0 else 1.0
    # Of the whole, because the square of a tiny variance is 0.
    shares = [(part.square / whole) ** 2 / part.freedom for part in parts if part.freedom]
    if len(shares) < len(parts):
        return float(ndtr(-below / math.sqrt(whole)))
    return float(stdtr(1 / sum(shares), -below / math.sqrt(whole)))


def needed(challengers: int) -> float:
    """The p-value below which a row is a record, after so many challengers of the standing one."""
    return CHALLENGES * SURE / ((challengers + 1) * (challengers + 2))


def to_beat(track: Track, ranked: Sequence[Ranked], standing: Ranked) -> tuple[float, float] | None:
    """A mean below which the next row is a record, with the spread and number of seeds of the
    standing one, and the p-value that it needs; None if the values are no means of seeds. `ranked`:
    all rows of the track."""
    case = _case(track, standing.row) if track.kind != "scaling" else None
    if not isinstance(case, _Case):
        return None
    cases = [_case(track, one.row) for one in ranked if one.rank is not None]
    _, needs = _records(track, [one for one in cases if isinstance(one, _Case)])
    if case.exact:
        return fmean(case.values), needs
    low, high = 0.0, fmean(case.values)  # how far below
    for _ in range(60):
        middle = (low + high) / 2
        lower = replace(case, values=tuple(value - middle for value in case.values))
        low, high = (low, middle) if _better(track, lower, case) < needs else (middle, high)
    return fmean(case.values) - high, needs


def _records(track: Track, cases: Sequence[_Case]) -> tuple[list[tuple[_Case, Ranked]], float]:
    """Each row with the record at its time, and the p-value that the next row needs."""
    standing: _Case | None = None
    found, challengers, seen = [], 0, set[tuple[float, ...]]()
    for case in sorted(cases, key=lambda case: (case.row.at, case.row.id)):
        if standing is None:
            one = Ranked(case.row, record=True)
        else:
            p, needs = _better(track, case, standing), needed(challengers)
            against = standing.row.id
            one = Ranked(case.row, record=p < needs, against=against, p_value=p, needs=needs)
            challengers += p <= CHALLENGES and case.values not in seen
        if one.record:
            standing, challengers = case, 0
        seen.add(case.values)
        found.append((case, one))
    return found, needed(challengers)
