"""The door on a real server: what raw sockets send, what is answered, and who keeps whom out."""

import contextlib
import hashlib
import hmac
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from bot.inbox import webhook
from bot.model.thread import ThreadId
from bot.service import connections
from bot.service import server as service_server
from bot.setup.settings import Settings
from runner.store.store import Store

SECRET = "a-secret-of-the-tests"
LIMIT = 0.4  # seconds, in the place of the door's own
BODY = json.dumps(
    {
        "action": "created",
        "sender": {"login": "grace", "type": "User"},
        "repository": {"id": 7},
        "issue": {"number": 5},
        "comment": {"id": 1, "body": "/run"},
    }
).encode()
SIGNATURE = "sha256=" + hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
SIGNED = (
    "POST /webhook HTTP/1.1\r\nHost: lab\r\nX-GitHub-Event: issue_comment\r\n"
    f"X-GitHub-Delivery: d-1\r\nX-Hub-Signature-256: {SIGNATURE}\r\n"
).encode()
POST = b"POST /webhook HTTP/1.1\r\nHost: lab\r\nX-Hub-Signature-256: sha256=%b\r\n" % (b"0" * 64)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
HONEST = SIGNED + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
ONE, ANOTHER = "127.0.0.2", "127.0.0.3"  # addresses of clients


@dataclass
class Lab:
    port: int
    woken: list[ThreadId]
    opened: list[socket.socket]
    server: uvicorn.Server

    def connect(self, client: str = ONE, *, sends: bytes = b"", room: int = 0) -> socket.socket:
        """A connection of the client at this address; `room`: bytes that it takes unread."""
        made = socket.socket()
        if room:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        made.bind((client, 0))
        made.settimeout(20)
        made.connect(("127.0.0.1", self.port))
        made.sendall(sends)
        self.opened.append(made)
        return made

    def ask(self, sends: bytes, client: str = ONE) -> int:
        """The status of what is answered."""
        return status(self.connect(client, sends=sends))


def status(connection: socket.socket) -> int:
    """Of the next answer; 0 where the connection is closed without one."""
    got = b""
    while b"\r\n" not in got:
        try:
            piece = connection.recv(1)
        except ConnectionResetError:
            return 0
        if not piece:
            return 0
        got += piece
    return int(got.split()[1])


