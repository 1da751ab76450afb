"""`show`, `graph` and `diff`: what an execution was made of, for people and, with `--json`, for
programs; and `compile`, which writes down what an `experiment.py` declares."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from runner import lock, planning, provenance, record, spec, steps_view
from runner.complaints import BadExperiment
from runner.record import Ended, Execution, Plan, StepEnd
from runner.store import Store, StoreError

BAD_INPUT = 2

app = typer.Typer()

TheStore = Annotated[
    Path, typer.Option("--store", envvar="REGATTA_STORE", help="Where records and work lie.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
What = Annotated[
    str, typer.Argument(metavar="WHAT", help="An execution's id, or an experiment's folder.")
]


@app.command("compile")
def compile_experiment(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="An experiment's folder.")],
) -> None:
    """Run an experiment's `experiment.py` and write what it declares to `experiment.lock.yaml`."""
    try:
        text = lock.compiled(path)
        before = path / spec.LOCK_NAME
        same = before.is_file() and before.read_text() == text
        before.write_text(text)
        planning.plan_folder(path)
    except BadExperiment as error:
        _stop(str(error))
    print(f"{before} {'is as it was' if same else 'is written'}", file=sys.stderr)


@app.command()
def show(
    execution: Annotated[str, typer.Argument(help="Its id.")],
    store: TheStore = Path("store"),
    as_json: AsJson = False,
) -> None:
    """Say who ran what, when, where and from which code, step by step."""
    opened = _open(store)
    found = _execution(opened, execution)
    ends: dict[str, StepEnd] = {}
    for event in record.names(opened, f"executions/{execution}"):
        if event.endswith(".ended"):
            ends |= record.require(opened, f"executions/{execution}/{event}", Ended).steps
    result = record.read(opened, f"executions/{execution}/result", record.Result)
    if as_json:
        _print(
            {
                "execution": found.model_dump(mode="json"),
                "steps": {name: end.model_dump(mode="json") for name, end in ends.items()},
                "result": result.model_dump(mode="json") if result else None,
            }
        )
        return
    out = Console()
    origin = found.origin
    who = f"approved by {origin.approved_by.login}" if origin else "unsigned, no approval"
    out.print(Text(found.plan.title, style="bold"))
    state = result.state if result else "unfinished"
    out.print(f"{found.id} {state}, begun {found.at:%Y-%m-%d %H:%M} UTC, {who}", highlight=False)
    if origin:
        words = f"{origin.repository_name}#{origin.pull} at commit {origin.commit}"
        out.print(words, highlight=False, markup=False)
    out.print(f"on {found.plan.cost.device}", highlight=False, markup=False)
    if result and result.why:
        out.print(result.why, style="red", highlight=False, markup=False)
    for name, step in steps_view.ordered(found.plan.steps).items():
        end = ends.get(name)
        out.print()
        out.print(Text(name, style="bold").append(f"  {step.do}", style="dim"))
        folder = str(opened.path(end.folder)) if end and end.folder else ""
        out.print(steps_view.step_table(step, end, folder))


@app.command("graph")
def draw(
    what: What,
    store: TheStore = Path("store"),
    as_json: AsJson = False,
    mermaid: Annotated[bool, typer.Option(help="Write it for a Markdown page.")] = False,
) -> None:
    """Draw which step takes what from which."""
    plan = _plan(what, store)
    steps = steps_view.ordered(plan.steps)
    if as_json:
        _print({name: {"do": step.do, "inputs": list(step.needs)} for name, step in steps.items()})
    elif mermaid:
        print("\n".join(steps_view.mermaid(steps)))
    else:
        Console().print(steps_view.drawing(steps))


@app.command()
def diff(
    before: What, after: What, store: TheStore = Path("store"), as_json: AsJson = False
) -> None:
    """Say what of two executions or experiments is not the same, and why."""
    found = dict(provenance.differences(_plan(before, store).steps, _plan(after, store).steps))
    if as_json:
        _print(found)
        return
    out = Console()
    if not found:
        out.print("The same steps, with the same fingerprints.")
        return
    table = Table("step", "what differs", box=None, pad_edge=False)
    for name, why in found.items():
        table.add_row(escape(name), escape(why))
    out.print(table)


def _plan(what: str, store: Path) -> Plan:
    if Path(what).exists():
        try:
            plan = planning.plan_folder(Path(what))
        except BadExperiment as error:
            _stop(str(error))
    else:
        plan = _execution(_open(store), what).plan
    if not plan.steps:
        _stop(f"{what} declares arms and no steps; `regatta plan` shows its arms.")
    return plan


def _execution(store: Store, name: str) -> Execution:
    if name not in record.names(store, "executions"):
        _stop(f"{store.root} knows no execution {name}; `records/executions/` lists them.")
    return record.require(store, f"executions/{name}/execution", Execution)


def _open(store: Path) -> Store:
    if not store.is_dir():
        _stop(f"there is no store at {store}; name another one with --store or REGATTA_STORE.")
    try:
        return Store(store)
    except StoreError as error:
        _stop(str(error))


def _print(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _stop(words: str) -> NoReturn:
    print(words, file=sys.stderr)
    sys.exit(BAD_INPUT)
