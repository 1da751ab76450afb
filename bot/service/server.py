"""The bot as a server: webhooks in, the reconciler in a thread beside them, the site out."""

import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from bot.controller import catch_up
from bot.controller.reconciler import Reconciler
from bot.github import GitHub
from bot.inbox import webhook
from bot.model.thread import Isolated
from bot.service import connections, health, live
from bot.site.facts.memory import Memory
from bot.site.pages.build import build
from bot.site.pages.templating import look
from bot.telemetry import logs
from runner.execution.ray_jobs import RayAddress, RayJobs
from runner.lib import redact
from runner.publish import signing, wandb_upload
from runner.publish.signing import Key
from runner.scheduler.cluster import Described
from runner.store.store import Store

ENDS_WITHIN = 10  # seconds for answers that are going on; then the lease has to be let go

log = logging.getLogger("regatta.serve")


@dataclass(frozen=True)
class Settings:
    """What an operator says, by options or environment."""

    store: Path | str
    repository: str  # owner/name
    webhook_secret: str
    credentials: Callable[[], str]
    ray: RayAddress
    jobs: str | None = None  # another place for all that jobs read and write
    github_api: str = "https://api.github.com"
    bot: str = "regatta-lab[bot]"
    # Where people reach the lab's pages, for the links in comments; without it there are none.
    site: str = field(default_factory=lambda: os.environ.get("REGATTA_SITE", "").rstrip("/"))
    seconds_between_writes: float = 1.0
    cluster: Described | None = None  # without one, Ray queues what was approved
    isolation: Isolated = ""  # of code of an experiment's own, which is refused without one
    records_branch: bool = True  # see `bot.controller.records_branch`
    key: Key | None = None  # that seals, plans and receipts are signed with
    host: str = "127.0.0.1"
    port: int = 8080
    old_secret: str = ""  # accepted too, while the webhook's secret is being changed
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None  # without one, nothing serves figures
    log_form: logs.Form = "text"


def create_app(settings: Settings) -> FastAPI:
    """The whole bot as one application; its reconciler lives as long as the application."""
    store = Store(settings.store, jobs=settings.jobs)
    github = GitHub(
        settings.repository,
        settings.credentials,
        api=settings.github_api,
        bot=settings.bot,
        seconds_between_writes=settings.seconds_between_writes,
    )
    redact.hold(*redact.of_environment(os.environ))
    pages = store.local("site")
    pages.mkdir(parents=True, exist_ok=True)  # served from the start, drawn when it can be

    host = github.url.removesuffix(f"/{github.name}")
    remembered = Memory(pages)

    def rebuild() -> None:
        try:
            build(
                store,
                pages,
                lab=github.name,
                repository_url=host,
                key=settings.key,
                live=True,
                remembered=remembered,
                address=settings.site,
            )
        except Exception:  # a page can be drawn again; an experiment must not wait for it
            log.exception("the site could not be built")

    catch_up.belongs(store, github)
    if settings.key:
        signing.keep(store, settings.key, github.now())
    rebuild()
    ray = RayJobs(settings.ray, store.id)
    reconciler = Reconciler(
        store,
        github,
        ray,
        cluster=settings.cluster,
        isolation=settings.isolation,
        site=settings.site,
        on_records=rebuild,
        sweep_every=catch_up.EVERY,
        records_branch=settings.records_branch,
        key=settings.key,
    )
    stop = threading.Event()
    loop = threading.Thread(target=reconciler.run, args=(stop,), name="reconciler")
    uploads = threading.Thread(target=wandb_upload.keep_uploading, args=(store, stop), daemon=True)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        loop.start()
        uploads.start()
        yield
        stop.set()
        loop.join(timeout=30)

    app = FastAPI(lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    gate = webhook.Gate(
        store,
        settings.webhook_secret,
        github.id,
        reconciler.wake,
        old_secret=settings.old_secret,
        lab=lambda _: reconciler.look_around(),
    )
    app.include_router(webhook.routes(gate))
    state = health.Loop(loop.is_alive, lambda: reconciler.came_around, lambda: reconciler.leads)
    app.include_router(health.routes(store, state))
    shown = look(github.name, host, bool(settings.key), live=True, address=settings.site)
    app.include_router(live.routes(live.Live(store, shown)))
    app.mount("/", StaticFiles(directory=pages, html=True))
    return app


def serve(settings: Settings) -> None:
    """Serve until the process is told to end. Secrets never stand in a log."""
    logs.set_up(settings.log_form, redact=redact.clean)
    end = None
    if settings.metrics_port is not None:
        end = health.serve_metrics(settings.metrics_host, settings.metrics_port)
    try:
        uvicorn.run(
            create_app(settings),
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=ENDS_WITHIN,
            **connections.TOLD,
        )
    finally:
        if end:
            end()
