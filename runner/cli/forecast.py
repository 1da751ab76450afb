"""`regatta forecast`: forecasts the score of a run from smaller runs of the lab, with an interval;
and seals such a forecast. Exit codes: 0 done, 1 no law fits, 2 bad input."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from runner.analysis import forecast as forecasting
from runner.analysis import sealed_forecast
from runner.analysis.forecast import LEVEL, Design, Forecast, Point, Refusal
from runner.cli import options
from runner.cli.ending import DONE, FAILED, print_json, stop
from runner.cli.options import AsJson, TheJobs, TheStore
from runner.history import provenance
from runner.lib import base_record
from runner.lib.problems import near
from runner.planning import planner
from runner.schema import record
from runner.schema.prediction_forms import AXES, Axis
from runner.store.store import Store

POINTS = TypeAdapter(tuple[Point, ...])
Said = Forecast | Refusal


def command(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PATH]",
            help="An experiment: its arms are what is forecast.",
            callback=options.experiment,
        ),
    ] = None,
    arm: Annotated[str | None, typer.Option(help="Only this arm of the experiment.")] = None,
    at: Annotated[
        float | None,
        typer.Option("--at", "--flops", help="Without an experiment: a compute budget, in FLOPs."),
    ] = None,
    axis: Annotated[
        str, typer.Option(help=f"What the law counts: {', '.join(AXES)}.")
    ] = "model_flops",
    level: Annotated[
        float, typer.Option(min=0.5, max=0.999, help="The level of the interval.")
    ] = LEVEL,
    floor: Annotated[
        float | None, typer.Option(min=0.0, help="The law's floor in bits per byte, if stated.")
    ] = None,
    floor_error: Annotated[
        float | None,
        typer.Option(min=0.0, help="How far from --floor it may be; as far as 0 if left out."),
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option(help="A file with the smaller runs, such as a seal, instead of the store's."),
    ] = None,
    seal: Annotated[Path | None, typer.Option(help="Write the forecast's seal to FILE.")] = None,
    outcome: Annotated[
        Path | None, typer.Option(help="Write to FILE how good the forecast in --seal was.")
    ] = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Predict a run's bits per byte, with an interval, from smaller runs. Runs nothing.

    The smaller runs are those of its ladder: the same text and recipe; only the size differs."""
    if (chosen := next((one for one in AXES if one == axis), None)) is None:
        stop(f"--axis: there is no `{axis}`; there are {', '.join(AXES)}{near(axis, AXES)}")
    if path is None and at is None:
        stop("Give an experiment, or a compute budget in FLOPs with --at.")
    if path is not None and at is not None:
        stop("Give an experiment or --at, not both.")
    if floor_error is not None and floor is None:
        stop("--floor-error needs a --floor.")
    if (seal or outcome) and path is None:
        stop("A seal is of an experiment's run; name the experiment.")
    if outcome:
        _score(outcome, seal, store, jobs)
        return
    if points:
        known = read_points(points)
    else:
        instead = "name one with --store, or runs with --points"
        known = list(points_in(options.opened(store, jobs, instead)))
    floors: dict[str, Any] = {"floor": floor, "floor_error": floor_error}
    if path is None:
        assert at is not None
        one = forecasting.forecast(known, at, axis=chosen, level=level, **floors)
        said: dict[str, Said] = {"": one}
    else:
        designs = _designs(path, arm)
        laid = {name: forecasting.ladder_of(known, one, chosen) for name, one in designs.items()}
        said = {
            name: _said(one, laid[name], chosen, level, floors) for name, one in designs.items()
        }
        if seal:
            _seal(seal, path, designs, laid, said)
    if as_json:
        print_json(said)
    else:
        _tell(said)
    sys.exit(FAILED if all(isinstance(one, Refusal) for one in said.values()) else DONE)


def points_in(store: Store) -> Iterator[Point]:
    """Every run in a store that the lab has scored, oldest execution first."""
    for execution in sorted(provenance.executions(store), key=lambda one: (one.at, one.id)):
        yield from forecasting.points_of(execution, provenance.runs_of(store, execution))


