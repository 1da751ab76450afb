"""`reproduce`: runs an execution's plan again, and compares the results."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from engine.config.stages import is_staged
from runner.analysis import run_comparison
from runner.cli import local_run, options
from runner.cli.ending import DONE, FAILED, print_json, remark, stop, stopping
from runner.cli.options import AsJson, RayToken, RayUrl, TheExecution, TheJobs, TheStore
from runner.cli.tables import table
from runner.history import provenance, step_runs
from runner.history.provenance import Account
from runner.isolation import bubblewrap
from runner.planning import code_digest, planned_steps, planner
from runner.publish import step_summary
from runner.schema import record, step_graph
from runner.schema.metrics import BPB
from runner.schema.record import Execution, Isolated, Plan
from runner.schema.step_graph import a_few
from runner.store.store import Store, StoreError

STYLES = {"follows its inputs": "yellow", "differs": "red", "not comparable": "red"}
MAX_CHANGED = 5  # steps with other code, listed in an error


def command(
    execution: TheExecution,
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
    ray_address: RayUrl = None,
    ray_token_file: RayToken = None,
    into: Annotated[
        str | None,
        typer.Option(help="Keep the new outputs in this new store. Otherwise they are deleted."),
    ] = None,
) -> None:
    """Run an execution's plan again and compare each step. Exits with 1 if one differs.

    A step is the same bit for bit, or within 1 % of its bits per byte or loss, or differs. All
    steps run again in a store of their own; nothing is taken from the cache."""
    opened = options.opened(store, jobs)
    before = options.in_steps(opened, execution)
    if not record.read(opened, f"executions/{before.id}/result", record.Result):
        stop(f"{before.id} is not over, and there is nothing to compare with yet.")
    ray = options.ray(ray_address, ray_token_file)
    with ExitStack() as stack:
        makes_in = _fresh(opened, before, into, stack)
        facts = local_run.execute(
            makes_in, before.plan, Console(stderr=True), ray, before.source, _isolation(before)
        )
        then = provenance.account(opened, before)
        now = provenance.account(makes_in, facts.execution)
        steps = step_summary.ordered(before.plan.steps)
        found = run_comparison.compare_steps(steps, _made(opened, then), _made(makes_in, now))
        differing = list(provenance.receipts(then, now))
    whole = run_comparison.whole(found)
    if as_json:
        print_json(
            {
                "execution": before.id,
                "again": facts.execution.id,
                "whole": whole,
                "steps": found,
                "receipts_differ": differing,
            }
        )
    else:
        _tell(before, into, found, differing)
    sys.exit(DONE if whole in run_comparison.GOOD else FAILED)


def _fresh(opened: Store, before: Execution, into: str | None, stack: ExitStack) -> Store:
    """An empty store with the own code and the texts of the execution; deleted with the stack,
    unless the user chose the place."""
    if not into and isinstance(opened.root, str):
        stop(f"{opened.root} is in a bucket; --into names a new place for its steps.")
    with stopping(StoreError):
        if into:
            fresh = Store(into)
            if fresh.list("steps") or fresh.list("records"):
                stop(f"--into: {into} is in use, and nothing there may be reused.")
        else:
            beside = Path(opened.root)
            place = tempfile.mkdtemp(prefix=f".{beside.name}.again-", dir=beside.parent)
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            fresh = Store(place)
        code = planner.code_folder(before.plan)
        kept = filter(None, map(planner.kept_folder, before.plan.steps.values()))
        for place in dict.fromkeys((code, *kept)):
            for entry in opened.walk(place):
                fresh.create(entry.name, opened.require(entry.name))
        own = fresh.fetch(code) if fresh.list(code) else fresh.local(code)
        changed = [*changed_code(before.plan, own)]
    if changed:
        at = f" of commit {before.lab.commit}" if before.lab and before.lab.commit else ""
        words = "; ".join(changed[:MAX_CHANGED])
        stop(f"The code here is not that{at}, which {before.id} ran: {words}.")
    return fresh


def _isolation(before: Execution) -> Isolated:
    """How the execution's own code is isolated: another person may have written it."""
    if not (before.plan.own_code() or before.plan.compiled):
        return ""
    if not (words := bubblewrap.probe()):
        return "bubblewrap"
    remark(f"own code runs with your rights, without isolation: {words}", "yellow")
    return ""


def _made(store: Store, account: Account) -> dict[str, run_comparison.Made]:
    found = {}
    for name, step in account.execution.plan.steps.items():
        figures = {model: score.bpb for model, score in account.scores.get(name, {}).items()}
        for model, scores in account.measured.get(name, {}).items():
            figures |= {f"{model}, {x}": of.value for x, of in scores.items() if x != BPB}
        if step.do == "train":
            with suppress(*step_runs.UNBELIEVED):
                losses = step_runs.losses_of(store, step)
                figures = {"last training loss": losses[-1][1]} if losses else {}
        found[name] = run_comparison.Made(account.ends.get(name), figures)
    return found


def _tell(
    before: Execution,
    into: str | None,
    found: dict[str, run_comparison.Comparison],
    differing: list[str],
) -> None:
    out = Console()
    there = f" in {into}" if into else ""
    out.print(f"re-run of every step of {before.id}{there}", highlight=False, markup=False)
    rows = (
        (run, Text(one.how, STYLES.get(one.how, "green")), one.words) for run, one in found.items()
    )
    out.print(table((), rows, header=False))
    style = STYLES.get(run_comparison.whole(found), "green")
    out.print(f"overall: {run_comparison.whole(found)}", style=style, highlight=False)
    for line in differing:
        out.print(f"the receipts differ: {line}", style="yellow", highlight=False, markup=False)


def changed_code(plan: Plan, code: Path) -> Iterator[str]:
    """The steps whose code here (the lab's, or the experiment's in `code`) is not the planned code,
    and how it differs."""
    reach = cache(code_digest.reach)

    @cache
    def found(made: str, own: tuple[str, ...], staged: bool) -> dict[str, str]:
        return planned_steps.code_of(made, own, code, reach=reach, staged=staged)

    for name, step in plan.steps.items():
        try:
            here = found(step.function, step.own, is_staged(step.config))
        except code_digest.BadCode as error:
            yield f"{name}: {error}"
        else:
            if words := step_graph.code_changes(step, here):
                yield f"{name}: {a_few(words)}"
