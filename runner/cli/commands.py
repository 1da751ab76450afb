"""The command line's commands: their order, and the errors for wrong arguments, all at once."""

from collections.abc import Mapping
from typing import Any

import typer
from typer._click.core import Context
from typer._click.exceptions import MissingParameter, NoArgsIsHelpError, NoSuchOption, UsageError
from typer._click.formatting import HelpFormatter
from typer.core import TyperCommand, TyperGroup

from runner.cli.ending import FAILED, print_json, stop, stopping
from runner.execution.ray_jobs import RayError
from runner.lib.problems import BadExperiment, near, nearest, quoted
from runner.store.store import StoreError

# The order of the commands in `regatta --help`.
PANELS = {
    "Start": (
        "new",
        "check",
        "plan",
        "run",
        "show",
        "ls",
        "logs",
        "diff",
        "graph",
        "demo",
        "sandbox",
    ),
    "Experiments": ("forecast", "search", "compile", "alias", "schema", "corpus", "label"),
    "Models": ("chat", "export", "import"),
    "Site": ("site", "results", "wandb", "mcp"),
    "Lab": ("init", "serve", "handle", "doctor", "store"),
    "Trust": ("verify", "reproduce", "replay", "key"),
    "Cluster": ("compile-check",),
}
ORDER = [name for names in PANELS.values() for name in names]

# Command names of other programs, and the names here.
MEANT = {
    **dict.fromkeys(("list", "executions", "history", "ps"), "ls"),
    **dict.fromkeys(("runs", "status"), "ls` or `show"),
    **dict.fromkeys(("info", "inspect", "describe", "result"), "show"),
    **dict.fromkeys(("resume", "continue", "retry", "train", "start", "exec"), "run"),
    **dict.fromkeys(("compare",), "diff"),
    **dict.fromkeys(("log", "tail", "watch"), "logs"),
    **dict.fromkeys(("create", "add"), "new"),
    **dict.fromkeys(("estimate", "cost"), "plan"),
    **dict.fromkeys(("validate", "lint", "test"), "check"),
    **dict.fromkeys(("build", "leaderboard", "board"), "site build"),
    **dict.fromkeys(("predict",), "forecast"),
    **dict.fromkeys(("gc", "clean", "prune"), "store gc"),
    **dict.fromkeys(("help",), "-h"),
    **dict.fromkeys(("version",), "--version"),
}
# The same for options: {option: what to write instead, for commands that have that option}.
MEANT_OPTIONS = {
    "--seeds": "--only 'seeds=0,1'",
    "--arm": "--only 'arms=NAME'",
    "--arms": "--only 'arms=NAME'",
    "--follow": "-f",
}
VALUES = {"valid integer": "a whole number", "valid number": "a number"}


class Wrong(typer.BadParameter):
    """An error about an argument, with a complete message."""


