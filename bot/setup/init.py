"""What a repository needs to become a lab: form, template, policy, workflows and labels.

`planned` compares with what is there and changes nothing; `write` creates the files that are
missing. A file that is there with other words is shown as a difference and replaced only where
somebody says so for that file.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bot.github import Line, app_manifest
from bot.model.actions import LABELS

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
    """What was asked for cannot be written; the message says what can."""


@dataclass(frozen=True)
class File:
    """A file that `regatta init` writes."""

    path: str  # within the repository
    text: str
    what: str  # it is for
    state: State = "new"
    difference: str = ""  # from what is there, as a unified diff


def files(
    mode: Mode, *, runner: str = SELF_HOSTED, package: str = "", url: str = ""
) -> dict[str, File]:
    """The files of a lab, by path.

    In Actions mode, `runner` is what its workflows say after `runs-on:`, and `package` what pip
    installs there; without it the runner has `regatta` already. For a server, `url` is where the
    bot answers: it goes into the App's manifest. Raises BadChoice.
    """
    common = [
        File(".github/regatta.yml", _starter("policy.yml"), "who may do what"),
        File(".github/ISSUE_TEMPLATE/experiment.yml", _starter("form.yml"), "preregistrations"),
        File(".github/PULL_REQUEST_TEMPLATE.md", _starter("pull-request.md"), "declarations"),
    ]
    if mode == "server":
        made = app_manifest.manifest("Regatta", url or "https://regatta.example.org")
        text = json.dumps(made, indent=2) + "\n"
        return _by_path([*common, File("regatta-app.json", text, "the GitHub App's manifest")])
    fill = _filler(runner, package)
    return _by_path(
        [
            *common,
            File(
                ".github/workflows/regatta.yml",
                fill("actions.yml"),
                "Actions mode: calls `regatta handle`",
            ),
            File(
                ".github/workflows/regatta-doctor.yml",
                fill("actions-doctor.yml"),
                "Actions mode: calls `regatta doctor`, by hand",
            ),
            File(
                ".github/workflows/regatta-pages.yml",
                fill("actions-pages.yml"),
                "Actions mode: publishes the site on GitHub Pages",
            ),
        ]
    )


def planned(folder: Path, wanted: Mapping[str, File]) -> list[File]:
    """Each wanted file, with how it stands to what is in `folder`."""
    return [_compared(folder, file) for file in wanted.values()]


def write(folder: Path, file: File, *, replace: bool = False) -> None:
    """Write one file. Raises FileExistsError where another one is there and is not to go."""
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if replace else "x", encoding="utf-8", newline="\n") as out:
        out.write(file.text)


def labels() -> dict[str, str]:
    """The labels that the lab sets, with their colors."""
    return {LABELS[state]: color for state, color in LABEL_COLORS.items()}


def missing_labels(line: Line, repository: str) -> dict[str, str]:
    """Those that the repository has not, with their colors. Raises Refused, Later."""
    there = {each.name for each in line.repository(repository).get_labels()}
    return {name: color for name, color in labels().items() if name not in there}


def _compared(folder: Path, file: File) -> File:
    path = folder / file.path
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BadChoice(f"{path} is no regular file; move it away, and say `regatta init` again.")
    if not path.exists():
        return file
    there = path.read_text(encoding="utf-8", errors="replace")
    if there == file.text:
        return File(file.path, file.text, file.what, "same")
    lines = difflib.unified_diff(
        there.splitlines(), file.text.splitlines(), f"{file.path} (here)", file.path, lineterm=""
    )
    return File(file.path, file.text, file.what, "differs", "\n".join(lines))


def _filler(runner: str, package: str) -> Callable[[str], str]:
    # What is filled in becomes YAML, so it may not say more than one value.
    if not re.fullmatch(r"[\w.-]+|\[[\w.-]+(, ?[\w.-]+)*\]", runner):
        raise BadChoice(f"{runner!r} is no runner: say a label, or [self-hosted, label].")
    if package and not re.fullmatch(r"[\w.@+:/ =~-]+", package):
        raise BadChoice(
            f"{package!r} is nothing that pip installs: say `regatta @ git+https://…@<commit>`."
        )
    install = _starter("actions-install.yml").replace("${PACKAGE}", f'"{package}"')

    def fill(name: str) -> str:
        text = _starter(name).replace("${RUNNER}", runner)
        return text.replace("${INSTALL}", install if package else "")

    return fill


def _by_path(made: list[File]) -> dict[str, File]:
    return {file.path: file for file in made}


def _starter(name: str) -> str:
    return (STARTER / name).read_text(encoding="utf-8")
