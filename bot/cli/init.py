"""`regatta init`: shows what a repository needs to become a lab, asks, and writes it."""

import itertools
import os
import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import httpx
import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from bot.setup import init

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def command(
    folder: Annotated[Path, typer.Argument(help="A checkout of the lab's repository.")] = Path(),
    mode: Annotated[
        Literal["server", "actions"],
        typer.Option(help="Whether a server of yours runs the bot, or GitHub Actions do."),
    ] = "server",
    url: Annotated[str, typer.Option(help="Of a server: where the bot answers, https://…")] = "",
    runner: Annotated[
        str, typer.Option(help="Of Actions: what the workflows' `runs-on:` says.")
    ] = init.SELF_HOSTED,
    package: Annotated[
        str,
        typer.Option(help="Of Actions: what pip installs on the runner; else `regatta` is there."),
    ] = "",
    repository: Annotated[
        str,
        typer.Option(
            envvar="REGATTA_REPOSITORY",
            help="owner/name: make the labels there, with REGATTA_GITHUB_TOKEN.",
        ),
    ] = "",
    github_api: Annotated[
        str, typer.Option(envvar="REGATTA_GITHUB_API")
    ] = "https://api.github.com",
    yes: Annotated[bool, typer.Option("--yes", help="Write what is missing, unasked.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --yes: also replace files that differ.")
    ] = False,
) -> None:
    """Show, then write, the form, template, policy, workflows and labels of a lab."""
    if not folder.is_dir():
        _stop(f"{folder} is no folder; name a checkout of the lab's repository.")
    try:
        plan = init.planned(folder, init.files(mode, runner=runner, package=package, url=url))
    except init.BadChoice as error:
        _stop(str(error))
    _show(plan)
    written = [file for file in plan if _write(folder, file, yes, replace)]
    _make_labels(repository, github_api, yes)
    if written:
        console.print("\nRead what was written, commit it, and push it to the default branch.")
    console.print(
        "Then see docs/install.md, and let `regatta doctor` look at the deployment.", style="dim"
    )


def _show(plan: list[init.File]) -> None:
    for file in plan:
        line = Text(f"\n{file.path}", style="bold")
        line.append(f"  {file.what}", style="dim")
        console.print(line)
        if file.state == "same":
            console.print("  is there already, word for word", style="green")
        elif file.state == "differs":
            console.print("  is there and differs:", style="yellow")
            console.print(Syntax(file.difference, "diff", background_color="default"))
        else:
            lexer = "json" if file.path.endswith("json") else "yaml"
            console.print(Syntax(file.text, lexer, background_color="default"))


def _write(folder: Path, file: init.File, yes: bool, replace: bool) -> bool:
    """Write a file if somebody wants it; whether it was written."""
    if file.state == "same":
        return False
    if file.state == "differs":
        wanted = replace if yes else typer.confirm(f"Replace {file.path}?", default=False)
    else:
        wanted = yes or typer.confirm(f"Write {file.path}?", default=True)
    if not wanted:
        console.print(f"{file.path} stays as it is.", style="yellow")
        return False
    try:
        init.write(folder, file, replace=file.state == "differs")
    except OSError as error:
        _stop(f"{file.path} cannot be written: {error.strerror}.")
    console.print(f"{file.path} is written.", style="green")
    return True


def _make_labels(repository: str, api: str, yes: bool) -> None:
    """Make the labels that are missing, if a repository and a token are named."""
    token = os.environ.get("REGATTA_GITHUB_TOKEN", "").strip()
    if not repository or not token:
        console.print(
            "\nThe labels are made where --repository and REGATTA_GITHUB_TOKEN say; GitHub else "
            "makes each, in grey, when it is first set."
        )
        return
    with httpx.Client(
        base_url=f"{api}/repos/{repository}",
        headers={"Authorization": f"Bearer {token}"},
        timeout=20,
    ) as http:
        try:
            there = set()
            for page in itertools.count(1):
                asked = {"per_page": "100", "page": str(page)}
                found = http.get("/labels", params=asked).raise_for_status().json()
                there |= {str(label["name"]) for label in found}
                if len(found) < 100:
                    break
            missing = {name: color for name, color in init.labels().items() if name not in there}
            console.print(f"\nLabels that are missing: {', '.join(missing) or 'none'}.")
            if not missing or not (yes or typer.confirm("Make them?", default=True)):
                return
            for name, color in missing.items():
                http.post("/labels", json={"name": name, "color": color}).raise_for_status()
        except httpx.HTTPStatusError as error:
            _stop(
                f"The labels of {repository} were not made: GitHub says "
                f"{error.response.status_code}. The token needs Issues: Read and write."
            )
        except httpx.HTTPError as error:
            _stop(f"The labels were not made: {api} cannot be reached ({type(error).__name__}).")
        console.print("The labels are made.", style="green")


def _stop(words: str) -> NoReturn:
    errors.print(Text(words, style="red"))
    sys.exit(2)
