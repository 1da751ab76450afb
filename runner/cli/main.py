"""`plan`, `run` and `wandb`: the lab on one's own machine, without GitHub; and all commands of the
runner together.

A local execution has no approval and is unsigned; otherwise it is as the bot's."""

import os
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console, Group
from rich.text import Text

from engine.config.schema import ComputeConfig
from runner.analysis import power
from runner.cli import (
    check,
    compile_check,
    corpus,
    execution_view,
    forecast,
    label,
    local_run,
    logs,
    models,
    new,
    options,
    replay,
    reproduce,
    results,
    schema,
    search,
    steps_view,
    terminal,
    verify,
)
from runner.cli.commands import App, Commands
from runner.cli.compile_check import Remat, TheMesh, TheSlice
from runner.cli.ending import DONE, FAILED, complaining, print_json, remark, stop, stopping
from runner.cli.options import AsJson, RayToken, RayUrl, TheExecution, TheJobs, ThePath, TheStore
from runner.cli.steps import app as steps_app
from runner.cli.store import app as store_app
from runner.execution import aliases, git_source
from runner.execution.lifecycle import Facts
from runner.history import overhead, provenance, token_counts
from runner.history.execution_index import Past
from runner.lib import format
from runner.lib.untrusted_files import printable
from runner.planning import lockfile, mesh_words, planner, subset
from runner.planning.planned_steps import asked, drawn, uploads
from runner.publish import hub, wandb_live, wandb_upload
from runner.schema import record
from runner.schema.devices import Slice
from runner.store.store import Store, StoreError

