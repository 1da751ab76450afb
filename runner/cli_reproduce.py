"""`reproduce`: run what an execution ran once more, and say whether it came out the same."""

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from runner import local_run, record, reproduce, terminal
from runner.launch import RayAddress, RayError
from runner.lifecycle import Facts
from runner.record import Ended, Execution, run_name
from runner.store import Store, StoreError

DONE, FAILED, BAD_INPUT = 0, 1, 2
STYLES = {"bit for bit": "green", "within the tolerance": "green"}


def command(
    execution: Annotated[str, typer.Argument(help="Its id.")],
    store: Annotated[
        Path, typer.Option("--store", envvar="REGATTA_STORE", help="Where records and work lie.")
    ] = Path("store"),
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
    ray_address: Annotated[
        str, typer.Option(help="A Ray dashboard's URL. Without it, a local Ray is started.")
    ] = "",
    ray_token_file: Annotated[Path | None, typer.Option(help="The file with its token.")] = None,
) -> None:
    """Run an execution's plan again, and say of each run whether it came out bit for bit the same,
    within 1 % of its bits per byte, or otherwise. Exits with 1 if one did not."""
    opened, before = _known(store, execution)
    if bool(ray_address) != bool(ray_token_file):
        _stop(BAD_INPUT, "--ray-address and --ray-token-file go together: give both or neither.")
    console = Console(stderr=True)
    with ExitStack() as stack:
        try:
            ray = RayAddress(ray_address, ray_token_file) if ray_token_file else None
            if ray is None and (words := local_run.missing_devices(before.plan)):
                _stop(BAD_INPUT, words)
            name = local_run.begin(opened, before.plan, console)
            ray = ray or stack.enter_context(local_run.started(opened, console))
            watching = stack.enter_context(terminal.Watching(console))
            facts = local_run.turn(opened, ray, name, watching)
        except RayError as error:
            _stop(FAILED, str(error))
    found = reproduce.compare(_figures(opened, before), _figures(opened, facts.execution))
    differing = reproduce.differing(_receipt(opened, execution), _receipt(opened, name))
    if as_json:
        answer = {
            "execution": execution,
            "again": name,
            "runs": {run: asdict(one) for run, one in found.items()},
            "receipts_differ": differing,
        }
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        _tell(execution, facts, found, differing)
    sys.exit(DONE if all(one.how in STYLES for one in found.values()) else FAILED)


def _known(store: Path, execution: str) -> tuple[Store, Execution]:
    if not store.is_dir():
        _stop(BAD_INPUT, f"there is no store at {store}; name another one with --store.")
    try:
        opened = Store(store)
        if execution not in record.names(opened, "executions"):
            _stop(BAD_INPUT, f"{opened.root} knows no execution {execution}.")
        found = record.require(opened, f"executions/{execution}/execution", Execution)
    except StoreError as error:
        _stop(BAD_INPUT, str(error))
    if found.plan.steps:
        _stop(BAD_INPUT, f"{execution} has steps, and only runs are reproduced so far.")
    if not record.read(opened, f"executions/{execution}/result", record.Result):
        _stop(BAD_INPUT, f"{execution} is not over, and there is nothing to compare with yet.")
    return opened, found


def _figures(store: Store, execution: Execution) -> dict[str, record.Evaluated | None]:
    runs = {}
    for arm, seed in execution.plan.runs():
        name = run_name(arm, seed)
        found = record.read(store, f"runs/{execution.id}.{name}", record.Run)
        runs[name] = found.evaluated if found else None
    return runs


def _receipt(store: Store, execution: str) -> dict[str, str]:
    """Of the training attempt that finished."""
    found: dict[str, str] = {}
    for event in record.names(store, f"executions/{execution}"):
        if event.startswith("t") and event.endswith(".ended"):
            path = f"executions/{execution}/{event}"
            found = record.require(store, path, Ended).receipt or found
    return found


def _tell(
    execution: str, facts: Facts, found: dict[str, reproduce.Comparison], differing: list[str]
) -> None:
    out = Console()
    out.print(f"{execution} once more, as {facts.execution.id}", highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    for run, one in found.items():
        style = STYLES.get(one.how, "red")
        table.add_row(escape(run), f"[{style}]{one.how}[/{style}]", escape(one.words))
    out.print(table)
    for line in differing:
        out.print(f"the receipts differ in {line}", style="yellow", highlight=False, markup=False)


def _stop(code: int, words: str) -> NoReturn:
    print(words, file=sys.stderr)
    sys.exit(code)
