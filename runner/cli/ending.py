"""How a command ends: with its output on stdout, or with an error on stderr and an exit code: 0
done, 1 failed, 2 bad input."""

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
    """End with this message, in red."""
    remark(words, "red")
    sys.exit(code)


def remark(words: object, style: str = "") -> None:
    """Write a line to stderr, of any length."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    errors.print(str(words), style=style)


@contextmanager
def stopping(*errors: type[Exception], code: int = BAD_INPUT, words: str = "{}") -> Iterator[None]:
    """End the command if the `with` body raises one of these errors, with the message `words`, in
    which `{}` is the error's own."""
    try:
        yield
    except errors as error:
        stop(str(error).join(words.rsplit("{}", 1)), code)


# The order of the commands in `regatta --help`.
PANELS = {
    "Experiments": ("new", "plan", "run", "show", "ls", "diff", "graph"),
    "Science": ("forecast", "results", "compile", "compile-check", "alias", "wandb"),
    "Trust": ("reproduce", "replay", "verify", "key"),
    "Lab": ("init", "serve", "handle", "doctor", "site", "store", "simulate"),
    "Play": ("demo", "sandbox"),
}
ORDER = [name for names in PANELS.values() for name in names]


class Commands(TyperGroup):
    """All commands. Catches errors that may occur in any of them: of a disk, a bucket or Ray."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Their names, by panels."""
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """A command with its panel, and its help without the line breaks of the source."""
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, TyperCommand | TyperGroup):
            command.rich_help_panel = next(
                panel for panel, names in PANELS.items() if cmd_name in names
            )
            paragraphs = (command.help or "").split("\n\n")
            command.help = "\n\n".join(" ".join(words.split()) for words in paragraphs)
        return command

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command."""
        with stopping(BadExperiment), stopping(StoreError, RayError, code=FAILED):
            return super().invoke(ctx)


def print_json(answer: Any) -> None:
    """Print JSON: records, dataclasses, and what is built of them."""
    text = json.dumps(answer, indent=2, ensure_ascii=False, default=to_jsonable_python)
    print(text.encode(errors="backslashreplace").decode())  # odd names as JSON escapes them
