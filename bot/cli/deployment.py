"""`regatta serve`, `handle` and `doctor`: the bot as a server, the bot as a job of GitHub Actions,
and a check of either that says how to fix problems."""

import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from bot.cli.options import PORTS, reads, told
from bot.setup.settings import Settings
from runner.cli.commands import App
from runner.cli.ending import DONE, FAILED, print_json
from runner.cli.options import AsJson

app = App()


@app.command()
@reads("app_id", "seconds_between_writes", "key", "metrics_port", "metrics_host", "logs")
def serve(
    settings: Settings,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", **PORTS)] = 8080,
) -> None:
    """Run the bot as a server. Secrets come from the environment or from files it names."""
    from bot.service import server
    from runner.publish.signing import BadKey
    from runner.store.store import StoreError

    mend = "Correct REGATTA_REPOSITORY, or install the App there."
    with told(settings, "these credentials", mend, BadKey, StoreError):
        server.serve(settings, host, port)


@app.command()
@reads("seconds_between_writes", bot="github-actions[bot]")
def handle(
    settings: Settings,
    minutes: Annotated[
        float, typer.Option(help="Work for at most so many minutes; the next job continues.")
    ] = 5.0,
) -> None:
    """Do what is due as a job of GitHub Actions, then end.

    Exit codes: 0 done, or another bot leads, or the time is over; 1 GitHub cannot be reached;
    2 something is missing."""
    from bot.service import actions_job

    with told(settings, "this token", "", actions_job.NoEvent, actions_job.NoPlace):
        ended = actions_job.handle(settings, os.environ, may_take=minutes * 60)
    print(ended)
    sys.exit(FAILED if ended == "GitHub is away" else DONE)


@app.command()
@reads("app_id", "url")
def doctor(
    settings: Settings,
    actions: Annotated[
        bool, typer.Option("--actions", help="Check Actions mode: no webhook, no App.")
    ] = False,
    train: Annotated[
        bool,
        typer.Option("--train", help="Also train ten steps on each kind of device; says the MFU."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a deployment from where it runs, and say how to fix what is wrong.

    Exit codes: 0 all is well, 1 something is wrong."""
    from bot.setup.doctor import looked_at
    from bot.setup.findings import lines

    found = looked_at(settings, actions, train)
    if as_json:
        print_json([{"check": name, **asdict(one)} for name, one in found.items()])
    else:
        print(*lines(found), sep="\n")
    sys.exit(DONE if all(one.ok for one in found.values()) else FAILED)
