"""A forecast that is sealed before its run, and its outcome. A seal contains everything that the
forecast was computed from, so anybody can compute it again from the file alone; the commit that
adds the file dates it. One seal, one run, whatever the outcome. Pure."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from runner.analysis.forecast import NOT_COUNTED, Design, Forecast, Point, Refusal, forecast
from runner.lib.base_record import Instant, Record, Sha256
from runner.schema.prediction_forms import Axis
from runner.schema.record import StepEnd

ALIKE = 1e-9  # relative difference that another version of SciPy may cause


class Seal(Record):
    """What was known and forecast before the run."""

    experiment: str  # its folder's name
    metric: Literal["eval/bpb"] = "eval/bpb"
    declaration: dict[str, Sha256] = Field(min_length=1)  # {file of its folder: digest}
    design: Design  # the forecast run
    points: tuple[Point, ...]  # the runs that the law was fitted to
    forecast: Forecast


class Outcome(Record):
    """The run, from the lab's own records, and the seal."""

    seal_sha256: Sha256  # of the seal's file
    point: Point
    error: float  # relative to the measured value; negative if the forecast was too low
    inside: bool  # whether the interval contains it
    execution: str
    host: str
    made_at: Instant | None
    seconds: float | None  # wall time of the step, with other work on the machine
    output_sha256: Sha256 | None
    receipt: dict[str, str]


class Tried(Record):
    """A run of one seed that is not part of the ladder."""

    arm: str
    seed: int
    model_flops: float = Field(gt=0)
    parameters: int = Field(gt=0)
    train_batch_size: int = Field(gt=0)
    num_train_steps: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    adam_learning_rate: float = Field(gt=0)
    loss: float = Field(gt=0)  # eval/bpb


class Beside(Record):
    """What else was run, before a seal or after its outcome, and why. No forecast uses it."""

    what: str
    runs: tuple[Tried, ...]


class NoSeal(ValueError):
    """The seal is wrong, or cannot be made; the message says why."""


def seal(
    experiment: str,
    declaration: Mapping[str, str],
    design: Design,
    points: tuple[Point, ...],
    said: Forecast,
) -> Seal:
    """The seal of a forecast. Raises NoSeal unless its points give this forecast."""
    made = Seal(
        experiment=experiment,
        declaration=dict(declaration),
        design=design,
        points=points,
        forecast=said,
    )
    check(made)
    return made


def check(sealed: Seal) -> None:
    """Compute the forecast again from the seal's own points. Raises NoSeal if it differs."""
    said, design = sealed.forecast, sealed.design
    if (there := design.on(said.axis)) != said.at:
        raise NoSeal(f"the forecast is for {said.at:g}, and the run would be at {there}")
    if off := [point.run for point in sealed.points if point.ladder != design.ladder]:
        raise NoSeal(f"{off[0]} is not on the ladder of the run that it is to tell of")
    if said.family not in NOT_COUNTED:
        raise NoSeal(f"its interval counts curves that this version does not know: {said.family}")
    again = forecast_again(sealed, said.at)
    if isinstance(again, Refusal):
        raise NoSeal(f"its points give no forecast: {again.words}")
    for name in ("loss", "low", "high"):
        before, now = getattr(said, name), getattr(again, name)
        if abs(before - now) > ALIKE * abs(now):
            raise NoSeal(f"its points give {name} {now:.6f}, and it says {before:.6f}")


def forecast_again(sealed: Seal, at: float, axis: Axis | None = None) -> Forecast | Refusal:
    """What the seal's points and its own terms say of a run at `at`."""
    said = sealed.forecast
    return forecast(
        sealed.points,
        at,
        axis=axis or said.axis,
        level=said.level,
        floor=said.law.c if said.law.stated_floor else None,
        floor_error=said.law.floor_error,
        family=said.family,
    )


def outcome(sealed: Seal, seal_sha256: str, point: Point, execution: str, end: StepEnd) -> Outcome:
    """The outcome of a sealed forecast. Raises NoSeal for another run than the sealed one."""
    for key in Design.model_fields:
        if getattr(point, key) != getattr(sealed.design, key):
            raise NoSeal(f"the run's {key} is {getattr(point, key)} and not as it was sealed")
    said = sealed.forecast
    return Outcome(
        seal_sha256=seal_sha256,
        point=point,
        error=said.loss / point.loss - 1,
        inside=said.low <= point.loss <= said.high,
        execution=execution,
        **end.model_dump(include={"host", "made_at", "seconds", "output_sha256", "receipt"}),
    )
