"""`regatta forecast`: how good a run will be, from smaller runs of the lab, with an interval; and
the seal of such a forecast. Exit codes: 0 said, 1 there is no law to say it by, 2 bad input."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn, get_args

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from runner.analysis import forecast as forecasting
from runner.analysis import sealed_forecast
from runner.analysis.forecast import LEVEL, Design, Forecast, Point, Refusal
from runner.cli import options
from runner.cli.options import TheJobs, TheStore
from runner.history import execution_index, provenance
from runner.lib import base_record
from runner.lib.problems import BadExperiment, near
from runner.planning import planner
from runner.schema import record
from runner.schema.prediction_forms import AXES, Axis
from runner.store.store import Store, StoreError

REFUSED, BAD_INPUT = 1, 2
POINTS = TypeAdapter(tuple[Point, ...])
Said = Forecast | Refusal


def command(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="An experiment: its arms are what is forecast."),
    ] = None,
    arm: Annotated[str, typer.Option(help="Only this arm of the experiment.")] = "",
    at: Annotated[
        float | None, typer.Option("--at", "--flops", help="Without an experiment: at which C.")
    ] = None,
    axis: Annotated[str, typer.Option(help=f"What C counts: {', '.join(AXES)}.")] = "model_flops",
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Of the interval.")] = LEVEL,
    floor: Annotated[
        float | None, typer.Option(min=0.0, help="The law's floor in bits per byte, if stated.")
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option(help="A file with the smaller runs, such as a seal, instead of the store's."),
    ] = None,
    seal: Annotated[Path | None, typer.Option(help="Write the forecast's seal to FILE.")] = None,
    outcome: Annotated[
        Path | None, typer.Option(help="Write to FILE what became of the forecast in --seal.")
    ] = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Forecast a run's bits per byte by the scaling law through smaller runs of its ladder: on the
    same text, by the same recipe, one dial turned. Runs nothing."""
    if axis not in get_args(Axis):
        _stop(f"--axis: there is no `{axis}`{near(axis, AXES)}; there are {', '.join(AXES)}.")
    if (path is None) == (at is None):
        _stop("Name an experiment, or say at which C with --at: one of the two.")
    if (seal or outcome) and path is None:
        _stop("A seal is of an experiment's run; name the experiment.")
    if outcome:
        _score(outcome, seal, store, jobs)
        return
    known = read_points(points) if points else list(points_in(_opened(store, jobs)))
    chosen: Axis = next(one for one in get_args(Axis) if one == axis)
    if path is None:
        assert at is not None
        said: dict[str, Said] = {
            "": forecasting.forecast(known, at, axis=chosen, level=level, floor=floor)
        }
    else:
        designs = _designs(path, arm)
        laid = {name: forecasting.ladder_of(known, one, chosen) for name, one in designs.items()}
        said = {name: _said(one, laid[name], chosen, level, floor) for name, one in designs.items()}
        if seal:
            _seal(seal, path, designs, laid, said)
    if as_json:
        told = {name: one.model_dump(mode="json") for name, one in said.items()}
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        _tell(said)
    sys.exit(REFUSED if all(isinstance(one, Refusal) for one in said.values()) else 0)


def points_in(store: Store) -> Iterator[Point]:
    """Every run of a store's executions that the lab has scored, oldest execution first."""
    found = []
    for name in record.names(store, "executions"):
        execution = record.read(store, f"executions/{name}/execution", record.Execution)
        if execution:
            found.append(execution)
    for execution in sorted(found, key=lambda one: (one.at, one.id)):
        yield from forecasting.points_of(execution, execution_index.runs_of(store, execution))


def _said(
    design: Design, points: list[Point], axis: Axis, level: float, floor: float | None
) -> Said:
    there = design.on(axis)
    if there is None:
        return Refusal(words=f"a plan does not know its {AXES[axis]}; choose another axis")
    return forecasting.forecast(points, there, axis=axis, level=level, floor=floor)


def _designs(path: Path, arm: str) -> dict[str, Design]:
    try:
        plan = planner.plan_folder(path)
    except BadExperiment as error:
        _stop(str(error))
    if arm and arm not in plan.arms:
        _stop(f"{path}: there is no arm `{arm}`{near(arm, plan.arms)}.")
    found = {name: forecasting.design_of(plan, name) for name in ([arm] if arm else plan.arms)}
    designs = {name: design for name, design in found.items() if design}
    if not designs:
        _stop(f"{path}: it trains no model of the lab's that is scored on one text.")
    return designs