def ends_within(connection: socket.socket, seconds: float) -> bool:
    """Whether the other side closes within this time, whatever it says before."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([connection], [], [], left)[0]:
            try:
                if not connection.recv(1 << 16):
                    return True
            except ConnectionResetError:
                return True
    return False


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(webhook, "MAY_TAKE", LIMIT)
    for limit in ("HEADERS_MAY_TAKE", "BODY_MAY_TAKE", "ANSWER_MAY_TAKE"):
        monkeypatch.setattr(connections, limit, LIMIT * (2 if limit == "BODY_MAY_TAKE" else 1))
    app = FastAPI()
    woken: list[ThreadId] = []
    app.include_router(webhook.routes(webhook.Gate(Store(tmp_path / "s"), SECRET, 7, woken.append)))

    @app.get("/")
    async def front() -> PlainTextResponse:
        return PlainTextResponse("x" * 8_000_000)

    @app.get("/small")
    async def small() -> PlainTextResponse:
        return PlainTextResponse("x")

    bound = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", **connections.TOLD))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    made = Lab(bound.getsockname()[1], woken, [], server)
    try:
        yield made
    finally:
        for connection in made.opened:
            connection.close()
        server.should_exit = True
        thread.join(10)


def chunks(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


# ── How long a body is ───────────────────────────────────────────────────────────────────────


def test_an_honest_delivery_is_kept_and_so_is_the_next_on_its_connection(lab: Lab) -> None:
    connection = lab.connect(sends=HONEST)
    assert status(connection) == 202
    connection.recv(1 << 16)
    connection.sendall(HONEST)
    assert status(connection) == 202
    assert lab.woken == [ThreadId(7, 5)] * 2


def test_a_body_in_chunks_is_counted_and_kept_where_it_is_short(lab: Lab) -> None:
    assert lab.ask(SIGNED + CHUNKED + b"\r\n" + chunks(BODY) + b"0\r\n\r\n") == 202


@pytest.mark.parametrize("length", [b"10", str(len(BODY)).encode(), b"0"])
def test_a_length_and_chunks_together_are_refused_unread(lab: Lab, length: bytes) -> None:
    head = SIGNED + b"Content-Length: " + length + b"\r\n" + CHUNKED + b"\r\n"
    connection = lab.connect(sends=head + chunks(BODY) + b"0\r\n\r\n")
    assert status(connection) == 400
    assert ends_within(connection, 2), "what follows on it might be a request or the body"
    assert lab.woken == []


def test_a_body_without_any_length_is_refused(lab: Lab) -> None:
    assert lab.ask(SIGNED + b"\r\n") == 411
    assert lab.ask(SIGNED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + BODY) == 411


@pytest.mark.parametrize("length", [b"", b"Content-Length: 10\r\n"])
def test_chunks_are_counted_while_they_are_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, length: bytes
) -> None:
    monkeypatch.setattr(webhook, "MAX_BYTES", 300_000)
    monkeypatch.setattr(webhook, "LARGE", 100_000)
    connection = lab.connect(sends=POST + length + CHUNKED + b"\r\n")
    with contextlib.suppress(OSError):
        for _ in range(200):
            if select.select([connection], [], [], 0)[0]:
                break
            connection.sendall(chunks(b"x" * 10_000))
            time.sleep(0.002)
    assert status(connection) == (400 if length else 413)


@pytest.mark.parametrize("client", [ANOTHER, ONE])  # behind a proxy all have one address
@pytest.mark.parametrize("sent", [0.06, 0.96])  # little, or almost all, of a body that never ends
@pytest.mark.parametrize("head", [CHUNKED, b"Content-Length: 25000000\r\n"])
def test_a_large_delivery_waits_for_no_two_clients_that_send_theirs_slowly(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, client: str, sent: float, head: bytes
) -> None:
    monkeypatch.setattr(webhook, "MAY_TAKE", 60.0)
    monkeypatch.setattr(connections, "BODY_MAY_TAKE", 60.0)
    body = json.dumps({**json.loads(BODY), "more": "x" * 20_000_000}).encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    signed = SIGNED.replace(SIGNATURE.encode(), signature.encode())
    slow = []
    for _ in range(2):
        part = b"x" * int(25_000_000 * sent)
        connection = lab.connect(sends=POST + head + b"\r\n")
        connection.sendall(chunks(part) if head == CHUNKED else part)
        slow.append(connection)
    until = time.monotonic() + 60
    while len(lab.server.server_state.connections) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    ended, threads = threading.Event(), list[threading.Thread]()

    def trickle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.2):
                connection.sendall(chunks(b"x") if head == CHUNKED else b"x")

    for connection in slow:
        threads.append(threading.Thread(target=trickle, args=(connection,)))
        threads[-1].start()
    try:
        honest = signed + b"Content-Length: %d\r\n\r\n" % len(body) + body
        assert lab.ask(honest, client) == 202
    finally:
        ended.set()
        for thread in threads:
            thread.join()


# ── How long it may take ─────────────────────────────────────────────────────────────────────


def drip(connection: socket.socket, byte: bytes, seconds: float) -> None:
    """Send a byte now and then, until the other side closes or says something."""
    until = time.monotonic() + seconds
    with contextlib.suppress(OSError):
        while time.monotonic() < until and not select.select([connection], [], [], 0.03)[0]:
            connection.sendall(byte)


@pytest.mark.parametrize("begun", [b"G", POST, POST + b"X-A: "])
def test_headers_that_do_not_come_in_time_are_answered_and_the_connection_ends(
    lab: Lab, begun: bytes
) -> None:
    connection = lab.connect(sends=begun)
    began = time.monotonic()
    drip(connection, b"a", 5)
    assert status(connection) == 408
    assert ends_within(connection, 2)
    assert LIMIT / 2 < time.monotonic() - began < 4 * LIMIT


def test_a_connection_that_says_nothing_ends_without_a_word(lab: Lab) -> None:
    connection = lab.connect()
    assert status(connection) == 0


def test_headers_that_do_not_come_after_an_answer_end_the_connection_too(lab: Lab) -> None:
    connection = lab.connect(sends=HONEST)
    assert status(connection) == 202
    time.sleep(0.05)
    connection.recv(1 << 16)
    drip(connection, b"P", 5)
    assert status(connection) == 408


@pytest.mark.parametrize("length", [b"Content-Length: 5000\r\n", CHUNKED])
def test_a_body_that_does_not_come_in_time_is_answered_and_the_connection_ends(
    lab: Lab, length: bytes
) -> None:
    connection = lab.connect(sends=POST + length + b"\r\n")
    drip(connection, b"x" if length != CHUNKED else b"1\r\nx\r\n", 5)
    assert status(connection) == 408
    assert ends_within(connection, 2)


def test_a_body_that_nobody_asked_for_keeps_no_connection(lab: Lab) -> None:
    connection = lab.connect(
        sends=b"GET /small HTTP/1.1\r\nHost: l\r\nContent-Length: 9999\r\n\r\n"
    )
    assert status(connection) == 200
    ended = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                connection.sendall(b"x")

    thread = threading.Thread(target=send)
    thread.start()
    try:
        assert ends_within(connection, 8 * LIMIT)
    finally:
        ended.set()
        thread.join()


def test_a_client_that_reads_no_answer_is_disconnected(lab: Lab) -> None:
    lab.connect(sends=b"GET / HTTP/1.1\r\nHost: l\r\n\r\n", room=4096)
    time.sleep(0.1)
    assert len(lab.server.server_state.connections) == 1
    until = time.monotonic() + 8 * LIMIT
    while lab.server.server_state.connections and time.monotonic() < until:
        time.sleep(0.02)
    assert not lab.server.server_state.connections


def test_a_slow_client_gets_its_whole_answer(lab: Lab) -> None:
    connection = lab.connect(sends=b"GET / HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n")
    size = 0
    while piece := connection.recv(400_000):
        size += len(piece)
        time.sleep(0.01)
    assert size > 8_000_000


# ── Who keeps whom out ───────────────────────────────────────────────────────────────────────

IN_THE_WAY = {
    "say nothing": b"",
    "send half their headers": POST + b"X-A: a",
    "send half a body": POST + b"Content-Length: 5000\r\n\r\nhalf",
    "send no chunk": POST + CHUNKED + b"\r\n",
    "take no answer": b"GET / HTTP/1.1\r\nHost: l\r\n\r\n",
}


@pytest.mark.parametrize("client", [ANOTHER, ONE])  # behind a proxy all have one address
@pytest.mark.parametrize("how", IN_THE_WAY)
def test_connections_that_wait_for_one_client_keep_nobody_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, how: str, client: str
) -> None:
    for limit in ("HEADERS_MAY_TAKE", "BODY_MAY_TAKE", "ANSWER_MAY_TAKE"):
        monkeypatch.setattr(connections, limit, 60.0)
    monkeypatch.setattr(webhook, "MAY_TAKE", 60.0)
    for _ in range(4 * connections.MOST_WAITING):
        with contextlib.suppress(OSError):
            lab.connect(ONE, sends=IN_THE_WAY[how], room=4096)
    began = time.monotonic()
    assert lab.ask(HONEST, client) == 202
    assert time.monotonic() - began < 20
    assert len(lab.server.server_state.connections) <= connections.MOST_WAITING + 2


def test_the_client_with_most_waiting_connections_loses_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADERS_MAY_TAKE", 60.0)
    patient = lab.connect(ANOTHER, sends=HONEST[:50])
    time.sleep(0.1)
    for _ in range(3 * connections.MOST_WAITING):
        lab.connect(ONE, sends=POST)
    patient.sendall(HONEST[50:])
    assert status(patient) == 202


def test_the_bot_is_served_behind_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, object] = {}
    monkeypatch.setattr(service_server, "create_app", lambda _: None)
    monkeypatch.setattr(service_server.logs, "set_up", lambda *_, **__: None)
    monkeypatch.setattr(uvicorn, "Config", lambda _, **options: told.update(options))
    monkeypatch.setattr(uvicorn.Server, "__init__", lambda *_: None)
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: bound.extend(sockets))
    bound: list[socket.socket] = []
    said = Settings(repository="o/n", ray_address="http://127.0.0.1:9")
    service_server.serve(said, "127.0.0.1", 0)
    assert len(bound) == 1
    assert {name: told[name] for name in connections.TOLD} == connections.TOLD
