"""`regatta handle`: the bot as a job of GitHub Actions."""

import os
import sys
from typing import Annotated

import typer

from bot.cli.options import reads, told
from bot.setup.settings import Settings


@reads("seconds_between_writes", bot="github-actions[bot]")
def command(
    settings: Settings,
    minutes: Annotated[
        float, typer.Option(help="Work for so long at most; the next invocation goes on.")
    ] = 5.0,
) -> None:
    """Do whatever is due, as a job of GitHub Actions, and end. Exit codes: 0 done, or another
    bot leads, or time is over; 1 GitHub is away; 2 something is missing."""
    from bot.service import actions_job

    with told(settings, "this token", "", actions_job.NoEvent, actions_job.NoPlace):
        ended = actions_job.handle(settings, os.environ, may_take=minutes * 60)
    print(ended)
    if ended == "GitHub is away":
        sys.exit(1)
