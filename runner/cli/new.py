"""`new`: writes an experiment from one of the lab's starters."""

import json
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.ending import remark, stop, tell
from runner.cli.options import AsJson
from runner.lib.problems import near
from runner.planning import track_starter
from runner.schema import lab_config
from runner.spec import json_schema
from runner.spec.declaration import FILE_NAME, STARTERS

NAME = r"[a-z0-9][a-z0-9_-]{0,79}"
STANDS_FOR = "experiments/NAME"  # the experiment's folder in a starter's text


def starters() -> list[str]:
    """The names of all starters."""
    return sorted(path.name for path in STARTERS.iterdir() if (path / FILE_NAME).is_file())


def first(folder: str) -> str:
    """The experiment.yaml of the plain starter, for this folder."""
    text = (STARTERS / "plain" / FILE_NAME).read_text(encoding="utf-8")
    return text.replace(STANDS_FOR, folder)


def command(
    name: Annotated[str, typer.Argument(help="What the experiment's folder is called.")],
    track: Annotated[
        str | None, typer.Argument(help="With --from speedrun: the track to enter.")
    ] = None,
    starter: Annotated[
        str, typer.Option("--from", help=f"What to begin with: {', '.join(starters())}.")
    ] = "plain",
    under: Annotated[Path, typer.Option("--in", help="The folder of experiments.")] = Path(
        "experiments"
    ),
    as_json: AsJson = False,
) -> None:
    """Write a first experiment: `plain` without code, `hackable` with a model to edit, `datashop`
    with a text to choose from, `speedrun` for a track of the lab."""
    known = starters()
    if starter not in known:
        *but_last, last = (f"`{one}`" for one in known)
        listed = f"{', '.join(but_last)} and {last}"
        stop(f"there is no starter `{starter}`; there are {listed}{near(starter, known)}")
    if not re.fullmatch(NAME, name):
        better = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")[:80]
        words = f"; how about `{better}`?" if better else ""
        stop(f"`{name}` is not a valid name; use a–z, 0–9, `_` and `-`{words}")
    who = os.environ.get("GIT_AUTHOR_NAME") or os.environ.get("USER") or "anonymous"
    author = json.dumps(who[:100], ensure_ascii=False)  # in YAML
    folder, written = under / name, _of_track(track, starter, under)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        stop(f"{folder} is there already; choose another name, or remove it")
    except OSError as error:
        stop(f"{folder} cannot be made: {error}")
    paths = []
    for path in sorted((STARTERS / starter).iterdir()):
        if path.is_file():
            text = written.get(path.name) or path.read_text(encoding="utf-8")
            text = text.replace(STANDS_FOR, folder.as_posix()).replace("your name", author)
            (folder / path.name).write_text(text, encoding="utf-8")
            paths.append(folder / path.name)
    if not (schema := under / json_schema.NAME).exists():  # the file's first line names it
        schema.write_text(json_schema.text(lab_config.find(under)), encoding="utf-8")
        paths.append(schema)
    tell("\n".join(map(str, paths)), as_json, folder=folder, files=paths)
    first = "check" if starter == track_starter.STARTER else "plan"
    remark(f"next: regatta {first} {folder}, then regatta run {folder}")


def _of_track(track: str | None, starter: str, under: Path) -> dict[str, str]:
    """{file: its text} of a starter that is for the track; empty if none is named."""
    if track is None:
        return {}
    if starter != track_starter.STARTER:
        words = "write it, or leave the track out"
        stop(f"the track `{track}` goes with `--from {track_starter.STARTER}`; {words}")
    lab = lab_config.find(under)
    if track not in lab.tracks:
        words = "\n".join(f"  {name}: {one.title}" for name, one in lab.tracks.items())
        stop(f"there is no track `{track}`{near(track, lab.tracks)}\nThere are:\n{words}")
    return {FILE_NAME: track_starter.text(lab.tracks[track], lab.devices)}
