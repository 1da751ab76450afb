"""Webhooks as GitHub sends them: signed, in order, each tried once.

A change only queues its delivery; it is sent after the world's lock is released, so that the
receiver can send requests to the sandbox. By default a thread posts to `url`; a given `deliver`
function is called in the thread that made the change.
"""

from __future__ import annotations

import collections
import hashlib
import hmac
import json
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import httpx

log = logging.getLogger(__name__)
Deliver = Callable[[Mapping[str, str], bytes], int]


@dataclass
class Delivery:
    id: str
    event: str
    action: str | None
    headers: dict[str, str]
    body: bytes
    status: int | None = None  # None until it was tried; 0 if nobody answered


@dataclass
class Attempt:
    """An attempt at a delivery, as in the App's list."""

    id: int
    delivery: Delivery
    at: datetime
    again: bool
    status: int = 0  # 0: no answer, or not yet


def sign(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Webhooks:
    def __init__(
        self, url: str | None, secret: str, deliver: Deliver | None, now: Callable[[], datetime]
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.attempts: list[Attempt] = []  # oldest first
        self.fate: Callable[[str], list[float]] = lambda _: [0.0]  # when an event is delivered
        self.late: list[tuple[datetime, Delivery]] = []  # and when they will be
        self._now = now
        self._secret = secret
        self._waiting: collections.deque[Delivery] = collections.deque()
        self._sending = threading.Lock()
        self._posts: queue.Queue[Attempt] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._deliver = deliver or (_poster(url) if url else None)
        self._in_background = deliver is None

    def emit(self, event: str, payload: Mapping[str, Any]) -> None:
        """Queue an event; `flush` sends it."""
        body = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
        delivery_id = str(uuid.uuid4())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/sandbox",
            "X-GitHub-Delivery": delivery_id,
            "X-GitHub-Event": event,
            "X-GitHub-Hook-ID": "1",
            "X-GitHub-Hook-Installation-Target-Type": "integration",
            "X-Hub-Signature-256": sign(self._secret, body),
        }
        made = Delivery(delivery_id, event, payload.get("action"), headers, body)
        self.deliveries.append(made)
        self._waiting.append(made)

    def flush(self) -> None:
        """Send the queue, in order; a thread that is already sending also sends new ones."""
        if not self._sending.acquire(blocking=False):
            return
        try:
            while self._waiting:
                delivery = self._waiting.popleft()
                for seconds in self.fate(delivery.event):
                    self.late.append((self._now() + timedelta(seconds=seconds), delivery))
                self.catch_up()
        finally:
            self._sending.release()
        if self._waiting:  # queued between the last look and the release
            self.flush()

    def catch_up(self) -> None:
        """Make the late deliveries that are due."""
        now = self._now()
        due = [each for each in self.late if each[0] <= now]
        for each in due:
            self.late.remove(each)
            self._send(each[1])

    def redeliver(self, delivery: Delivery) -> None:
        """Send the same body under the same id again, as GitHub's button does."""
        self._send(delivery, again=True)

    def drain(self, timeout: float = 10) -> bool:
        """Wait until everything queued was tried; False after the timeout."""
        done = self._posts.all_tasks_done
        with done:
            return done.wait_for(lambda: not self._posts.unfinished_tasks, timeout)

    def _send(self, delivery: Delivery, *, again: bool = False) -> None:
        if self._deliver is None:
            return
        attempt = Attempt(len(self.attempts) + 1, delivery, self._now(), again)
        self.attempts.append(attempt)
        if not self._in_background:
            self._try(self._deliver, attempt)
            return
        if self._thread is None:
            post_all = partial(self._post_all, self._deliver)
            self._thread = threading.Thread(target=post_all, name="hooks", daemon=True)
            self._thread.start()
        self._posts.put(attempt)

    def _post_all(self, deliver: Deliver) -> None:
        while True:
            self._try(deliver, self._posts.get())
            self._posts.task_done()

    @staticmethod
    def _try(deliver: Deliver, attempt: Attempt) -> None:
        delivery = attempt.delivery
        attempt.status = delivery.status = deliver(delivery.headers, delivery.body)


def _poster(url: str) -> Deliver:
    client = httpx.Client(timeout=10, trust_env=False)

    def post(headers: Mapping[str, str], body: bytes) -> int:
        try:
            return client.post(url, content=body, headers=dict(headers)).status_code
        except httpx.HTTPError as error:
            name = f"{headers['X-GitHub-Event']} {headers['X-GitHub-Delivery']}"
            log.warning("%s was not delivered: %s", name, error)
            return 0

    return post
