"""The files that make a repository a lab: form, template, policy, workflows; and labels.

`planned` compares them with a folder and changes nothing; `write` creates the missing ones. An
existing file with other content is shown as a diff and replaced only if the user says so for that
file.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bot.github import Line, app_manifest
from bot.model.actions import LABELS
from runner.schema import lab_config

STARTER = Path(__file__).parent / "starter"
Mode = Literal["server", "actions"]
State = Literal["new", "same", "differs"]
SELF_HOSTED = "[self-hosted, regatta]"

LABEL_COLORS = {
    "wishlist": "c5def5",
    "planned": "d4c5f9",
    "running": "fbca04",
    "done": "0e8a16",
    "failed": "d73a4a",
}


class BadChoice(Exception):
    """The options cannot be combined; the message says what can."""


@dataclass(frozen=True)
class File:
    """A file that `regatta init` writes."""

    path: str  # in the repository
    text: str
    what: str  # its purpose
    state: State = "new"
    difference: str = ""  # from the existing file, as a unified diff


# Path → the starter to write there, and its purpose.
COMMON = {
    lab_config.POLICY: ("policy.yml", "who may give which command"),
    lab_config.TRACKS: ("tracks.yml", "the speedrun tracks"),
    lab_config.DEVICES: ("devices.yml", "the kinds of device, with prices"),
    lab_config.CORPORA: ("corpora.yml", "the corpora that are trained on"),
    ".github/ISSUE_TEMPLATE/experiment.yml": ("form.yml", "the issue form for preregistrations"),
    ".github/PULL_REQUEST_TEMPLATE.md": ("pull-request.md", "the template for pull requests"),
}
WORKFLOWS = ".github/workflows"
ACTIONS = {
    f"{WORKFLOWS}/regatta.yml": ("actions.yml", "runs `regatta handle`"),
    f"{WORKFLOWS}/regatta-doctor.yml": (
        "actions-doctor.yml",
        "runs `regatta doctor`, started by hand",
    ),
    f"{WORKFLOWS}/regatta-pages.yml": ("actions-pages.yml", "publishes the site on GitHub Pages"),
}


def files(
    mode: Mode, *, runner: str = SELF_HOSTED, package: str = "", url: str = ""
) -> dict[str, File]:
    """The files of a lab, by path.

    In Actions mode, `runner` is the value of `runs-on:` in its workflows, and `package` what pip
    installs there; without it the runner must have `regatta` already. For a server, `url` is the
    bot's address; without it there is no manifest of the GitHub App. Raises BadChoice.
    """
    made = [File(path, _starter(name), what) for path, (name, what) in COMMON.items()]
    if mode == "server" and url:
        text = json.dumps(app_manifest.manifest("Regatta", url), indent=2) + "\n"
        made.append(File("regatta-app.json", text, "the GitHub App's manifest"))
    if mode == "actions":
        filled = _filled(runner, package)
        for path, (name, what) in ACTIONS.items():
            made.append(File(path, _starter(name, filled), f"Actions mode: {what}"))
    return {file.path: file for file in made}


def planned(folder: Path, wanted: Mapping[str, File]) -> list[File]:
    """Each wanted file, compared with the one in `folder`."""
    return [_compared(folder, file) for file in wanted.values()]


def write(folder: Path, file: File, *, replace: bool = False) -> None:
    """Write one file. Raises FileExistsError if another one is there and not to be replaced."""
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if replace else "x", encoding="utf-8", newline="\n") as out:
        out.write(file.text)


def labels() -> dict[str, str]:
    """The lab's labels and their colors."""
    return {LABELS[state]: color for state, color in LABEL_COLORS.items()}


def missing_labels(line: Line, repository: str) -> dict[str, str]:
    """The labels that the repository lacks, with their colors. Raises Refused, Later."""
    there = {each.name for each in line.repository(repository).get_labels()}
    return {name: color for name, color in labels().items() if name not in there}


def _compared(folder: Path, file: File) -> File:
    path = folder / file.path
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BadChoice(
            f"{path} is not a regular file; move it away, and run `regatta init` again."
        )
    if not path.exists():
        return file
    there = path.read_text(encoding="utf-8", errors="replace")
    if there == file.text:
        return dataclasses.replace(file, state="same")
    lines = difflib.unified_diff(
        there.splitlines(), file.text.splitlines(), f"{file.path} (here)", file.path, lineterm=""
    )
    return dataclasses.replace(file, state="differs", difference="\n".join(lines))


def _filled(runner: str, package: str) -> dict[str, str]:
    """{placeholder: its value}. It becomes YAML, so it must not contain more than one value."""
    if not re.fullmatch(r"[\w.-]+|\[[\w.-]+(, ?[\w.-]+)*\]", runner):
        raise BadChoice(f"{runner!r} is not a runner; write a label, or [self-hosted, label].")
    if package and not re.fullmatch(r"[\w.@+:/ =~-]+", package):
        raise BadChoice(
            f"{package!r} is not a package that pip installs; write `regatta @ git+https://…@<commit>`."
        )
    install = _starter("actions-install.yml", {"${PACKAGE}": f'"{package}"'}) if package else ""
    return {"${RUNNER}": runner, "${INSTALL}": install}


def _starter(name: str, filled: Mapping[str, str] | None = None) -> str:
    text = (STARTER / name).read_text(encoding="utf-8")
    for place, value in (filled or {}).items():
        text = text.replace(place, value)
    return text
