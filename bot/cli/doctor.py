"""`regatta doctor`: looks at a deployment, and says how to mend what is wrong with it."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from bot.cli.options import reads
from bot.setup.settings import Settings
from runner.cli.ending import DONE, FAILED, print_json
from runner.cli.options import AsJson


@reads("app_id", "url")
def command(
    settings: Settings,
    actions: Annotated[
        bool, typer.Option("--actions", help="Look at Actions mode: no webhook, no App.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look at a deployment from where it runs. Exit codes: 0 all is well, 1 something is not."""
    from bot.setup import doctor

    found = doctor.looked_at(settings, actions)
    if as_json:
        print_json([{"check": name, **asdict(one)} for name, one in found.items()])
    else:
        for line in doctor.lines(found):
            print(line)
    sys.exit(DONE if all(one.ok for one in found.values()) else FAILED)
