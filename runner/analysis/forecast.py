"""Forecasts a larger run from smaller ones: which runs may be on one curve, the law through them,
and an interval for one more run. Pure.

Runs form a ladder if only their size differs: trained and scored on the same text, over the same
number of tokens, equal in everything that the size does not set, and growing in parameters and
tokens together. The law is fitted to the means of the rungs over their seeds. Its interval
(`scaling.forecast`) is that of all runs; or of the means, if these are further from the law than
seeds explain, because an error of a size is common to all of its seeds. The spread of a single run
is added in quadrature, by Student's t over the available seeds. Forecasts without a `family` are of
before curves with a bend counted: their interval is the wider one of means and runs.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean

from pydantic import Field
from scipy.special import fdtrc, stdtrit

from engine.config.schema import ModelConfig
from runner.analysis import bends, scaling
from runner.analysis.comparability import scored_on
from runner.lib.base_record import Record
from runner.lib.canonical_json import to_json
from runner.lib.format import first_of
from runner.schema.prediction_forms import AXES, Axis
from runner.schema.record import Execution, Plan, PlannedArm, Run

LEVEL = 0.9
SURE = 0.05  # the p-value below which sizes have errors of their own
NOT_COUNTED = {  # by family: what its interval leaves out
    None: "that the law has this form is taken as true",
    bends.FAMILY: "a bend beyond the largest rung is not in the interval, nor one that changes the "
    f"exponent by more than {bends.MAX_CHANGE:.0%}",
}

# The keys that the size sets. Everything else must be equal on a ladder.
SIZES = {"hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "head_dim"}
LENGTHS = {"train_batch_size", "gradient_accumulation_steps", "num_train_steps"}
RATES = {"learning_rate", "adam_learning_rate", "weight_decay"}
SAVING = {
    *("checkpoint_every", "checkpoint_seconds", "keep_checkpoints", "keep_every"),
    *("keep_moments", "evaluate_every"),
}


class Design(Record):
    """What is known of a run in advance: its size, and what it may be compared with."""

    arm: str
    seed: int
    model_flops: float = Field(gt=0)
    tokens: float = Field(gt=0)
    parameters: float = Field(gt=0)
    hardware_flops: float | None = Field(default=None, gt=0)
    text: str  # digest of the text, or fingerprint of the step that made it
    targets: int  # how many of its tokens are scored
    recipe: str  # digest of everything that the size does not set
    config: str  # digest of the whole configuration, without seed and checkpoint interval

    def on(self, axis: Axis) -> float | None:
        """Its size on an axis; None if it was not measured."""
        found: float | None = getattr(self, axis)
        return found

    @property
    def ladder(self) -> tuple[str, int, str]:
        """What all runs of a ladder have in common."""
        return self.text, self.targets, self.recipe


class Point(Design):
    """A run that the lab has scored."""

    run: str  # `<execution>.<arm>.s<seed>`
    loss: float = Field(gt=0)  # eval/bpb
    params_sha256: str = ""


class Curve(Record):
    """A law, L = a·(C/at)^(−b) + c."""

    a: float
    b: float
    c: float
    at: float
    stated_floor: bool = False  # c was given, not fitted
    floor_error: float | None = Field(default=None, exclude_if=lambda error: error is None)
    words: str

    def loss(self, at: float) -> float:
        """The loss at this C."""
        return float(self.a * (at / self.at) ** -self.b + self.c)


class Forecast(Record):
    """The forecast of one run."""

    axis: Axis
    at: float
    level: float
    loss: float
    low: float
    high: float
    law: Curve
    of_the_law: tuple[float, float]  # its interval without the spread of a single run
    noise: float  # relative standard deviation of one run
    freedom: int  # degrees of freedom of that estimate
    rungs: int
    runs: int
    reach: float  # C as a multiple of the ladder's largest C
    words: tuple[str, ...] = ()  # what the interval does not cover
    # The curves that it counts beside the law; None: none, as before 2026-11-28.
    family: str | None = Field(default=None, exclude_if=lambda family: family is None)

    @property
    def sentence(self) -> str:
        """The forecast as a sentence."""
        return (
            f"{self.loss:.4f} bits per byte, {self.level:.0%} interval {self.low:.4f} to "
            f"{self.high:.4f}, at {self.at:.3g} {AXES[self.axis]}, {self.reach:.3g} times the "
            f"largest of {self.rungs} rungs"
        )


class Refusal(Record):
    """Why there is no forecast, and what would help."""

    words: str


# ── From plans and records ───────────────────────────────────────────────────────────────────


def design_of(plan: Plan, arm: str, seed: int | None = None) -> Design | None:
    """A planned run, by default the arm's first one; None if the plan does not say what it will be
    scored on, and for an own model."""
    scored, planned = scored_on(plan), plan.arms[arm]
    model, flops, parameters = planned.labs, planned.model_flops, planned.parameters
    if scored is None or model is None or flops is None or parameters is None:
        return None
    if seed is None:
        seed = next(seed for name, seed in plan.runs() if name == arm)
    return Design(
        arm=arm,
        seed=seed,
        model_flops=flops,
        tokens=planned.tokens,
        parameters=parameters,
        text=scored.validation_sha256,
        targets=scored.eval_tokens,
        recipe=_recipe(model, planned, _trained_on(plan, arm, seed)),
        config=_digest(_known(model, planned, SAVING)),
    )


def points_of(execution: Execution, runs: Iterable[Run]) -> list[Point]:
    """The runs of an execution that have a figure from the lab."""
    found = []
    for run in runs:
        design = design_of(execution.plan, run.arm, run.seed)
        if design and run.state == "finished" and run.evaluated:
            name, score = f"{run.execution}.{run.arm}.s{run.seed}", run.evaluated
            scored = {"run": name, "loss": score.bpb, "params_sha256": score.params_sha256}
            found.append(Point.model_validate(design.model_dump() | scored))
    return found


def ladder_of(points: Iterable[Point], design: Design, axis: Axis = "model_flops") -> list[Point]:
    """The points for a forecast of `design`, smallest first: the smaller runs of its ladder, each
    trained model once."""
    there, seen, found = design.on(axis), set[str](), list[Point]()
    for point in points:
        here = point.on(axis)
        if here is None or there is None or here >= there or point.ladder != design.ladder:
            continue
        name = point.params_sha256 or point.run
        if name not in seen:
            seen.add(name)
            found.append(point)
    return sorted(found, key=lambda point: (point.on(axis) or 0.0, point.seed))


def _trained_on(plan: Plan, arm: str, seed: int) -> list[str]:
    """Digests of what a run is trained on."""
    if plan.data:
        return [plan.data.train_sha256]
    step = plan.steps.get(plan.trained().get((arm, seed), ""))
    return sorted({one for these in step.inputs.values() for one in these.values()}) if step else []


def _recipe(model: ModelConfig, arm: PlannedArm, text: list[str]) -> str:
    known = _known(model, arm, SIZES | LENGTHS | RATES | SAVING)
    # Fractions are equal on all rungs; numbers of steps depend on the run's length.
    steps = {key for key in ("warmup", "decay") if isinstance(known.get(key), int)}
    return _digest({key: known[key] for key in known.keys() - steps} | {"trained on": text})


def _known(model: ModelConfig, arm: PlannedArm, without: set[str]) -> dict[str, object]:
    both = model.model_dump(mode="json") | arm.train.model_dump(mode="json")
    own = {"own": arm.own} if arm.own else {}
    return {key: value for key, value in both.items() if key not in without} | own


def _digest(value: object) -> str:
    return hashlib.sha256(to_json(value)).hexdigest()


# ── The forecast ─────────────────────────────────────────────────────────────────────────────


def forecast(
    points: Sequence[Point],
    at: float,
    *,
    axis: Axis = "model_flops",
    level: float = LEVEL,
    floor: float | None = None,
    floor_error: float | None = None,
    family: str | None = bends.FAMILY,
) -> Forecast | Refusal:
    """One run's eval/bpb at `at` on this axis, with an interval that holds it with probability
    `level` if its curve is of this `family` (None: if the law is exact); or a Refusal that says why
    these points are not enough.

    `floor`, in bits per byte, is given if the points are too few or too close to fit it; the
    interval then covers every floor within `floor_error` of it, by default from 0 to twice this
    value.
    """
    if words := why_not(points, axis):
        return Refusal(words=words)
    rungs = _rungs(points, axis)
    means = {place: fmean(losses) for place, losses in rungs.items()}
    if not at > 0:
        return Refusal(words=f"there is no run at {at:g} {AXES[axis]}")
    each = [(place, loss) for place, losses in rungs.items() for loss in losses]
    if floor is None and len(rungs) == scaling.PINNED_FEWEST:
        floor = scaling.FLOOR
    error = floor if floor_error is None or floor is None else min(floor, floor_error)
    floors = (None,) if floor is None or error is None else (floor, floor - error, floor + error)
    bent = family is not None
    try:
        law = scaling.fit(means, floor=floor)
        fits: tuple[scaling.Points, ...] = (means, each)
        if bent:
            fits = (means,) if _sizes_differ(rungs, law) else (each,)
        made = [
            scaling.forecast(some, at, level=level, floor=stated, bent=bent)
            for stated in floors
            for some in fits
        ]
        law.must_show()
    except scaling.Refused as error:
        return Refusal(words=str(error))
    loss = law.loss(at)
    low, high = min(loss, *(one.low for one in made)), max(loss, *(one.high for one in made))
    untold = [NOT_COUNTED[family]]
    if floor is not None and error is not None:
        held = f"{floor - error:g} to {floor + error:g}"
        untold.insert(0, f"the floor is stated as {floor:g}; the interval holds {held}")
    noise, freedom = _noise(rungs, law)
    single = float(stdtrit(freedom, (1 + level) / 2)) * noise * loss
    return Forecast(
        axis=axis,
        at=at,
        level=level,
        loss=loss,
        low=max(0.0, loss - math.hypot(loss - low, single)),
        high=loss + math.hypot(high - loss, single),
        law=Curve(
            a=law.a,
            b=law.b,
            c=law.c,
            at=law.at,
            stated_floor=law.pinned,
            floor_error=floor_error,
            words=law.sentence,
        ),
        of_the_law=(low, high),
        noise=noise,
        freedom=freedom,
        rungs=len(rungs),
        runs=len(points),
        reach=at / max(rungs),
        words=tuple(untold),
        family=family,
    )


def why_not(points: Sequence[Point], axis: Axis = "model_flops") -> str | None:
    """Why these runs are no ladder, as a sentence; None if they are."""
    if not points:
        return (
            f"it needs runs of {scaling.PINNED_FEWEST} smaller models with the same recipe "
            "(training settings) on this text, and the lab has none"
        )
    unknown = [point.run for point in points if point.on(axis) is None]
    if unknown:
        return f"the {AXES[axis]} of {first_of(unknown, 3)} are unknown; choose another axis"
    for what, key in (
        ("scored on different texts", "text"),
        ("scored on different numbers of tokens", "targets"),
        ("trained by recipes that differ in more than a size", "recipe"),
    ):
        kinds = {getattr(point, key): point.run for point in points}
        if len(kinds) > 1:
            return f"{first_of(list(kinds.values()), 3)} were {what}, so no curve fits them all"
    of: dict[float, Point] = {}
    for point in points:
        other = of.setdefault(_place(point, axis), point)
        if other.config != point.config:
            return (
                f"{other.run} and {point.run} have the same size but differ in something else; "
                "leave one of them out"
            )
    for smaller, larger in pairwise(of[place] for place in sorted(of)):
        if larger.parameters < smaller.parameters or larger.tokens < smaller.tokens:
            return (
                f"{larger.run} has more {AXES[axis]} than {smaller.run}, but fewer parameters or "
                "tokens; on a ladder both have to grow"
            )
    return None


def _place(point: Point, axis: Axis) -> float:
    place = point.on(axis)
    assert place is not None
    return place


def _rungs(points: Sequence[Point], axis: Axis) -> dict[float, list[float]]:
    found: dict[float, list[float]] = {}
    for point in sorted(points, key=lambda point: (_place(point, axis), point.seed, point.run)):
        found.setdefault(_place(point, axis), []).append(point.loss)
    return found


def _sizes_differ(rungs: dict[float, list[float]], law: scaling.Law) -> bool:
    """Whether the means of rungs are further from the law than their seeds explain: the F test for
    lack of fit (Draper and Smith 1998, 2.1)."""
    noise, freedom = _noise(rungs, law)
    beyond = len(rungs) - (2 if law.pinned else 3)
    if not any(len(losses) > 1 for losses in rungs.values()):
        return True  # means and runs are the same
    lack = sum(
        len(losses) * (fmean(losses) / law.loss(at) - 1) ** 2 for at, losses in rungs.items()
    )
    return noise == 0 or bool(fdtrc(beyond, freedom, lack / beyond / noise**2) < SURE)


def _noise(rungs: dict[float, list[float]], law: scaling.Law) -> tuple[float, int]:
    """The relative standard deviation of one run and its degrees of freedom: between the seeds of a
    rung, pooled; or from the residuals of the law if no rung has two seeds."""
    freedom = sum(len(losses) - 1 for losses in rungs.values())
    if not freedom:
        left = law.n - (2 if law.pinned else 3)
        return math.sqrt(law.squares / left), left
    squares = sum((loss / fmean(losses) - 1) ** 2 for losses in rungs.values() for loss in losses)
    return math.sqrt(squares / freedom), freedom