class Command(TyperCommand):
    """A command that reports all errors in its options and arguments at once."""

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write its help as lines: in panels, a narrow terminal cuts the names of options."""
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """The remaining arguments. Ends the program if there are errors."""
        try:
            return super().parse_args(ctx, [*args])
        except NoArgsIsHelpError:
            raise
        except UsageError:
            return stop("\n".join(self._wrong(ctx, args)))

    def invoke(self, ctx: Context) -> Any:
        """Run it. With `--json`, the problems of a declaration are JSON, too."""
        try:
            return super().invoke(ctx)
        except BadExperiment as error:
            if ctx.params.get("as_json"):
                print_json({"problems": [vars(one) for one in error.problems]})
            raise

    def _wrong(self, ctx: Context, args: list[str]) -> list[str]:
        """All errors, one per line."""
        found, left, sure = [], [*args], True
        options = {opt: one for one in self.get_params(ctx) for opt in one.opts if opt[:1] == "-"}
        while True:
            try:
                given, more, _ = self.make_parser(ctx).parse_args(args=[*left])
                break
            except NoSuchOption as error:
                name = error.option_name
                at = next((n for n, one in enumerate(left) if one.partition("=")[0] == name), None)
                found.append(_no_option(name, options, ctx))
                if at is None:
                    return found
                if left.pop(at) == name and left[at:] and not left[at].startswith("-"):
                    meant = options.get(_meant(name, options).partition(" ")[0])
                    if meant is None:
                        sure = False  # whether the next word is its value
                    elif not getattr(meant, "is_flag", False):
                        left.pop(at)
            except UsageError as error:
                name = str(getattr(error, "option_name", ""))
                if name not in left:
                    return [*found, error.format_message()]
                found.append(f"`{name}` needs a value; write `{name} VALUE`")
                left.remove(name)
        for one in self.get_params(ctx):
            try:
                if not one.is_eager and (sure or one.opts[0][:1] == "-"):
                    one.handle_parse_result(ctx, given, more)
            except UsageError as error:
                found.append(_said(error, given.get(one.name or ""), ctx))
        if more and sure:
            words = f"takes no {quoted(' '.join(more))}; `{ctx.command_path} -h` says what it takes"
            found.append(f"`{ctx.command_path}` {words}")
        return found


def _meant(name: str, options: Mapping[str, Any]) -> str:
    """What to write instead of an unknown option; empty if unknown."""
    meant = MEANT_OPTIONS.get(name, "")
    return meant if meant.partition(" ")[0] in options else nearest(name, options) or ""


def _no_option(name: str, options: Mapping[str, Any], ctx: Context) -> str:
    if name in ("--dry-run", "--dryrun") and ctx.info_name == "plan":
        return f"there is no option `{name}`; leave it out, as `plan` runs nothing"
    if meant := _meant(name, options):
        return f"there is no option {quoted(name)}; write `{meant}`"
    return f"there is no option {quoted(name)}; `{ctx.command_path} -h` lists its options"


def _said(error: UsageError, given: object, ctx: Context) -> str:
    """The message for one wrong option or argument."""
    param = getattr(error, "param", None)
    if isinstance(error, Wrong) or param is None:
        return error.message
    first = str(param.opts[0])
    written = first.startswith("-")
    name = first if written else str(param.metavar or param.name).strip("[]").upper()
    if isinstance(error, MissingParameter):
        named = f"{name} VALUE" if written else name
        return f"{name} is missing; write `{ctx.command_path} {named}`"
    one = given[-1] if isinstance(given, list | tuple) and given else given
    for known, value in VALUES.items():
        if known in error.message:
            return f"`{name}`: must be {value}, not {quoted(one)}"
    return f"`{name}`: {error.message.removeprefix('Value error, ').removesuffix('.')}"


class Group(TyperGroup):
    """Subcommands of one word."""

    def resolve_command(self, ctx: Context, args: list[str]) -> Any:
        """The named command. Ends the program if there is none."""
        try:
            return super().resolve_command(ctx, args)
        except UsageError:
            name = args[0]
            if name.startswith("-"):
                raise
            known = self.list_commands(ctx)
            meant = MEANT.get(name) if set(ORDER) & {*known} else None
            words = f"; did you mean `{meant}`?" if meant else near(name, known)
            listed = f"`{ctx.command_path} -h` lists all"
            return stop(f"there is no command {quoted(name)}{words or ';'} {listed}")


class Commands(Group):
    """All commands. Catches errors that may occur in any of them: of a disk, a port, a bucket or
    Ray."""

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
        """Run the named command."""
        try:
            with stopping(BadExperiment), stopping(StoreError, RayError, code=FAILED):
                return super().invoke(ctx)
        except BrokenPipeError:  # who read the output has ended
            raise
        except OSError as error:
            named = f"{error.filename}: {error.strerror}." if error.filename else error
            stop(named, FAILED)


class App(typer.Typer):
    """An app whose commands are `Command`s."""

    def __init__(self, *, cls: type[TyperGroup] = Group, **settings: Any) -> None:
        super().__init__(cls=cls, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Any:
        """Add a command."""
        return super().command(name, cls=Command, **settings)