def read_points(path: Path) -> list[Point]:
    """The runs in a file: a list of them, or what has one as `points`, as a seal does."""
    try:
        value = json.loads(path.read_bytes())
        return list(POINTS.validate_python(value["points"] if isinstance(value, dict) else value))
    except (OSError, ValueError, KeyError) as error:
        words = str(error) if not isinstance(error, KeyError) else "it has no `points`"
        _stop(f"{path} is no file of runs: {words}.")


def _tell(said: dict[str, Said]) -> None:
    out = Console(highlight=False)
    for name, one in said.items():
        called = f"{name}: " if name else ""
        if isinstance(one, Refusal):
            out.print(f"{called}no forecast: {one.words}", markup=False, soft_wrap=True)
            continue
        out.print(f"{called}{one.sentence}", markup=False, soft_wrap=True)
        out.print(f"  {one.law.words}, fitted to {one.runs} runs", markup=False, soft_wrap=True)
        out.print(
            f"  one run differs by {one.noise:.2%} between seeds; {'; '.join(one.words)}",
            markup=False,
            soft_wrap=True,
        )


# ── Seals ────────────────────────────────────────────────────────────────────────────────────


def _seal(
    file: Path,
    path: Path,
    designs: dict[str, Design],
    laid: dict[str, list[Point]],
    said: dict[str, Said],
) -> None:
    if len(designs) != 1:
        _stop(f"A seal is of one run; say --arm, one of {', '.join(designs)}.")
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
    """Digests of what an experiment declares and runs: the files of its folder that are neither a
    seal nor an outcome, which are JSON."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in (".yaml", ".py")
    }


def _score(file: Path, seal: Path | None, store: str, jobs: str | None) -> None:
    if seal is None:
        _stop("--outcome needs the --seal that was made before.")
    try:
        content = seal.read_bytes()
        said = sealed_forecast.Seal.model_validate_json(content)
        sealed_forecast.check(said)
    except (OSError, ValidationError, sealed_forecast.NoSeal) as error:
        _stop(f"{seal} is no seal: {error}.")
    opened = _opened(store, jobs)
    design = said.design
    for point in points_in(opened):
        execution = record.require(
            opened, f"executions/{point.run.partition('.')[0]}/execution", record.Execution
        )
        step = execution.plan.trained().get((point.arm, point.seed))
        if (point.arm, point.config, point.ladder) != (design.arm, design.config, design.ladder):
            continue
        end = _ended(opened, execution, step)
        digest = hashlib.sha256(content).hexdigest()
        found = sealed_forecast.outcome(said, digest, point, execution.id, end)
        _write(file, found)
        word = "inside" if found.inside else "outside"
        print(f"{point.loss:.4f} bits per byte: {found.error:+.2%}, {word} of the interval")
        return
    _stop(f"{store} has no finished run of {design.arm}, of which {seal} tells.")


def _ended(store: Store, execution: record.Execution, step: str | None) -> record.StepEnd:
    """When, where and how long a run was made, as its step or else its execution says: of what is
    no longer there, and of an older lab's runs."""
    if step and (end := provenance.step_ends(store, execution, [step]).get(step)):
        return end
    folder = f"executions/{execution.id}"
    result = record.read(store, f"{folder}/result", record.Result)
    events = [name for name in record.names(store, folder) if name.endswith(".ended")]
    trained = [name for name in events if name.startswith("t")]
    last = record.read(store, f"{folder}/{max(trained)}", record.Ended) if trained else None
    return record.StepEnd(
        state="made",
        made_at=result.at if result else None,
        seconds=result.seconds if result else None,
        receipt=last.receipt if last else {},
    )


def _write(file: Path, what: base_record.Record) -> None:
    """Write it once: a second seal of the same run would be a second guess."""
    text = json.dumps(what.model_dump(mode="json"), indent=1, ensure_ascii=False, sort_keys=True)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text + "\n")
    except FileExistsError:
        _stop(f"{file} is there already, and is written once.")
    except OSError as error:
        _stop(f"{file} cannot be written: {error.strerror}.")


def _opened(store: str, jobs: str | None) -> Store:
    try:
        found = options.found(store, jobs)
    except StoreError as error:
        _stop(str(error))
    if found is None:
        _stop(f"there is no store at {store}; name one with --store, or runs with --points.")
    return found


def _stop(words: str) -> NoReturn:
    Console(stderr=True).print(words, style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(BAD_INPUT)