app = App(
    cls=Commands,
    help="An open lab: plan and run experiments here, or run a lab on GitHub.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(steps_app)
app.command("compile-check")(compile_check.command)
for module in (
    check,
    forecast,
    label,
    logs,
    new,
    replay,
    reproduce,
    results,
    schema,
    search,
    verify,
):
    app.command(module.__name__.rpartition(".")[2])(module.command)
app.command("export")(models.export_model)
app.command("import")(models.import_model)
app.command("chat")(models.chat)
app.add_typer(corpus.app, name="corpus")
app.add_typer(store_app, name="store")
app.add_typer(verify.app, name="key")


def _version(asked: bool) -> None:
    if asked:
        print(f"regatta {metadata.version('regatta')}")
        raise typer.Exit


@app.callback()
def regatta(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    """An open lab: plan and run experiments here, or run a lab on GitHub."""


@app.command()
def plan(
    path: ThePath,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
    devices: TheSlice = None,
    mesh: TheMesh = None,
    remat: Remat = "none",
) -> None:
    """Show what an experiment would run, what it costs and whether it fits. Runs nothing.

    Memory is counted for the devices that the experiment asks for, or those you describe.
    """
    opened, planned = options.found(store, jobs), planner.plan_folder(path)
    _show_plan(planned, opened, as_json, path, devices, mesh, remat)
    sent = [f"`regatta run` sends models to {x} at the Hub" for x in uploads(planned.steps)]
    told = [*drawn(planned.steps), *asked(planned.steps), *(sent if hub.wanted() else ())]
    told += map(str, planner.unfetched(opened, planned, str(path)) if opened else ())
    for words in filter(None, [*told, local_run.unusable_devices(planned)]):
        remark(words, "yellow")
    if not as_json:
        remark(f"next: {_next(opened, planned, path, store)}", "dim")


def _next(opened: Store | None, planned: record.Plan, path: Path, store: str) -> str:
    """What to type after a plan: to run it, or to see what it found already."""
    at = "" if store == options.STORE else f" --store {shlex.quote(store)}"
    for execution, result in local_run.earlier(opened, planned) if opened else ():
        if result and result.state == "done":
            return f"regatta show {execution.id}{at}, or run it again: regatta run {path}{at}"
    return f"regatta run {shlex.quote(str(path))}{at}"


def _show_plan(
    planned: record.Plan,
    opened: Store | None,
    as_json: bool,
    at: Path,
    devices: str | None = None,
    mesh: str | None = None,
    remat: Literal["none", "block"] = "none",
) -> None:
    held = []
    described = bool(devices or mesh or remat != "none")
    for (default, declared), arms in _asked_for(steps_view.in_turn(planned), described).items():
        on, compute = compile_check.described(at, devices, mesh, remat, default)
        compute = declared or compute
        own = [(arm.labs, arm.train) for arm in arms.values() if arm.labs]
        compile_check.check_mesh(own, compute.mesh)
        held += [terminal.memory_view(arms, on, compute)] if arms else []
    out = Console(stderr=as_json)
    drifted = [steps_view.drift_view(x, planned.experiment) for x in _drifted(opened, planned)]
    if as_json:
        print_json(planned)
        out.print(*drifted, sep="\n\n", end="")
        return
    stands = provenance.standing_now(opened, planned)
    if stands:
        for shown in (steps_view.standings(planned.steps, stands), *drifted):
            out.print(shown)
            out.print()
    past = Past(opened) if opened else None
    predictions = past.predictions(planned) if past else ()
    told = power.told(
        planned,
        predictions,
        past.spread(planned) if past else None,
        past.spreads(planned, predictions) if past else {},
    )
    told += token_counts.told(opened, planned) if opened else ()
    besides = overhead.learned(opened)
    out.print(terminal.plan_view(planned, Group(*held, *told), stands, besides))
    if opened:
        for execution, result in local_run.earlier(opened, planned):
            state = result.state if result else "unfinished"
            out.print(f"already run as {execution.id}: {state}", highlight=False)


@app.command()
def run(
    path: ThePath,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
    ray_address: RayUrl = None,
    ray_token_file: RayToken = None,
    only: Annotated[
        str | None, typer.Option(help="Run only a part, such as 'arms=slow,fast seeds=0'.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Run only this seed; may be given more than once.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run.")] = False,
) -> None:
    """Train and score an experiment, here or on your Ray. Unsigned, without approval."""
    with complaining() as wrong:
        if seed and only:
            wrong.append("--seed and --only: write all with --only, such as 'arms=slow seeds=0,1'.")
        wrong += options.half_a_ray(ray_address, ray_token_file)
        whole = planner.plan_folder(path)  # an invalid plan creates no store
        planned, left = _narrowed(whole, only, seed)
        wrong += left
    if dry_run:
        _show_plan(planned, options.found(store, jobs), as_json, path)
        return
    ray = options.ray(ray_address, ray_token_file)
    opened = options.made(store, jobs)
    folder = path if path.is_dir() else path.parent
    lockfile.check(folder)
    planner.keep(opened, whole, folder)
    console = Console(stderr=True)
    if found := _drifted(opened, planned):
        for drift in found:
            console.print(steps_view.drift_view(drift, planned.experiment))
        stop("Nothing was started.")
    recorded = "the lab records all files of an experiment's folder"
    with stopping(OSError, words=f"{{}}; {recorded}."):
        source = git_source.source(folder)
    facts = local_run.execute(opened, planned, console, ray, source)
    if wandb_upload.mode() != "disabled":
        _upload(opened, facts.execution.id)
    if hub.wanted():
        _upload_models(opened, facts.execution.id)
    _tell(opened, facts, as_json, store)
    sys.exit(DONE if facts.state == "done" else FAILED)


@app.command("wandb")
def upload_runs(
    execution: TheExecution,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Upload an execution's runs to W&B. Needs WANDB_API_KEY. With WANDB_MODE=offline, write them
    to the folder `wandb`.

    `run` and the bot do so themselves when an execution is over, if they have the key.
    """
    if wandb_upload.mode() == "disabled":
        if os.environ.get(wandb_upload.KEY):
            stop("W&B is switched off by WANDB_MODE, WANDB_DISABLED or its settings file.")
        stop(f"{wandb_upload.KEY} is not set; it says whose W&B the runs are to go to.")
    opened = options.opened(store, jobs)
    name = options.execution(opened, execution).id
    if not record.read(opened, f"executions/{name}/result", record.Result):
        stop(f"{name} is not over; upload its runs when it has a result.")
    done = _upload(opened, name)
    if as_json:
        print_json({"execution": name, "uploaded": done})
    sys.exit(DONE if done else FAILED)


def _upload(store: Store, execution: str) -> bool:
    """Whether all runs that have figures are uploaded now, or written for later. The execution does
    not depend on it."""
    try:
        if wandb_upload.mode() == "offline":
            folder = Path(os.environ.get("WANDB_DIR") or ".")
            runs, error = wandb_upload.write_offline(store, execution, folder)
            later = f"{format.many(len(runs), 'run')} written to {folder / 'wandb'}"
            remark(f"W&B: {error or f'{later}, `wandb sync --sync-all` there sends them'}")
            return not error
        with Console(stderr=True).status("uploading to W&B"):
            there, troubles = wandb_upload.upload(store, execution)
    except (OSError, StoreError) as error:
        there, troubles = [], [str(error)]
    for trouble in troubles:
        remark(f"W&B: {trouble}", "red")
    if not troubles:
        words = ", ".join(there) or "nothing uploaded: no run has a score"
        at = wandb_live.address(store, execution)
        remark(f"W&B: {words}{f', at {at}' if at else ''}")
    return not troubles


def _upload_models(store: Store, execution: str) -> None:
    """Send exported models to the Hub where the plan asks for it."""
    there, troubles = hub.upload(store, execution)
    for trouble in troubles:
        remark(f"Hugging Face Hub: {trouble}", "red")
    if there:
        remark(f"Hugging Face Hub: {', '.join(there)}")


def _narrowed(
    planned: record.Plan, only: str | None, seeds: list[int] | None
) -> tuple[record.Plan, list[str]]:
    """The part of a plan that `--only` or `--seed` selects, with the words of a `/run`; and the
    errors in them."""
    words = only or (f"seeds={','.join(map(str, seeds))}" if seeds else None)
    left = subset.read(words, planned) if words else record.Narrowing()
    if isinstance(left, str):
        return planned, [f"{'--only' if only else '--seed'}: {left}."]
    return subset.narrowed(planned, left), []


def _drifted(store: Store | None, planned: record.Plan) -> list[aliases.Drift]:
    return aliases.drifted(aliases.known(store, planned), planned.steps) if store else []


def _asked_for(
    plan: record.Plan, described: bool
) -> dict[tuple[Slice, ComputeConfig | None], dict[str, record.PlannedArm]]:
    """The arms by their devices and how they are computed there; where both are `described`, all
    together."""
    if not described and (found := mesh_words.computed(plan)):
        return dict(found.items())
    arms = {name: arm for name, arm in plan.arms.items() if arm.labs}
    return {(_slice(plan, plan.resources), None): arms}


def _slice(plan: record.Plan, of: record.Resources) -> Slice:
    return Slice(of.kind, of.count, plan.kinds[of.kind], of.slices)


def _tell(store: Store, facts: Facts, as_json: bool, place: str) -> None:
    execution, result = facts.execution, facts.result
    paths = (f"runs/{execution.id}.{record.run_name(*run)}" for run in execution.plan.runs())
    runs = [run for path in paths if (run := record.read(store, path, record.Run))]
    if as_json:
        receipts = {one.name: one.ended.receipt for one in facts.attempts if one.ended}
        print_json(
            {
                "execution": execution.id,
                "approval": "none",
                "plan": execution.plan.fingerprint,
                "result": result,
                "finding": execution_view.finding(execution.plan, runs, result),
                "runs": runs,
                "receipts": receipts,
            }
        )
        return
    out = Console()
    seconds = result.seconds if result else None
    took = f" after {format.duration(seconds)}" if seconds and seconds >= 1 else ""
    ends = provenance.step_ends(store, execution)
    why = result.why if result and not steps_view.says(result.why, ends) else ""
    if execution.plan.data is None:
        account, shown = provenance.account(store, execution), steps_view.in_turn(execution.plan)
        parts = [steps_view.ends(shown.steps, ends), *execution_view.scores_view(account.scores)]
        parts += execution_view.all_scores(shown, runs)
        parts += execution_view.last_outputs(store, account)
        out.print(Group(*parts), highlight=False, crop=False)
    else:
        out.print(terminal.result_view(facts, runs))
    for name, log in provenance.logs(store, execution).items():
        out.print(Text(f"log of {name}: {log}"), soft_wrap=True)
    unsigned = " (unsigned, no approval)"
    end = f"{execution.id} {facts.state}{took}{unsigned}{': ' * bool(why)}{printable(why)}"
    out.print(Text(end), soft_wrap=True)
    if result and result.state == "done":
        found = execution_view.finding(execution.plan, runs, result)
        out.print(Text(f"{found}.", style="bold"), soft_wrap=True)
    at = "" if place == options.STORE else f" --store {shlex.quote(place)}"
    remark(f"next: regatta show {execution.id}{at}, or regatta site build{at}", "dim")


if __name__ == "__main__":
    app(prog_name="regatta")
