"""The webhook: verifies a delivery, writes it to the inbox, answers 202. Decides nothing.

The signature is checked over the raw bytes before anything is parsed. The inbox gets what
`bot.inbox.payloads` makes of the payload; if that is nothing (our own comment, for example), the
delivery is acknowledged and dropped. A 2xx is sent only after the record is on disk.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
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
LARGE_AT_ONCE = 2  # others wait: anybody can send a body whose signature is not checked yet
MAY_TAKE = 10.0  # seconds for a body to arrive; GitHub does not wait longer for the answer
CHUNKED = "transfer-encoding"
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
    if not headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded"):
        return body
    return parse_qs(body.decode(), max_num_fields=2).get("payload", [""])[0]


def routes(gate: Gate) -> APIRouter:
    """`POST /webhook`."""
    router, large = APIRouter(), asyncio.Semaphore(LARGE_AT_ONCE)

    @router.post("/webhook")
    async def webhook(request: Request) -> Response:
        length, chunked = request.headers.get("content-length"), request.headers.get(CHUNKED)
        if length is not None and chunked is not None:  # one parser uses this, another that
            words = "The payload has a length and comes in chunks; send one of the two."
            return Response(words, 400, {"Connection": "close"})
        if chunked is None and not re.fullmatch("[0-9]{1,12}", length or ""):
            return Response("The payload's length is not said.", 411)
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(MAY_TAKE):
                    body = await _body(request, int(length or 0), held, large)
            except (TimeoutError, ClientDisconnect):
                words = "The payload did not come in time."
                return Response(words, 408, {"Connection": "close"})
            if body is None:
                return Response("The payload is larger than 25 MB.", 413)
            status, words = await run_in_threadpool(gate.receive, request.headers, body)
        return Response(words, status)

    return router


async def _body(
    request: Request, said: int, held: AsyncExitStack, large: asyncio.Semaphore
) -> bytes | None:
    """The body, with `said` bytes announced; None if it is too long, and the rest is not read. A
    large one waits for `large`, and holds it."""
    if said > MAX_BYTES:
        return None
    body, waited = bytearray(), said > LARGE
    if waited:
        await held.enter_async_context(large)
    async for piece in request.stream():
        if len(body) + len(piece) > MAX_BYTES:
            return None
        if not waited and len(body) + len(piece) > LARGE:
            await held.enter_async_context(large)
            waited = True
        body += piece
    return bytes(body)


def verify(secret: str, body: bytes, signature: str) -> bool:
    """Whether `signature` (`sha256=…`) is that of `body`; compared in constant time."""
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))
