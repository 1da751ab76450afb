"""`plan`, `compile-check` and `run`: the lab's own code on one's own machine, without GitHub.

A local execution has no approval and is unsigned; everything else is what the bot does. Exit
codes: 0 done, 1 failed, 2 bad input. What is asked for goes to stdout, all else to stderr.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from rich.console import Console, Group
from rich.text import Text

from engine.config import memory
from engine.config.schema import ComputeConfig, MeshConfig, ModelConfig, TrainConfig
from runner.analysis import power
from runner.cli import execution_view, local_run, options, steps_view, terminal
from runner.cli.forecast import command as forecast
from runner.cli.new import command as new
from runner.cli.options import TheExecution, TheJobs, TheStore
from runner.cli.replay import command as replay
from runner.cli.reproduce import command as reproduce
from runner.cli.results import command as results
from runner.cli.simulate import command as simulate
from runner.cli.steps import app as steps_app
from runner.cli.store import app as store_app
from runner.cli.verify import app as key_app
from runner.cli.verify import command as verify
from runner.execution import aliases, git_source
from runner.execution.lifecycle import Facts
from runner.execution.ray_jobs import RayAddress, RayError
from runner.history import provenance
from runner.history.execution_index import Past
from runner.lib import format
from runner.lib.problems import BadExperiment, near
from runner.lib.untrusted_files import printable
from runner.planning import compile_check as checking
from runner.planning import lockfile, planner, subset
from runner.publish import wandb_upload
from runner.schema import record
from runner.schema.devices import DESCRIBED, Slice, slice_named
from runner.store.store import Store, StoreError

DONE, FAILED, BAD_INPUT = 0, 1, 2
app = typer.Typer(help="Plan and run experiments on this machine.", no_args_is_help=True)
app.add_typer(steps_app)
app.command("forecast")(forecast)
app.command("new")(new)
app.command("replay")(replay)
app.command("reproduce")(reproduce)
app.command("results")(results)
app.command("simulate")(simulate)
app.add_typer(store_app, name="store")
app.command("verify")(verify)
app.add_typer(key_app, name="key")

ThePath = Annotated[
    Path, typer.Argument(metavar="PATH", help="An experiment's folder or its experiment.yaml.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
TheSlice = Annotated[
    str, typer.Option("--slice", help="So many devices of a kind, described as h100x8 or v5px64.")
]
TheMesh = Annotated[
    str, typer.Option("--mesh", help="Its mesh, such as data=2,fsdp=4; fsdp takes all if left out.")
]
Remat = Annotated[
    Literal["none", "block"], typer.Option(help="What is computed again instead of being kept.")
]


@app.command()
def plan(
    path: ThePath,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
    devices: TheSlice = "",
    mesh: TheMesh = "",
    remat: Remat = "none",
) -> None:
    """Say what an experiment would run, what it would cost and whether it fits. Runs nothing.

    Memory is counted for the devices that the experiment asks for, or those described.
    """
    planned = _planned(path, None)
    held = []
    for default, arms in _asked_for(planned, bool(devices)).items():
        on, compute = _described(devices, mesh, remat, default)
        _check_mesh([(arm.labs, arm.train) for arm in arms.values() if arm.labs], compute.mesh)
        held += [terminal.memory_view(arms, on, compute)] if arms else []
    opened = _found(store, jobs)
    out = Console(stderr=as_json)
    drifted = [steps_view.drift_view(x, planned.experiment) for x in _drifted(opened, planned)]
    if as_json:
        print(json.dumps(planned.model_dump(mode="json"), indent=2, ensure_ascii=False))
        out.print(*drifted, sep="\n\n", end="")
        return
    stands: dict[str, record.Standing] = {}
    if planned.steps:
        earlier = provenance.latest(opened, planned.experiment) if opened else None
        before = earlier.plan.steps if earlier else {}
        stands = provenance.standing(opened, planned.steps, before)
        out.print(steps_view.standings(planned.steps, stands))
        out.print()
        for drift in drifted:
            out.print(drift)
            out.print()
    past = Past(opened) if opened else None
    predictions = past.predictions(planned) if past else ()
    told = power.told(planned, predictions, past.spread(planned) if past else None)
    out.print(terminal.plan_view(planned, Group(*held, *told), stands))
    if opened:
        for execution, result in local_run.earlier(opened, planned):
            state = result.state if result else "unfinished"
            out.print(f"it has run here as {execution.id}: {state}", highlight=False)


@app.command()
def run(
    path: ThePath,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
    ray_address: Annotated[
        str, typer.Option(help="A Ray dashboard's URL. Without it, a local Ray is started.")
    ] = "",
    ray_token_file: Annotated[Path | None, typer.Option(help="The file with its token.")] = None,
    only: Annotated[
        str, typer.Option(help="What to run of it, such as 'arms=slow,fast seeds=0'.")
    ] = "",
) -> None:
    """Train and evaluate an experiment, here or on a Ray of yours. Unsigned, without approval."""
    if bool(ray_address) != bool(ray_token_file):
        _stop(BAD_INPUT, "--ray-address and --ray-token-file go together: give both or neither.")
    _planned(path, None)  # what cannot be planned leaves no store behind
    opened = _open(store, jobs)
    _check_lock(path)
    planned = _narrowed(_planned(path, opened), only)
    console = Console(stderr=True)
    if found := _drifted(opened, planned):
        for drift in found:
            console.print(steps_view.drift_view(drift, planned.experiment))
        _stop(BAD_INPUT, "Nothing was started.")
    try:
        source = git_source.source(path if path.is_dir() else path.parent)
    except OSError as error:
        _stop(BAD_INPUT, f"{error}; what is run is on record with all of its folder's files.")
    with ExitStack() as stack:
        try:
            ray = RayAddress(ray_address, ray_token_file) if ray_token_file else None
            if ray is None and (words := local_run.missing_devices(planned)):
                _stop(BAD_INPUT, words)
            execution = local_run.begin(opened, planned, console, source)
            if ray is None:
                ray = stack.enter_context(local_run.started(opened, console))
            watching = stack.enter_context(terminal.Watching(console))
            facts = local_run.turn(opened, ray, execution, watching)
        except (RayError, StoreError) as error:
            _stop(FAILED, str(error))
    if wandb_upload.wanted():
        _upload(opened, facts.execution.id, console)
    _tell(opened, facts, as_json)
    sys.exit(DONE if facts.state == "done" else FAILED)


@app.command("wandb")
def upload_runs(
    execution: TheExecution,
    store: TheStore = "store",
    jobs: TheJobs = None,
) -> None:
    """Upload an execution's runs to W&B, as far as they are not there. Needs WANDB_API_KEY.

    `run` and the bot do so themselves, where they have the key, when an execution is over.
    """
    if not wandb_upload.wanted():
        _stop(BAD_INPUT, f"{wandb_upload.KEY} is not set; it says whose W&B the runs are to go to.")
    try:
        opened = options.opened(store, jobs)
        name = options.execution(opened, execution).id
        if not record.read(opened, f"executions/{name}/result", record.Result):
            _stop(BAD_INPUT, f"{name} is not over; upload its runs when it has a result.")
    except StoreError as error:
        _stop(BAD_INPUT, str(error))
    sys.exit(DONE if _upload(opened, name, Console(stderr=True)) else FAILED)


@app.command()
def compile_check(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="An experiment; an 8B Llama if left out."),
    ] = None,
    arm: Annotated[str, typer.Option(help="Which arm of the experiment.")] = "",
    devices: TheSlice = "v5px64",
    mesh: TheMesh = "",
    remat: Remat = "block",
    as_json: AsJson = False,
) -> None:
    """Compile one training step for described devices, and say what each would hold.

    Nothing is allocated and none of the devices is needed.
    """
    on, compute = _described(devices, mesh, remat, Slice("v5p", 64))
    model, train = checking.llama_8b(compute.mesh)
    if path is not None:
        arms = {name: arm for name, arm in _planned(path, None).arms.items() if arm.labs}
        if not arms:
            _stop(BAD_INPUT, f"{path} trains no model of the lab's, whose step could be compiled.")
        if len(arms) > 1 and not arm:
            _stop(BAD_INPUT, f"--arm says which one: {', '.join(arms)}.")
        if arm and arm not in arms:
            _stop(BAD_INPUT, f"there is no arm `{arm}`{near(arm, arms)}.")
        chosen = arms[arm or next(iter(arms))]
        model, train = chosen.labs or model, chosen.train
    _check_mesh([(model, train)], compute.mesh)
    try:
        with Console(stderr=True).status(f"compiling for {on}"):
            check = checking.check(model, train, compute, on)
    except checking.DoesNotCompile as error:
        _stop(FAILED, str(error))
    if as_json:
        print(json.dumps(check._asdict(), indent=2))
        return
    Console().print(terminal.check_view(check, model, train, on, compute))


def _upload(store: Store, execution: str, console: Console) -> bool:
    """Whether all runs that have figures are there now. An execution does not depend on it."""
    try:
        with console.status("uploading to W&B"):
            there, troubles = wandb_upload.upload(store, execution)
    except (OSError, StoreError) as error:
        there, troubles = [], [str(error)]
    for trouble in troubles:
        console.print(f"W&B: {trouble}", style="red", highlight=False, markup=False)
    if not troubles:
        words = ", ".join(there) or "none of its runs has figures, and nothing was uploaded"
        console.print(f"W&B: {words}", highlight=False, markup=False)
    return not troubles


# ── Beginning ────────────────────────────────────────────────────────────────────────────────


def _planned(path: Path, store: Store | None) -> record.Plan:
    try:
        return planner.plan_folder(path, store)
    except BadExperiment as error:
        _stop(BAD_INPUT, str(error))


def _narrowed(planned: record.Plan, only: str) -> record.Plan:
    """What `--only` leaves of a plan, by the words that a `/run` takes."""
    left = subset.read(only, planned) if only else record.Narrowing()
    if isinstance(left, str):
        _stop(BAD_INPUT, f"--only: {left}.")
    return subset.narrowed(planned, left)


def _drifted(store: Store | None, planned: record.Plan) -> list[aliases.Drift]:
    try:
        return aliases.drifted(aliases.known(store, planned), planned.steps) if store else []
    except StoreError as error:
        _stop(BAD_INPUT, str(error))


def _check_lock(path: Path) -> None:
    try:
        lockfile.check(path if path.is_dir() else path.parent)
    except BadExperiment as error:
        _stop(BAD_INPUT, str(error))


def _described(
    devices: str, mesh: str, remat: Literal["none", "block"], default: Slice
) -> tuple[Slice, ComputeConfig]:
    """The slice and how it computes, from the words of the command line."""
    try:
        sizes = MeshConfig(**dict(_sizes(mesh))) if mesh else None
        on = slice_named(devices) if devices else default
    except ValueError as error:
        _stop(BAD_INPUT, str(error))
    if sizes and not devices:
        on = Slice(default.kind, sizes.devices)
    sizes = sizes or MeshConfig(fsdp=on.count)
    if found := memory.misfits(sizes, devices=on.count):
        _stop(BAD_INPUT, f"`--mesh`: {found[0].words}.")
    on_cpu = DESCRIBED[on.kind].platform == "cpu"
    return on, ComputeConfig(mesh=sizes, remat=remat, dtype="float32" if on_cpu else "bfloat16")


def _asked_for(plan: record.Plan, alike: bool) -> dict[Slice, dict[str, record.PlannedArm]]:
    """The arms by what they are trained on; all by the experiment's own devices if `alike`."""
    steps = {arm: plan.steps[name].resources for (arm, _), name in plan.trained().items()}
    found: dict[Slice, dict[str, record.PlannedArm]] = {}
    for name, arm in plan.arms.items():
        if arm.labs is None:
            continue
        resources = plan.resources if alike else steps.get(name, plan.resources)
        found.setdefault(Slice(resources.kind, resources.count), {})[name] = arm
    return found or {Slice(plan.resources.kind, plan.resources.count): {}}


