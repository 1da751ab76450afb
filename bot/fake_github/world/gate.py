"""Every request passes here: loopback only, faults, ETags, rate limits, the clock's `Date`, a
log."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.fake_github.world.errors import Refused
from bot.fake_github.world.faults import Fault
from bot.fake_github.world.state import Clock

if TYPE_CHECKING:
    from bot.fake_github.world.sandbox import Sandbox

API = "/api/v3"
GRAPHQL = "/api/graphql"  # as on GitHub Enterprise Server
LIMIT = 5000
MADE_AT_MOST = ((80, timedelta(minutes=1)), (500, timedelta(hours=1)))
LOOPBACK = ("127.0.0.1", "localhost", "::1", "testserver")
JSON = {"content-type": "application/json; charset=utf-8"}


@dataclass(frozen=True)
class Logged:
    method: str
    path: str  # after /api/v3, without the query
    query: str
    status: int  # 0: the connection was dropped


class ConnectionDropped(ConnectionError):
    """A dropped connection, for in-process clients."""


class Rates:
    """Counts the requests and writes of each token; with `bite` enforces limits: 5,000 requests an
    hour, 80 creations a minute and 500 an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hours: dict[str, tuple[int, int]] = {}  # token → (reset, used)
        self._made: dict[str, list[datetime]] = {}  # token → times of recent creations
        self.bite = False
        self.limit = LIMIT

    def refusal(self, token: str, method: str) -> Response | None:
        """A refusal by a rate limit; None if the request is allowed."""
        if not self.bite:
            return None
        if self.count(token, 0)["remaining"] == 0:
            return _limited("API rate limit exceeded for installation.")
        if method == "GET":
            return None
        now = self._clock.now()
        lately = [at for at in self._made.get(token, []) if at > now - timedelta(hours=1)]
        for most, span in MADE_AT_MOST:
            within = [at for at in lately if at > now - span]
            if len(within) >= most:
                wait = (within[-most] + span - now).total_seconds()
                words = "You have exceeded a secondary rate limit. Please wait a few minutes."
                return _limited(words, {"retry-after": str(max(1, int(wait)))})
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
        """Apply delayed effects and make late deliveries that are due."""
        self._sandbox.webhooks.catch_up()
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

        async def dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = self._sandbox.world.clock.date_header().encode()
                message["headers"] = [*message["headers"], (b"date", date)]
            await send(message)

        request = Request(scope, receive)
        if not _comes_from_here(request):
            refusal = PlainTextResponse("the sandbox answers this machine only\n", 403)
            await refusal(scope, receive, dated)
        elif scope["path"].startswith(f"{API}/") or scope["path"] == GRAPHQL:
            await self._api(request, dated)
        else:
            await self._app(scope, receive, dated)

    async def _api(self, request: Request, send: Send) -> None:
        method, path = request.method, request.scope["path"].removeprefix(API)
        await self.catch_up()
        token = request.headers.get("authorization", "")
        climate, scope = self._sandbox.climate, request.scope
        if climate and (added := climate.label(method, path)):
            self._sandbox.add_labels("grace", added[0], [added[1]])
        fault = self._sandbox.faults.take(method, path)
        fault = fault or (climate.fault(method, path) if climate else None)
        if fault is None:
            body = await request.body()
            past = climate.past(method, path, body) if climate else None
            if isinstance(past, Refused):
                answer = Response(json.dumps(past.as_json()), past.status, JSON)
            else:
                scope = {**scope, "past": self._sandbox.in_the_past(past)} if past else scope
                refusal = self._sandbox.rates.refusal(token, method)
                answer = refusal or await self._answer(scope, _again(body))
        else:
            answer = await self._faulty(request, fault)
        if answer.status_code == 200 and method == "GET":
            etag = f'W/"{hashlib.sha256(answer.body).hexdigest()}"'
            fresh = {"etag": etag, "cache-control": "private, max-age=60, s-maxage=60"}
            answer.headers.update(fresh)
            if request.headers.get("if-none-match") in (etag, etag.removeprefix("W/")):
                answer = Response(status_code=304, headers=fresh)
        status = 0 if fault and fault.kind.startswith("drop") else answer.status_code
        self._sandbox.requests.append(Logged(method, path, request.url.query, status))
        if status == 0:
            await _hang_up(request.receive)
            return
        rate = self._sandbox.rates.count(token, 0 if status == 304 or path == "/rate_limit" else 1)
        answer.headers.update({f"x-ratelimit-{name}": str(value) for name, value in rate.items()})
        answer.headers["x-ratelimit-resource"] = "core"
        answer.headers["x-github-media-type"] = "github.v3; format=json"
        if fault:
            answer.headers["x-sandbox-fault"] = fault.kind
        if fault and fault.kind == "cut":  # announce the whole body, and send half of it
            start = {"status": status, "headers": answer.raw_headers}
            await send({"type": "http.response.start", **start})
            half = bytes(answer.body[: len(answer.body) // 2])
            await send({"type": "http.response.body", "body": half, "more_body": True})
            await _hang_up(request.receive)
        else:
            await answer(request.scope, request.receive, send)

    async def _faulty(self, request: Request, fault: Fault) -> Response:
        world, kind = self._sandbox.world, fault.kind
        if kind == "stale":
            request.state.younger_than = fault.seconds
        if kind == "expired":
            token = request.headers.get("authorization", "").partition(" ")[2]
            world.tokens.pop(token.strip(), None)
        if kind == "later":
            due = world.clock.now() + timedelta(seconds=fault.seconds)
            self._to_come.append((due, request.scope, await request.body()))
        elif not kind.endswith("_before"):
            answer = await self._answer(request.scope, request.receive)
            if kind != "status_after":
                return answer
        return Response(fault.body, fault.status, JSON | fault.headers)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        """Run the operation and buffer its answer, so that a fault can still replace it."""
        status, headers, body = 500, Headers(), b""

        async def keep(message: Message) -> None:
            nonlocal status, headers, body
            if message["type"] == "http.response.start":
                status, headers = message["status"], Headers(raw=message["headers"])
            else:
                body += message.get("body", b"")

        await self._app(self._by_name(scope), receive, keep)
        return Response(body, status, headers)

    def _by_name(self, scope: Scope) -> Scope:
        """Resolve `/repositories/{id}/…`, to which redirects lead, to the repository's name."""
        world, path = self._sandbox.world, str(scope["path"])
        prefix = f"{API}/repositories/{world.repository_id}"
        if path != prefix and not path.startswith(f"{prefix}/"):
            return scope
        renamed = f"{API}/repos/{world.full_name}{path.removeprefix(prefix)}"
        return {**scope, "path": renamed, "raw_path": renamed.encode()}


def _comes_from_here(request: Request) -> bool:
    """Refuse other host names for this address, and forms from another site's page."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if urlsplit(f"//{host}").hostname not in LOOPBACK:
        return False
    return request.method in ("GET", "HEAD") or origin is None or urlsplit(origin).netloc == host


def _limited(words: str, headers: Mapping[str, str] | None = None) -> Response:
    told = {"message": words, "documentation_url": "https://docs.github.com/rest"}
    return Response(json.dumps(told), 403, {**JSON, **(headers or {})})


def _again(body: bytes) -> Receive:
    """A request's body, readable once more."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _hang_up(receive: Receive) -> None:
    """Close the connection under uvicorn; without uvicorn, raise what a client would see."""
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if transport is None:
        raise ConnectionDropped("the sandbox dropped the connection")
    transport.close()
    await asyncio.sleep(0.01)  # until uvicorn knows that nobody listens any more
