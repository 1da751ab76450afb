"""What every request passes: loopback only, faults, ETags, rates, the clock's `Date`, a log."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.fake_github.world.faults import Fault
from bot.fake_github.world.state import Clock

if TYPE_CHECKING:
    from bot.fake_github.world.sandbox import Sandbox

API = "/api/v3"
GRAPHQL = "/api/graphql"  # as on a server of one's own
LIMIT = 5000
MADE_AT_MOST = ((80, timedelta(minutes=1)), (500, timedelta(hours=1)))
LOOPBACK = ("127.0.0.1", "localhost", "::1", "testserver")
Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Logged:
    method: str
    path: str  # after /api/v3, without the query
    query: str
    status: int  # 0: the connection was dropped


class ConnectionDropped(ConnectionError):
    """What an in-process client sees of a dropped connection."""


class Rates:
    """How many requests each token made in its hour, and when it wrote; counted, and enforced where
    `bite` says so: 5,000 requests an hour, 80 new things a minute and 500 an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hours: dict[str, tuple[int, int]] = {}  # token → (reset, used)
        self._made: dict[str, list[datetime]] = {}  # token → when it made something, lately
        self.bite = False
        self.limit = LIMIT

    def refusal(self, token: str, method: str) -> tuple[str, dict[str, str]] | None:
        """Why a request is not taken now, and the headers that say until when; None: it is."""
        if not self.bite:
            return None
        if self.count(token, 0)["remaining"] == 0:
            return "API rate limit exceeded for installation.", {}
        if method == "GET":
            return None
        now = self._clock.now()
        lately = [at for at in self._made.get(token, []) if at > now - timedelta(hours=1)]
        for most, span in MADE_AT_MOST:
            within = [at for at in lately if at > now - span]
            if len(within) >= most:
                wait = (within[-most] + span - now).total_seconds()
                words = "You have exceeded a secondary rate limit. Please wait a few minutes."
                return words, {"retry-after": str(max(1, int(wait)))}
        self._made[token] = [*lately, now]
        return None

    def count(self, token: str, requests: int = 1) -> dict[str, int]:
        now = int(self._clock.now().timestamp())
        reset, used = self._hours.get(token, (0, 0))
        if reset <= now:
            reset, used = now + 3600, 0
        self._hours[token] = (reset, used + requests)
        used += requests
        left = max(0, self.limit - used)
        return {"limit": self.limit, "remaining": left, "reset": reset, "used": used}


