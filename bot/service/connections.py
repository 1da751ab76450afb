"""Time limits of connections, and which connections are closed when there are too many.

uvicorn has only a limit for idle connections, and counts those that wait for their client like
those that are being answered. Here the two are separate. Headers, body, and reading the answer have
time limits that a slow trickle of bytes does not extend. A number of connections may wait for their
client; beyond it, the oldest one of the client with the most is closed. So slow clients keep nobody
out, also behind a proxy, where all have one address.
"""

import asyncio
import math
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_MAY_TAKE = 5.0  # seconds from the connection, or the last answer, to the end of the headers
BODY_MAY_TAKE = 12.0  # seconds from there to the end of the body; the body's reader answers earlier
ANSWER_MAY_TAKE = 30.0  # seconds in which the client reads nothing of an answer
MOST_WAITING = 32  # connections that wait for their client
MOST_ANSWERED = 64  # connections that are being answered, before others get 503


class Door(H11Protocol):
    """One connection."""

    _since = 0.0  # since when it waits, by the loop's clock
    _phase: object = None  # of the request, in h11's terms
    _coming: asyncio.TimerHandle | None = None  # time limit for input
    _taking: asyncio.TimerHandle | None = None  # time limit for output

    @property
    def waits(self) -> bool:
        """Whether the client has to act next."""
        coming = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        return coming or self.flow.write_paused or self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._watch()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        for timer in (self._coming, self._taking):
            if timer:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Bytes have arrived, or were left by the previous request."""
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        """The whole answer has been written."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        super().pause_writing()
        self._since = self.loop.time()
        self._watch_taking(math.inf)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        if self._taking:
            self._taking.cancel()

    def give_way(self) -> None:
        """Close the connection; with an answer, if part of a request without an answer has
        arrived."""
        if self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
            return
        if self.cycle and not self.cycle.response_complete:
            self.cycle.disconnected = True  # otherwise its application would answer, too
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
        """Start the time limit for the next input; a running one stays."""
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
        """Close the connection if its client reads nothing for a while; `before` was left then."""
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
        """The client's address, or that of the proxy."""
        return self.client[0] if self.client else ""


# uvicorn's settings for it.
TOLD: dict[str, Any] = {
    "http": Door,
    "ws": "none",
    "limit_concurrency": MOST_WAITING + MOST_ANSWERED,
}