def _check_mesh(arms: Iterable[tuple[ModelConfig, TrainConfig]], mesh: MeshConfig) -> None:
    found = {
        f"`{misfit.field}`: {misfit.words}."
        for model, train in arms
        for misfit in memory.misfits(mesh, model=model, train=train)
    }
    if found:
        _stop(BAD_INPUT, "\n".join(sorted(found)))


def _sizes(mesh: str) -> Iterator[tuple[str, int]]:
    for part in mesh.split(","):
        axis, _, size = part.partition("=")
        if axis not in MeshConfig.model_fields or not (size.isdecimal() and 0 < int(size) < 10**6):
            known = ", ".join(MeshConfig.model_fields)
            raise ValueError(
                f"`--mesh`: `{part}` is no part of a mesh; write sizes of {known}, such as "
                f"data=2,fsdp=4{near(axis, MeshConfig.model_fields)}"
            )
        yield axis, int(size)


def _open(store: str, jobs: str | None) -> Store:
    try:
        return Store(store, jobs=jobs)
    except StoreError as error:
        _stop(BAD_INPUT, str(error))


def _found(store: str, jobs: str | None) -> Store | None:
    try:
        return options.found(store, jobs)
    except StoreError as error:
        _stop(BAD_INPUT, str(error))


# ── Telling ──────────────────────────────────────────────────────────────────────────────────


