"""The sandbox without a socket: what `requests` sends to its address is handed to the app at once.

For stories, in which nothing hangs on how bytes travel. The sockets have tests of their own, in
`tests/sandbox`.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import unquote, urlsplit

import anyio.to_thread
import requests
import urllib3
from requests.adapters import HTTPAdapter
from starlette.types import ASGIApp, Message

from bot.fake_github import server
from bot.fake_github.world.gate import ConnectionDropped
from bot.fake_github.world.sandbox import Sandbox

_PORTS = itertools.count(1)  # below those at which a machine's own servers listen
_apps: dict[str, ASGIApp] = {}
_loops = threading.local()
_by_socket = HTTPAdapter.send


@contextmanager
def running(
    sandbox: Sandbox, *, wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app
) -> Iterator[str]:
    """As `server.running`, for who asks with `requests` and in this process."""
    address = f"127.0.0.1:{next(_PORTS) % 1024}"
    sandbox.listen_at(f"http://{address}")
    _apps[address] = wrap(server.create_app(sandbox))
    with (
        mock.patch.object(HTTPAdapter, "send", _send),
        mock.patch.object(anyio.to_thread, "run_sync", _here),
    ):
        try:
            yield sandbox.url
        finally:
            del _apps[address]


async def _here(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
    """In the place of a thread."""
    return function(*arguments)


def _send(
    adapter: HTTPAdapter, request: requests.PreparedRequest, *rest: Any, **more: Any
) -> requests.Response:
    url = urlsplit(request.url or "")
    if url.netloc not in _apps:
        return _by_socket(adapter, request, *rest, **more)
    if not hasattr(_loops, "own"):
        _loops.own = asyncio.new_event_loop()
    got = _loops.own.run_until_complete(_ask(_apps[url.netloc], request))
    return adapter.build_response(request, got)


async def _ask(app: ASGIApp, request: requests.PreparedRequest) -> urllib3.HTTPResponse:
    url = urlsplit(request.url or "")
    body = request.body or b""
    content = body.encode() if isinstance(body, str) else body
    headers = {"Host": url.netloc} | dict(request.headers)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": url.scheme,
        "path": unquote(url.path),
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "headers": [(_bytes(name).lower(), _bytes(value)) for name, value in headers.items()],
        "server": (url.hostname, url.port),
        "client": ("127.0.0.1", 1),
    }
    status, answered, parts = 0, urllib3.HTTPHeaderDict(), [b""]

    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            for name, value in message["headers"]:
                answered.add(name.decode("latin-1"), value.decode("latin-1"))
        else:
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except ConnectionDropped as error:
        raise requests.ConnectionError(str(error)) from None
    return urllib3.HTTPResponse(
        io.BytesIO(b"".join(parts)), answered, status, preload_content=False
    )


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1")
