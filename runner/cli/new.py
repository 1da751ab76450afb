"""`new`: writes an experiment from one of the lab's starters."""

import re
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.ending import remark, stop
from runner.lib.problems import near
from runner.schema import lab_config
from runner.spec import json_schema
from runner.spec.declaration import FILE_NAME, STARTERS

NAME = r"[a-z0-9][a-z0-9_-]{0,79}"
STANDS_FOR = "experiments/NAME"  # the experiment's folder in a starter's text


def starters() -> list[str]:
    """The names of all starters."""
    return sorted(path.name for path in STARTERS.iterdir() if (path / FILE_NAME).is_file())


def command(
    name: Annotated[str, typer.Argument(help="What the experiment's folder is called.")],
    starter: Annotated[
        str, typer.Option("--from", help=f"What to begin with: {', '.join(starters())}.")
    ] = "plain",
    under: Annotated[Path, typer.Option("--in", help="The folder of experiments.")] = Path(
        "experiments"
    ),
) -> None:
    """Write a first experiment: `plain` without code, `hackable` with a model to edit, `datashop`
    with a text to choose from."""
    known = starters()
    if starter not in known:
        *but_last, last = (f"`{one}`" for one in known)
        listed = f"{', '.join(but_last)} and {last}"
        stop(f"there is no starter `{starter}`; there are {listed}{near(starter, known)}")
    if not re.fullmatch(NAME, name):
        better = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")[:80]
        words = f"; how about `{better}`?" if better else ""
        stop(f"`{name}` is not a valid name; use a–z, 0–9, `_` and `-`{words}")
    folder = under / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        stop(f"{folder} is there already; choose another name, or remove it")
    except OSError as error:
        stop(f"{folder} cannot be made: {error}")
    for path in sorted((STARTERS / starter).iterdir()):
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace(STANDS_FOR, folder.as_posix())
            (folder / path.name).write_text(text, encoding="utf-8")
            print(folder / path.name)
    if not (schema := under / json_schema.NAME).exists():  # the file's first line names it
        schema.write_text(json_schema.text(lab_config.find(under)), encoding="utf-8")
        print(schema)
    remark(f"next: regatta plan {folder}, then regatta run {folder}")
