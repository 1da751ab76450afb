"""The door: how long a connection may wait for its client, and who gives way where many do.

uvicorn has no time limits but for idle connections, and counts those that wait for their client as
it counts those that are being answered. Here the two are apart. Headers, a body, and taking the
answer each have their time, which no single byte prolongs. Of those that wait for their client some
are kept, and then the oldest gives way of whichever client has most; so nobody is kept out by
others who are slow, also behind a proxy, where all have one address.
"""

import asyncio
import math
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_MAY_TAKE = 5.0  # seconds from a connection, or the last answer, to the end of the headers
BODY_MAY_TAKE = 12.0  # seconds from there to the end of the body: who reads it answers before
ANSWER_MAY_TAKE = 30.0  # seconds in which the client takes nothing of an answer
MOST_WAITING = 32  # connections that wait for their client
MOST_ANSWERED = 64  # and that are being answered, before others are answered 503


class Door(H11Protocol):
    """One connection."""

    _since = 0.0  # when it began to wait as it does now, by the loop's clock
    _phase: object = None  # of the request, as h11 calls it
    _coming: asyncio.TimerHandle | None = None  # ends what is to come
    _taking: asyncio.TimerHandle | None = None  # ends what is to be taken

    @property
    def waits(self) -> bool:
        """Whether what comes next is its client's to do."""
        coming = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        return coming or self.flow.write_paused or self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has come."""
        super().connection_made(transport)
        self._watch()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        for timer in (self._coming, self._taking):
            if timer:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Bytes have come, or were left by the request before."""
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        """All of an answer has been handed on."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """More of an answer is left than its client takes."""
        super().pause_writing()
        self._since = self.loop.time()
        self._watch_taking(math.inf)

    def resume_writing(self) -> None:
        """The client has taken what was left."""
        super().resume_writing()
        if self._taking:
            self._taking.cancel()

    def give_way(self) -> None:
        """End the connection: with an answer, if part of a request has come that has none yet."""
        if self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
            return
        if self.cycle and not self.cycle.response_complete:
            self.cycle.disconnected = True  # or its application would answer, too
            self.cycle.message_event.set()
        begun = self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]
        if begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("Connection", "close"), ("Content-Length", "0")]
            said = h11.Response(status_code=408, headers=headers, reason=b"Request Timeout")
            for event in (said, h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._watch()

    def _watch(self) -> None:
        """Give what is to come next its time; what is coming already keeps the time it has."""
        if self.transport.is_closing():
            self._watch_taking(math.inf)
        elif self._phase is not self.conn.their_state:
            self._phase, self._since = self.conn.their_state, self.loop.time()
            times = {h11.IDLE: HEADERS_MAY_TAKE, h11.SEND_BODY: BODY_MAY_TAKE}
            if self._coming:
                self._coming.cancel()
            if seconds := times.get(self.conn.their_state):
                self._coming = self.loop.call_later(seconds, self.give_way)

    def _watch_taking(self, before: float) -> None:
        """End the connection once its client takes nothing for a while; `before` was left then."""
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
            return
        if self._taking:
            self._taking.cancel()
        if left:
            self._taking = self.loop.call_later(ANSWER_MAY_TAKE, self._watch_taking, left)

    def _make_room(self) -> None:
        waiting = [x for x in self.connections if isinstance(x, Door) and x.waits]
        while len(waiting) > MOST_WAITING:
            clients = Counter(one.address for one in waiting)
            most = max(clients.values())
            of_most = (one for one in waiting if clients[one.address] == most)
            oldest = min(of_most, key=lambda one: one._since)
            waiting.remove(oldest)
            oldest.give_way()

    @property
    def address(self) -> str:
        """Its client's, or the proxy's that speaks for it."""
        return self.client[0] if self.client else ""


# What uvicorn is told of it.
TOLD: dict[str, Any] = {
    "http": Door,
    "ws": "none",
    "limit_concurrency": MOST_WAITING + MOST_ANSWERED,
}