class Gate:
    def __init__(self, app: ASGIApp, sandbox: Sandbox) -> None:
        self._app = app
        self._sandbox = sandbox
        self._to_come: list[tuple[datetime, Scope, bytes]] = []
        self._coming = asyncio.Lock()

    async def catch_up(self) -> None:
        """Do what was put off until now."""
        async with self._coming:
            now = self._sandbox.world.clock.now()
            due = [each for each in self._to_come if each[0] <= now]
            self._to_come = [each for each in self._to_come if each[0] > now]
            for _, scope, body in due:
                await self._answer(scope, _again(body))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        date = (b"date", self._sandbox.world.clock.date_header().encode())
        if not _comes_from_here(scope["method"], asked):
            await _send(send, 403, [date], b"the sandbox answers this machine only\n")
        elif scope["path"].startswith(f"{API}/") or scope["path"] == GRAPHQL:
            await self._api(scope, receive, send, asked)
        else:

            async def dated(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], date]
                await send(message)

            await self._app(scope, receive, dated)

    async def _api(self, scope: Scope, receive: Receive, send: Send, asked: dict[str, str]) -> None:
        method, path = scope["method"], scope["path"].removeprefix(API)
        await self.catch_up()
        fault = self._sandbox.faults.take(method, path)
        kind = fault.kind if fault else ""
        token = asked.get("authorization", "")
        limited = None if fault else self._sandbox.rates.refusal(token, method)
        if kind == "stale":
            assert fault is not None
            scope.setdefault("state", {})["younger_than"] = fault.seconds
        status, body = 0, b""
        headers: Headers = []
        if kind == "expired":
            self._sandbox.world.tokens.pop(token.partition(" ")[2].strip(), None)
        if fault and kind == "later":
            due = self._sandbox.world.clock.now() + timedelta(seconds=fault.seconds)
            self._to_come.append((due, scope, await _whole(receive)))
        elif limited:
            status, headers, body = _limited(*limited)
        elif not kind.endswith("_before"):
            status, headers, body = await self._answer(scope, receive)
        if fault and (kind.startswith("status") or kind == "later"):
            status, headers, body = _faulty(fault)
        if kind:
            headers.append((b"x-sandbox-fault", kind.encode()))
        if kind.startswith("drop"):
            status = 0
        if status == 200 and method == "GET":
            etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
            headers.append((b"etag", etag.encode()))
            headers.append((b"cache-control", b"private, max-age=60, s-maxage=60"))
            if asked.get("if-none-match") in (etag, etag.removeprefix("W/")):
                status, body = 304, b""
                headers = [pair for pair in headers if pair[0] not in (b"content-type",)]
        query = scope["query_string"].decode()
        self._sandbox.requests.append(Logged(method, path, query, status))
        if status == 0:
            await _drop(receive)
            return
        free = status == 304 or path == "/rate_limit"
        rate = self._sandbox.rates.count(token, 0 if free else 1)
        for name, value in rate.items():
            headers.append((f"x-ratelimit-{name}".encode(), str(value).encode()))
        headers.append((b"x-ratelimit-resource", b"core"))
        headers.append((b"x-github-media-type", b"github.v3; format=json"))
        headers.append((b"date", self._sandbox.world.clock.date_header().encode()))
        if kind == "cut":
            await _cut(receive, send, status, headers, body)
        else:
            await _send(send, status, headers, body)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, Headers, bytes]:
        """Run the operation and keep its answer, so that a fault can still take it away."""
        got: dict[str, Any] = {"body": b""}

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                got.update(status=message["status"], headers=message["headers"])
            else:
                got["body"] += message.get("body", b"")

        await self._app(scope, receive, keep)
        kept = [pair for pair in got["headers"] if pair[0].lower() != b"content-length"]
        return got["status"], kept, got["body"]


def _comes_from_here(method: str, asked: dict[str, str]) -> bool:
    """Refuse other hosts' names for this address, and forms that another site's page sends."""
    host = asked.get("host", "")
    if urlsplit(f"//{host}").hostname not in LOOPBACK:
        return False
    origin = asked.get("origin")
    return method in ("GET", "HEAD") or origin is None or urlsplit(origin).netloc == host


def _faulty(fault: Fault) -> tuple[int, Headers, bytes]:
    headers = {"content-type": "application/json; charset=utf-8"} | fault.headers
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return fault.status, pairs, fault.body.encode()


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    if status not in (204, 304):
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _cut(receive: Receive, send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Promise the whole body, send half of it and close the connection."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if transport is None:
        raise ConnectionDropped("the sandbox broke off an answer")
    transport.close()
    await asyncio.sleep(0.01)  # until uvicorn knows that nobody listens any more


async def _whole(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def _again(body: bytes) -> Receive:
    """A request's body, to be read once more."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _limited(words: str, more: dict[str, str]) -> tuple[int, Headers, bytes]:
    body = json.dumps({"message": words, "documentation_url": "https://docs.github.com/rest"})
    headers = {"content-type": "application/json; charset=utf-8"} | more
    return 403, [(name.encode(), value.encode()) for name, value in headers.items()], body.encode()


async def _drop(receive: Receive) -> None:
    """Close the connection under uvicorn; where there is none, raise what a client would see."""
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if transport is None:
        raise ConnectionDropped("the sandbox dropped the connection")
    transport.abort()
    await asyncio.sleep(0.01)  # until uvicorn knows that nobody listens any more
