"""`show`, `ls`, `graph` and `diff` (executions and what they were made from, as text or with
`--json`), `compile` (writes what an `experiment.py` declares), and `alias` (confirms a new
meaning)."""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from runner.cli import execution_view, options, steps_view
from runner.cli.commands import App
from runner.cli.ending import print_json, stop, stopping, tell
from runner.cli.options import AsJson, TheJobs, TheStore
from runner.execution import aliases, git_source
from runner.history import provenance
from runner.history.provenance import Side
from runner.lib.problems import BadExperiment, near
from runner.planning import lockfile, planner
from runner.publish import step_summary
from runner.schema import lab_config, record
from runner.schema.record import Plan, Result
from runner.spec import declaration
from runner.store.store import Store, StoreError

MAX_LISTED = 20  # executions in the text

Where = tuple[str, str | None]  # the store, and the jobs' store if it is another one

app = App()

What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="An execution (id, its beginning, or `latest`), or an experiment (folder or name).",
    ),
]
TheFolder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="An experiment's folder or name.", callback=options.experiment
    ),
]


@app.command("compile")
def compile_experiment(path: TheFolder, as_json: AsJson = False) -> None:
    """Run an experiment's `experiment.py` and write what it declares to `experiment.lock.yaml`."""
    locked = path / declaration.LOCK_NAME
    with stopping(StoreError):
        text = lockfile.compiled(path)
        _check_compiled(text, path)
        written = lockfile.write(text, path)
    if as_json:
        print_json({"file": locked, "written": written})
    else:
        print(f"{locked}: {'written' if written else 'unchanged'}", file=sys.stderr)


def _check_compiled(text: str, path: Path) -> None:
    """Raises BadExperiment if the new lock could not be planned. Errors are reported for
    `experiment.py`, because nobody has seen the lock yet."""
    python = path / declaration.PYTHON_NAME
    declaration.declaring(
        str(path), lambda name: name == declaration.LOCK_NAME or (path / name).is_file()
    )
    try:
        planner.make_plan(declaration.parse(text, str(python), lab_config.find(path)), path)
    except BadExperiment as error:
        line = lockfile.line_of(python)
        raise BadExperiment([replace(one, line=line) for one in error.problems]) from error


@app.command()
def show(
    execution: Annotated[
        str | None,
        typer.Argument(
            metavar="EXECUTION",
            help="The id, the beginning of the id, or `latest`.",
            autocompletion=options.begun,
        ),
    ] = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Show an execution: who ran it, from which code, its steps and results.

    Without an execution, list them."""
    opened = options.opened(store, jobs)
    if not execution:
        _list(opened, as_json)
        return
    found = provenance.account(opened, options.execution(opened, execution))
    if as_json:
        print_json(
            {
                "execution": found.execution,
                "steps": found.ends,
                "result": found.result,
                "runs": found.runs,
                "scores": found.scores,
                "files": found.files,
            }
        )
        return
    meanings = aliases.known(opened, found.execution.plan)
    out = Console()
    out.print(execution_view.view(opened, found, meanings), highlight=False, crop=False)
    for name, log in provenance.logs(opened, found.execution).items():
        out.print(Text(f"log of {name}: {log}"), soft_wrap=True)


@app.command("ls")
def list_executions(
    store: TheStore = "store", jobs: TheJobs = None, as_json: AsJson = False
) -> None:
    """List executions, the newest first."""
    _list(options.opened(store, jobs), as_json)


def _list(store: Store, as_json: bool) -> None:
    """All executions as JSON; as text only the newest."""
    known = [execution_view.line(one) for one in provenance.executions(store)]
    known.sort(key=lambda line: line.begun, reverse=True)
    lines = [_with_state(store, one) for one in (known if as_json else known[:MAX_LISTED])]
    if as_json:
        print_json([line._asdict() for line in lines])
        return
    out = Console()
    out.print(execution_view.listing(lines) if lines else f"{store.root} has no executions yet")
    if any(line.changed for line in lines):
        out.print("+ with uncommitted changes", style="dim")
    if more := len(known) - len(lines):
        out.print(f"and {more:,} older ones; --json lists all", style="dim", highlight=False)


def _with_state(store: Store, line: execution_view.Line) -> execution_view.Line:
    result = record.read(store, f"executions/{line.execution}/result", Result)
    return line._replace(state=result.state) if result else line


@app.command("alias")
def decide(
    folder: TheFolder,
    alias: Annotated[str, typer.Argument(help="An alias of one of its steps.")],
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Confirm the new meaning of an alias, after a change of the experiment."""
    opened, plan = options.opened(store, jobs), _plan(str(folder), (store, jobs))
    names = {step.alias: name for name, step in plan.steps.items() if step.alias}
    if alias not in names:
        known = ", ".join(f"`{one}`" for one in names) or "none"
        stop(f"no step of {folder} has the alias `{alias}`; it has {known}{near(alias, names)}")
    meant = aliases.decide(opened, plan, names[alias], datetime.now(UTC))
    words = f"{alias} now means {meant.fingerprint[:16]}, the output of {names[alias]}"
    words += f", since {meant.at:%Y-%m-%d %H:%M:%S} UTC (its meaning no. {meant.n})"
    tell(words, as_json, alias=alias, step=names[alias], meaning=meant)


@app.command("graph")
def draw(
    what: What,
    store: TheStore = "store",
    as_json: AsJson = False,
    mermaid: Annotated[bool, typer.Option(help="Write it for a Markdown page.")] = False,
) -> None:
    """Draw the graph of steps."""
    plan = _plan(what, (store, None))
    steps = step_summary.ordered(plan.steps)
    if as_json:
        print_json(
            {name: {"do": step.do, "inputs": list(step.needs)} for name, step in steps.items()}
        )
    elif mermaid:
        print("\n".join(step_summary.mermaid(steps)))
    else:
        Console().print(steps_view.drawing(steps))


@app.command()
def diff(
    before: What,
    after: What,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two executions or experiments, and why.

    For a folder, its files and the lab's code count as they are now."""
    where = store, jobs
    found = provenance.compare(_side(before, where), _side(after, where))
    if as_json:
        print_json(found)
        return
    Console().print(execution_view.difference_view(found, before, after), highlight=False)


def _side(what: str, where: Where) -> Side:
    plan = _plan(what, where)
    if (path := options.named(Path(what))).exists():
        folder = path if path.is_dir() else path.parent
        return Side(plan, git_source.source(folder), git_source.lab())
    opened = options.opened(*where)
    found = provenance.account(opened, options.execution(opened, what))
    return Side(plan, found.execution.source, found.execution.lab, found)


def _plan(what: str, where: Where) -> Plan:
    if (path := options.named(Path(what))).exists():
        return planner.plan_folder(path)
    instead = f"so `{what}` is not an execution here, and no experiment has this name"
    return options.in_steps(options.opened(*where, instead), what).plan
