"""`regatta serve`: the bot as a server."""

import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

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

errors = Console(stderr=True)


def command(
    repository: TheRepository,
    ray_address: TheRay,
    ray_token_file: TheRayToken = None,
    store: TheStore = "store",
    jobs: TheJobs = None,
    github_api: TheApi = settings.GITHUB,
    app_id: TheApp = "",
    bot: TheBot = "",
    seconds_between_writes: Annotated[
        float, typer.Option(envvar="REGATTA_SECONDS_BETWEEN_WRITES")
    ] = 1.0,
    cluster: TheCluster = None,
    isolation: TheIsolation = None,
    trust_approved_code: TheTrust = False,
    records_branch: TheRecordsBranch = True,
    key: Annotated[
        Path | None,
        typer.Option(
            envvar="REGATTA_KEY",
            help="A file from `regatta key new`: seals, plans and receipts on the site are signed.",
        ),
    ] = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    metrics_port: Annotated[
        int | None,
        typer.Option(envvar="REGATTA_METRICS_PORT", help="Answer Prometheus there; not public."),
    ] = None,
    metrics_host: Annotated[str, typer.Option(envvar="REGATTA_METRICS_HOST")] = "127.0.0.1",
    logs: Annotated[
        Literal["json", "text"] | None,
        typer.Option(envvar="REGATTA_LOGS", help="json, unless a terminal reads along."),
    ] = None,
) -> None:
    """Run the bot. Secrets come from the environment, or from files that it names."""
    from bot.controller import catch_up
    from bot.github import Later, Refused
    from bot.service import server
    from bot.telemetry.logs import escaped
    from runner.execution.ray_jobs import RayAddress, RayError
    from runner.lib import redact
    from runner.publish import signing
    from runner.scheduler.cluster import BadCluster, load
    from runner.store.store import StoreError

    redact.hold(*settings.all_secrets())
    try:
        described = load(cluster) if cluster else None
        credentials = settings.credentials(app_id, repository, github_api)
        server.serve(
            server.Settings(
                store=store,
                jobs=jobs,
                repository=repository,
                webhook_secret=settings.secret(settings.SECRET),
                old_secret=settings.optional(settings.OLD_SECRET),
                credentials=credentials,
                ray=RayAddress(ray_address, settings.ray_token_file(ray_token_file)),
                github_api=github_api,
                bot=settings.login(bot, credentials, github_api),
                seconds_between_writes=seconds_between_writes,
                cluster=described,
                isolation=settings.isolation(isolation, trust_approved_code),
                records_branch=records_branch,
                key=signing.read_key(key) if key else None,
                host=host,
                port=port,
                metrics_host=metrics_host,
                metrics_port=metrics_port,
                log_form=logs or ("text" if sys.stderr.isatty() else "json"),
            )
        )
    except (
        BadCluster,
        settings.Unset,
        catch_up.AnotherRepository,
        RayError,
        StoreError,
        signing.BadKey,
    ) as error:
        _stop(str(error))
    except Later as error:
        _stop(f"GitHub says later: {escaped(str(error))}", 1)
    except Refused as error:
        _stop(
            f"GitHub shows no {repository} to these credentials ({escaped(str(error))}). Mend "
            "REGATTA_REPOSITORY, or install the App there."
        )


def _stop(words: str, code: int = 2) -> NoReturn:
    errors.print(Text(words, style="red"))
    sys.exit(code)