def _tell(store: Store, facts: Facts, as_json: bool) -> None:
    execution, result = facts.execution, facts.result
    runs = [
        run
        for arm, seed in execution.plan.runs()
        if (run := _run_record(store, execution.id, arm, seed))
    ]
    if as_json:
        answer = {
            "execution": execution.id,
            "approval": "none",
            "plan": execution.plan.fingerprint,
            "result": result.model_dump(mode="json") if result else None,
            "runs": [run.model_dump(mode="json") for run in runs],
            "receipts": {
                attempt.name: attempt.ended.receipt for attempt in facts.attempts if attempt.ended
            },
        }
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    out = Console()
    seconds = result.seconds if result else None
    took = f" after {format.duration(seconds)}" if seconds and seconds >= 1 else ""
    ends = provenance.step_ends(store, execution)
    why = result.why if result and not steps_view.says(result.why, ends) else ""
    out.print(Text(f"{execution.id} {facts.state}{took}{': ' * bool(why)}{printable(why)}"))
    if execution.plan.data is None:
        scores = provenance.account(store, execution).scores
        out.print(steps_view.ends(execution.plan.steps, ends), *execution_view.scores_view(scores))
    else:
        out.print(terminal.result_view(facts, runs))
    out.print(f"`regatta show {execution.id}` says where its outputs lie", style="dim")
    for name, log in provenance.logs(store, execution).items():
        out.print(Text(f"what {name} printed: {log}"), soft_wrap=True)
    out.print("unsigned, no approval", style="dim")


def _run_record(store: Store, execution: str, arm: str, seed: int) -> record.Run | None:
    return record.read(store, f"runs/{execution}.{record.run_name(arm, seed)}", record.Run)


def _stop(code: int, words: str) -> NoReturn:
    print(words, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    app(prog_name="regatta")
