"""The webhook: verifies a delivery, writes it to the inbox, answers 202. Decides nothing.

The signature is checked over the raw bytes before anything is parsed. The inbox gets what
`bot.inbox.payloads` makes of the payload; if that is nothing (our own comment, for example), the
delivery is acknowledged and dropped. A 2xx is sent only after the record is on disk.

Nothing about a body is known before all of it is here, so anybody can send one. Together, large
ones have room for a fixed number of bytes, which count as they arrive: one that is announced and
does not come takes none. If there is no room left, the oldest one of the client that holds most
gives way.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from bot.inbox import deliveries, payloads
from bot.inbox.payloads import Delivery
from bot.model.thread import ThreadId
from bot.telemetry import logs, metrics
from runner.store.store import Store, StoreError

MAX_BYTES = 25 * 1024 * 1024  # GitHub's own limit for a payload
LARGE = 1024 * 1024  # bytes; most payloads are a hundredth of that
ROOM = 2 * MAX_BYTES  # for all large bodies that are here
MAY_TAKE = 10.0  # seconds for a body to arrive; GitHub does not wait longer for the answer
CHUNKED = "transfer-encoding"
SIGNATURE = re.compile("sha256=[0-9a-f]{64}")
log = logging.getLogger("regatta.webhook")


@dataclass(frozen=True)
class Gate:
    """Receives the deliveries of one repository; `wake` is called with the thread to look at.

    While a webhook's secret is being changed, `old_secret` is the previous one, and both are
    valid.
    """

    store: Store
    secret: str
    repository: int
    wake: Callable[[ThreadId], None]
    old_secret: str | None = None
    lab: Callable[[Delivery], None] = lambda _: None  # called for events without a single thread

    def __post_init__(self) -> None:
        if not self.secret:
            raise ValueError("A webhook without a secret would let anybody speak for GitHub.")

    def receive(self, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Check and keep one delivery. Returns the status and text of the answer."""
        began = time.perf_counter()
        event = headers.get("X-GitHub-Event", "")
        with logs.about(delivery=headers.get("X-GitHub-Delivery", "")[:80]):
            status, words = self._receive(headers, body)
            log.info("%s is answered %s: %s", event[:40], status, words)
        metrics.answered(event, status, time.perf_counter() - began)
        return status, words

    def _receive(self, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        signature = headers.get("X-Hub-Signature-256", "")
        secrets = filter(None, (self.secret, self.old_secret))
        if not any(verify(secret, body, signature) for secret in secrets):
            return 401, "The signature does not fit the body and the secret."
        name, event = headers.get("X-GitHub-Delivery", ""), headers.get("X-GitHub-Event", "")
        if not re.fullmatch(deliveries.NAME, name):
            return 400, "X-GitHub-Delivery is missing or odd."
        try:
            payload = json.loads(_json_of(headers, body))
        except (ValueError, RecursionError):
            return 400, "The payload is not JSON."
        delivery = payloads.read(event, payload)
        if delivery is None or delivery.repository not in (self.repository, 0):
            return 200, "Nothing to do."
        if delivery.thread is None:
            log.info("%s.%s (delivery %s)", event, delivery.action, name)
            self.lab(delivery)
            return 200, "Noted."
        try:
            deliveries.keep(self.store, delivery.thread, name, delivery)
        except (OSError, StoreError):
            log.exception("the delivery %s could not be kept", name)
            return 503, "The delivery could not be kept; send it again."
        self.wake(delivery.thread)
        return 202, "Kept."


def _json_of(headers: Mapping[str, str], body: bytes) -> bytes | str:
    """The payload of a delivery. Webhooks of repositories send a form, if nobody chose JSON."""
    kind = headers.get("Content-Type", "").lower()
    if not kind.startswith("application/x-www-form-urlencoded"):
        return body
    return parse_qs(body.decode(), max_num_fields=2).get("payload", [""])[0]


def routes(gate: Gate) -> APIRouter:
    """`POST /webhook`."""
    router, room = APIRouter(), Room()

    @router.post("/webhook")
    async def webhook(request: Request) -> Response:
        length, chunked = request.headers.get("content-length"), request.headers.get(CHUNKED)
        if length is not None and chunked is not None:  # one parser uses this, another that
            words = "The payload has a length and comes in chunks; send one of the two."
            return Response(words, 400, {"Connection": "close"})
        if chunked is None and not re.fullmatch("[0-9]{1,12}", length or ""):
            return Response("The payload's length is not said.", 411)
        if not SIGNATURE.fullmatch(request.headers.get("x-hub-signature-256", "")):
            return Response("The payload is not signed.", 401, {"Connection": "close"})
        with room.for_one(request.client.host if request.client else "") as coming:
            try:
                async with asyncio.timeout(MAY_TAKE) as coming.limit:
                    body = await _body(request, int(length or 0), room, coming)
            except (TimeoutError, ClientDisconnect):
                words = "The payload did not come in time."
                return Response(words, 408, {"Connection": "close"})
            if body is None:
                return Response("The payload is larger than 25 MB.", 413)
            coming.limit = None
            status, words = await run_in_threadpool(gate.receive, request.headers, body)
        return Response(words, status)

    return router


@dataclass(eq=False)
class Coming:
    """A body that is here, or a part of it."""

    client: str  # its address, or that of a proxy
    size: int = 0
    limit: asyncio.Timeout | None = None  # while it is read


@dataclass
class Room:
    """The bodies that are here, oldest first."""

    bodies: list[Coming] = field(default_factory=list)

    @contextmanager
    def for_one(self, client: str) -> Iterator[Coming]:
        """Count a body during the `with` body."""
        coming = Coming(client)
        self.bodies.append(coming)
        try:
            yield coming
        finally:
            if coming in self.bodies:
                self.bodies.remove(coming)

    def lacks(self) -> bool:
        """Whether there is no room for more. Then the oldest body of the client with most bytes
        gives way, unless one is complete: its place is free in a moment."""
        large = [body for body in self.bodies if body.size > LARGE]
        if sum(body.size for body in large) <= ROOM:
            return False
        sizes = Counter[str]()
        for body in large:
            sizes[body.client] += body.size
        limits = [(body, body.limit) for body in large if body.limit]
        if len(limits) == len(large):
            oldest, limit = max(limits, key=lambda pair: sizes[pair[0].client])
            limit.reschedule(0)
            self.bodies.remove(oldest)
        return True


async def _body(request: Request, said: int, room: Room, coming: Coming) -> bytes | None:
    """The body, with `said` bytes announced; None if it is too long, and the rest is not read."""
    if said > MAX_BYTES:
        return None
    body = bytearray()
    async for piece in request.stream():
        if len(body) + len(piece) > MAX_BYTES:
            return None
        coming.size = len(body) + len(piece)
        while room.lacks():
            await asyncio.sleep(0.05)  # also the one that gives way may be this one
        body += piece
    return bytes(body)


def verify(secret: str, body: bytes, signature: str) -> bool:
    """Whether `signature` (`sha256=…`) is that of `body`; compared in constant time."""
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))
