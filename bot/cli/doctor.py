"""`regatta doctor`: looks at a deployment, and says how to mend what is wrong with it."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from bot.cli.options import reads
from bot.setup.settings import Settings


@reads("app_id", "url")
def command(
    settings: Settings,
    actions: Annotated[
        bool, typer.Option("--actions", help="Look at Actions mode: no webhook, no App.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Look at a deployment from where it runs. Exit codes: 0 all is well, 1 something is not."""
    from bot.setup import doctor

    found = doctor.looked_at(settings, actions)
    if as_json:
        print(doctor.as_json(found))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for line in doctor.lines(found):
            console.print(Text(line))
    sys.exit(0 if all(one.ok for one in found.values()) else 1)