def _said(
    design: Design,
    points: list[Point],
    axis: Axis,
    level: float,
    floors: Mapping[str, Any],
) -> Said:
    there = design.on(axis)
    if there is None:
        return Refusal(words=f"a plan does not know its {AXES[axis]}; choose another axis")
    return forecasting.forecast(points, there, axis=axis, level=level, **floors)


def _designs(path: Path, arm: str | None) -> dict[str, Design]:
    plan = planner.plan_folder(path)
    if arm and arm not in plan.arms:
        stop(f"{path}: there is no arm `{arm}`{near(arm, plan.arms)}")
    found = {name: forecasting.design_of(plan, name) for name in ([arm] if arm else plan.arms)}
    designs = {name: design for name, design in found.items() if design}
    if not designs:
        stop(f"{path}: it trains no model of the lab's that is scored on one text.")
    return designs


def read_points(path: Path) -> list[Point]:
    """The runs in a file: a list of them, or an object with `points`, such as a seal."""
    try:
        value = json.loads(path.read_bytes())
        return list(POINTS.validate_python(value["points"] if isinstance(value, dict) else value))
    except (OSError, ValueError, KeyError) as error:
        words = str(error) if not isinstance(error, KeyError) else "it has no `points`"
        stop(f"{path} is not a file of runs: {words}.")


def _tell(said: dict[str, Said]) -> None:
    for name, one in said.items():
        called = f"{name}: " if name else ""
        if isinstance(one, Refusal):
            print(f"{called}no forecast: {one.words}")
            continue
        print(f"{called}{one.sentence}")
        print(f"  {one.law.words}, fitted to {one.runs} runs")
        print(f"  spread between seeds {one.noise:.2%}; {'; '.join(one.words)}")


# ── Seals ────────────────────────────────────────────────────────────────────────────────────


def _seal(
    file: Path,
    path: Path,
    designs: dict[str, Design],
    laid: dict[str, list[Point]],
    said: dict[str, Said],
) -> None:
    if len(designs) != 1:
        stop(f"A seal is of one run; say --arm, one of {', '.join(designs)}.")
    (name,) = designs
    forecast = said[name]
    if isinstance(forecast, Refusal):
        return
    folder = path if path.is_dir() else path.parent
    made = sealed_forecast.seal(
        folder.resolve().name, declaration(folder), designs[name], tuple(laid[name]), forecast
    )
    _write(file, made)


def declaration(folder: Path) -> dict[str, str]:
    """Digests of what an experiment declares and runs: the files of its folder except seals and
    outcomes, which are JSON."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in (".yaml", ".py")
    }


def _score(file: Path, seal: Path | None, store: str, jobs: str | None) -> None:
    if seal is None:
        stop("--outcome needs the --seal of the forecast.")
    try:
        content = seal.read_bytes()
        said = sealed_forecast.Seal.model_validate_json(content)
        sealed_forecast.check(said)
    except (OSError, ValidationError, sealed_forecast.NoSeal) as error:
        stop(f"{seal} is not a seal: {error}.")
    opened, design = options.opened(store, jobs), said.design
    for point in points_in(opened):
        if (point.arm, point.config, point.ladder) != (design.arm, design.config, design.ladder):
            continue
        name = point.run.partition(".")[0]
        execution = record.require(opened, f"executions/{name}/execution", record.Execution)
        step = execution.plan.trained().get((point.arm, point.seed))
        # From the execution's record, because the step's output may be gone.
        end = step and provenance.account(opened, execution).ends.get(step)
        end = end or record.StepEnd(state="made")
        digest = hashlib.sha256(content).hexdigest()
        found = sealed_forecast.outcome(said, digest, point, name, end)
        _write(file, found)
        word = "inside" if found.inside else "outside"
        print(f"measured {point.loss:.4f} bits per byte ({found.error:+.2%}), {word} the interval")
        return
    stop(f"{store} has no finished run of {design.arm}, of which {seal} tells.")


def _write(file: Path, what: base_record.Record) -> None:
    """Write it once: a second seal of the same run would be a second guess."""
    text = json.dumps(what.model_dump(mode="json"), indent=1, ensure_ascii=False, sort_keys=True)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text + "\n")
    except FileExistsError:
        stop(f"{file} is there already, and is written once.")
    except OSError as error:
        stop(f"{file} cannot be written: {error.strerror}.")
