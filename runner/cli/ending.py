"""How a command ends: with what was asked for on stdout, or with a sentence on stderr and a code,
which is 0 for what was done, 1 for what failed, and 2 for bad input."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from runner.execution.ray_jobs import RayError
from runner.lib.problems import BadExperiment
from runner.store.store import StoreError

DONE, FAILED, BAD_INPUT = 0, 1, 2


def stop(words: object, code: int = BAD_INPUT) -> NoReturn:
    """End with these words, in red."""
    remark(words, "red")
    sys.exit(code)


def remark(words: object, style: str = "") -> None:
    """A line on stderr, of any length: beside what was asked for."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    errors.print(str(words), style=style)


@contextmanager
def stopping(*errors: type[Exception], code: int = BAD_INPUT, words: str = "{}") -> Iterator[None]:
    """End where one of these errors is raised within, in `words`, with the error's own for `{}`."""
    try:
        yield
    except errors as error:
        stop(str(error).join(words.rsplit("{}", 1)), code)


# The commands as `regatta --help` lists them.
PANELS = {
    "Experiments": ("new", "plan", "run", "show", "ls", "diff", "graph", "schema"),
    "Science": ("forecast", "results", "compile", "compile-check", "alias", "wandb"),
    "Trust": ("reproduce", "replay", "verify", "key"),
    "Lab": ("init", "serve", "handle", "doctor", "site", "store", "simulate"),
    "Play": ("demo", "sandbox"),
}
ORDER = [name for names in PANELS.values() for name in names]


class Commands(TyperGroup):
    """All commands: what nobody could foresee at one place may happen to any of them. A disk, a
    bucket or Ray may fail a command in its middle."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Their names, by panels."""
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """A command, with its panel, and its help without the line breaks of the source."""
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, TyperCommand | TyperGroup):
            command.rich_help_panel = next(
                panel for panel, names in PANELS.items() if cmd_name in names
            )
            paragraphs = (command.help or "").split("\n\n")
            command.help = "\n\n".join(" ".join(words.split()) for words in paragraphs)
        return command

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command that was named."""
        with stopping(BadExperiment), stopping(StoreError, RayError, code=FAILED):
            return super().invoke(ctx)


def print_json(answer: Any) -> None:
    """Print an answer for programs: records, dataclasses, and what is built of them."""
    text = json.dumps(answer, indent=2, ensure_ascii=False, default=to_jsonable_python)
    print(text.encode(errors="backslashreplace").decode())  # as JSON has it, of a name that is odd
