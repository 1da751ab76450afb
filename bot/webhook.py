"""The way in: verify a delivery, write it to the inbox, answer 202. Nothing is decided here.

The signature is checked over the raw bytes before anything is parsed. A delivery that concerns no
thread, or comes from a bot (our own echo too), is acknowledged and dropped. A 2xx is sent only
once the record is on disk.
"""

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from bot.facts import ThreadId
from runner.store import Store, to_json

MOST_BYTES = 25 * 1024 * 1024  # GitHub's own cap on a payload
HEARD = {
    "issues": {"opened", "edited", "reopened"},
    "issue_comment": {"created"},
    "pull_request": {"opened", "synchronize", "reopened", "edited", "ready_for_review"},
}

log = logging.getLogger("regatta.webhook")


@dataclass(frozen=True)
class Gate:
    """Where deliveries of one repository come in; `wake` is told which thread to look at."""

    store: Store
    secret: str
    repository: int
    wake: Callable[[ThreadId], None]

    def receive(self, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Judge and keep one delivery; the status and words of the answer."""
        if not verify(self.secret, body, headers.get("X-Hub-Signature-256", "")):
            return 401, "The signature does not fit the body and the secret."
        delivery, event = headers.get("X-GitHub-Delivery", ""), headers.get("X-GitHub-Event", "")
        if not re.fullmatch(r"[0-9A-Za-z-]{1,80}", delivery):
            return 400, "X-GitHub-Delivery is missing or odd."
        try:
            payload = json.loads(body)
        except (ValueError, RecursionError):
            return 400, "The payload is not JSON."
        thread = concerns(event, payload, self.repository)
        if thread is None:
            return 200, "Nothing to do."
        path = f"records/inbox/{thread.repository}/{thread.number}/{delivery}.json"
        try:
            self.store.create(path, to_json({"event": event, "payload": payload}))
        except OSError:
            log.exception("the delivery %s could not be kept", delivery)
            return 503, "The delivery could not be kept; send it again."
        self.wake(thread)
        return 202, "Kept."


def routes(gate: Gate) -> APIRouter:
    """`POST /webhook`."""
    router = APIRouter()

    @router.post("/webhook")
    async def webhook(request: Request) -> Response:
        body = await _capped(request)
        if body is None:
            return Response("The payload is larger than 25 MB.", 413)
        status, words = await run_in_threadpool(gate.receive, request.headers, body)
        return Response(words, status)

    return router


def verify(secret: str, body: bytes, signature: str) -> bool:
    """Whether `signature` (`sha256=…`) is that of `body`; compared in constant time."""
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))


def concerns(event: str, payload: Any, repository: int) -> ThreadId | None:
    """The thread that a delivery is about; None for what the bot does not act on."""
    try:
        if payload["action"] not in HEARD.get(event, ()) or payload["sender"]["type"] == "Bot":
            return None
        if payload["repository"]["id"] != repository:
            return None
        if payload.get("comment", {}).get("performed_via_github_app"):
            return None  # an app that speaks in a person's name is nobody we know
        about = payload["pull_request" if event == "pull_request" else "issue"]
        number = about["number"]
    except (KeyError, TypeError):
        return None
    return ThreadId(repository, number) if isinstance(number, int) else None


async def _capped(request: Request) -> bytes | None:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            return None
    return bytes(body)
