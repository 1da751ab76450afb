"""`regatta handle`: the bot as a job of GitHub Actions."""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from bot.setup import settings
from bot.setup.settings import (
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
from runner.cli.options import TheJobs, TheStore

errors = Console(stderr=True)


def command(
    repository: TheRepository,
    ray_address: TheRay,
    ray_token_file: TheRayToken = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    github_api: TheApi = settings.GITHUB,
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
    from bot.controller import catch_up
    from bot.controller.reconciler import Reconciler
    from bot.github import GitHub, Later, Refused
    from bot.service import actions_job
    from bot.telemetry import logs
    from runner.execution.ray_jobs import RayAddress, RayError, RayJobs
    from runner.lib import redact
    from runner.scheduler.cluster import BadCluster, load
    from runner.store.store import Store

    redact.hold(*settings.all_secrets())
    logs.set_up("text", redact=redact.clean)
    try:
        event = actions_job.event_of(os.environ)
        described = load(cluster) if cluster else None
        opened = Store(actions_job.lasting(store), jobs=jobs)
        github = GitHub(
            repository,
            settings.credentials("", repository, github_api),
            api=github_api,
            bot=bot,
            seconds_between_writes=seconds_between_writes,
        )
        catch_up.belongs(opened, github)
        actions_job.keep(opened, event, github.id)
        address = RayAddress(ray_address, settings.ray_token_file(ray_token_file))
        ray = RayJobs(address, opened.id)
        reconciler = Reconciler(
            opened,
            github,
            ray,
            cluster=described,
            isolation=settings.isolation(isolation, trust_approved_code),
            sweep_every=catch_up.EVERY,
            records_branch=records_branch,
        )
        ended = actions_job.work(reconciler, may_take=minutes * 60)
    except (
        BadCluster,
        settings.Unset,
        actions_job.NoEvent,
        actions_job.NoPlace,
        catch_up.AnotherRepository,
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
