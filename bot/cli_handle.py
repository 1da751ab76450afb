"""`regatta handle`: the bot as a job of GitHub Actions."""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from bot import deployment
from bot.deployment import (
    TheApi,
    TheBot,
    TheCluster,
    TheIsolation,
    TheRay,
    TheRayToken,
    TheRecordsBranch,
    TheRepository,
    TheTrust,
)
from runner.cli_place import TheJobs, TheStore

errors = Console(stderr=True)


def command(
    repository: TheRepository,
    ray_address: TheRay,
    ray_token_file: TheRayToken = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    github_api: TheApi = deployment.GITHUB,
    bot: TheBot = "github-actions[bot]",
    seconds_between_writes: Annotated[
        float, typer.Option(envvar="REGATTA_SECONDS_BETWEEN_WRITES")
    ] = 1.0,
    cluster: TheCluster = None,
    isolation: TheIsolation = None,
    trust_approved_code: TheTrust = False,
    records_branch: TheRecordsBranch = True,
    minutes: Annotated[
        float, typer.Option(help="Work for so long at most; the next invocation goes on.")
    ] = 5.0,
) -> None:
    """Do whatever is due, as a job of GitHub Actions, and end. Exit codes: 0 done, or another
    bot leads, or time is over; 1 GitHub is away; 2 something is missing."""
    from bot import handle, logs, sweep
    from bot.github import GitHub, Later, Refused
    from bot.reconcile import Reconciler
    from runner import redact
    from runner.cluster import BadCluster, load
    from runner.launch import RayAddress, RayError, RayJobs
    from runner.store import Store

    redact.hold(*deployment.all_secrets())
    logs.set_up("text", redact=redact.clean)
    try:
        event = handle.event_of(os.environ)
        described = load(cluster) if cluster else None
        opened = Store(handle.lasting(store), jobs=jobs)
        github = GitHub(
            repository,
            deployment.credentials("", repository, github_api),
            api=github_api,
            bot=bot,
            seconds_between_writes=seconds_between_writes,
        )
        sweep.belongs(opened, github)
        handle.keep(opened, event, github.id)
        address = RayAddress(ray_address, deployment.ray_token_file(ray_token_file))
        ray = RayJobs(address, opened.id)
        reconciler = Reconciler(
            opened,
            github,
            ray,
            cluster=described,
            isolation=deployment.isolation(isolation, trust_approved_code),
            sweep_every=sweep.EVERY,
            ray=ray,
            records_branch=records_branch,
        )
        ended = handle.work(reconciler, may_take=minutes * 60)
    except (
        BadCluster,
        deployment.Unset,
        handle.NoEvent,
        handle.NoPlace,
        sweep.AnotherRepository,
        RayError,
    ) as error:
        errors.print(Text(str(error), style="red"))
        sys.exit(2)
    except Later as error:
        errors.print(Text(f"GitHub says later: {logs.escaped(str(error))}", style="red"))
        sys.exit(1)
    except Refused as error:
        words = f"GitHub shows no {repository} to this token ({logs.escaped(str(error))})."
        errors.print(Text(words, style="red"))
        sys.exit(2)
    print(ended)
    if ended == "GitHub is away":
        sys.exit(1)
