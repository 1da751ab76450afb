"""`regatta doctor`: looks at a deployment, and says how to mend what is wrong with it."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from bot.setup import settings
from bot.setup.settings import (
    TheApi,
    TheApp,
    TheBot,
    TheCluster,
    TheIsolation,
    TheRay,
    TheRayToken,
    TheRecordsBranch,
    TheRepository,
    TheTrust,
)
from runner.cli.options import TheJobs, TheStore


def command(
    repository: TheRepository,
    ray_address: TheRay,
    ray_token_file: TheRayToken = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    github_api: TheApi = settings.GITHUB,
    app_id: TheApp = "",
    url: Annotated[
        str, typer.Option(envvar="REGATTA_URL", help="Where the bot answers, https://…")
    ] = "",
    cluster: TheCluster = None,
    actions: Annotated[
        bool, typer.Option("--actions", help="Look at Actions mode: no webhook, no App.")
    ] = False,
    bot: TheBot = "",
    isolation: TheIsolation = None,
    trust_approved_code: TheTrust = False,
    records_branch: TheRecordsBranch = True,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Look at a deployment from where it runs. Exit codes: 0 all is well, 1 something is not."""
    from bot.setup import doctor

    console = Console(highlight=False, soft_wrap=True)
    token_file: Path | None = ray_token_file
    if token_file is not None and not token_file.name:
        token_file = None  # as Actions have it where a variable is not set
    looked_at = doctor.Deployment(
        repository=repository,
        store=store,
        jobs=jobs or None,
        ray_address=ray_address.rstrip("/"),
        ray_token_file=token_file,
        api=github_api,
        app="" if actions else app_id,
        url="" if actions else url,
        cluster=cluster,
        actions=actions,
        bot="" if actions else bot,
        isolation=isolation or ("trusted" if trust_approved_code else ""),
        records_branch=records_branch,
    )
    found = {check.name: check.run() for check in doctor.checks(looked_at)}
    if as_json:
        print(doctor.as_json(found))
    else:
        for line in doctor.told(found):
            console.print(Text(line))
    sys.exit(0 if all(one.ok for one in found.values()) else 1)
