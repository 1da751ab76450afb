"""The sandbox as a web server on 127.0.0.1: the app, and how it starts and stops."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from anyio.from_thread import start_blocking_portal
from fastapi import APIRouter, FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.types import ASGIApp

from bot.fake_github.pages import pages_files, pages_write, views
from bot.fake_github.rest import api, api_graphql
from bot.fake_github.rest.requests import Hub, Sent, answer_errors
from bot.fake_github.world.errors import Refused
from bot.fake_github.world.faults import Fault
from bot.fake_github.world.gate import API, Gate
from bot.fake_github.world.sandbox import Sandbox, make_sandbox
from bot.fake_github.world.state import Clock, stamp
from runner.lib import addresses

__all__ = ["Clock", "Sandbox", "create_app", "make_sandbox", "running", "serve"]

HOST = "127.0.0.1"
switches = APIRouter(prefix="/_sandbox")  # only in a sandbox: moving its clock, faults


def create_app(sandbox: Sandbox) -> ASGIApp:
    site = views.Pages(sandbox)
    return Gate(repository_app(sandbox, site), sandbox)


def repository_app(sandbox: Sandbox, site: views.Pages) -> ASGIApp:
    """The operations and pages of a sandbox's one repository."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.sandbox = sandbox
    answer_errors(app, site.refusal)
    app.include_router(api.operations, prefix=API)
    app.include_router(api_graphql.router)
    app.include_router(switches)
    app.mount("/_sandbox/static", StaticFiles(directory=views.HERE / "static"))
    for part in (pages_write, views, pages_files):
        app.include_router(part.routes(site))
    return app


@switches.post("/clock")
def move_clock(hub: Hub, sent: Sent) -> dict[str, str]:
    try:
        return {"now": stamp(hub.world.clock.advance(float(sent.get("advance", 0))))}
    except (TypeError, ValueError) as error:
        raise Refused(422, str(error)) from None


@switches.post("/climate")
def set_climate(hub: Hub, sent: Sent) -> dict[str, str]:
    try:
        hub.set_climate(**sent)
    except (TypeError, KeyError) as error:
        raise Refused(422, str(error)) from None
    return {"set": str(sent["name"])}


@switches.post("/faults")
def set_fault(hub: Hub, sent: Sent) -> dict[str, str]:
    try:
        hub.faults.add(Fault(**sent))
    except (TypeError, ValueError) as error:
        raise Refused(422, str(error)) from None
    return {"set": str(sent["kind"])}


@switches.delete("/faults")
def clear_faults(hub: Hub) -> dict[str, str]:
    hub.faults.clear()
    return {"set": "none"}


def serve(sandbox: Sandbox, bound: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve on a listening socket until interrupted; `ready` is called with the URL."""
    config = _config(sandbox, bound)
    ready(sandbox.url)
    uvicorn.Server(config).run(sockets=[bound])


@contextmanager
def running(
    sandbox: Sandbox, *, port: int = 0, wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app
) -> Iterator[str]:
    """Serve in a thread of this process during a `with` block; yields the URL.

    `wrap` wraps the app, for example in a test's recorder."""
    bound = addresses.listen(HOST, port)
    server = uvicorn.Server(_config(sandbox, bound, wrap))
    with bound, start_blocking_portal(name="sandbox") as portal:
        serving = portal.start_task_soon(server.serve, [bound])
        try:
            yield sandbox.url
        finally:  # at once, without uvicorn's waits of 100 ms
            for connection in list(server.server_state.connections):
                portal.call(connection.shutdown)
            serving.cancel()


def _config(
    sandbox: Sandbox, bound: socket.socket, wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app
) -> uvicorn.Config:
    """The server of a sandbox, which knows its address before any request."""
    sandbox.listen_at(f"http://{HOST}:{bound.getsockname()[1]}")
    return uvicorn.Config(
        wrap(create_app(sandbox)),
        http="h11",
        lifespan="off",
        log_level="warning",
        access_log=False,
        date_header=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
