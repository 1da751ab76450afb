"""`results`: writes a finished execution as a `speedrun_results.json`, for other leaderboards."""

from pathlib import Path
from typing import Annotated

import typer

from runner.analysis import results, speedrun_file
from runner.cli import options
from runner.cli.ending import remark, stop, tell
from runner.cli.options import AsJson, TheExecution, TheJobs, TheStore
from runner.schema import record
from runner.schema.record import Result


def command(
    execution: TheExecution,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("speedrun_results.json"),
    store: TheStore = "store",
    jobs: TheJobs = None,
    as_json: AsJson = False,
) -> None:
    """Write a speedrun entry as `speedrun_results.json`, one run for each seed.

    A run that lacks a figure is left out and named. Exits with 2 if there is nothing to write."""
    opened = options.opened(store, jobs)
    ran = options.execution(opened, execution)
    ended = record.read(opened, f"executions/{ran.id}/result", Result)
    try:
        found, left = results.runs(ran, ended)
        with out.open("xb") as file:
            file.write(speedrun_file.write(found))
    except results.NoResults as error:
        stop(f"{error}.")
    except FileExistsError:
        stop(f"{out} is there already; choose another name with --out, or remove it.")
    except OSError as error:
        stop(f"{out} cannot be written: {error.strerror}; choose another place with --out.")
    for words in left:
        remark(f"left out: {words}")
    remark(
        "note: each description names the validation text of its bits per byte; the file format "
        "has only one field for them, eval/paloma/c4_en/bpb"
    )
    words = f"{out}: {len(found)} run{'' if len(found) == 1 else 's'}"
    tell(words, as_json, file=out, runs=len(found), left_out=left)
