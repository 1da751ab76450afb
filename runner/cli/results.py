"""`results`: a finished execution as a `speedrun_results.json`, for the boards of others."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from runner.analysis import results, speedrun_file
from runner.cli import options
from runner.cli.options import TheExecution, TheJobs, TheStore
from runner.schema import record
from runner.schema.record import Result
from runner.store.store import StoreError

BAD_INPUT = 2


def command(
    execution: TheExecution,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("speedrun_results.json"),
    store: TheStore = "store",
    jobs: TheJobs = None,
) -> None:
    """Write what an execution has entered for a speedrun in the public form, a run for each seed.
    What lacks a figure is left out and named. Exits with 2 if there is nothing to write."""
    try:
        opened = options.opened(store, jobs)
        ran = options.execution(opened, execution)
        ended = record.read(opened, f"executions/{ran.id}/result", Result)
        found, left = results.runs(ran, ended)
        with out.open("xb") as file:
            file.write(speedrun_file.write(found))
    except StoreError as error:
        _stop(str(error))
    except results.NoResults as error:
        _stop(f"{error}.")
    except FileExistsError:
        _stop(f"{out} is there already; choose another name with --out, or remove it.")
    except OSError as error:
        _stop(f"{out} cannot be written: {error.strerror}; choose another place with --out.")
    errors = Console(stderr=True, highlight=False)
    for words in left:
        errors.print(f"left out: {words}", markup=False, soft_wrap=True)
    errors.print(
        "their bits per byte are of the validation text that each description names, and stand "
        "under eval/paloma/c4_en/bpb, the only field that the form has for them",
        soft_wrap=True,
    )
    print(f"{out}: {len(found)} run{'' if len(found) == 1 else 's'}")


def _stop(words: str) -> NoReturn:
    Console(stderr=True, highlight=False).print(words, markup=False, soft_wrap=True)
    sys.exit(BAD_INPUT)
