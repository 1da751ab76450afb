"""The bot as a server: receives webhooks, runs the reconciler in a thread, serves the site."""

import logging
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from bot.controller.lab_files import LabFiles
from bot.inbox import webhook
from bot.model.site import Site
from bot.service import connections, health, live
from bot.service.parts import opened, reconciler
from bot.setup.settings import OLD_SECRET, SECRET, Settings
from bot.site.facts.memory import Memory
from bot.site.pages.build import build
from bot.site.pages.templating import look
from bot.telemetry import logs
from runner.history import kept_records
from runner.lib import addresses, redact
from runner.publish import hub, signing, wandb_live

LEVEL = 6  # of gzip: level 9 takes longer and saves next to nothing
ENDS_WITHIN = 10  # seconds for current answers; then the lease must be released

log = logging.getLogger("regatta.serve")


def create_app(settings: Settings) -> FastAPI:
    """The whole bot as one application; its reconciler runs as long as the application."""
    secret = settings.secret(SECRET)  # before any request or file
    key = signing.read_key(settings.key) if settings.key else None
    store, github = opened(settings)
    redact.hold(*redact.of_environment(os.environ))
    pages = store.local("site")
    pages.mkdir(parents=True, exist_ok=True)  # served from the start, drawn when possible

    host = github.url.removesuffix(f"/{github.name}")
    remembered, address = Memory(pages), public(settings.site)
    lab = LabFiles(github)
    entries = kept_records.entries()

    def rebuild() -> None:
        try:
            build(
                store,
                pages,
                lab=github.name,
                repository_url=host,
                repository=github.name,
                key=key,
                live=True,
                remembered=remembered,
                address=address,
                tracks=lab.tracks(),
                others=entries,
            )
        except Exception:  # pages can be drawn again; experiments must not wait for them
            log.exception("the site could not be built")

    site = Site(settings.site) if settings.site else None
    loop = reconciler(settings, store, github, site=site, on_records=rebuild, key=key)
    if key:
        signing.keep(store, key, github.now())
    rebuild()
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, args=(stop,), name="reconciler", daemon=True)
    uploads = [
        threading.Thread(target=keep, args=(store, stop), daemon=True)
        for keep in (wandb_live.keep_uploading, hub.keep_uploading)
    ]

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        thread.start()
        for each in uploads:
            each.start()
        yield
        stop.set()
        thread.join(timeout=30)

    app = FastAPI(lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    gate = webhook.Gate(
        store,
        secret,
        github.id,
        loop.wake,
        old_secret=settings.optional(OLD_SECRET),
        lab=lambda _: loop.look_around(),
    )
    app.include_router(webhook.routes(gate))
    state = health.Loop(
        thread.is_alive, lambda: loop.came_around, lambda: loop.leads, lambda: loop.condition.newest
    )
    app.include_router(health.routes(store, state))
    shown = look(github.name, host, signs=bool(key), live=True, address=address)
    shown = shown.at(github.name)
    app.include_router(live.routes(live.Live(store, shown)))
    app.mount("/", files(pages))
    return app


def files(folder: Path) -> ASGIApp:
    """The site's files, compressed for those who can read that. Other answers stay as they are."""
    return GZipMiddleware(StaticFiles(directory=folder, html=True), compresslevel=LEVEL)


def public(address: str) -> str:
    """The address, if other machines can reach it. Preview images are for them alone."""
    return "" if addresses.is_here(address) else address


def serve(settings: Settings, host: str, port: int) -> None:
    """Serve until the process is told to end. Secrets never appear in logs. The ports are taken
    before anything else, so that a bot that nobody can reach never leads. Raises what
    `bot.service.parts` does, BadKey and OSError."""
    redact.hold(*settings.all_secrets())
    form = settings.logs or ("text" if sys.stderr.isatty() else "json")
    logs.set_up(form, redact=redact.clean)
    with ExitStack() as stack:
        bound = stack.enter_context(addresses.listen(host, port))
        if settings.metrics_port is not None:
            stack.callback(health.serve_metrics(settings.metrics_host, settings.metrics_port))
        config = uvicorn.Config(
            create_app(settings),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=ENDS_WITHIN,
            **connections.TOLD,
        )
        log.info("listening at %s, port %s", *bound.getsockname()[:2])
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([bound])
