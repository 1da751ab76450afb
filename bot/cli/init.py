"""`regatta init`: shows the files that make a repository a lab, asks, and writes them."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from bot.cli.options import only, option
from bot.github import Bearer, Later, Line, Refused, RefusedForNow, Unauthorized
from bot.github.connection import API
from bot.setup import init
from bot.setup.settings import TOKEN
from bot.telemetry.logs import escaped
from runner.cli.ending import stop, stopping

console = Console(highlight=False)


def command(
    folder: Annotated[Path, typer.Argument(help="A checkout of the lab's repository.")] = Path(),
    mode: Annotated[
        Literal["server", "actions"],
        typer.Option(help="Where the bot runs: on your server or in GitHub Actions."),
    ] = "server",
    url: Annotated[str, typer.Option(help="Server mode: the address of the bot, https://…")] = "",
    runner: Annotated[
        str, typer.Option(help="Actions mode: the value of `runs-on:` in the workflows.")
    ] = init.SELF_HOSTED,
    package: Annotated[
        str,
        typer.Option(
            help="Actions mode: what pip installs on the runner, unless `regatta` is there."
        ),
    ] = "",
    repository: Annotated[
        str,
        typer.Option(
            envvar="REGATTA_REPOSITORY",
            help="owner/name: create the labels there, with REGATTA_GITHUB_TOKEN.",
        ),
    ] = "",
    github_api: Annotated[str, option("github_api")] = API,
    yes: Annotated[
        bool, typer.Option("--yes", help="Write the missing files without asking.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --yes: also replace files that differ.")
    ] = False,
) -> None:
    """Write what a repository needs to be a lab: form, policy, workflows, labels. Asks first."""
    if not folder.is_dir():
        stop(f"{folder} is not a folder; name a checkout of the lab's repository.")
    with stopping(init.BadChoice):
        plan = init.planned(folder, init.files(mode, runner=runner, package=package, url=url))
    _show(plan)
    written = [file for file in plan if _write(folder, file, yes, replace)]
    _make_labels(repository, github_api, yes)
    if mode == "server" and not url:
        console.print(
            "\nGitHub App: add --url https://… (the bot's address) to write its manifest, "
            "regatta-app.json."
        )
    if written:
        console.print("\nReview the files, commit them, and push them to the default branch.")
    console.print(
        "Then read docs/run-a-lab.md, and check the deployment with `regatta doctor`.", style="dim"
    )


def _show(plan: list[init.File]) -> None:
    for file in plan:
        line = Text(f"\n{file.path}", style="bold")
        console.print(line.append(f"  {file.what}", style="dim"))
        if file.state == "same":
            console.print("  exists and is the same", style="green")
            continue
        lexer = "json" if file.path.endswith("json") else "yaml"
        if file.state == "differs":
            console.print("  exists and differs:", style="yellow")
            lexer = "diff"
        shown = file.text if file.state == "new" else file.difference
        console.print(Syntax(shown, lexer, background_color="default"))


def _write(folder: Path, file: init.File, yes: bool, replace: bool) -> bool:
    """Write a file if the user agrees. Returns whether it was written."""
    if file.state == "same":
        return False
    verb, fine = ("Write", True) if file.state == "new" else ("Replace", replace)
    wanted = fine if yes else typer.confirm(f"{verb} {file.path}?", default=file.state == "new")
    if not wanted:
        console.print(f"{file.path}: not changed.", style="yellow")
        return False
    try:
        init.write(folder, file, replace=file.state == "differs")
    except OSError as error:
        stop(f"{file.path} cannot be written: {error.strerror}.")
    console.print(f"{file.path}: written.", style="green")
    return True


def _make_labels(repository: str, api: str, yes: bool) -> None:
    """Create the missing labels, if a repository and a token are given."""
    token = only(repository=repository, ray_address="").optional(TOKEN)
    if not repository or not token:
        console.print(
            "\nLabels: set --repository and REGATTA_GITHUB_TOKEN to create them in colour. "
            "Otherwise GitHub creates each in grey when the bot first sets it."
        )
        return
    try:
        line = Line(api, Bearer(lambda: token))
        missing = init.missing_labels(line, repository)
        console.print(f"\nMissing labels: {', '.join(missing) or 'none'}.")
        if not missing or not (yes or typer.confirm("Create them?", default=True)):
            return
        for name, color in missing.items():
            line.repository(repository).create_label(name, color)
    except (Refused, RefusedForNow, Unauthorized) as error:
        stop(
            f"Creating the labels of {repository} failed: GitHub says {escaped(str(error))}. The "
            "token needs Issues: Read and write."
        )
    except Later as error:
        stop(f"Creating the labels failed: {escaped(str(error))}.")
    console.print("Labels created.", style="green")
