"""Health endpoints: is the bot alive, is it ready, and its metrics.

`/healthz` says whether the loop still comes around without errors: restart a process that fails it.
`/readyz` says whether a delivery could be stored, by writing a small file: send nothing to a
process that fails it. A bot that does not lead is ready, too, because it stores deliveries. Both
also show the bot's condition, as the loop last read it: they never wait for the store to say it.
Metrics have a port of their own, which should not be public.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from prometheus_client import start_http_server

from bot.controller.condition import Condition
from bot.telemetry import metrics
from runner.lib import addresses
from runner.store.store import Store, StoreError

STANDS_STILL = 600.0  # seconds; no look at a thread takes as long
TRY_EVERY = 5.0  # minimum seconds between two test files of `/readyz`

log = logging.getLogger("regatta.operate")


@dataclass(frozen=True)
class Loop:
    """The state of the main loop."""

    alive: Callable[[], bool]
    came_around: Callable[[], float]  # the last time it did, on `monotonic`
    leads: Callable[[], bool]
    condition: Callable[[], Condition | None]  # None: not known yet
    monotonic: Callable[[], float] = time.monotonic

    def stood_still(self) -> float:
        """Seconds since the loop last came around."""
        return self.monotonic() - self.came_around()


def routes(store: Store, loop: Loop) -> APIRouter:
    """`GET /healthz` and `GET /readyz`: 200, or 503 with the reason as a sentence; and the bot's
    condition, which decides neither."""
    router, ready = APIRouter(), Ready(store, loop.monotonic)
    metrics.STOOD_STILL.set_function(loop.stood_still)
    metrics.LEADS.set_function(lambda: float(loop.leads()))

    @router.get("/healthz")
    async def healthz() -> Response:  # not in the threads in which others may wait
        return _answer(unwell(loop), "ok", loop)

    @router.get("/readyz")
    async def readyz() -> Response:
        why = await run_in_threadpool(ready.why_not)
        return _answer(why, "leads" if loop.leads() else "follows", loop)

    return router


def unwell(loop: Loop) -> str | None:
    """Why the process should be restarted; None if it is well."""
    if not loop.alive():
        return "The loop has ended."
    if (seconds := loop.stood_still()) > STANDS_STILL:
        return f"The loop has stood still for {seconds:.0f} s."
    return None


class Ready:
    """Whether a delivery could be stored, as of a moment ago."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._tried = float("-inf")
        self._why: str | None = None

    def why_not(self) -> str | None:
        """Why a delivery could not be stored; None if it could."""
        with self._lock:
            if self._monotonic() - self._tried >= TRY_EVERY:
                self._why = self._look()
                self._tried = self._monotonic()
            return self._why

    def _look(self) -> str | None:
        name = f"ready/{secrets.token_hex(8)}.json"
        try:
            if self._store.peek("store.json") is None:
                return "The store is not there."
            try:
                self._store.create(name, b"{}\n")
            finally:
                self._store.remove(name)
        except (OSError, StoreError) as error:
            log.warning("the store cannot be used: %s", error)
            return "The store keeps nothing."
        return None


def serve_metrics(host: str, port: int) -> Callable[[], None]:
    """Answer Prometheus at http://host:port/metrics from a thread. Returns the function that stops
    it. Raises OSError."""
    with addresses.listening(host, port):
        server, thread = start_http_server(port, host, metrics.REGISTRY)

    def end() -> None:
        server.shutdown()
        thread.join(5)

    return end


def _answer(why: str | None, well: str, loop: Loop) -> Response:
    body: dict[str, Any] = {"status": why or well}
    if now := loop.condition():
        sentences = {name: " ".join(filter(None, each)) for name, each in now.sentences().items()}
        body |= {"sentences": sentences, "figures": now.model_dump(mode="json")}
    return JSONResponse(body, 503 if why else 200)
